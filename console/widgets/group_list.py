"""The live list of groups: one line each, newest on top."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.strip import Strip

from console.models.group_rows import BY_TIME, RowModel, SortOrder
from console.session.filters import Filter
from console.text.lines import Line
from console.views.group import GroupRow, header_line, row_line
from console.widgets.pane import TextPane, centred
from core.state import Group

_UNREAD: Line = ((" …", "$muted"),)


class GroupList(TextPane, can_focus=True):
    """Shows thousands of groups; paints the few that are visible.

    The cursor and the visible rows stay in place while new groups arrive above; with `follow`
    the cursor stays on the newest group instead.
    """

    DEFAULT_CSS = """
    GroupList { height: 1fr; scrollbar-gutter: stable; }
    """
    ALLOW_SELECT = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "Up", show=False),
        Binding("down,j", "move(1)", "Down", show=False),
        Binding("pageup", "page(-1)", "Page up", show=False),
        Binding("pagedown", "page(1)", "Page down", show=False),
        Binding("home,g", "edge(-1)", "Newest", show=False),
        Binding("end,G", "edge(1)", "Oldest", show=False),
        Binding("enter", "open", "Open", id="requests.open", tooltip="Its candidates in full"),
    ]

    class Moved(Message):
        """Another group is under the cursor."""

        def __init__(self, group_id: str | None) -> None:
            super().__init__()
            self.group_id = group_id

        def can_replace(self, message: Message) -> bool:
            """Replace older messages: only the newest matters."""
            return isinstance(message, GroupList.Moved)

    class Opened(Message):
        """Enter or a second click on a group."""

        def __init__(self, group_id: str) -> None:
            super().__init__()
            self.group_id = group_id

    class Missing(Message):
        """Rows in sight have not been read from the journal yet."""

        def __init__(self, first: int) -> None:
            super().__init__()
            self.first = first

        def can_replace(self, message: Message) -> bool:
            """Replace older messages: only the rows in sight now matter."""
            return isinstance(message, GroupList.Missing)

    class Bottom(Message):
        """The cursor is on the last row."""

    def __init__(self, id: str | None = None) -> None:  # noqa: A002 - Textual's own name
        super().__init__(id=id)
        self.model = RowModel()
        self.follow = True
        self._groups: Mapping[str, Group] = {}
        self._total = 0
        self._cursor: str | None = None
        self._rank: int | None = None
        """Number of rows below the cursor, for a group that was not read yet."""
        self._now = 0.0
        self._empty: Sequence[str] = ()
        self._titles: TextPane | None = None
        self._server_tones: Mapping[str, str] = {}
        """Colour of each server by name; empty for a single server."""

    # --- what is shown -----------------------------------------------------------------------

    @property
    def cursor(self) -> str | None:
        """Id of the group under the cursor."""
        return self._cursor

    def take(
        self,
        groups: Mapping[str, Group],
        dirty: frozenset[str],
        now: float,
        tones: Mapping[str, str],
        total: int = 0,
    ) -> None:
        """Apply changes of the groups.

        Args:
            tones: Colour of each server by name; empty for a single server.
            total: Number of groups ever opened.
        """
        self._groups, self._now, self._total = groups, now, total
        if tones != self._server_tones:
            self._server_tones = dict(tones)
            self.titles().refresh()
        before = self.place
        scrolled = self.scroll_offset.y
        if self.model.update(groups, dirty, total, now):
            self.set_extent(Size(1, self.model.count))
            self._keep_place(before, scrolled)
        self.loaded()

    def loaded(self) -> None:
        """Show rows that were read from the journal."""
        place = self.place
        if self._cursor is None and place is not None:
            group = self.model.at(place)
            self._set_cursor(group.group_id if group is not None else None)
        self._report_missing()
        self.repaint()

    def _report_missing(self) -> None:
        top = self.scroll_offset.y
        first = self.model.missing(top, top + self.size.height)
        if first is not None:
            self.post_message(self.Missing(first))

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Report rows that came into sight."""
        if self.show_vertical_scrollbar:
            self.vertical_scrollbar.position = new_value
        if round(old_value) != round(
            new_value
        ):  # new rows above may leave the visible rows unchanged
            self.repaint()
        self._report_missing()

    def show_empty(self, lines: Sequence[str]) -> None:
        """Show text in place of an empty list."""
        if lines != self._empty:
            self._empty = lines
            self.repaint()

    def set_filter(self, row_filter: Filter) -> None:
        """Show the groups that match."""
        self.model.set_filter(row_filter)
        self._rebuild()

    def set_order(self, order: SortOrder, upward: bool) -> None:
        """Sort in another order, and go to the top."""
        self.model.set_order(order, upward)
        if not self.model.plain:
            self.follow = False
        self._rebuild()
        self._go(0)
        self.titles().refresh()

    def _rebuild(self) -> None:
        self._rank = None
        self.take(self._groups, frozenset({"*"}), self._now, self._server_tones, self._total)

    def set_follow(self, follow: bool) -> None:
        """Follow the newest group, or stay at the one under the cursor."""
        self.follow = follow
        if follow:
            self._go(0)

    @property
    def place(self) -> int | None:
        """The row of the cursor; None when its group is not listed."""
        row = self.model.place(self._cursor)
        if row is None and self._rank is not None and self.model.plain:
            row = self.model.count - 1 - self._rank
        return row

    def _keep_place(self, before: int | None, scrolled: int) -> None:
        count = self.model.count
        if not count:
            self._set_cursor(None)
            return
        index = self.place
        if self.follow or before is None:
            self._go(0 if self.follow else min(before or 0, count - 1))
        elif index is None:
            self._go(min(before, count - 1))
        elif index != before:
            self.scroll_to(y=scrolled + index - before, animate=False, immediate=True)

    def _set_cursor(self, group_id: str | None) -> None:
        if group_id != self._cursor:
            self._cursor = group_id
            self.post_message(self.Moved(group_id))

    def _go(self, place: int) -> None:
        count = self.model.count
        if not count:
            return
        place = max(0, min(place, count - 1))
        self._rank = count - 1 - place
        group = self.model.at(place)
        self._set_cursor(group.group_id if group is not None else None)
        top, rows = self.scroll_offset.y, max(1, self.size.height)
        if place < top or place >= top + rows:
            target = place if place < top else place - rows + 1
            self.scroll_to(y=target, animate=False, immediate=True)
        self._report_missing()
        self.repaint()

    # --- painting ----------------------------------------------------------------------------

    def title_line(self) -> Line:
        """Return the titles of the columns that fit now."""
        order, upward = self.model.order, self.model.upward
        by = "" if order is BY_TIME and not upward else order.column
        width = self.scrollable_content_region.width
        return header_line(width, bool(self._server_tones), by, "▴" if upward else "▾")

    def on_resize(self) -> None:
        """Fit the columns; keep the cursor in sight."""
        self.titles().refresh()
        place = self.place
        if place is not None:
            self._go(place)
        self.refresh()

    def titles(self) -> TextPane:
        """Return the widget with the column titles."""
        if self._titles is None:
            self._titles = _Titles(self)
        return self._titles

    def row(self, y: int) -> tuple[Line, str]:
        """Return the line at row `y` of the visible part, and its background style."""
        count = self.model.count
        if not count and 1 <= y <= len(self._empty):
            tone = "bold" if y == 1 else "$muted"
            width = self.scrollable_content_region.width
            return centred(self._empty[y - 1], width, tone), ""
        place = y + self.scroll_offset.y
        if place >= count:
            return (), ""
        group = self.model.at(place)
        if group is None:
            here = self._cursor is None and self.place == place
            return _UNREAD, "on $band" if here else ""
        here = group.group_id == self._cursor
        extra = ("on $band bold" if self.has_focus else "on $band") if here else ""
        width = self.scrollable_content_region.width
        row = GroupRow(group, self._now, self._server_tones.get(group.server, "$muted"))
        return row_line(row, width, bool(self._server_tones)), extra

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer Enter only when there is a row."""
        return action != "open" or self._cursor is not None

    # --- moving ------------------------------------------------------------------------------

    def action_move(self, by: int) -> None:
        """Move up or down."""
        place = self.place
        self.follow = False
        self._go(0 if place is None else place + by)
        if by > 0 and self.place == self.model.count - 1:
            self.post_message(self.Bottom())

    def action_page(self, by: int) -> None:
        """Move a page up or down."""
        self.action_move(by * max(1, self.size.height - 1))

    def action_edge(self, direction: int) -> None:
        """Move to the newest or the oldest."""
        self.follow = False
        self._go(0 if direction < 0 else self.model.count - 1)
        if direction > 0:
            self.post_message(self.Bottom())

    def action_open(self) -> None:
        """Open the group under the cursor."""
        if self._cursor is not None:
            self.post_message(self.Opened(self._cursor))

    def on_click(self, event: events.Click) -> None:
        """Move the cursor to the click, or open the group under it."""
        place = event.y + self.scroll_offset.y
        group = self.model.at(place)
        if group is None:
            return
        second_click = group.group_id == self._cursor
        self.follow = False
        self._go(place)
        if second_click:
            self.action_open()


class _Titles(TextPane):
    """The titles of a list's columns."""

    DEFAULT_CSS = "_Titles { height: 1; overflow: hidden; }"

    def __init__(self, owner: GroupList) -> None:
        super().__init__()
        self._owner = owner

    def render_line(self, y: int) -> Strip:
        return self.paint(self._owner.title_line(), self.size.width)
