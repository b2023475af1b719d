"""The rewards: the source, its parts and what each of them decided, its last fault."""

from collections.abc import Callable, Iterable, Sequence
from operator import is_
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.content import Content
from textual.widget import Widget

from ajet_swarm.common.text import one_line
from console.models import reward_edit
from console.models.reward_figures import WINDOWS, Digest, Digests, by_step, figures
from console.screens.base import ConsoleScreen
from console.screens.rewards import entries
from console.screens.rewards.part import RewardPartScreen
from console.screens.rewards.whatif import RewardsWhatIfScreen
from console.session.app_state import Session
from console.text.sections import Room, heading, lines
from console.ui.curve import curve
from console.views.judges import judge_head, judge_lines
from console.views.rewards.charts import answers, by_rank, empty_panel, over_groups, spread
from console.views.rewards.fault import Fault, fault_lines, last_fault
from console.views.rewards.monitor import watch_lines
from console.views.rewards.rows import PartRow, first_varied, part_rows
from console.views.rewards.table import head_lines, is_constant, part_head, part_words, row_line
from console.widgets.item_list import ItemList, ListItem
from console.widgets.pane import TextPane
from console.widgets.section import Build, Section

_IMMEDIATE = frozenset({"*", "rewards"})
"""Changes painted at once; everything else is painted once a second."""
Chart = Callable[[Sequence[Digest], str, Room], Content]
"""Builds a chart of the named part from the digests of the last groups."""


_CHANGES = (
    Binding(
        "W",
        "change('rewards.weight')",
        "Set weight",
        id="rewards.weight",
        tooltip="Another weight for the part; asks first, applies from the next group",
    ),
    Binding(
        "M",
        "change('rewards.gate')",
        "Gate",
        id="rewards.gate",
        tooltip="Make the part a factor of the whole reward, or a weighted part again; asks first",
    ),
    Binding(
        "O",
        "change('rewards.enable')",
        "On/off",
        id="rewards.enable",
        tooltip="Switch the part on or off, the others share its weight; asks first",
    ),
)


