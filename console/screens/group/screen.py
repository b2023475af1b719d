"""Detail screen of one group: its candidates, their rewards and reasons; digits vote."""

from collections.abc import Callable
from typing import ClassVar

from textual import events, work
from textual.app import ComposeResult
from textual.binding import BindingType

from console.screens.base import ConsoleScreen
from console.screens.group import actions
from console.screens.group.model import whole_texts
from console.screens.group.rater import cast_vote, rater_args, with_rater_name
from console.screens.group.widgets import Candidates, GroupDetail
from console.screens.tokens.screen import TokensScreen
from console.session.app_state import EVERYTHING
from console.ui.keys import keys
from console.widgets.key_area import KeyArea
from core.state import Group

_WARNINGS = {
    "tie": "A tie: all rewards 0.5, a dead group. Press t again to send",
    "bad": "All bad: all rewards 0, a dead group. Press b again to send",
}


class ShownGroup(actions.GroupTarget):
    """The group of the detail screen; its last state when it is no longer in memory."""

    def __init__(
        self,
        screen: ConsoleScreen,
        group_id: str,
        others: list[str] | None,
        find: Callable[[str], Group | None] | None,
    ) -> None:
        super().__init__(screen)
        self.group_id = group_id
        self._others = others or [group_id]
        self._find_group = find
        self._last: Group | None = None

    @property
    def group(self) -> Group | None:
        group = self._find(self.group_id)
        if group is None and self._last is not None and self._last.group_id == self.group_id:
            return self._last
        self._last = group
        return group

    def _find(self, group_id: str) -> Group | None:
        return (self._find_group or self._screen.session.group)(group_id)

    def step(self, by: int) -> bool:
        """Move to the next group of the list that is in memory; 1 is newer."""
        ids = [name for name in self._others if self._find(name) is not None]
        place = ids.index(self.group_id) - by if self.group_id in ids else -1
        if 0 <= place < len(ids):
            self.group_id = ids[place]
        return 0 <= place < len(ids)

    @property
    def detail(self) -> GroupDetail:
        """The widget that shows the group."""
        return self._screen.query_one(GroupDetail)

    @property
    def candidate(self) -> int:
        return self.detail.selected

    def whole_text(self, index: int) -> str:
        """Return the whole text of a candidate once it was fetched, else ""."""
        return self.detail.whole(index)


class GroupVotes(actions.GroupArea):
    """Votes on the group of the detail screen."""

    target: ShownGroup

    WRITING: ClassVar[frozenset[str]] = frozenset({"vote", "arm"})
    BINDINGS: ClassVar[list[BindingType]] = [
        *actions.digit_bindings("vote", "Best", "Rate that answer best: reward 1, the others 0"),
        *keys(
            ("t", "arm('tie')", "Tie", "group.tie", "No preference: a dead group"),
            ("b", "arm('bad')", "Bad", "group.bad", "All are bad: a dead group"),
        ),
    ]

    def __init__(self, target: ShownGroup) -> None:
        super().__init__(target, focusable=True)
        self._armed = ""
        """The vote that a second press of its key sends."""

    def obstacle(self, action: str) -> str | None:
        group = self.target.group
        if group is not None and group.group_id in self.session.state.inbox:
            return "It ended before its vote: I on Rate, the inbox, takes a late one"
        return super().obstacle(action)

    def on_key(self, event: events.Key) -> None:
        """Forget a first press of `t` or `b` when another key follows it."""
        self.disarm(event.key)

    def disarm(self, key: str = "") -> None:
        """Require two presses again, unless `key` may be the second one."""
        if key not in ("t", "b"):
            self._armed = ""

    def action_vote(self, digit: int) -> None:
        """Vote for the answer with that number."""
        if (group := self.target.group) is None:
            return
        if digit - 1 in group.answered:
            self._rate("best", order=[digit - 1])
        else:
            self.host.say(f"There is no answer {digit} to vote for", "warning")

    def action_arm(self, rating: str) -> None:
        """Vote for no preference, or that all answers are bad, with the second press."""
        if self.target.group is None:
            return
        if self._armed != rating:
            self._armed = rating
            self.host.say(_WARNINGS[rating], "warning")
            return
        self._armed = ""
        self._rate(rating)

    def _rate(self, rating: str, **args: list[int]) -> None:
        group = self.target.group
        if group is None:
            return
        note = f"open; shown {' '.join(str(index + 1) for index in group.answered)}"
        vote = {"group_id": group.group_id, "rating": rating, "note": note, **args}

        async def send() -> None:
            outcome = await cast_vote(self.host, group.query, **vote, **rater_args(self.session))
            if outcome.message and not outcome.ok:
                self.host.say(outcome.message, "error")

        def cast() -> None:
            self.run_worker(send(), name="vote", group="votes", exit_on_error=False)

        with_rater_name(self, cast)


