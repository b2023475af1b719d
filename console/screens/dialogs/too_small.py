"""What a terminal sees that is too small for anything else."""

from textual import events
from textual.app import ComposeResult
from textual.screen import ModalScreen
from textual.widgets import Static

MIN_WIDTH = 60
MIN_HEIGHT = 15


class TooSmallScreen(ModalScreen[None]):
    """Says how large the terminal is and how large it must be."""

    def compose(self) -> ComposeResult:
        """One line."""
        yield Static(self._text(), markup=False, id="too-small")

    def on_resize(self, event: events.Resize) -> None:
        """Another size, still too small."""
        for line in self.query(Static):
            line.update(self._text())

    def _text(self) -> str:
        size = self.app.size
        return f"terminal too small: {size.width}x{size.height}, needs {MIN_WIDTH}x{MIN_HEIGHT}"
