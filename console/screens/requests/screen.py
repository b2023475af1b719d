"""The live list of requests; Enter opens a group."""

from collections.abc import Sequence
from time import monotonic
from typing import ClassVar

from textual import events, on, work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.widgets import Input

from console.screens.base import ConsoleScreen
from console.screens.group.actions import GroupKeys, GroupTarget
from console.screens.group.screen import GroupScreen
from console.screens.group.widgets import GroupDetail
from console.screens.requests.export import export, export_obstacle
from console.screens.requests.marked import act_on_marked
from console.screens.requests.model import ORDERS, marked_groups
from console.screens.requests.text import columns_line, empty_lines, title_line
from console.screens.requests.widgets import FilterLine, GroupList
from console.ui.keys import keys
from console.widgets.item_list import ItemList
from console.widgets.key_area import KeyArea
from console.widgets.pane import TextPane
from core.state import Group

BESIDE = 190
"""Cells from which the detail stands beside the list."""
FOLLOW_SECONDS = 1.0
"""Seconds between two footers while the list follows, as the keys change with each group."""


class ListedGroup(GroupTarget):
    """The group under the cursor of the list, from memory or from the journal."""

    @property
    def group(self) -> Group | None:
        groups = self._screen.query_one(GroupList)
        return groups.model.known(groups.cursor)

    def succeeded(self, command: str, text: str) -> None:
        """Show it, except of a mark: the list shows it."""
        if command != "group.mark":
            self._screen.host.say(text)


