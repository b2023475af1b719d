"""Screen for a terminal that is too small."""

from textual import events
from textual.app import ComposeResult
from textual.screen import ModalScreen
from textual.widgets import Static

MIN_WIDTH = 60
MIN_HEIGHT = 15


class TooSmallScreen(ModalScreen[None]):
    """Shows the size of the terminal and the size it needs."""

    def compose(self) -> ComposeResult:
        """One line."""
        yield Static(self._text(), markup=False, id="too-small")

    def on_resize(self, event: events.Resize) -> None:
        """Show the new size."""
        for line in self.query(Static):
            line.update(self._text())

    def _text(self) -> str:
        size = self.app.size
        return f"terminal too small: {size.width}x{size.height}, needs {MIN_WIDTH}x{MIN_HEIGHT}"
