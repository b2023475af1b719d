"""Dialog with the whole request of a group."""

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from console.views.conversation import Entry, folded_first, lay_out
from console.widgets.pane import TextPane

_HINT = "↑↓ entry  z fold  Z fold all  Space page  / search  Esc close"


class ConversationScreen(ModalScreen[None]):
    """System prompt, tools, earlier turns, tool calls and results of one request."""

    AUTO_FOCUS: ClassVar[str | None] = ""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,i,q", "leave", "Close", id="conversation.leave"),
        Binding("down,j,tab", "step(1)", "Next entry", show=False),
        Binding("up,k,shift+tab", "step(-1)", "Previous entry", show=False),
        Binding("home,g", "edge(0)", "First entry", show=False),
        Binding("end,G", "edge(-1)", "Last entry", show=False),
        Binding("pagedown,space", "page(1)", "Page down", show=False),
        Binding("pageup,b", "page(-1)", "Page up", show=False),
        Binding("z,enter", "fold", "Fold", id="conversation.fold", tooltip="This entry"),
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
        self._cursor = max(
            (index for index, entry in enumerate(entries) if entry.kind == "user"), default=0
        )
        self._query = ""
        self._match = -1
        """Index of the match on screen; -1 before the first."""

    def compose(self) -> ComposeResult:
        """Title, entries, search line, keys."""
        with Vertical(classes="dialog -wide", id="conversation"):
            yield Static(self._title, markup=False, classes="dialog-title")
            yield TextPane(id="conversation-rows")
            yield Input(placeholder="search", compact=True, id="conversation-search")
            yield Static(_HINT, markup=False, classes="dialog-hint", id="conversation-hint")

    def on_mount(self) -> None:
        """Start at the last user message, which the answers reply to."""
        self.call_after_refresh(self._go, self._cursor)

    def on_resize(self) -> None:
        """Wrap for another width."""
        self.call_after_refresh(self._paint)

    @property
    def _rows(self) -> TextPane:
        return self.query_one("#conversation-rows", TextPane)

    def _paint(self) -> None:
        rows = self._rows
        entries, folded, at, needle = self._entries, set(self._folded), self._cursor, self._query
        rows.show(
            (frozenset(folded), at, needle),
            lambda width: lay_out(entries, folded, width, at, needle).lines,
        )
        hint = _HINT
        if needle:
            count = len(self._matches())
            position = f"match {self._match + 1} of {count}" if count else "no match"
            hint = f"“{needle}”: {position}  n next  N previous  {_HINT}"
        self.query_one("#conversation-hint", Static).update(hint)

    def _page(self) -> tuple[list[int], list[int]]:
        width = self._rows.scrollable_content_region.width
        page = lay_out(self._entries, self._folded, width, self._cursor, self._query)
        return page.heads, page.matches

    def _matches(self) -> list[int]:
        return self._page()[1]

    def _go(self, index: int) -> None:
        """Move the cursor to an entry and scroll to its head."""
        self._cursor = max(0, min(index, len(self._entries) - 1))
        self._paint()
        self._reveal(self._page()[0][self._cursor])

    def _reveal(self, row: int) -> None:
        self._rows.scroll_to(y=max(0, row - 1), animate=False, immediate=True)

    # --- keys --------------------------------------------------------------------------------

    def action_step(self, by: int) -> None:
        """Move to the next or previous entry."""
        self._go(self._cursor + by)

    def action_edge(self, index: int) -> None:
        """Move to the first or the last entry."""
        self._go(index % len(self._entries))

    def action_page(self, by: int) -> None:
        """Scroll by a page; the cursor stays."""
        height = max(1, self._rows.size.height - 1)
        self._rows.scroll_relative(y=by * height, animate=False, immediate=True)

    def action_fold(self) -> None:
        """Fold the entry under the cursor, or unfold it."""
        self._folded ^= {self._cursor}
        self._go(self._cursor)

    def action_fold_all(self) -> None:
        """Fold all entries; unfold all when one is folded."""
        everything = set(range(len(self._entries)))
        self._folded = set() if self._folded else everything
        self._go(self._cursor)

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
        self._query = event.value.strip()
        needle = self._query.lower()
        if needle:
            self._folded -= {
                index
                for index, entry in enumerate(self._entries)
                if needle in f"{entry.title}\n{entry.text}".lower()
            }
        self._match = -1
        self.action_match(1)

    def action_match(self, by: int) -> None:
        """Show the next or previous match, around the end."""
        if rows := self._matches() if self._query else []:
            self._match = (self._match + by) % len(rows)
            heads = self._page()[0]
            self._cursor = max(i for i, head in enumerate(heads) if head <= rows[self._match])
        self._paint()
        if rows:
            self._reveal(rows[self._match])

    def _close_search(self) -> None:
        line = self.query_one("#conversation-search", Input)
        line.remove_class("-open")
        self.set_focus(None)

    def action_leave(self) -> None:
        """Close the search line, else the dialog."""
        if self.query_one("#conversation-search", Input).has_class("-open"):
            self._close_search()
        else:
            self.dismiss()
