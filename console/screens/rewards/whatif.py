"""What-if screen: the effect of other weights on finished groups, before they are applied."""

from collections.abc import Iterable
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.widget import Widget

from ajet_swarm.common.errors import UsageError
from ajet_swarm.common.text import one_line, plural
from console.models.reward_whatif import (
    STEP,
    WhatIfResult,
    can_weigh,
    group_lines,
    summary_lines,
    tally,
    weight_line,
)
from console.screens.base import ConsoleScreen
from console.screens.group.screen import GroupScreen
from console.session.command_plans import may_send
from console.text.format import elapsed
from console.text.lines import Line
from console.text.wrap import wrapped
from console.widgets.item_list import ItemList, ListItem
from console.widgets.pane import TextPane
from core.commands.rewards import weights_of
from core.events import RewardPart, TrialSummary
from core.events.rewards import WhatIfChanged

WINDOWS = (100, 500, 20)


class WeightList(ItemList):
    """The parts with their weights."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open", "Type", tooltip="Type a weight to try for this part"),
    ]


class ChangedGroupList(ItemList):
    """The groups that change most."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open", "Group", tooltip="The group in full"),
    ]


class RewardsWhatIfScreen(ConsoleScreen):
    """Weights to try, and their effect."""

    area: ClassVar[str] = "What if"
    help_text: ClassVar[str] = (
        "Nothing here changes the rewards until you apply it. Left and right change the weight "
        "under the cursor, Enter asks for a number. The effect is computed at once from the "
        "stored part values of the groups in view. r re-scores the groups on the proxy in the "
        "background, for a changed file and for groups that older rewards scored; users still get "
        "answers, and c cancels it. a writes the weights to the file of the rewards.\n"
        "winner flips: another answer has the highest automatic reward than before. dead groups "
        "gained: groups that carry a signal now and then would not. Automatic rewards are compared "
        "in human-rated groups, too; human-rated counts where they pick the human winner. "
        "The groups below change most; Enter opens one."
    )
    AUTO_FOCUS: ClassVar[str | None] = "WeightList"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left,minus", "step(-1)", "Less", key_display="←", id="whatif.less"),
        Binding("right,plus", "step(1)", "More", key_display="→", id="whatif.more"),
        Binding("backspace", "reset", "Undo", id="whatif.reset", tooltip="The weight in use"),
        Binding(
            "w",
            "window",
            "How many",
            show=False,
            id="whatif.window",
            tooltip="The last 100, 500 or 20",
        ),
        Binding(
            "r",
            "rescore",
            "Re-score",
            id="rewards.whatif",
            tooltip="On the proxy, in the background; nothing is sent",
        ),
        Binding("c", "cancel", "Cancel", id="rewards.whatif_stop", tooltip="Stop re-scoring"),
        Binding(
            "a",
            "apply",
            "Apply",
            id="rewards.apply",
            tooltip="Write these weights to the file of the rewards; asks first",
        ),
        Binding("escape", "leave", "Back", id="whatif.leave"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._weights: dict[str, float] = {}
        self._last = WINDOWS[0]
        self._cached: tuple[object, WhatIfResult] | None = None
        self._cursor_placed = False
        """Whether the cursor was put on a part whose weight can be tried."""

    def compose_body(self) -> Iterable[Widget]:
        yield TextPane(id="whatif-head")
        yield WeightList(id="whatif-parts")
        yield TextPane(id="whatif-sums")
        yield ChangedGroupList(id="whatif-groups")

    @property
    def target_group(self) -> str | None:
        """The group under the cursor, while the list has the focus."""
        groups = self.query_one(ChangedGroupList)
        return groups.cursor or None if groups.has_focus else None

    @property
    def _part(self) -> RewardPart | None:
        name = self.query_one(WeightList).cursor
        return next((part for part in self.session.state.rewards.parts if part.name == name), None)

    # --- painting -------------------------------------------------------------------------------

    def update_view(self, dirty: frozenset[str]) -> None:
        """Paint changes of the rewards at once, new groups once a second."""
        if dirty.isdisjoint({"*", "rewards", "clock"}):
            return
        state, weights = self.session.state, dict(self._weights)
        parts = state.rewards.parts if can_weigh(state) else ()
        rows = self.query_one(WeightList)
        rows.display = bool(parts)
        weighed_parts = (parts, tuple(weights.items()))
        rows.show_items(
            weighed_parts,
            lambda width: (
                ListItem(part.name, (weight_line(part, weights, width),)) for part in parts
            ),
        )
        if not self._cursor_placed and rows.keys:
            self._cursor_placed = True
            rows.move_to(next((part.name for part in parts if part.enabled and not part.gate), ""))
        summary, missing, source = self._result()
        self.query_one("#whatif-head", TextPane).show_lines([self._head(source)])
        sums = self.query_one("#whatif-sums", TextPane)
        sums.show_lines(self._summary(summary, missing))
        groups = self.query_one(ChangedGroupList)
        most = summary.most if summary is not None else ()
        groups.display = bool(most)
        groups.show_head("most", lambda width: ((" changes most", "$muted"),))
        groups.show_items(
            most,
            lambda width: (ListItem(trial.group_id, group_lines(trial, width)) for trial in most),
        )
        self.refresh_bindings()

    def _result(self) -> tuple[TrialSummary | None, int, str]:
        """Return the result of the proxy for these weights, else what can be computed here."""
        known = self.session.state.what_if
        if known is not None and known.summary is not None and self._is_ours(known):
            return known.summary, 0, f"{plural(known.summary.groups, 'group')} re-scored"
        if not can_weigh(self.session.state):
            return None, 0, ""
        key = (self._last, tuple(self._weights.items()), self._newest())
        if self._cached is None or self._cached[0] != key:
            self._cached = (key, tally(self.session.state, self._last, self._weights))
        at_once = self._cached[1]
        source = f"{plural(at_once.summary.groups, 'group')}, from the stored part values"
        return at_once.summary, at_once.missing, source

    def _newest(self) -> object:
        """Return values that change with every scored or sent group, or as its parts are read."""
        totals, rewards = self.session.state.totals, self.session.state.rewards
        counts = totals.groups, totals.done, totals.rated, self.session.unread_texts.waiting
        return counts, rewards.version, rewards.parts

    def _is_ours(self, known: WhatIfChanged) -> bool:
        newer = known.began >= self.session.state.rewards.since
        return known.phase == "done" and newer and dict(known.weights) == self._weights

    def _head(self, source: str) -> Line:
        title: Line = ((" WHAT IF  ", "bold $heading"),)
        known = self.session.state.what_if
        if known is not None and known.phase == "doing":
            took = elapsed(max(0.0, self.session.now() - known.began))
            share = f"{known.done} of {known.total} groups re-scored, {took}"
            return (*title, (f"◌ {share}", "$engine-booting"))
        if known is not None and known.phase == "failed" and dict(known.weights) == self._weights:
            return (*title, (f"✖ {one_line(known.cause, 200)}", "bold $engine-lost"))
        return (*title, (source, "$muted"))

    def _summary(self, summary: TrialSummary | None, missing: int) -> list[Line]:
        width, read_only = max(20, self.size.width - 2), self.session.read_only
        if summary is None:
            why = "The reward comes only from a hook folder: there are no weights to try. "
            text = why + ("" if read_only else "r re-scores the groups with its newest save.")
            return [((line, "$muted"),) for line in wrapped(text, width)]
        if not self._weights and summary.compared and not summary.flips and not summary.died:
            hint = "Left and right change a weight; the effect is shown here at once"
            shown = wrapped(hint, width)
            return [
                *(((name, "$muted"),) for name in shown),
                *summary_lines(summary, missing, width, read_only=read_only)[2:],
            ]
        return summary_lines(summary, missing, width, read_only=read_only)

    # --- weights --------------------------------------------------------------------------------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer keys that have an effect now."""
        match action:
            case "step":
                part = self._part
                return part is not None and part.enabled and not part.gate
            case "reset":
                part = self._part
                return part is not None and part.name in self._weights
            case "rescore":
                return may_send(self.session, "rewards.whatif")
            case "cancel":
                return may_send(self.session, "rewards.whatif_stop")
            case "apply":
                weights = self._weight_args()
                return bool(weights) and may_send(self.session, "rewards.apply", weights=weights)
        return super().check_action(action, parameters)

    def _try(self, part: RewardPart, weight: float) -> None:
        weight = round(weight, 4)
        if part.share:
            weight = max(0.0, min(1.0, weight))
        if abs(weight - part.weight) < 1e-9:
            self._weights.pop(part.name, None)
        else:
            self._weights[part.name] = weight
        self.update_view(frozenset({"*"}))

    def action_step(self, direction: int) -> None:
        """Change the weight under the cursor by one step."""
        part = self._part
        if part is not None:
            self._try(part, self._weights.get(part.name, part.weight) + direction * STEP)

    def action_reset(self) -> None:
        """Restore the weight in use."""
        part = self._part
        if part is not None:
            self._try(part, part.weight)

    def action_window(self) -> None:
        """Switch to the next number of groups."""
        self._last = WINDOWS[(WINDOWS.index(self._last) + 1) % len(WINDOWS)]
        self.update_view(frozenset({"*"}))

    def on_item_list_opened(self, event: ItemList.Opened) -> None:
        """Ask for a weight, or open the group."""
        event.stop()
        if self.query_one(WeightList).has_focus:
            self.run_worker(self._type(), group="question", exclusive=True, exit_on_error=False)
        else:
            self.host.push_screen(
                GroupScreen(event.key, list(self.query_one(ChangedGroupList).keys))
            )

    async def _type(self) -> None:
        part = self._part
        if part is None or part.gate or not part.enabled:
            return
        name = one_line(part.name, 40)
        now = f"{self._weights.get(part.name, part.weight):g}"
        answer = await self.host.ask(f"Try a weight for {name}", "This changes nothing yet.", now)
        if answer is None:
            return
        try:
            (weight,) = weights_of([f"weight={answer}"]).values()
        except UsageError:
            self.host.say(f"{one_line(answer, 40)} is not a weight", "error")
            return
        self._try(part, weight)

    # --- commands -------------------------------------------------------------------------------

    def _weight_args(self) -> list[str]:
        return [f"{name}={weight:g}" for name, weight in self._weights.items()]

    def action_rescore(self) -> None:
        """Re-score the groups on the proxy."""
        work = self.host.send_command(
            "rewards.whatif", weights=self._weight_args(), last=self._last
        )
        self.run_worker(work, group="command", exit_on_error=False)

    def action_cancel(self) -> None:
        """Cancel the re-scoring."""
        work = self.host.send_command("rewards.whatif_stop")
        self.run_worker(work, group="command", exit_on_error=False)

    def action_apply(self) -> None:
        """Confirm, then write the weights."""
        self.run_worker(self._apply(), group="question", exclusive=True, exit_on_error=False)

    async def _apply(self) -> None:
        weights = self._weight_args()
        body = (
            f"{', '.join(one_line(weight, 40) for weight in weights)}. "
            "They apply from the next group; groups already sent stay as they are. "
            "The file of the rewards is rewritten; its comments stay."
        )
        if not await self.host.confirm("Apply these weights?", body, "Apply"):
            return
        if await self.host.send_command(
            "rewards.apply", weights=weights
        ):  # otherwise they can be applied again
            self._weights.clear()
            self.update_view(frozenset({"*"}))
