"""What the mock user needs of the proxy, and how it goes wrong."""

from collections.abc import AsyncIterator, Mapping
from typing import Any, Protocol

from ajet_swarm.common.errors import AjetError
from core.events import Event
from core.state import State


class ControlDown(AjetError):
    """The control API does not answer; it may again."""


class ControlRefused(AjetError):
    """The control API answered no; asking again is of no use."""

    def __init__(self, what: str, where: str = "", todo: str = "", status: int = 0) -> None:
        self.status = status
        super().__init__(what, where, todo)


class Control(Protocol):
    """The proxy's control API. All raise ControlDown and ControlRefused."""

    async def register_row(self, row: Mapping[str, Any]) -> str:
        """Announce a row; returns `run`, `pause` or `stop`."""

    async def release_row(self, row_id: str) -> None:
        """An announced row is over: no further request is taken for it."""

    async def directive(self, mock_id: str) -> str:
        """What to do now: `run`, `pause` or `stop`."""

    async def post_fact(self, fact_id: str, event: Event) -> None:
        """Journal a fact, once for each id."""

    async def snapshot(self) -> State:
        """The state now."""

    def events(self, after: int, run_id: str) -> AsyncIterator[object]:
        """Events above `after`; what is no event asks for a new snapshot."""
