"""The list of groups, which reads older ones from the journal, and the line of its filter."""

import contextlib
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.geometry import Size
from textual.message import Message
from textual.widgets import Input
from textual.worker import Worker

from ajet_swarm.common.errors import AjetError
from console.models.app_host import host
from console.screens.requests.model import Completion, RowModel, SortOrder, complete
from console.screens.requests.text import PROMPT, GroupRow, error_lines, hint_line, row_line
from console.session.app_state import EVERYTHING
from console.session.filters import Filter, FilterError, parse
from console.session.group_facts import verdict_in
from console.session.history import PAGE, Search
from console.text.format import server_colors
from console.text.lines import Line
from console.ui.keys import keys
from console.widgets.item_list import ItemList
from console.widgets.pane import TextPane, centred, cursor_tone
from core.state import Group

_UNREAD: Line = ((" …", "$muted"),)


class JournalReader:
    """Reads the rows of a list that are only in the journal: the visible page, a search."""

    def __init__(self, groups: "GroupList") -> None:
        self._list = groups
        self._error = ""
        """Error of the last failed read; empty after a success."""
        self._running: Search | None = None

    def _start(
        self, group: str, read: Callable[..., Coroutine[None, None, None]], *args: Any
    ) -> Worker[None]:
        """Read in the background; a newer call for the same group cancels this one."""
        reading = partial(read, *args)
        return self._list.run_worker(reading, group=group, exclusive=True, exit_on_error=False)

    def read_visible(self) -> None:
        """Read the page of the visible rows, if one is missing."""
        top, model = self._list.scroll_offset.y, self._list.model
        first = model.missing(top, top + self._list.size.height)
        if first is not None:
            self._start("history", self._read, first, PAGE, model.history.put)

    def read_start(self) -> None:
        """Read once where the journal starts, before the cursor gets there."""
        model = self._list.model
        if model.evicted and not model.history.start_known:
            model.history.start_known = True
            self._start("history-start", self._read_start)

    async def _read_start(self) -> None:
        """Read an empty page; the first real page reports a failure."""
        with contextlib.suppress(AjetError):
            await host(self._list).session.read_history(0, 0)
            if self._list.is_mounted and self._list.model.history.start:
                self._list.show_read()

    async def _read(
        self, first: int, limit: int, store: Callable[[int, list[Group]], None]
    ) -> None:
        app = host(self._list)
        try:
            store(*await app.session.read_history(first, limit))
        except AjetError as error:
            if self._error != str(error):
                self._error = str(error)
                app.say(f"The journal cannot be read: {error}", "error")
            return
        self._error = ""
        if self._list.is_mounted:
            self._list.show_read()

    def search_further(self) -> None:
        """Continue a search that paused after enough matches."""
        search = self._list.model.search
        if search is not None and search.paused and not search.finished:
            search.resume()
            self.search()

    def search(self) -> None:
        """Start the search of the list's filter unless it is already running."""
        search = self._list.model.search
        if search is not None and not search.paused and search is not self._running:
            self._running = search
            self._start("search", self._search, search)

    async def _search(self, search: Search) -> None:
        """Read the journal until enough matches are found, a read fails or the filter changes."""
        model = self._list.model

        def store(first: int, groups: list[Group]) -> None:
            search.add_page(first, groups, model.history)

        try:
            while self._list.is_mounted and not search.paused and model.search is search:
                await self._read(*search.next_page(), store)
                if self._error:
                    return
        finally:
            if self._running is search:
                self._running = None