class GroupPage(actions.GroupArea):
    """Selects, scrolls, folds and compares the candidates of the detail screen."""

    target: ShownGroup

    BINDINGS: ClassVar[list[BindingType]] = [
        *keys(("p", "tokens", "Tokens", "group.tokens", "Each token with its log-probs")),
        *keys(
            ("r", "raw", "Raw", "group.raw", "Whole texts, unrendered"),
            # the folded text names the key
            ("z", "fold", "Fold", "group.fold", "Query, reasoning, traceback"),
            ("d", "diff", "Diff", "group.diff", "Word differences of the others from this answer"),
            ("left,h", "step(-1)", "Candidate to the left"),
            ("right,l,tab", "step(1)", "Candidate to the right"),
            ("up,k", "scroll_card(-1)", "Up"),
            ("down,j", "scroll_card(1)", "Down"),
            ("pageup", "scroll_card(-10)", "Page up"),
            ("pagedown,space", "scroll_card(10)", "Page down"),
            shown=False,
        ),
    ]

    def action_step(self, by: int) -> None:
        """Select another candidate."""
        cards = self.target.detail.candidates
        if cards.cards:
            self.target.detail.select((self.target.detail.selected + by) % len(cards.cards))

    def action_scroll_card(self, rows: int) -> None:
        """Scroll the selected candidate."""
        self.target.detail.candidates.scroll_selected(rows)

    def action_fold(self) -> None:
        """Unfold, or fold again."""
        self.target.detail.toggle_fold()
        self.changed()

    def action_tokens(self) -> None:
        """Show the token log of the selected candidate."""
        self.host.push_screen(TokensScreen(self.target.group_id, self.target.candidate))

    def action_diff(self) -> None:
        """Start or stop comparing the others with the selected candidate."""
        detail = self.target.detail
        detail.base = detail.selected if detail.base is None else None
        self.changed()
        if detail.base is not None and not detail.candidates.side_by_side:
            self.action_step(1)  # the base itself shows no difference

    @work(group="whole", exclusive=True, exit_on_error=False)
    async def action_raw(self) -> None:
        """Switch between whole raw texts and rendered Markdown."""
        detail, group = self.target.detail, self.target.group
        detail.raw = not detail.raw
        self.changed()
        if not detail.raw or group is None or detail.whole(detail.selected):
            return
        events = await actions.read_events(self, group, "whole text")
        if events is not None and group.group_id == self.target.group_id and self.is_mounted:
            self.target.detail.take_whole(*whole_texts(events))
            self.changed()


class GroupScreen(ConsoleScreen):
    """The detail of one group, above the list it was opened from."""

    area: ClassVar[str] = "Group"
    help_text: ClassVar[str] = (
        "A digit rates an answer best and replaces the automatic rewards; this works until the "
        "group is sent. ▲ winner has the highest reward, → returned is the answer the user got, "
        "✓ rated best is your choice. Answers are rendered as Markdown; r shows the whole raw "
        "texts, d the differences to the other answers, S scores again, A asks again. An "
        "advantage with ≈ is an estimate: its value if the group were sent now."
    )
    AUTO_FOCUS = "GroupVotes"
    keeps_focus: ClassVar[bool] = True
    digits_vote: ClassVar[bool] = True
    first_keys: tuple[str, ...] = ("vote(1)", "arm('tie')", "arm('bad')")
    spare_keys: ClassVar[tuple[str, ...]] = tuple(
        ["diff", "raw", "mark", "note", "copy", "curl", "rescore", "rerun"]
    )
    BINDINGS: ClassVar[list[BindingType]] = keys(
        ("left_square_bracket", "other(1)", "Newer group", "", "", "["),
        ("right_square_bracket", "other(-1)", "Older group", "", "", "]"),
        ("escape", "dismiss", "Back", "group.leave"),
    )

    def __init__(
        self,
        group_id: str,
        others: list[str] | None = None,
        find: Callable[[str], Group | None] | None = None,
        candidate: int | None = None,
    ) -> None:
        """Show a group.

        Args:
            group_id: Id of the group.
            others: Ids that `[` and `]` lead to, newest first.
            find: Returns a group by its id; defaults to the session.
            candidate: Index of the candidate to select; defaults to the winner.
        """
        super().__init__()
        self.target = ShownGroup(self, group_id, others, find)
        self.detail_keys = actions.DetailKeys(self.target)
        self.votes = GroupVotes(self.target)
        self._first_candidate = candidate

    def compose_body(self) -> ComposeResult:
        with GroupPage(self.target), self.detail_keys, self.votes:
            yield GroupDetail(bars=True)

    @property
    def target_group(self) -> str | None:
        return self.target.group_id

    def update_view(self, dirty: frozenset[str]) -> None:
        """Paint the group when it, or its clock, has changed."""
        if dirty.isdisjoint({"*", "clock", f"group:{self.target.group_id}"}):
            return
        group = self.target.group
        if group is None:
            self.host.say("This group is no longer in memory", "warning")
            self.dismiss()
            return
        detail = self.target.detail
        detail.show(group, self.detail_keys.context() or "…")
        if self._first_candidate is not None:
            detail.select(self._first_candidate)
            self._first_candidate = None
        for area in self.query(KeyArea):
            area.keys.refresh()

    def on_key_area_changed(self) -> None:
        """Paint what a key has changed."""
        self.update_view(EVERYTHING)

    def on_candidates_chosen(self, event: Candidates.Chosen) -> None:
        """Select the candidate that was clicked."""
        self.target.detail.select(event.place)

    def action_other(self, by: int) -> None:
        """Show the next group of the list: 1 is newer."""
        if self.target.step(by):
            self.votes.disarm()
            self.update_view(EVERYTHING)
