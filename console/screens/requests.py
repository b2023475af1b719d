"""Requests screen: every request, newest on top, with the rewards of its candidates."""

import datetime as dt
from collections.abc import Sequence
from time import monotonic
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.widgets import Input

from ajet_swarm.common.text import one_line
from console.models.advice import context_of
from console.models.group_rows import BY_TIME, ORDERS, RowModel
from console.screens.base import ConsoleScreen
from console.screens.export_groups import export, export_obstacle
from console.screens.group.actions import GroupKeys, GroupTarget
from console.screens.group.screen import GroupScreen
from console.screens.journal_pages import JournalPages
from console.screens.marked_groups import MarkedActions
from console.screens.parts import ScreenPart, bind_actions, in_background, merge_bindings
from console.session.filters import Filter
from console.session.group_facts import verdict_in
from console.text.format import clock
from console.text.lines import Line, line_width
from console.text.server_color import group_color, server_colors
from console.widgets.filter_line import FilterLine
from console.widgets.group_detail import GroupDetail
from console.widgets.group_list import GroupList
from console.widgets.key_area import ActionKeys
from console.widgets.pane import TextPane
from core.state import Group

BESIDE = 140
"""Cells from which the detail stands beside the list."""
FOLLOW_SECONDS = 1.0
"""Seconds between two footers while the list follows, as the keys change with each group."""
_KEYS: list[BindingType] = [
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


class ListedGroup(GroupTarget):
    """The group under the cursor of the list, from memory or from the journal."""

    @property
    def group(self) -> Group | None:
        groups = self._screen.query_one(GroupList)
        return groups.model.known(groups.cursor) if groups.cursor is not None else None


class ListPage(ScreenPart):
    """Paints the list, its title and the detail beside it; sorts, follows, folds, opens."""

    def __init__(self, screen: ConsoleScreen, target: GroupTarget, marked: MarkedActions) -> None:
        super().__init__(screen)
        self._target = target
        self._marked = marked

    @property
    def groups(self) -> GroupList:
        """The list."""
        return self.screen.query_one(GroupList)

    @property
    def _detail(self) -> GroupDetail | None:
        """The detail, when the terminal is wide enough for it."""
        return self.screen.query_one(GroupDetail) if self.screen.size.width >= BESIDE else None

    # --- painting ----------------------------------------------------------------------------

    def show_title(self) -> None:
        """Paint the title, and the text of an empty list."""
        model, groups = self.groups.model, self.groups
        line = title_line(model, groups.follow, len(self._marked.marked))
        self.screen.query_one("#requests-title", TextPane).show(
            line, lambda width: [whole(line, width)]
        )
        groups.show_empty(() if model.count else self._empty_lines(model.total))

    def _empty_lines(self, total: int) -> list[str]:
        if total:
            search = self.groups.model.search
            if search is not None and not search.finished:
                more = "End searches further back." if search.paused else "Searching further back …"
                return ["None of the newest matches the filter.", more]
            return ["No request matches the filter.", "Esc clears it."]
        session = self.session
        if not session.seen:
            return ["No connection to the proxy yet."]
        lines, url = ["No requests yet."], session.state.proxy_url
        if url and not session.state.watch_only:
            lines.append(f"Point your application at {one_line(url, 100)}/v1")
            if not session.read_only:
                key = context_of(session).keys["mock.start"]
                text = f"or press F4 and then {key}: the mock user sends a dataset's questions."
                lines.append(text)
        else:
            lines.append("This console is view only: it serves no requests.")
        return lines

    def show_detail(self) -> None:
        """Paint the detail beside the list."""
        detail, group = self._detail, self._target.group
        self.screen.query_one(GroupDetail).display = detail is not None and group is not None
        if detail is not None and group is not None:
            session = self.session
            color = group_color(session.state, group)
            weights = session.state.weights_text(group)
            read_only = session.read_only
            detail.show(
                group,
                session.now(),
                color,
                read_only=read_only,
                weights=weights,
                verdict=verdict_in(session.state, group),
            )

    # --- keys --------------------------------------------------------------------------------

    def action_open(self) -> None:
        """Open the group under the cursor."""
        groups, group = self.groups, self._target.group
        if group is not None:
            neighbors = groups.model.around(groups.place or 0)
            self.host.push_screen(GroupScreen(group.group_id, neighbors, groups.model.known))

    def action_follow(self) -> None:
        """Switch between following the newest and staying at the cursor."""
        self.groups.set_follow(not self.groups.follow)
        self.show_title()

    def action_fold(self) -> None:
        """Unfold the detail beside the list, or fold it again."""
        if self._detail is not None:
            self._detail.toggle_fold()
            self.show_detail()

    def action_sort(self, step: int) -> None:
        """Sort by the next column with 1, reverse the order with -1."""
        model = self.groups.model
        order, upward = model.order, model.upward
        if step > 0:
            order = ORDERS[(ORDERS.index(order) + 1) % len(ORDERS)]
        else:
            upward = not upward
        self.groups.set_order(order, upward)
        self.show_title()


class ListFilter(ScreenPart):
    """The filter of the list."""

    @property
    def _line(self) -> FilterLine:
        return self.screen.query_one(FilterLine)

    def apply(self, row_filter: Filter) -> None:
        """List only the groups that match."""
        groups = self.screen.query_one(GroupList)
        if row_filter.text != groups.model.filter.text:
            groups.set_filter(row_filter)
            self.screen.update_view(frozenset({"clock"}))  # set_filter has already checked all rows

    def action_filter(self) -> None:
        """Open the filter line."""
        line = self._line
        state = self.session.state
        line.known = {
            "server": state.servers,
            "model": {group.model for group in state.groups.values()},
            "type": ("train", "eval", "observe"),
            "source": ("auto", "human"),
        }
        line.open()

    def show_only(self, ids: Sequence[str]) -> None:
        """List only the groups of these ids, until the filter is cleared."""
        self._line.put(f"ids:{','.join(ids)}")
        self.screen.query_one(GroupList).focus()

    def action_clear(self) -> None:
        """Close the filter line and list everything."""
        self._line.clear()
        self.apply(Filter())
        self.screen.query_one(GroupList).focus()


class ExportAction(ScreenPart):
    """Export of the marked groups, of those of the filter, or of all."""

    BINDINGS: ClassVar[Sequence[BindingType]] = (
        Binding(
            "X",
            "export",
            "Export",
            show=False,
            id="requests.export",
            tooltip="Write the marked groups, those of the filter, or all to a file",
        ),
    )

    def obstacle(self) -> str | None:
        """Return why nothing can be exported here; None when it can."""
        return export_obstacle(self.session)

    @in_background("question", exclusive=True)
    async def action_export(self) -> None:
        """Ask for groups, format and file, then export."""
        await export(self.host, self.screen.query_one(GroupList).model.filter)


class RequestsScreen(ConsoleScreen):
    """The live list; Enter opens a group."""

    area: ClassVar[str] = "Requests"
    help_text: ClassVar[str] = (
        "Each line is one request and its group of candidates. Columns: number of answers, best "
        "reward, ? not scored or = equal rewards or ○ dead or × lost (aborted, failed or "
        "discarded by its engine: not trained on; state:lost finds the discarded ones) or "
        "✓ rated, the winner, the answer the user got, the user's waiting time, ★ your mark. "
        "✂ before a request: the engine dropped the middle of its prompt "
        "(truncated:yes finds them).\n"
        "o sorts by time, reward, spread, waiting time, latency; O reverses it. Below the groups "
        "in memory, the list continues from the journal.\n"
        "The filter takes words of the request and terms; all must match: state:awaiting "
        'reward<0.2 text~paris dead:yes marked:yes step>=3 -rated:yes "two words".\n'
        "X exports the marked groups, those of the filter, or all, for a trainer; F2 in its dialog "
        "changes which."
    )
    AUTO_FOCUS = "GroupList"
    spare_keys: ClassVar[tuple[str, ...]] = ("mark", "note", "copy", "curl", "rerun")
    BINDINGS: ClassVar[list[BindingType]] = merge_bindings(
        MarkedActions.BINDINGS, ExportAction.BINDINGS, _KEYS
    )

    def __init__(self) -> None:
        super().__init__()
        self.target = ListedGroup(self)
        self.group_keys = GroupKeys(self.target)
        self.marked_actions = MarkedActions(self)
        self.export = ExportAction(self)
        self.page = ListPage(self, self.target, self.marked_actions)
        self.filter = ListFilter(self)
        self.journal = JournalPages(self, self._target_read)
        self.keys = ActionKeys(self, frozenset({"marked"}), self._obstacle)
        self._keys_at = 0.0
        """When the footer was updated last, monotonic."""
        bind_actions(self, self.marked_actions, self.export, self.page, self.filter)

    def compose_body(self) -> ComposeResult:
        """Title, list, filter line; the detail beside them when there is room."""
        groups = GroupList()
        groups.model.history = self.session.history
        with self.group_keys, Horizontal(id="requests"):
            with Vertical(id="requests-list"):
                yield TextPane(id="requests-title")
                yield groups.titles()
                yield groups
                yield FilterLine()
            yield GroupDetail(selectable=False, id="requests-detail")

    @property
    def target_group(self) -> str | None:
        return self.page.groups.cursor

    def update_view(self, dirty: frozenset[str]) -> None:
        if dirty.isdisjoint({"*", "groups", "clock", "servers", "link", "proxy"}):
            return
        state, now = self.session.state, self.session.now()
        groups = self.page.groups
        groups.take(state.groups, dirty, now, server_colors(state), state.totals.groups)
        self.journal.search()
        self.journal.read_start()
        self.page.show_title()
        if not dirty.isdisjoint({"*", "clock", f"group:{self.target_group}"}):
            self.page.show_detail()
        self._refresh_keys()

    def _refresh_keys(self) -> None:
        """Update the footer at once for a chosen group, rarely while the list follows."""
        now = monotonic()
        if not self.page.groups.follow or now - self._keys_at >= FOLLOW_SECONDS:
            self._keys_at = now
            self.keys.refresh()
            self.group_keys.keys.refresh()

    def _target_read(self) -> None:
        """Show the group under the cursor once its page was read."""
        self.page.show_detail()
        self._refresh_keys()

    def _obstacle(self, action: str) -> str | None:
        """Return why an action is unavailable now; None when it is available."""
        if action == "marked":
            return self.marked_actions.obstacle()
        if action == "export":
            return self.export.obstacle()
        return None

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer keys that have an effect now; a read-only console may copy marked groups."""
        if action == "filter":
            return not isinstance(self.focused, Input)  # there `/` is text
        if action == "marked":
            return self._obstacle(action) is None
        return self.keys.allows(action)

    # --- messages of the widgets -------------------------------------------------------------

    def on_key(self, event: events.Key) -> None:
        """Explain a key that has no effect now."""
        self.keys.explain(event)

    def on_resize(self, event: events.Resize) -> None:
        """Show or hide the detail by the width."""
        self.set_class(self.size.width >= BESIDE, "-beside")
        self.call_after_refresh(self.page.show_detail)

    def on_group_keys_succeeded(self, event: GroupKeys.Succeeded) -> None:
        """Show the outcome of a command, except of a mark: the list shows it."""
        if event.command != "group.mark":
            self.host.say(event.text)

    def on_group_list_moved(self, event: GroupList.Moved) -> None:
        """Repaint title, detail and footer for another group."""
        self._refresh_keys()
        self.page.show_title()
        self.page.show_detail()

    def on_group_list_opened(self, event: GroupList.Opened) -> None:
        """Open the group on Enter or a second click."""
        self.page.action_open()

    def on_group_list_missing(self, event: GroupList.Missing) -> None:
        """Read rows that came into sight."""
        self.journal.read_page(event.first)

    def on_group_list_bottom(self, event: GroupList.Bottom) -> None:
        """Search further back at the end of the matches."""
        self.journal.search_further()

    def on_filter_line_changed(self, event: FilterLine.Changed) -> None:
        """Filter while the operator types."""
        self.filter.apply(event.filter)

    def on_filter_line_closed(self, event: FilterLine.Closed) -> None:
        """Go back to the list; the filter stays."""
        self.page.groups.focus()


def whole(line: Line, width: int) -> Line:
    """Return `line` without its last piece if that does not fit."""
    return line if line_width(line) <= width else line[:-1]


def title_line(model: RowModel, follow: bool, marked: int) -> Line:
    """Return the title: filter, order and number of groups."""
    shown, search = model.count, model.search
    pieces: list[tuple[str, str]] = [(" Requests ", "bold $heading")]
    if model.filter:
        pieces.append((f" {shown} of {model.total} ", "bold"))
        pieces.append((f" {one_line(model.filter.text, 60)} ", "$accent"))
        if search is not None and not search.finished:
            back = f"back to {clock(search.oldest_at)}" if search.oldest_at else "newest"
            more = "End searches further" if search.paused else "searching …"
            pieces.append((f" {back}, {more} ", "$muted"))
    else:
        pieces.append((f" {model.total} ", "$muted"))
    if model.history.since and (search is None or search.finished):
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