class GroupList(ItemList):
    """Shows thousands of groups; paints the few that are visible.

    The cursor and the visible rows stay in place while new groups arrive above; with `follow`
    the cursor stays on the newest group instead.
    """

    DEFAULT_CSS = """
    GroupList { height: 1fr; scrollbar-gutter: stable; }
    """
    BINDINGS: ClassVar[list[BindingType]] = keys(
        ("home,g", "edge(0)", "Newest"),
        ("end,G", "edge(-1)", "Oldest"),
        ("enter", "open", "Open", "requests.open", "Its candidates in full"),
    )

    def __init__(self) -> None:
        super().__init__()
        self.model = RowModel()
        self.follow = True
        self.tones: Mapping[str, str] = {}
        """Colour of each server by name; empty for a single server."""
        self._rank: int | None = None
        """Number of rows below the cursor, for a group that was not read yet."""
        self._now = 0.0
        self._empty: Sequence[str] = ()
        self._journal = JournalReader(self)

    # --- what is shown -----------------------------------------------------------------------

    @property
    def count(self) -> int:
        return self.model.count

    @property
    def place(self) -> int:
        return self._listed() or 0

    def _listed(self) -> int | None:
        """Return the row of the cursor; None when its group is not listed."""
        row = self.model.place(self._cursor)
        if row is None and self._rank is not None and self.model.plain:
            row = self.count - 1 - self._rank
        return row

    def take(self, dirty: frozenset[str]) -> None:
        """Apply changes of the groups."""
        session = host(self).session
        state, self._now = session.state, session.now()
        self.tones = server_colors(state)
        before, scrolled = self._listed(), self.scroll_offset.y
        self.model.history = session.history
        if self.model.update(state.groups, dirty, state.totals.groups, self._now):
            self.set_extent(Size(1, self.count))
            self._keep_place(before, scrolled)
        place = self._listed()
        if not self._cursor and place is not None:
            self._set_cursor(self.model.at(place))
        self._journal.read_visible()
        self._journal.search()
        self._journal.read_start()
        self.repaint()

    def _keep_place(self, before: int | None, scrolled: int) -> None:
        index = self._listed()
        if not self.count:
            self._set_cursor(None)
        elif self.follow or before is None:
            self._go(0 if self.follow else min(before or 0, self.count - 1))
        elif index is None:
            self._go(min(before, self.count - 1))
        elif index != before:
            self.scroll_to(y=scrolled + index - before, animate=False, immediate=True)

    def show_read(self) -> None:
        """Show what was read from the journal."""
        self.take(frozenset({"groups"}))
        self.post_message(self.Moved(self._cursor))

    def show_empty(self, lines: Sequence[str]) -> None:
        """Show text in place of an empty list."""
        if lines != self._empty:
            self._empty = lines
            self.repaint()

    def set_filter(self, row_filter: Filter) -> None:
        """Show the groups that match."""
        if row_filter.text != self.model.filter.text:
            self.model.set_filter(row_filter)
            self._rank = None
            self.take(EVERYTHING)

    def set_order(self, order: SortOrder, upward: bool) -> None:
        """Sort in another order, and go to the top."""
        self.model.order, self.model.upward = order, upward
        self.follow = self.follow and self.model.plain
        self._rank = None
        self.take(EVERYTHING)
        self._go(0)

    def set_follow(self, follow: bool) -> None:
        """Follow the newest group, or stay at the one under the cursor."""
        self.follow = follow
        if follow:
            self._go(0)

    def _set_cursor(self, group: Group | None) -> None:
        group_id = group.group_id if group is not None else ""
        if group_id != self._cursor:
            self._cursor = group_id
            self.post_message(self.Moved(group_id))

    def _go(self, place: int) -> None:
        if not self.count:
            return
        place = max(0, min(place, self.count - 1))
        self._rank = self.count - 1 - place
        self._set_cursor(self.model.at(place))
        top, rows = self.scroll_offset.y, max(1, self.size.height)
        if place < top or place >= top + rows:
            target = place if place < top else place - rows + 1
            self.scroll_to(y=target, animate=False, immediate=True)
        self._journal.read_visible()
        self.repaint()

    # --- painting ----------------------------------------------------------------------------

    def on_resize(self) -> None:
        """Fit the columns; keep the cursor in sight."""
        if (place := self._listed()) is not None:
            self._go(place)
        self.refresh()

    def row(self, y: int) -> tuple[Line, str]:
        width = self.scrollable_content_region.width
        if not self.count and 1 <= y <= len(self._empty):
            return centred(self._empty[y - 1], width, "bold" if y == 1 else "$muted"), ""
        place = y + self.scroll_offset.y
        if place >= self.count:
            return (), ""
        group = self.model.at(place)
        if group is None:
            here = not self._cursor and self._listed() == place
            return _UNREAD, cursor_tone(self) if here else ""
        here = group.group_id == self._cursor
        extra = cursor_tone(self) + " bold" * self.has_focus if here else ""
        outcome = verdict_in(host(self).session.state, group)
        row = GroupRow(group, self._now, self.tones.get(group.server, "$muted"), outcome)
        return row_line(row, width, bool(self.tones)), extra

    # --- moving ------------------------------------------------------------------------------

    def _point(self, place: int) -> None:
        """Move the cursor; at the last row, search further back."""
        self.follow = False
        self._go(place)
        if place >= self.count - 1:
            self._journal.search_further()

    def action_page(self, by: int) -> None:
        """Move a page up or down."""
        self.action_move(by * max(1, self.size.height - 1))

    def place_at(self, row: int) -> int | None:
        return row if self.model.at(row) is not None else None

    def first_rows(self) -> list[tuple[int, int]]:
        top = self.scroll_offset.y
        return [(row, top + row) for row in range(min(self.size.height, self.count - top))]

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Read rows that came into sight."""
        if self.show_vertical_scrollbar:
            self.vertical_scrollbar.position = new_value
        if round(old_value) != round(
            new_value
        ):  # new rows above may leave the visible rows unchanged
            self.repaint()
        self._journal.read_visible()


class FilterText(Input):
    """Text field of the filter; the help of the focus knows it by its name."""


class FilterLine(Vertical):
    """The line for the filter; hidden until it is opened. Tab completes the word at the cursor."""

    DEFAULT_CSS = """
    FilterLine { height: auto; display: none; }
    FilterLine #filter-error { max-height: 5; display: none; }
    FilterLine #filter-hint { height: 1; display: none; }
    FilterLine #filter-row { height: 1; background: $panel; }
    FilterLine #filter-prompt { width: 2; height: 1; }
    FilterLine Input { width: 1fr; background: $panel; }
    """
    BINDINGS: ClassVar[list[BindingType]] = keys(
        ("tab", "complete(1)", "Complete"), ("shift+tab", "complete(-1)", "Complete")
    )

    class Changed(Message):
        """The text was parsed."""

        def __init__(self, row_filter: Filter) -> None:
            super().__init__()
            self.filter = row_filter

    class Closed(Message):
        """Enter closed the line; the filter stays."""

    def __init__(self) -> None:
        super().__init__()
        self._known: Mapping[str, Iterable[str]] = {}
        """Known values, by field."""
        self._completion = Completion(0, 0)
        self._chosen: int | None = None
        self._typing = True

    def compose(self) -> ComposeResult:
        """Error, completions, the line."""
        yield TextPane(id="filter-hint")
        yield TextPane(id="filter-error")
        with Horizontal(id="filter-row"):
            yield TextPane(id="filter-prompt")
            yield FilterText(
                compact=True, placeholder="state:awaiting reward<0.2 text~paris   Tab completes"
            )

    def on_mount(self) -> None:
        """Show the prompt before the text."""
        self._pane("prompt").show_lines([((PROMPT, "bold $accent"),)])

    def _pane(self, name: str) -> TextPane:
        return self.query_one(f"#filter-{name}", TextPane)

    @property
    def line(self) -> Input:
        """The text field."""
        return self.query_one(Input)

    def open(self, known: Mapping[str, Iterable[str]]) -> None:
        """Show the line and focus it; `known` are existing values by field."""
        self._known = known
        self.display = True
        self.line.focus()
        self._update_completion()

    def put(self, text: str) -> None:
        """Filter by `text`, as if it had been typed and confirmed; an empty line is hidden."""
        self.line.value = text
        self._close()

    def _close(self) -> None:
        self._pane("error").display = self._pane("hint").display = False
        self.display = bool(self.line.value.strip())

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter while the operator types."""
        event.stop()
        if self._typing:
            self._chosen = None
        self._typing = True
        pane = self._pane("error")
        try:
            row_filter = parse(event.value)
        except FilterError as wrong:
            error = wrong
            pane.display = self.line.has_focus
            pane.show(str(error), lambda width: error_lines(error, width))
        else:
            pane.display = False
            self.post_message(self.Changed(row_filter))
        if self.line.has_focus:
            self._update_completion()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Close the line on Enter, unless the filter is invalid and therefore not applied."""
        event.stop()
        if not self._pane("error").display:
            self._close()
            self.post_message(self.Closed())

    def action_complete(self, by: int) -> None:
        """Replace the typed word by the next completion."""
        options = self._completion.options
        if not options:
            return
        first = 0 if by > 0 else len(options) - 1
        self._chosen = first if self._chosen is None else (self._chosen + by) % len(options)
        chosen, line = options[self._chosen], self.line
        start, end = self._completion.start, self._completion.end
        self._typing = False
        line.value = line.value[:start] + chosen + line.value[end:]
        line.cursor_position = start + len(chosen)
        if len(options) == 1:  # only one: continue with the next word
            self._chosen = None
        else:
            self._completion = Completion(start, start + len(chosen), options)
        self._show_hint()

    def _update_completion(self) -> None:
        if self._chosen is None:
            self._completion = complete(self.line.value, self.line.cursor_position, self._known)
        self._show_hint()

    def _show_hint(self) -> None:
        completion, chosen = self._completion, self._chosen
        pane = self._pane("hint")
        pane.display = bool(completion.options or completion.hint)
        pane.show((completion, chosen), lambda width: [hint_line(completion, chosen, width)])
