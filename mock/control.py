"""Protocol of the proxy's control API as far as the mock user needs it, and its errors."""

from collections.abc import AsyncIterator, Mapping
from typing import Any, Protocol

from ajet_swarm.common.errors import AjetError
from core.events import Event
from core.state import State


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
