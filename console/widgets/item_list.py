"""A list with a cursor whose items take one or several lines each."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from textual import events
from textual.binding import Binding, BindingsMap, BindingType
from textual.message import Message

from console.text.lines import Line
from console.ui.keys import keys
from console.ui.table import Table
from console.widgets.pane import TextPane, cursor_tone

Row = TypeVar("Row")
_BELOW: list[BindingType] = [
    Binding(
        "pagedown,space",
        "scroll_below(12)",
        "Scroll below",
        key_display="PgDn",
        tooltip="The text about the item under the cursor",
    ),
    *keys(
        ("pageup", "scroll_below(-12)", "Page up"),
        ("J,shift+down", "scroll_below(1)", "Scroll"),
        ("K,shift+up", "scroll_below(-1)", "Scroll back"),
    ),
]


@dataclass(frozen=True, slots=True)
class ListItem:
    """An item of the list."""

    key: str
    lines: tuple[Line, ...]


class ItemList(TextPane, can_focus=True):
    """Shows items; the cursor stays on its item while others are added above it.

    Args:
        id: See `Widget`.
        newest_first: Whether the cursor, while it is on the first item, stays on the first one.
        quiet: Whether the cursor is shown only while the list has the focus.
        opens: What Enter opens: a word for the footer, and a text for the help.
        below: Selector of the text about the item under the cursor, which the page keys scroll.
        letters: Whether letters move the cursor too; else they are keys of the screen.
    """

    DEFAULT_CSS = """
    ItemList { height: auto; }
    """
    ALLOW_SELECT = False
    BINDINGS: ClassVar[list[BindingType]] = keys(
        ("up,k", "move(-1)", "Up"),
        ("down,j", "move(1)", "Down"),
        ("pageup", "page(-1)", "Page up"),
        ("pagedown,space", "page(1)", "Page down"),
        ("home,g", "edge(0)", "First"),
        ("end,G", "edge(-1)", "Last"),
        ("enter", "open", "Open", "list.open", "Open it in full"),
    )

    class Moved(Message):
        """Another item is under the cursor."""

        def __init__(self, key: str) -> None:
            super().__init__()
            self.key = key

        def can_replace(self, message: Message) -> bool:
            """Replace older messages: only the newest matters."""
            return isinstance(message, ItemList.Moved)

    class Opened(Message):
        """Enter or a second click on an item."""

        def __init__(self, key: str) -> None:
            super().__init__()
            self.key = key

    def __init__(
        self,
        id: str | None = None,  # noqa: A002 - Textual's own name
        *,
        newest_first: bool = False,
        quiet: bool = False,
        opens: tuple[str, str] | None = None,
        below: str = "",
        letters: bool = True,
    ) -> None:
        super().__init__(id=id)
        if opens is not None:
            self._bind(keys(("enter", "open", opens[0], "list.open", opens[1])))
        if below:
            self._bind(_BELOW)
        self._below = below
        for letter in "" if letters else "kjgG":
            del self._bindings.key_to_bindings[letter]
        self._newest_first = newest_first
        self._quiet = quiet
        self._keys: list[str] = []
        self._spans: list[range] = []
        self._cursor = ""

    def _bind(self, own: list[BindingType]) -> None:
        """Replace keys of all lists by keys of this one."""
        self._bindings.key_to_bindings.update(BindingsMap(own).key_to_bindings)

    @property
    def cursor(self) -> str:
        """Key of the item under the cursor; empty in an empty list."""
        return self._cursor or next(iter(self._keys), "")

    @property
    def keys(self) -> Sequence[str]:
        """Keys of all items, in order."""
        return self._keys

    @property
    def spans(self) -> Sequence[range]:
        """The rows of each item."""
        return self._spans

    @property
    def count(self) -> int:
        """Number of items."""
        return len(self._keys)

    @property
    def place(self) -> int:
        """Index of the item under the cursor."""
        return self._keys.index(self._cursor) if self._cursor in self._keys else 0

    def move_to(self, key: str) -> None:
        """Put the cursor on an item, if it is listed."""
        if key in self._keys:
            self._point(self._keys.index(key))

    def first_rows(self) -> list[tuple[int, int]]:
        """Return the first row and the index of each visible item."""
        head = self._head is not None
        rows = [
            (span.start - self.scroll_offset.y + head, at) for at, span in enumerate(self._spans)
        ]
        return [(row, at) for row, at in rows if self._keys[at] and row >= head]

    def show_items(self, source: Hashable, build: Callable[[int], Iterable[ListItem]]) -> None:
        """List the items that `build` returns for a width, unless `source` is unchanged."""
        index_before, top = self.place, self.scroll_offset.y
        line = self._spans[index_before].start if self._spans else 0
        self.show(source, lambda width: self._flat(build(width)))
        if self._newest_first and not index_before and not top:
            self._point(0)
        elif self._keys and self._cursor not in self._keys:
            self._point(min(index_before, len(self._keys) - 1))
        elif self._keys and (moved := self._spans[self.place].start - line) and top:
            self.scroll_to(y=top + moved, animate=False, immediate=True)

    def show_rows(
        self, rows: Sequence[Row], key: Callable[[Row], str], line: Callable[[Row, int], Line]
    ) -> None:
        """List a line for each row, with `key` as its key; repaint when a line has changed."""

        def items(width: int) -> list[ListItem]:
            return [ListItem(key(row), (line(row, width),)) for row in rows]

        self.show_items(tuple(items(max(1, self.size.width))), items)

    def show_table(
        self,
        table: Table[Row],
        rows: Sequence[Row],
        key: Callable[[Row], str],
        without: tuple[str, ...] = (),
    ) -> None:
        """List the rows of a table below its titles, without the columns of some titles."""
        self.show_head(without, lambda width: table.head(width, without))
        self.show_rows(rows, key, lambda row, width: table.row(row, width, without))

    def _flat(self, items: Iterable[ListItem]) -> list[Line]:
        self._keys, self._spans = [], []
        rows: list[Line] = []
        for item in items:
            self._keys.append(item.key)
            self._spans.append(range(len(rows), len(rows) + len(item.lines)))
            rows += item.lines
        return rows

    def _point(self, place: int) -> None:
        if not self._keys:
            self._cursor = ""
            return
        place = max(0, min(place, len(self._keys) - 1))
        moved = self._cursor != self._keys[place]
        self._cursor = self._keys[place]
        span, top = self._spans[place], self.scroll_offset.y
        rows = max(1, self.size.height - (self._head is not None))
        target = min(span.start, max(top, span.stop - rows))
        if target != top:
            self.scroll_to(y=target, animate=False, immediate=True)
        self.repaint()
        if moved:
            self.post_message(self.Moved(self._cursor))

    def row(self, y: int) -> tuple[Line, str]:
        """Return the line at row `y`, and its background style."""
        line, extra = super().row(y)
        head = self._head is not None
        at = y + self.scroll_offset.y - head
        if not line or not self.cursor or (head and y == 0) or (self._quiet and not self.has_focus):
            return line, extra
        span = self._spans[self.place]
        if at not in span:
            return line, extra
        bold = " bold" if self.has_focus and at == span.start else ""
        return line, cursor_tone(self) + bold

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer Enter only when there is an item."""
        return action != "open" or bool(self.cursor)

    def action_move(self, by: int) -> None:
        """Move up or down."""
        self._point(self.place + by)

    def action_page(self, by: int) -> None:
        """Move a page up or down."""
        lines = max(1, len(self._spans[self.place])) if self._spans else 1
        self.action_move(by * max(1, (self.size.height - 1) // lines))

    def action_edge(self, place: int) -> None:
        """Move to the first or the last."""
        self._point(place if place >= 0 else self.count - 1)

    def action_open(self) -> None:
        """Open the item under the cursor."""
        if self.cursor:
            self.post_message(self.Opened(self.cursor))

    def action_scroll_below(self, rows: int) -> None:
        """Scroll the text about the item."""
        text = self.screen.query_one(self._below, TextPane)
        text.scroll_relative(y=rows, animate=False, immediate=True)

    def on_click(self, event: events.Click) -> None:
        """Move the cursor to the click, or open the item under it."""
        at = event.get_content_offset(self)
        if at is None:  # on the border
            return
        place = self.place_at(at.y + self.scroll_offset.y - (self._head is not None))
        if place is None:
            return
        second_click = place == self.place
        self._point(place)
        if second_click:
            self.action_open()

    def place_at(self, row: int) -> int | None:
        """Return the index of the item that has a line; None below the last."""
        return next((place for place, span in enumerate(self._spans) if row in span), None)
