"""The rows that the mock user sent: a list with a cursor; Enter opens the group of a row."""

from collections.abc import Callable
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message

from console.text.lines import EMPTY, Line
from console.views.mock import result_line
from console.widgets.pane import TextPane, centred
from core.state import Group, Mock, MockRow

Finder = Callable[[MockRow], Group | None]


class ResultList(TextPane, can_focus=True):
    """Shows the newest row on top; the cursor stays on its row while new ones arrive."""

    DEFAULT_CSS = "ResultList { height: 1fr; scrollbar-gutter: stable; }"
    ALLOW_SELECT = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "move(-1)", "Up", show=False),
        Binding("down", "move(1)", "Down", show=False),
        Binding("pageup", "page(-1)", "Page up", show=False),
        Binding("pagedown,space", "page(1)", "Page down", show=False),
        Binding("home", "edge(0)", "Newest", show=False),
        Binding("end", "edge(-1)", "Oldest", show=False),
        Binding("enter", "open", "Group", id="mock.open", tooltip="The group of this row"),
    ]

    class Opened(Message):
        """Enter or a second click on a row."""

        def __init__(self, row: MockRow) -> None:
            super().__init__()
            self.row = row

    def __init__(self, id: str | None = None) -> None:  # noqa: A002 - Textual's own name
        super().__init__(id=id)
        self._rows: list[MockRow] = []
        """Newest first."""
        self._run = ""
        self._cursor: tuple[str, float] | None = None
        self._group: Finder = lambda row: None

    @property
    def at(self) -> int:
        """Index of the row under the cursor; 0 until the cursor is moved."""
        if self._cursor is not None:
            for place, row in enumerate(self._rows):
                if (row.row_id, row.at) == self._cursor:
                    return place
        return 0

    @property
    def row_here(self) -> MockRow | None:
        """The row under the cursor."""
        return self._rows[self.at] if self._rows else None

    def take(self, mock: Mock | None, group: Finder) -> None:
        """Show the rows of a run; `group` returns the group of a row."""
        self._group = group
        run = mock.mock_id if mock is not None else ""
        if run != self._run:
            self._run, self._cursor = run, None
        before = self.at
        top = self.scroll_offset.y
        self._rows = list(reversed(mock.rows)) if mock is not None else []
        self.set_extent(Size(1, len(self._rows)))
        moved = self.at - before
        if moved and self._cursor is not None and top:
            self.scroll_to(y=top + moved, animate=False, immediate=True)
        self.repaint()

    def row(self, y: int) -> tuple[Line, str]:
        """Return the line at row `y` of the visible part, and its background style."""
        width = self.scrollable_content_region.width
        if not self._rows:
            text = "Rows that were sent appear here, newest first."
            return (centred(text, width, "$muted") if y == 1 else EMPTY), ""
        place = y + self.scroll_offset.y
        if place >= len(self._rows):
            return EMPTY, ""
        here = place == self.at
        extra = ("on $band bold" if self.has_focus else "on $band") if here else ""
        row = self._rows[place]
        return result_line(row, width, self._group(row)), extra

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Repaint for other rows."""
        if self.show_vertical_scrollbar:
            self.vertical_scrollbar.position = new_value
        if round(old_value) != round(new_value):
            self.repaint()

    def on_focus(self) -> None:
        """Highlight the cursor."""
        self.repaint()

    def on_blur(self) -> None:
        """Dim the cursor."""
        self.repaint()

    def on_resize(self) -> None:
        """Fit the rows to another width."""
        self.refresh()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer Enter only when there is a row."""
        return action != "open" or bool(self._rows)

    def _go(self, place: int) -> None:
        if not self._rows:
            return
        place = max(0, min(place, len(self._rows) - 1))
        row = self._rows[place]
        self._cursor = (row.row_id, row.at) if place else None
        top, height = self.scroll_offset.y, max(1, self.size.height)
        if not top <= place < top + height:
            target = place if place < top else place - height + 1
            self.scroll_to(y=target, animate=False, immediate=True)
        self.repaint()

    def action_move(self, by: int) -> None:
        """Move up or down."""
        self._go(self.at + by)

    def action_page(self, by: int) -> None:
        """Move a page up or down."""
        self._go(self.at + by * max(1, self.size.height - 1))

    def action_edge(self, place: int) -> None:
        """Move to the newest or the oldest row."""
        self._go(place if place >= 0 else len(self._rows) - 1)

    def action_open(self) -> None:
        """Open the group of the row under the cursor."""
        if (row := self.row_here) is not None:
            self.post_message(self.Opened(row))

    def on_click(self, event: events.Click) -> None:
        """Move the cursor to the click, or open the row under it."""
        place = event.y + self.scroll_offset.y
        if place < len(self._rows):
            again = place == self.at and self.has_focus
            self._go(place)
            if again:
                self.action_open()
