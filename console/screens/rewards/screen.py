"""The rewards: the source, its parts and what each of them decided, its last fault."""

from collections.abc import Iterable, Sequence
from functools import partial
from operator import is_
from typing import ClassVar

from textual.binding import BindingType
from textual.containers import Container
from textual.content import Content
from textual.widget import Widget

from ajet_swarm.common.text import one_line, plural
from console.screens.base import ConsoleScreen
from console.screens.group.screen import GroupScreen
from console.screens.rewards import actions, model, text
from console.screens.rewards.charts import CHARTS, chart, empty_panel
from console.screens.rewards.judges import judge_head, judge_lines
from console.screens.rewards.whatif import RewardsWhatIfScreen
from console.session.app_state import Session
from console.text.sections import Room, heading, lines
from console.ui.curve import curve
from console.ui.keys import keys
from console.widgets.item_list import ItemList, ListItem
from console.widgets.pane import TextPane
from console.widgets.section import Section

_IMMEDIATE = frozenset({"*", "rewards"})
"""Changes painted at once; everything else is painted once a second."""


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
        "stays active and the fault is shown here."
    )
    AUTO_FOCUS: ClassVar[str | None] = "ItemList"
    spare_keys: ClassVar[tuple[str, ...]] = ("copy", "window")
    BINDINGS: ClassVar[list[BindingType]] = [
        *keys(
            ("e", "edit", "Edit", "rewards.edit", "The file, at the line of the last fault"),
            ("z", "fold", "Unfold", "rewards.fold", "Unfold or fold the traceback"),
            ("f", "fault_group", "Group", "rewards.fault_group", "Open the group it failed on"),
            ("i", "what_if", "What if", "rewards.what_if", "Try other weights, change nothing"),
            ("W", f"change('{actions.WEIGHT}')", "Set weight", actions.WEIGHT, "Asks first"),
            ("M", f"change('{actions.GATE}')", "Gate", actions.GATE, "A factor or not; asks first"),
            ("O", f"change('{actions.ENABLE}')", "On/off", actions.ENABLE, "Asks first"),
        ),
        *keys(
            ("y", "copy", "Copy fault", "rewards.copy", "Its cause, place and traceback"),
            ("w", "window", "How many", "rewards.window", "The last 100, 500 or 20 groups"),
            shown=False,
        ),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._window = model.WINDOWS[0]
        self._unfolded = False
        self._digests = model.Digests()
        self._last: list[model.Digest] = []
        self._parts: dict[str, model.PartRow] = {}
        self._cursor_placed = False

    def compose_body(self) -> Iterable[Widget]:
        yield TextPane(id="rewards-head")
        yield TextPane(id="rewards-fault")
        yield ItemList(id="rewards-parts")
        yield TextPane(id="rewards-judges")
        with Container(id="rewards-charts"):
            yield Section(self._curve, _IMMEDIATE, id="rewards-curve")
            for kind in CHARTS:  # for a wide terminal
                section = Section(partial(self._chart, kind), _IMMEDIATE, id=f"rewards-{kind}")
                section.add_class("rewards-more")
                yield section

    @property
    def fault(self) -> model.Fault | None:
        """The last fault."""
        return model.last_fault(self.session.state)

    @property
    def part(self) -> str:
        """The part under the cursor."""
        return self.query_one(ItemList).cursor

    # --- painting ----------------------------------------------------------------------------

    def update_view(self, dirty: frozenset[str]) -> None:
        """Paint a change of the source at once, the figures once a second."""
        if dirty.isdisjoint({*_IMMEDIATE, "clock"}):
            return
        session, state, now = self.session, self.session.state, self.session.now()
        before, self._last = self._last, self._digests.last(state, self._window)
        totals = model.figures(self._last, state.rewards.version)
        rows = model.part_rows(state.rewards.parts, totals.parts)
        self._parts = {row.name: row for row in rows}
        width = max(20, self.size.width - 2)
        head = text.head_lines(state, totals, now, width, session.seen)
        self.query_one("#rewards-head", TextPane).show_lines(
            [*head, *text.watch_lines(state, width)]
        )
        fault, fault_pane = self.fault, self.query_one("#rewards-fault", TextPane)
        fault_pane.display = fault is not None
        fault_pane.show_lines(text.fault_lines(fault, now, width - 1, self._unfolded))
        judges = self.query_one("#rewards-judges", TextPane)
        judges.display = bool(state.judges)
        judges.show_head("judges", judge_head)
        judges.show_lines(judge_lines(state, self.size.width))
        parts = self.query_one(ItemList)
        parts.border_title = "PARTS"
        parts.display = bool(rows)
        parts.show_head("parts", text.PARTS.head)
        parts.show_rows(rows, lambda row: row.name, text.row_line)
        if totals.parts and not self._cursor_placed:
            self._cursor_placed = True
            if not parts.place:  # the first part may be a gate that never closes, with empty charts
                parts.move_to(model.first_varied(rows))
        if not dirty.isdisjoint(_IMMEDIATE) or not _same(before, self._last):
            for section in self.query(Section):
                section.paint(session, _IMMEDIATE)
        self.refresh_bindings()

    def _chart(self, kind: str, session: Session, room: Room) -> Content:
        size = room.width, room.height
        return lines(*chart(kind, session.state, self._last, self.part, *size))

    def _curve(self, session: Session, room: Room) -> Content:
        """Build the curve of the part under the cursor by global step."""
        row = self._parts.get(self.part)
        if row is None:
            if not self.query_one("#rewards-curve", Section).framed:
                return Content("")
            empty = empty_panel("The curve of a part starts", room.width)
            return lines(heading("PART", "by global step"), *empty)
        part, name = row.figures, one_line(row.name, 40).upper()
        if part is None:
            off = row.part is not None and not row.part.enabled
            next_group = "its figures appear with the next group"
            return heading(name, "it is off: O switches it on" if off else next_group)
        words = text.part_words(part, room.width - len(name) - 20)
        if text.is_constant(part):
            return heading(name, words)
        points = model.by_step(self._last, part.name)
        title = heading(name, words, "by global step" if len(points) > 1 else "one step so far")
        return lines(title, *curve(points, room.width, room.height - 1))

    def on_item_list_moved(self, event: ItemList.Moved) -> None:
        """Show the charts of another part, and the keys that apply to it."""
        event.stop()
        self.refresh_bindings()
        for section in self.query(Section):
            section.repaint()

    # --- keys --------------------------------------------------------------------------------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer keys that have an effect now."""
        fault = self.fault
        match action:
            case "change":
                return actions.may_change(self.host, str(parameters[0]), self.part)
            case "edit":
                return actions.can_edit(self.host)
            case "copy":
                return fault is not None
            case "fold":
                return fault is not None and bool(fault.traceback)
            case "fault_group":
                return fault is not None and bool(fault.group_id)
        return super().check_action(action, parameters)

    def on_item_list_opened(self, event: ItemList.Opened) -> None:
        """Open the values of the part."""
        event.stop()
        self.host.push_screen(RewardPartScreen(event.key, self._window))

    def action_window(self) -> None:
        """Switch to the next number of groups."""
        self._window = model.next_window(self._window)
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
        actions.copy_fault(self.host)

    def action_fault_group(self) -> None:
        """Open the group it failed on."""
        actions.open_group(self.host)

    def action_change(self, command: str) -> None:
        """Confirm a change of the part under the cursor, then send it."""
        actions.start(self.host, actions.change, command, self.part)

    def action_edit(self) -> None:
        """Open the place of the fault, or the hook, in the editor."""
        actions.start(self.host, actions.edit)


def _same(sequence: Sequence[model.Digest], other: Sequence[model.Digest]) -> bool:
    """Return whether no group was added or changed, as digests are rebuilt only then."""
    return len(sequence) == len(other) and all(map(is_, sequence, other))


class RewardPartScreen(ConsoleScreen):
    """Groups with the value and the reason of one part for each answer."""

    area: ClassVar[str] = "Reward part"
    help_text: ClassVar[str] = (
        "Each block is a group: the value of this part for each answer, the answer's reward and "
        "the part's reason. ▲ is the winner. ◆ decided it: without this part another answer would "
        "have won, or several would have tied. Enter opens the group."
    )
    AUTO_FOCUS: ClassVar[str | None] = "ItemList"
    BINDINGS: ClassVar[list[BindingType]] = keys(
        ("escape", "dismiss", "Back", "rewards.part_leave")
    )

    def __init__(self, part: str, window: int) -> None:
        super().__init__()
        self.part = part
        self._window = window
        self._digests = model.Digests()

    def compose_body(self) -> Iterable[Widget]:
        yield TextPane(id="part-title")
        yield ItemList(id="part-groups")

    @property
    def target_group(self) -> str | None:
        return self.query_one(ItemList).cursor or None

    def update_view(self, dirty: frozenset[str]) -> None:
        """Paint what is new, once a second at most."""
        if dirty.isdisjoint({"*", "clock"}):
            return
        state, part = self.session.state, self.part
        last = self._digests.last(state, self._window)
        shown = tuple(digest for digest in reversed(last) if part in digest.parts)
        about = f"{plural(len(shown), 'group')}, newest first" if shown else "in no group now"
        head, name = (" PART  ", "bold $heading"), (one_line(part, 60), "bold")
        title = (head, name, (f"  {about}", "$muted"))
        self.query_one("#part-title", TextPane).show_lines([title])

        def items(width: int) -> Iterable[ListItem]:
            for digest in shown:
                yield ListItem(digest.group.group_id, tuple(text.value_lines(digest, part, width)))

        self.query_one(ItemList).show_items(shown, items)

    def on_item_list_opened(self, event: ItemList.Opened) -> None:
        """Open the group."""
        event.stop()
        others = list(self.query_one(ItemList).keys)
        self.host.push_screen(GroupScreen(event.key, others))