class ListKeys(KeyArea):
    """Keys about the list: filter, order, following, the marked groups, export."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *keys(
            ("semicolon", "marked", "Marked", "requests.marked", "A command for all marked", ";"),
            ("slash", "filter", "Find", "requests.filter", "Filter line", "/"),
            ("o", "sort(1)", "Sort", "requests.sort", "By time, reward, spread, waiting, latency"),
        ),
        *keys(
            ("X", "export", "Export", "requests.export", "Groups to a file for a trainer"),
            ("f", "follow", "Follow", "requests.follow", "Stay on the newest"),
            ("O", "sort(-1)", "Reverse the order", "requests.turn"),
            ("z", "fold", "Unfold", "requests.fold"),
            ("escape", "clear", "Clear the filter", "requests.clear"),
            shown=False,
        ),
    ]

    @property
    def _groups(self) -> GroupList:
        return self.query_one(GroupList)

    def obstacle(self, action: str) -> str | None:
        if action == "filter" and isinstance(self.screen.focused, Input):
            return ""  # there `/` is text
        if action == "marked" and not marked_groups(self.session):
            return "No group is marked: m marks the one under the cursor"
        return export_obstacle(self.session) if action == "export" else None

    @work(group="question", exclusive=True, exit_on_error=False)
    async def action_marked(self) -> None:
        """Choose an action for all marked groups."""
        await act_on_marked(self.host)

    @work(group="question", exclusive=True, exit_on_error=False)
    async def action_export(self) -> None:
        """Ask for groups, format and file, then export."""
        await export(self.host, self._groups.model.filter)

    def action_filter(self) -> None:
        """Open the filter line."""
        state = self.session.state
        known = {
            "server": state.servers,
            "model": {group.model for group in state.groups.values()},
            "type": ("train", "eval", "observe"),
            "source": ("auto", "human"),
        }
        self.query_one(FilterLine).open(known)

    def action_clear(self) -> None:
        """Close the filter line and list everything."""
        self.query_one(FilterLine).put("")
        self._groups.focus()

    def action_follow(self) -> None:
        """Switch between following the newest and staying at the cursor."""
        self._groups.set_follow(not self._groups.follow)
        self.changed()

    def action_fold(self) -> None:
        """Unfold the detail beside the list, or fold it again."""
        detail = self.query_one(GroupDetail)
        if detail.display:
            detail.toggle_fold()
            self.changed()

    def action_sort(self, step: int) -> None:
        """Sort by the next column with 1, reverse the order with -1."""
        order, upward = self._groups.model.order, self._groups.model.upward
        if step > 0:
            order = ORDERS[(ORDERS.index(order) + 1) % len(ORDERS)]
        self._groups.set_order(order, upward if step > 0 else not upward)
        self.changed()


class RequestsScreen(ConsoleScreen):
    """The live list; Enter opens a group."""

    area: ClassVar[str] = "Requests"
    help_text: ClassVar[str] = (
        "Each line is one request and its group of candidates. Columns: whether it taught (✔ with "
        "the largest advantage, = equal rewards, ○ dead otherwise, × lost: aborted, failed or "
        "discarded by its engine, ? not scored; state:lost finds the discarded ones), number of "
        "answers, best reward, ✓ rated, the winner, the answer the user got, the user's waiting "
        "time, ★ your mark. "
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

    def __init__(self) -> None:
        super().__init__()
        self.target = ListedGroup(self)
        self._keys_at = 0.0
        """When the footer was updated last, monotonic."""

    def compose_body(self) -> ComposeResult:
        """Title, list, filter line; the detail beside them when there is room."""
        with ListKeys(), GroupKeys(self.target), Horizontal(id="requests"):
            with Vertical(id="requests-list"):
                yield TextPane(id="requests-title")
                yield TextPane(id="requests-columns")
                yield GroupList()
                yield FilterLine()
            yield GroupDetail(selectable=False, id="requests-detail")

    @property
    def _groups(self) -> GroupList:
        return self.query_one(GroupList)

    @property
    def target_group(self) -> str | None:
        return self._groups.cursor or None

    def show_only(self, ids: Sequence[str]) -> None:
        """List only the groups of these ids, until the filter is cleared."""
        self.query_one(FilterLine).put(f"ids:{','.join(ids)}")
        self._groups.focus()

    # --- painting ----------------------------------------------------------------------------

    def update_view(self, dirty: frozenset[str]) -> None:
        if dirty.isdisjoint({"*", "groups", "clock", "servers", "link", "proxy"}):
            return
        self._groups.take(dirty)
        self._paint_title()
        if not dirty.isdisjoint({"*", "clock", f"group:{self.target_group}"}):
            self._paint_detail()
        self._refresh_keys()

    def _paint_title(self) -> None:
        """Paint the title, the column titles, and the text of an empty list."""
        groups, model = self._groups, self._groups.model
        follow, marked, several = (
            groups.follow,
            len(marked_groups(self.session)),
            bool(groups.tones),
        )
        self.query_one("#requests-title", TextPane).show(
            title_line(model, follow, marked, 1_000),
            lambda width: [title_line(model, follow, marked, width)],
        )
        self.query_one("#requests-columns", TextPane).show(
            (model.order, model.upward, several),
            lambda width: [columns_line(model, width, several)],
        )
        groups.show_empty(() if model.count else empty_lines(model, self.session))

    def _paint_detail(self) -> None:
        """Paint the detail beside the list."""
        detail, group = self.query_one(GroupDetail), self.target.group
        detail.display = self.size.width >= BESIDE and group is not None
        if detail.display and group is not None:
            detail.show(group)

    def _refresh_keys(self) -> None:
        """Update the footer at once for a chosen group, rarely while the list follows."""
        now = monotonic()
        if not self._groups.follow or now - self._keys_at >= FOLLOW_SECONDS:
            self._keys_at = now
            for area in self.query(KeyArea):
                area.keys.refresh()

    # --- messages ----------------------------------------------------------------------------

    @on(KeyArea.Changed)
    @on(ItemList.Moved)
    def show_change(self) -> None:
        """Repaint title, detail and footer for another group or another order."""
        self._refresh_keys()
        self._paint_title()
        self._paint_detail()

    @on(ItemList.Opened)
    def open_group(self) -> None:
        """Open the group on Enter or a second click."""
        groups = self._groups
        neighbors = groups.model.around(groups.place)
        self.host.push_screen(GroupScreen(groups.cursor, neighbors, groups.model.known))

    @on(FilterLine.Changed)
    def set_filter(self, event: FilterLine.Changed) -> None:
        """Filter while the operator types."""
        self._groups.set_filter(event.filter)
        self.show_change()

    @on(FilterLine.Closed)
    def focus_list(self) -> None:
        """Go back to the list; the filter stays."""
        self._groups.focus()

    def on_resize(self, event: events.Resize) -> None:
        """Show or hide the detail by the width."""
        self.set_class(self.size.width >= BESIDE, "-beside")
        self.call_after_refresh(self._paint_detail)
