"""What-if screen: the effect of other weights on finished groups, before they are applied."""

from collections.abc import Iterable
from typing import ClassVar

from textual import work
from textual.binding import BindingType
from textual.widget import Widget

from ajet_swarm.common.errors import UsageError
from ajet_swarm.common.text import one_line, plural
from console.screens.base import ConsoleScreen
from console.screens.group.screen import GroupScreen
from console.screens.rewards.model import WINDOWS, Digests, find_part, next_window
from console.screens.rewards.text import group_lines, summary_lines, weight_line
from console.session.app_state import EVERYTHING
from console.session.command_plans import may_send
from console.session.what_if import WhatIfResult, can_weigh, tally
from console.text.format import elapsed
from console.text.lines import Line
from console.text.wrap import wrapped
from console.ui.keys import keys
from console.widgets.item_list import ItemList, ListItem
from console.widgets.pane import TextPane
from core.commands.rewards import weights_of
from core.events import RewardPart, TrialSummary

STEP = 0.05


class RewardsWhatIfScreen(ConsoleScreen):
    """Weights to try, and their effect."""

    area: ClassVar[str] = "What if"
    help_text: ClassVar[str] = (
        "Nothing here changes the rewards until you apply it. Left and right change the weight "
        "under the cursor, Enter asks for a number. The effect is computed at once from the "
        "stored part values of the groups in view; a changed file, and groups that older rewards "
        "scored, need to be re-scored on the proxy, while users still get answers.\n"
        "winner flips: another answer has the highest automatic reward than before. dead groups "
        "gained: groups that carry a signal now and then would not. Automatic rewards are compared "
        "in human-rated groups, too; human-rated counts where they pick the human winner. "
        "The groups below change most; Enter opens one."
    )
    AUTO_FOCUS: ClassVar[str | None] = "#whatif-parts"
    BINDINGS: ClassVar[list[BindingType]] = [
        *keys(
            ("left,minus", "step(-1)", "Less", "whatif.less", "", "←"),
            ("right,plus", "step(1)", "More", "whatif.more", "", "→"),
            ("backspace", "reset", "Undo", "whatif.reset", "The weight in use"),
        ),
        *keys(("w", "window", "How many", "whatif.window", "The last 100, 500 or 20"), shown=False),
        *keys(
            ("r", "rescore", "Re-score", "rewards.whatif", "In the background; nothing is sent"),
            ("c", "cancel", "Cancel", "rewards.whatif_stop", "Stop re-scoring"),
            ("a", "apply", "Apply", "rewards.apply", "Write the weights to the file; asks first"),
            ("escape", "dismiss", "Back", "whatif.leave"),
        ),
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
        yield ItemList(id="whatif-parts", opens=("Type", "Type a weight to try for this part"))
        yield TextPane(id="whatif-sums")
        yield ItemList(id="whatif-groups", opens=("Group", "The group in full"))

    @property
    def weights(self) -> ItemList:
        """The parts with their weights."""
        return self.query_one("#whatif-parts", ItemList)

    @property
    def changed_groups(self) -> ItemList:
        """The groups that change most."""
        return self.query_one("#whatif-groups", ItemList)

    @property
    def target_group(self) -> str | None:
        """The group under the cursor, while the list has the focus."""
        groups = self.changed_groups
        return groups.cursor or None if groups.has_focus else None

    @property
    def _part(self) -> RewardPart | None:
        return find_part(self.session.state, self.weights.cursor)

    # --- painting -------------------------------------------------------------------------------

    def update_view(self, dirty: frozenset[str]) -> None:
        """Paint changes of the rewards at once, new groups once a second."""
        if dirty.isdisjoint({"*", "rewards", "clock"}):
            return
        state, weights, rows = self.session.state, dict(self._weights), self.weights
        parts = state.rewards.parts if can_weigh(state) else ()
        rows.display = bool(parts)
        rows.show_rows(
            parts, lambda part: part.name, lambda part, width: weight_line(part, weights, width)
        )
        if not self._cursor_placed and rows.keys:
            self._cursor_placed = True
            rows.move_to(next((part.name for part in parts if part.enabled and not part.gate), ""))
        summary, missing, source = self._result()
        self.query_one("#whatif-head", TextPane).show_lines([self._head(source)])
        self.query_one("#whatif-sums", TextPane).show_lines(self._summary(summary, missing))
        groups, most = self.changed_groups, summary.most if summary is not None else ()
        groups.display = bool(most)
        groups.show_head("most", lambda width: ((" changes most", "$muted"),))
        groups.show_items(
            most,
            lambda width: (ListItem(trial.group_id, group_lines(trial, width)) for trial in most),
        )
        self.refresh_bindings()

    def _result(self) -> tuple[TrialSummary | None, int, str]:
        """Return the result of the proxy for these weights, else what can be computed here."""
        state = self.session.state
        known, rewards, totals = state.what_if, state.rewards, state.totals
        if known is not None and known.phase == "done" and known.began >= rewards.since:
            summary = known.summary
            if summary is not None and dict(known.weights) == self._weights:
                return summary, 0, f"{plural(summary.groups, 'group')} re-scored"
        if not can_weigh(state):
            return None, 0, ""
        # these change with every scored or sent group, or as its parts are read
        counts = totals.groups, totals.done, totals.rated, self.session.unread_texts.waiting
        key = (self._last, tuple(self._weights.items()), counts, rewards.version, rewards.parts)
        if self._cached is None or self._cached[0] != key:
            groups = [digest.group for digest in Digests().last(state, self._last) if digest.parts]
            self._cached = (key, tally(state, groups, self._weights))
        result = self._cached[1]
        source = f"{plural(result.summary.groups, 'group')}, from the stored part values"
        return result.summary, result.missing, source

    def _head(self, source: str) -> Line:
        title = (" WHAT IF  ", "bold $heading")
        known = self.session.state.what_if
        if known is not None and known.phase == "doing":
            took = elapsed(max(0.0, self.session.now() - known.began))
            share = f"◌ {known.done} of {known.total} groups re-scored, {took}"
            return (title, (share, "$engine-booting"))
        if known is not None and known.phase == "failed" and dict(known.weights) == self._weights:
            return (title, (f"✖ {one_line(known.cause, 200)}", "bold $engine-lost"))
        return (title, (source, "$muted"))

    def _summary(self, summary: TrialSummary | None, missing: int) -> list[Line]:
        width, read_only = max(20, self.size.width - 2), self.session.read_only
        if summary is None:
            why = "The reward comes only from a hook folder: there are no weights to try. "
            text = why + ("" if read_only else "r re-scores the groups with its newest save.")
            return [((line, "$muted"),) for line in wrapped(text, width)]
        lines = summary_lines(summary, missing, width, read_only=read_only)
        if not self._weights and summary.compared and not summary.flips and not summary.died:
            hint = "Left and right change a weight; the effect is shown here at once"
            lines[:2] = [((line, "$muted"),) for line in wrapped(hint, width)]
        return lines

    # --- weights --------------------------------------------------------------------------------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer keys that have an effect now."""
        part = self._part if action in ("step", "reset") else None
        match action:
            case "step":
                return part is not None and part.enabled and not part.gate
            case "reset":
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
        self._weights.pop(part.name, None)
        if abs(weight - part.weight) >= 1e-9:
            self._weights[part.name] = weight
        self.update_view(EVERYTHING)

    def action_step(self, direction: int) -> None:
        """Change the weight under the cursor by one step."""
        if (part := self._part) is not None:
            self._try(part, self._weights.get(part.name, part.weight) + direction * STEP)

    def action_reset(self) -> None:
        """Restore the weight in use."""
        if (part := self._part) is not None:
            self._try(part, part.weight)

    def action_window(self) -> None:
        """Switch to the next number of groups."""
        self._last = next_window(self._last)
        self.update_view(EVERYTHING)

    def on_item_list_opened(self, event: ItemList.Opened) -> None:
        """Ask for a weight, or open the group."""
        event.stop()
        if self.weights.has_focus:
            self._type()
        else:
            self.host.push_screen(GroupScreen(event.key, list(self.changed_groups.keys)))

    @work(group="question", exclusive=True, exit_on_error=False)
    async def _type(self) -> None:
        part = self._part
        if part is None or part.gate or not part.enabled:
            return
        title = f"Try a weight for {one_line(part.name, 40)}"
        now = f"{self._weights.get(part.name, part.weight):g}"
        answer = await self.host.ask(title, "This changes nothing yet.", now)
        if answer is None:
            return
        try:
            (weight,) = weights_of([f"weight={answer}"]).values()
        except UsageError:
            self.host.say(f"{one_line(answer, 40)} is not a weight", "error")
        else:
            self._try(part, weight)

    # --- commands -------------------------------------------------------------------------------

    def _weight_args(self) -> list[str]:
        return [f"{name}={weight:g}" for name, weight in self._weights.items()]

    def action_rescore(self) -> None:
        """Re-score the groups on the proxy."""
        self.host.run_command("rewards.whatif", weights=self._weight_args(), last=self._last)

    def action_cancel(self) -> None:
        """Cancel the re-scoring."""
        self.host.run_command("rewards.whatif_stop")

    @work(group="question", exclusive=True, exit_on_error=False)
    async def action_apply(self) -> None:
        """Confirm, then write the weights."""
        weights = self._weight_args()
        body = (
            f"{', '.join(one_line(weight, 40) for weight in weights)}. "
            "They apply from the next group; groups already sent stay as they are. "
            "The file of the rewards is rewritten; its comments stay."
        )
        if not await self.host.confirm("Apply these weights?", body, "Apply"):
            return
        if await self.host.send_command("rewards.apply", weights=weights):
            self._weights.clear()  # after a refusal they can be applied again
            self.update_view(EVERYTHING)