class RewardsScreen(ConsoleScreen):
    """Figures over the last groups; a row is a part, Enter shows its values."""

    area: ClassVar[str] = "Rewards"
    help_text: ClassVar[str] = (
        "The reward is the product of the gates times the weighted sum of the other parts. Figures "
        "cover the answers of the last groups that were scored or ended; w changes how many. "
        "reward is the automatic one, also of human-rated groups; human-rated: their number, and "
        "the mean rating of the answer with the best automatic reward. decided: share of the "
        "groups with different rewards in which another answer would have won without this part, "
        "or several would have tied. The trace is the part's mean from group to group within its "
        "own range; the curve below is by global step, with one standard deviation as a band. "
        "noted: a number that a hook recorded, at weight 0. off: switched off, O switches it on; "
        "gone: no longer part of the model.\n"
        "with length: correlation of reward and answer length, each minus its group's mean, as the "
        "policy learns only from differences within a group. Dead groups were sent but carry "
        "no signal; lost ones were aborted or failed; not scored: the rewards abstained, and the "
        "group waits for you.\n"
        "A judge has a line of its own: calls, calls per group, tokens, cost at the prices in its "
        "settings (no price: none is set), share of questions answered from its cache, share of "
        "groups it abstained from, repaired replies, mean seconds per call.\n"
        "Hook files are reloaded when they are saved. If a save is broken, the previous version "
        "stays active and the fault is shown here. e opens its place in your editor, y copies it."
    )
    AUTO_FOCUS: ClassVar[str | None] = "ItemList"
    spare_keys: ClassVar[tuple[str, ...]] = ("copy", "window")
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "e",
            "edit",
            "Edit",
            id="rewards.edit",
            tooltip="The file in your editor, at the line of the last fault",
        ),
        Binding(
            "y",
            "copy",
            "Copy fault",
            show=False,
            id="rewards.copy",
            tooltip="Cause, place and traceback of the last fault to the clipboard",
        ),
        Binding("z", "fold", "Unfold", id="rewards.fold", tooltip="Unfold or fold the traceback"),
        Binding(
            "f",
            "fault_group",
            "Group",
            id="rewards.fault_group",
            tooltip="Open the group it failed on",
        ),
        Binding(
            "w",
            "window",
            "How many",
            show=False,
            id="rewards.window",
            tooltip="Figures over the last 100, 500 or 20 groups",
        ),
        Binding(
            "i",
            "what_if",
            "What if",
            id="rewards.what_if",
            tooltip="Try other weights on the finished groups; nothing changes until applied",
        ),
        *_CHANGES,
    ]

    def __init__(self) -> None:
        super().__init__()
        self._window = WINDOWS[0]
        self._unfolded = False
        self._digests = Digests()
        self._last: list[Digest] = []
        self._parts: dict[str, PartRow] = {}
        self._cursor_placed = False

    def compose_body(self) -> Iterable[Widget]:
        yield TextPane(id="rewards-head")
        yield TextPane(id="rewards-fault")
        yield ItemList(id="rewards-parts")
        yield TextPane(id="rewards-judges")
        with Container(id="rewards-charts"):
            yield Section(self._curve, _IMMEDIATE, id="rewards-curve")
            for name, build in self._charts().items():
                chart = Section(build, _IMMEDIATE, id=f"rewards-{name}")
                chart.add_class("rewards-more")
                yield chart

    @property
    def fault(self) -> Fault | None:
        """The last fault."""
        return last_fault(self.session.state)

    # --- painting ----------------------------------------------------------------------------

    def update_view(self, dirty: frozenset[str]) -> None:
        """Paint a change of the source at once, the figures once a second."""
        if dirty.isdisjoint({*_IMMEDIATE, "clock"}):
            return
        session, now = self.session, self.session.now()
        state = session.state
        before, self._last = self._last, self._digests.last(state, self._window)
        totals = figures(self._last, state.rewards.version)
        rows = part_rows(state.rewards.parts, totals.parts)
        self._parts = {row.name: row for row in rows}
        head = self.query_one("#rewards-head", TextPane)
        width = max(20, self.size.width - 2)
        head_rows = head_lines(state, totals, now, width, session.seen)
        head.show_lines([*head_rows, *watch_lines(state, width)])
        self._show_fault()
        judges = self.query_one("#rewards-judges", TextPane)
        judges.display = bool(state.judges)
        judges.show_head("judges", judge_head)
        judges.show_lines(judge_lines(state, self.size.width))
        parts = self.query_one(ItemList)
        parts.border_title = "PARTS"
        parts.display = bool(rows)
        parts.show_head("parts", part_head)
        parts.show_items(rows, lambda room: _items(rows, room))
        if totals.parts and not self._cursor_placed:
            self._cursor_placed = True
            if not parts.place:  # the first part may be a gate that never closes, with empty charts
                parts.move_to(first_varied(rows))
        if not dirty.isdisjoint(_IMMEDIATE) or not _same(before, self._last):
            for chart in self.query("#rewards-charts Section").results(Section):
                chart.paint(session, _IMMEDIATE)
        self.refresh_bindings()

    def _show_fault(self) -> None:
        pane, fault = self.query_one("#rewards-fault", TextPane), self.fault
        pane.display = fault is not None
        width = max(20, self.size.width - 3)
        pane.show_lines(fault_lines(fault, self.session.now(), width, self._unfolded))

    def _charts(self) -> dict[str, Build]:
        """Return the charts of the part under the cursor, for a wide terminal."""

        def of_part(chart: Chart) -> Build:
            return lambda _, room: chart(self._last, self.query_one(ItemList).cursor, room)

        def of_answers(best: bool) -> Build:
            return lambda session, room: answers(
                session.state, self._last, self.query_one(ItemList).cursor, best, room
            )

        return {
            "groups": of_part(over_groups),
            "spread": of_part(spread),
            "ranks": of_part(by_rank),
            "best": of_answers(True),
            "worst": of_answers(False),
        }

    def _curve(self, session: Session, room: Room) -> Content:
        """Build the curve of the part under the cursor by global step."""
        row = self._parts.get(self.query_one(ItemList).cursor)
        if row is None:
            if not self.query_one("#rewards-curve", Section).framed:
                return Content("")
            empty = empty_panel("The curve of a part starts", room.width)
            return lines(heading("PART", "by global step"), empty)
        part = row.figures
        if part is None:
            off = row.part is not None and not row.part.enabled
            next_group = "its figures appear with the next group"
            reason = "it is off: O switches it on" if off else next_group
            return heading(one_line(row.name, 40).upper(), reason)
        name = one_line(part.name, 40).upper()
        words = part_words(part, room.width - len(name) - 20)
        if is_constant(part):
            return heading(name, words)
        points = by_step(self._last, part.name)
        title = heading(name, words, "by global step" if len(points) > 1 else "one step so far")
        return lines(title, *curve(points, room.width, room.height - 1))

    def on_item_list_moved(self, event: ItemList.Moved) -> None:
        """Show the charts of another part, and the keys that apply to it."""
        event.stop()
        self.refresh_bindings()
        for chart in self.query("#rewards-charts Section").results(Section):
            chart.repaint()

    # --- keys --------------------------------------------------------------------------------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer keys that have an effect now."""
        match action:
            case "change":
                cursor = self.query_one(ItemList).cursor
                return reward_edit.may(self.host, str(parameters[0]), cursor)
            case "edit":
                return entries.can_edit(self.host)
            case "copy":
                return self.fault is not None
            case "fold":
                fault = self.fault
                return fault is not None and bool(fault.traceback)
            case "fault_group":
                fault = self.fault
                return fault is not None and bool(fault.group_id)
        return super().check_action(action, parameters)

    def on_item_list_opened(self, event: ItemList.Opened) -> None:
        """Open the values of the part."""
        event.stop()
        self.host.push_screen(RewardPartScreen(event.key))

    def action_window(self) -> None:
        """Switch to the next number of groups."""
        at = WINDOWS.index(self._window)
        self._window = WINDOWS[(at + 1) % len(WINDOWS)]
        self.update_view(_IMMEDIATE)

    def action_what_if(self) -> None:
        """Open the screen of other weights."""
        self.host.push_screen(RewardsWhatIfScreen())

    def action_fold(self) -> None:
        """Unfold the traceback, or fold it again."""
        self._unfolded = not self._unfolded
        self.set_class(self._unfolded, "-unfolded")
        self.update_view(_IMMEDIATE)

    def action_copy(self) -> None:
        """Copy the fault."""
        entries.copy_fault(self.host)

    def action_fault_group(self) -> None:
        """Open the group it failed on."""
        entries.open_group(self.host)

    def action_change(self, command: str) -> None:
        """Confirm a change of the part under the cursor, then send it."""
        reward_edit.change(self.host, command, self.query_one(ItemList).cursor)

    def action_edit(self) -> None:
        """Open the place of the fault, or the hook, in the editor."""
        entries.edit(self.host)


def _same(sequence: Sequence[Digest], other: Sequence[Digest]) -> bool:
    """Return whether no group was added or changed, as digests are rebuilt only then."""
    return len(sequence) == len(other) and all(map(is_, sequence, other))


def _items(rows: tuple[PartRow, ...], width: int) -> Iterable[ListItem]:
    return (ListItem(row.name, (row_line(row, width),)) for row in rows)
