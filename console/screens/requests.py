"""Every request, newest on top, with what its candidates earned."""

import datetime as dt
from collections.abc import Sequence
from time import monotonic
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.events import Resize
from textual.widgets import Input

from ajet_swarm.common.text import one_line
from console.models.group_rows import RowModel
from console.models.order import BY_TIME, ORDERS
from console.screens.group import GroupScreen
from console.screens.journal_list import JournalList
from console.session.filters import Filter
from console.text.format import clock
from console.text.lines import Line, line_width
from console.text.server_color import group_color, server_colors
from console.widgets.filter_line import FilterLine
from console.widgets.group_detail import GroupDetail
from console.widgets.group_list import GroupList
from console.widgets.pane import Pane
from core.state import Group

BESIDE = 140
"""Cells from which the detail stands beside the list."""
CALM = 1.0
"""Seconds between two footers while the list follows: the newest has other keys all the time."""


class RequestsScreen(JournalList):
    """The live list; Enter opens a group."""

    area: ClassVar[str] = "Requests"
    help_text: ClassVar[str] = (
        "Each line is one request and its group of candidates. Columns: answers there are, best "
        "reward, ? not scored or = equal rewards or ○ dead or × lost (aborted, failed or "
        "discarded by its engine: nothing is trained on; state:lost finds the last) or ✓ rated, "
        "the winner, what the user got, how long the user waited, ★ your mark. "
        "✂ before a request: the engine dropped the middle of its prompt "
        "(truncated:yes finds them).\n"
        "o sorts by time, reward, spread, waiting time, latency; O reverses it. Down past what "
        "memory keeps, the list continues from the journal.\n"
        "The filter takes words of the request and terms that must all hold: state:awaiting "
        'reward<0.2 text~paris dead:yes marked:yes step>=3 -rated:yes "two words".'
    )
    AUTO_FOCUS = "GroupList"
    spare_keys: ClassVar[tuple[str, ...]] = ("mark", "note", "copy", "curl", "rerun")
    _keys_at = 0.0
    """When the footer was looked at last, monotonic."""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "slash",
            "filter",
            "Find",
            key_display="/",
            id="requests.filter",
            tooltip="Filter line",
        ),
        Binding(
            "f", "follow", "Follow", show=False, id="requests.follow", tooltip="Stay on the newest"
        ),
        Binding(
            "o",
            "sort(1)",
            "Sort",
            id="requests.sort",
            tooltip="By time, reward, spread, waiting time, latency",
        ),
        Binding("O", "sort(-1)", "Reverse the order", show=False, id="requests.turn"),
        Binding("z", "fold", "Unfold", show=False, id="requests.fold"),
        Binding("escape", "clear", "Clear the filter", show=False, id="requests.clear"),
    ]

    def compose_body(self) -> ComposeResult:
        """Title, list, filter line; the detail beside them when there is room."""
        groups = GroupList()
        groups.model.history = self.session.history
        with Horizontal(id="requests"):
            with Vertical(id="requests-list"):
                yield Pane(id="requests-title")
                yield groups.titles()
                yield groups
                yield FilterLine()
            yield GroupDetail(selectable=False, id="requests-detail")

    @property
    def detail(self) -> GroupDetail | None:
        """The detail, when it is shown."""
        found = self.query_one(GroupDetail)
        return found if self.size.width >= BESIDE else None

    @property
    def target_group(self) -> str | None:
        """The group under the cursor."""
        return self.groups.cursor

    @property
    def group(self) -> Group | None:
        """The group under the cursor, from state or from the journal."""
        target = self.target_group
        return self.groups.model.known(target) if target is not None else None

    # --- painting ----------------------------------------------------------------------------

    def update_view(self, dirty: frozenset[str]) -> None:
        """Paint what changed."""
        if dirty.isdisjoint({"*", "groups", "clock", "servers", "link", "proxy"}):
            return
        state, now = self.session.state, self.session.now()
        self.groups.take(state.groups, dirty, now, server_colors(state), state.totals.groups)
        self._look_back()
        self._ask_start()
        self._show_title()
        target = self.target_group
        if not dirty.isdisjoint({"*", "clock", f"group:{target}"}):
            self._show_detail()
        self.refresh_keys()

    def _show_title(self) -> None:
        model, groups = self.groups.model, self.groups
        line = title_line(model, groups.follow, len(self.marked))
        self.query_one("#requests-title", Pane).show(line, lambda width: [whole(line, width)])
        groups.show_empty(() if model.count else self._nothing(model.total))

    def _nothing(self, total: int) -> list[str]:
        if total:
            search = self.groups.model.search
            if search is not None and not search.over:
                more = "End looks further back." if search.waits else "Looking further back …"
                return ["None of the newest matches the filter.", more]
            return ["No request matches the filter.", "Esc clears it."]
        url = self.session.state.proxy_url
        lines = ["No requests yet."]
        if not self.session.seen:
            return ["No connection to the proxy yet."]
        if url and not self.session.state.watch_only:
            lines.append(f"Point your application at {one_line(url, 100)}/v1")
            if not self.session.read_only:
                lines.append("or press F4 and then s: the mock user asks a dataset's questions.")
        else:
            lines.append("This console only watches: it serves no requests.")
        return lines

    def _show_detail(self) -> None:
        detail, group = self.detail, self.group
        self.query_one(GroupDetail).display = detail is not None and group is not None
        if detail is not None and group is not None:
            session = self.session
            color = group_color(session.state, group)
            detail.show(group, session.now(), color, read_only=session.read_only)

    def show_target(self) -> None:
        """The page of the group under the cursor was read."""
        self._show_detail()
        self.refresh_keys()

    def on_group_list_moved(self, event: GroupList.Moved) -> None:
        """Another group under the cursor."""
        self.refresh_keys()
        self._show_title()
        self._show_detail()

    def on_resize(self, event: Resize) -> None:
        """The detail comes and goes with the width."""
        self.set_class(self.size.width >= BESIDE, "-beside")
        self.call_after_refresh(self._show_detail)

    # --- keys --------------------------------------------------------------------------------

    def refresh_keys(self) -> None:
        """Another footer at once for what the operator has chosen, calmly for what comes by."""
        now = monotonic()
        if not self.groups.follow or now - self._keys_at >= CALM:
            self._keys_at = now
            super().refresh_keys()

    def action_open(self) -> None:
        """Open the group under the cursor."""
        groups, group = self.groups, self.group
        if group is not None:
            near = groups.model.around(groups.place or 0)
            self.host.push_screen(GroupScreen(group.group_id, near, groups.model.known))

    def on_group_list_opened(self, event: GroupList.Opened) -> None:
        """Enter or a second click in the list."""
        self.action_open()

    def action_follow(self) -> None:
        """Follow the newest, or stay where the cursor is."""
        self.groups.set_follow(not self.groups.follow)
        self._show_title()

    def action_fold(self) -> None:
        """Unfold the detail beside the list."""
        if self.detail is not None:
            self.detail.toggle_fold()
            self._show_detail()

    def action_sort(self, way: int) -> None:
        """The next order, or the same one the other way round."""
        model = self.groups.model
        order, upward = model.order, model.upward
        if way > 0:
            order = ORDERS[(ORDERS.index(order) + 1) % len(ORDERS)]
        else:
            upward = not upward
        self.groups.set_order(order, upward)
        self._show_title()

    def action_filter(self) -> None:
        """Open the filter line."""
        line = self.query_one(FilterLine)
        state = self.session.state
        line.known = {
            "server": state.servers,
            "model": {group.model for group in state.groups.values()},
            "type": ("train", "eval", "observe"),
            "source": ("auto", "human"),
        }
        line.open()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """In the filter line `/` is text."""
        if action == "filter":
            return not isinstance(self.focused, Input)
        return super().check_action(action, parameters)

    def show_only(self, ids: Sequence[str]) -> None:
        """List the groups of these ids alone, until the filter is cleared."""
        self.query_one(FilterLine).put(f"ids:{','.join(ids)}")
        self.groups.focus()

    def action_clear(self) -> None:
        """Close the filter line, show everything."""
        self.query_one(FilterLine).clear()
        self._apply(Filter())
        self.groups.focus()

    def on_filter_line_changed(self, event: FilterLine.Changed) -> None:
        """Filter while it is typed."""
        self._apply(event.wanted)

    def on_filter_line_closed(self, event: FilterLine.Closed) -> None:
        """Enter keeps the filter and goes back to the list."""
        self.groups.focus()

    def _apply(self, wanted: Filter) -> None:
        if wanted.text != self.groups.model.filter.text:
            self.groups.set_filter(wanted)
            self.update_view(frozenset({"clock"}))  # the list has looked at all of them just now


