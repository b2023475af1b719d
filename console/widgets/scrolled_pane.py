"""A text that is the whole screen, with keys that scroll it.

Its own module, as the check of the operator's keys takes the widgets of a module together.
"""

from typing import ClassVar

from textual.binding import BindingType

from console.ui.keys import keys
from console.widgets.pane import TextPane


class ScrolledPane(TextPane, can_focus=True):
    """A text that is the whole screen: its keys scroll it."""

    BINDINGS: ClassVar[list[BindingType]] = keys(
        ("up,k", "scroll_rows(-1)", "Up"),
        ("down,j", "scroll_rows(1)", "Down"),
        ("pageup", "scroll_rows(-10)", "Page up"),
        ("pagedown,space", "scroll_rows(10)", "Page down"),
        ("home,g", "scroll_rows(-1000000)", "Top"),
        ("end,G", "scroll_rows(1000000)", "Bottom"),
    )

    def action_scroll_rows(self, rows: int) -> None:
        """Scroll."""
        self.scroll_relative(y=rows, animate=False, immediate=True)
