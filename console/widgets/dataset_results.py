"""The rows that the mock user sent: a list with a cursor; Enter opens the group of a row."""

from collections.abc import Callable
from typing import ClassVar

from textual.binding import Binding, BindingType

from console.text.lines import EMPTY
from console.views.mock import result_line
from console.widgets.item_list import ItemList, ListItem
from console.widgets.pane import centred
from core.events import MockRowDone
from core.state import Group, Mock

Finder = Callable[[MockRowDone], Group | None]


class ResultList(ItemList, inherit_bindings=False):
    """Shows the newest row on top. Its keys are no letters: these are commands of the screen."""

    DEFAULT_CSS = "ResultList { height: 1fr; scrollbar-gutter: stable; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "move(-1)", "Up", show=False),
        Binding("down", "move(1)", "Down", show=False),
        Binding("pageup", "page(-1)", "Page up", show=False),
        Binding("pagedown,space", "page(1)", "Page down", show=False),
        Binding("home", "edge(0)", "Newest", show=False),
        Binding("end", "edge(-1)", "Oldest", show=False),
        Binding("enter", "open", "Group", id="mock.open", tooltip="The group of this row"),
    ]

    def __init__(self, id: str | None = None) -> None:  # noqa: A002 - Textual's own name
        super().__init__(id=id, newest_first=True)
        self._run = ""
        self._rows: dict[str, MockRowDone] = {}

    def row_of(self, key: str) -> MockRowDone | None:
        """Return the row of an item."""
        return self._rows.get(key)

    def take(self, mock: Mock | None, group: Finder) -> None:
        """Show the rows of a run; `group` returns the group of a row."""
        run = mock.mock_id if mock is not None else ""
        if run != self._run:
            self._run = run
            self.action_edge(0)
        rows = list(reversed(mock.rows)) if mock is not None else []
        self._rows = {f"{row.row_id} {row.at}": row for row in rows}

        def items(width: int) -> list[ListItem]:
            if not rows:
                text = "Rows that were sent appear here, newest first."
                return [ListItem("", (EMPTY, centred(text, width)))]
            return [
                ListItem(key, (result_line(row, width, group(row)),))
                for key, row in self._rows.items()
            ]

        self.show_items(tuple(items(max(1, self.size.width))), items)

    def action_page(self, by: int) -> None:
        """Move a page up or down."""
        self.action_move(by * max(1, self.size.height - 1))
