"""A screen that reads what servers report while it is in front."""

from collections.abc import Sequence
from typing import ClassVar

from textual import work

from ajet_swarm.common.errors import AjetError
from console.screens.base import ConsoleScreen
from core.control_payloads import ServerDetails


class ReadingScreen(ConsoleScreen):
    """Reads what servers report while it is in front.

    A subclass names the servers (`to_read`) and shows what was read (`paint_details`).
    """

    reading_seconds: ClassVar[float] = 1.0
    """Seconds between two readings."""

    def __init__(self) -> None:
        super().__init__()
        self.details: dict[str, ServerDetails] = {}
        """The newest reading by server."""
        self.trouble: dict[str, str] = {}
        """Why the newest attempt failed, by server."""

    def to_read(self) -> Sequence[str]:
        """Names of the servers to read now."""
        return ()

    def paint_details(self) -> None:
        """Show a new reading, or why there is none."""

    def on_mount(self) -> None:
        """Read at once, then again and again."""
        self.read()
        self.set_interval(self.reading_seconds, self.read)

    def read(self) -> None:
        """Read the servers while the screen is in front and the proxy answers."""
        if self.is_current and self.session.lost_at is None:
            self._fetch(self.to_read())

    @work(group="look", exclusive=True, exit_on_error=False)
    async def _fetch(self, names: Sequence[str]) -> None:
        for name in names:
            try:
                self.details[name] = await self.session.proxy.server_details(name)
                self.trouble.pop(name, None)
            except AjetError as error:
                self.trouble[name] = f"it cannot be read now: {error.what}"
        if self.is_mounted:
            self.host.guarded(self.paint_details)