def whole(line: Line, width: int) -> Line:
    """`line`, without its last piece where that would be cut off."""
    return line if line_width(line) <= width else line[:-1]


def title_line(model: RowModel, follow: bool, marked: int) -> Line:
    """What is listed, how, and how much of it."""
    shown, search = model.count, model.search
    pieces: list[tuple[str, str]] = [(" Requests ", "bold $heading")]
    if model.filter:
        pieces.append((f" {shown} of {model.total} ", "bold"))
        pieces.append((f" {one_line(model.filter.text, 60)} ", "$accent"))
        if search is not None and not search.over:
            back = f"back to {clock(search.back_to)}" if search.back_to else "newest"
            more = "End looks further" if search.waits else "looking …"
            pieces.append((f" {back}, {more} ", "$muted"))
    else:
        pieces.append((f" {model.total} ", "$muted"))
    if model.history.since and (search is None or search.over):
        began = dt.datetime.fromtimestamp(model.history.since).astimezone()
        pieces.append((f" history starts {began:%Y-%m-%d %H:%M} ", "$muted"))
    if not (model.order is BY_TIME and not model.upward):
        way = "▴" if model.upward else "▾"
        newest = "" if shown >= model.total or model.filter else f" of the newest {shown}"
        pieces.append((f" by {model.order.title} {way}{newest} ", "$accent"))
    elif follow:
        pieces.append(("  ↑ following the newest", "$muted"))
    else:
        pieces.append(("  f follows", "$muted"))
    if marked:
        pieces += [(f"   ★ {marked}", "$winner"), ("  ; for all of them", "$muted")]
    return tuple(pieces)
