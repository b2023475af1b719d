"""Protocol of the proxy's control API as far as the mock user needs it, its errors and retries."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Protocol, TypeVar

from ajet_swarm.common.errors import AjetError
from core.events import Event
from core.state import State

T = TypeVar("T")
_FIRST_DELAY = 0.1
_LAST_DELAY = 5.0


class ControlDown(AjetError):
    """The control API does not respond at the moment."""


class ControlRefused(AjetError):
    """The control API refused a request; a retry would be refused too."""

    def __init__(self, what: str, where: str = "", todo: str = "", status: int = 0) -> None:
        self.status = status
        super().__init__(what, where, todo)


class Control(Protocol):
    """The proxy's control API. All methods raise ControlDown and ControlRefused."""

    async def register_row(self, row: Mapping[str, Any]) -> str:
        """Announce a row; return `run`, `pause`, `stop`, or `wait` for votes on open groups."""

    async def release_row(self, row_id: str) -> None:
        """Withdraw an announced row: no further request is matched to it."""

    async def directive(self, mock_id: str) -> str:
        """Return what the mock user must do now: `run`, `pause` or `stop`."""

    async def post_fact(self, fact_id: str, event: Event) -> None:
        """Journal an event, once per id."""

    async def snapshot(self) -> State:
        """Return the current state."""

    def events(self, after: int, run_id: str) -> AsyncIterator[object]:
        """Yield the events after `after`; any other item means that a new snapshot is needed."""


async def retried(
    call: Callable[[], Awaitable[T]], rest: Callable[[float], Awaitable[bool]], seconds: float
) -> T:
    """Return the result of a call that is repeated while the control API does not respond.

    Args:
        call: The call.
        rest: Waits for the given seconds between two attempts; returns True on a stop.
        seconds: How long to repeat it.

    Raises:
        ControlDown: the time is up, or a stop came.
        ControlRefused: see `Control`.
    """
    deadline, delay = time.monotonic() + seconds, _FIRST_DELAY
    while True:
        try:
            return await call()
        except ControlDown:
            if time.monotonic() + delay > deadline or await rest(delay):
                raise
            delay = min(delay * 2, _LAST_DELAY)
