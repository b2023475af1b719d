"""Dialog with the whole request of a group."""

from collections.abc import Sequence
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from console.screens.group.request import Entry, entry_lines, folded_first, matches
from console.widgets.item_list import ItemList, ListItem

_HINT = "↑↓ entry  z fold  Z fold all  Space page  / search  Esc close"


class ConversationScreen(ModalScreen[None]):
    """System prompt, tools, earlier turns, tool calls and results of one request."""

    AUTO_FOCUS: ClassVar[str | None] = "ItemList"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,i,q", "leave", "Close", id="conversation.leave"),
        Binding("tab", "step(1)", "Next entry", show=False),
        Binding("shift+tab", "step(-1)", "Previous entry", show=False),
        Binding("pagedown,space", "page(1)", "Page down", show=False, priority=True),
        Binding("pageup,b", "page(-1)", "Page up", show=False, priority=True),
        Binding("z", "fold", "Fold", id="conversation.fold", tooltip="This entry"),
        Binding("Z", "fold_all", "Fold all", id="conversation.fold_all", tooltip="All entries"),
        Binding("slash", "search", "Search", key_display="/", id="conversation.search"),
        Binding("n", "match(1)", "Next match", id="conversation.next"),
        Binding("N", "match(-1)", "Previous match", id="conversation.previous"),
    ]

    def __init__(self, title: str, entries: Sequence[Entry]) -> None:
        """Show the entries of one request.

        Args:
            title: Title of the dialog.
            entries: Entries of the request; not empty.
        """
        super().__init__()
        self._title = title
        self._entries = list(entries)
        self._folded = folded_first(entries)
        self._query = ""
        self._match = -1
        """Index of the match on screen; -1 before the first."""

    def compose(self) -> ComposeResult:
        """Title, entries, search line, keys."""
        with Vertical(classes="dialog -wide", id="conversation"):
            yield Static(self._title, markup=False, classes="dialog-title")
            yield ItemList(id="conversation-rows")
            yield Input(placeholder="search", compact=True, id="conversation-search")
            yield Static(_HINT, markup=False, classes="dialog-hint", id="conversation-hint")

    def on_mount(self) -> None:
        """Start at the last user message, which the answers reply to."""
        asked = [place for place, entry in enumerate(self._entries) if entry.kind == "user"]
        self.call_after_refresh(self._paint, max(asked, default=0))

    @property
    def _rows(self) -> ItemList:
        return self.query_one(ItemList)

    def _paint(self, place: int | None = None) -> None:
        """Show the entries; move to one of them."""
        folded, needle = frozenset(self._folded), self._query.lower()

        def items(width: int) -> list[ListItem]:
            return [
                ListItem(str(place), entry_lines(entry, place in folded, width, needle))
                for place, entry in enumerate(self._entries)
            ]

        self._rows.show_items((folded, needle), items)
        if place is not None:
            self._rows.move_to(str(place))
        hint = _HINT
        if needle:
            count = len(self._matches())
            position = f"match {self._match + 1} of {count}" if count else "no match"
            hint = f"“{self._query}”: {position}  n next  N previous  {_HINT}"
        self.query_one("#conversation-hint", Static).update(hint)

    def _matches(self) -> list[int]:
        rows, needle = self._rows, self._query.lower()
        return matches(self._entries, rows.spans, rows.lines, needle) if needle else []

    # --- keys --------------------------------------------------------------------------------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """In the search line the keys that scroll are text."""
        return action != "page" or not isinstance(self.focused, Input)

    def action_step(self, by: int) -> None:
        """Move to the next or previous entry."""
        self._rows.action_move(by)

    def action_page(self, by: int) -> None:
        """Scroll by a page; the cursor stays."""
        rows = max(1, self._rows.size.height - 1)
        self._rows.scroll_relative(y=by * rows, animate=False, immediate=True)

    @on(ItemList.Opened)
    def action_fold(self) -> None:
        """Fold the entry under the cursor, or unfold it."""
        self._folded ^= {self._rows.place}
        self._paint(self._rows.place)

    def action_fold_all(self) -> None:
        """Fold all entries; unfold all when one is folded."""
        self._folded = set() if self._folded else set(range(len(self._entries)))
        self._paint(self._rows.place)

    def action_search(self) -> None:
        """Open the search line."""
        line = self.query_one("#conversation-search", Input)
        line.add_class("-open")
        line.value = self._query
        line.focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Unfold entries that contain the text and show the first match."""
        event.stop()
        self._close_search()
        self._query, self._match = event.value.strip(), -1
        if needle := self._query.lower():
            found = (place for place, entry in enumerate(self._entries) if entry.has(needle))
            self._folded.difference_update(found)
        self._paint()
        self.action_match(1)

    def action_match(self, by: int) -> None:
        """Show the next or previous match, around the end."""
        if found := self._matches():
            self._match = (self._match + by) % len(found)
            row = found[self._match]
            self._paint(self._rows.place_at(row))
            self._rows.scroll_to(y=max(0, row - 1), animate=False, immediate=True)

    def _close_search(self) -> None:
        self.query_one("#conversation-search", Input).remove_class("-open")
        self._rows.focus()

    def action_leave(self) -> None:
        """Close the search line, else the dialog."""
        if self.query_one("#conversation-search", Input).has_class("-open"):
            self._close_search()
        else:
            self.dismiss()
