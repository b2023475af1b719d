"""One group: candidates beside each other, what they earned and why; digits vote."""

from collections.abc import Callable
from typing import ClassVar

from textual import events, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from ajet_swarm.common.errors import AjetError
from console.models.ballot import Ballot
from console.screens.conversation import ConversationVerbs
from console.screens.group_actions import digit_bindings
from console.screens.rater import cast_vote, under_name
from console.screens.tokens import TokensScreen
from console.session.app_state import EVERYTHING
from console.session.group_facts import answered
from console.text.server_color import group_color
from console.views.candidate import whole_texts
from console.views.conversation import context_words
from console.widgets.candidates import Candidates
from console.widgets.group_detail import GroupDetail
from core.state import Group


class GroupScreen(ConversationVerbs):
    """The detail of one group, above the list it was opened from."""

    area: ClassVar[str] = "Group"
    help_text: ClassVar[str] = (
        "A digit says which answer is best; it replaces the automatic reward until the group is "
        "sent. ▲ winner has the highest reward, → returned is what the user got, ✓ rated best is "
        "your choice. Answers are shown as Markdown; r shows them whole and as they came, d what "
        "the others say differently, S scores again, A asks again. An advantage with ≈ is what it "
        "would be if the group were sent now."
    )
    digits_vote: ClassVar[bool] = True
    quiet: ClassVar[bool] = True
    first_keys: tuple[str, ...] = ("vote(1)", "tie", "bad")
    spare_keys: ClassVar[tuple[str, ...]] = (
        "diff",
        "raw",
        "mark",
        "note",
        "copy",
        "curl",
        "rescore",
        "rerun",
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        *digit_bindings("vote", "Best", "That answer is best: 1, the others 0"),
        Binding("t", "tie", "Tie", id="group.tie", tooltip="No preference: a dead group"),
        Binding("b", "bad", "Bad", id="group.bad", tooltip="All are bad: a dead group"),
        Binding("r", "raw", "Raw", show=False, id="group.raw", tooltip="Whole texts as they came"),
        Binding(
            "z",
            "fold",
            "Fold",
            show=False,  # what is folded names the key
            id="group.fold",
            tooltip="Query, reasoning, traceback",
        ),
        Binding(
            "p",
            "tokens",
            "Tokens",
            id="group.tokens",
            tooltip="Each token of this candidate with its log-probs",
        ),
        Binding(
            "d",
            "diff",
            "Diff",
            show=False,
            id="group.diff",
            tooltip="What the other answers say differently from this one, by words",
        ),
        Binding("left,h", "step(-1)", "Candidate to the left", show=False),
        Binding("right,l,tab", "step(1)", "Candidate to the right", show=False),
        Binding("up,k", "scroll_card(-1)", "Up", show=False),
        Binding("down,j", "scroll_card(1)", "Down", show=False),
        Binding("pageup", "scroll_card(-10)", "Page up", show=False),
        Binding("pagedown,space", "scroll_card(10)", "Page down", show=False),
        Binding("left_square_bracket", "other(1)", "Newer group", show=False, key_display="["),
        Binding("right_square_bracket", "other(-1)", "Older group", show=False, key_display="]"),
        Binding("escape", "leave", "Back", id="group.leave"),
    ]

    def __init__(
        self,
        group_id: str,
        others: list[str] | None = None,
        known: Callable[[str], Group | None] | None = None,
        candidate: int | None = None,
    ) -> None:
        """Show a group.

        Args:
            group_id: Which one.
            others: Those that `[` and `]` lead to, from the newest.
            known: Finds a group by its id; what the session knows when left out.
            candidate: Which one is selected first; the winner when left out.
        """
        super().__init__()
        self._group_id = group_id
        self._others = others or [group_id]
        self._known = known
        self._last: Group | None = None
        self._armed = ""
        self._first = candidate

    def compose_body(self) -> ComposeResult:
        """The detail."""
        yield GroupDetail(bars=True)

    @property
    def target_group(self) -> str | None:
        """The group on screen."""
        return self._group_id

    @property
    def group(self) -> Group | None:
        """The group on screen; as it was last seen when it has fallen out of memory since."""
        found = self._find(self._group_id)
        if found is None and self._last is not None and self._last.group_id == self._group_id:
            return self._last
        self._last = found
        return found

    def _find(self, group_id: str) -> Group | None:
        return self._known(group_id) if self._known else self.session.group(group_id)

    @property
    def detail(self) -> GroupDetail:
        """The widget that shows it."""
        return self.query_one(GroupDetail)

    @property
    def candidate(self) -> int:
        """The selected candidate."""
        return self.detail.selected

    def whole_text(self, index: int) -> str:
        """The whole text when it was fetched."""
        return self.detail.whole(index)

    def update_view(self, dirty: frozenset[str]) -> None:
        """Paint the group when it, or its clock, has changed."""
        if dirty.isdisjoint({"*", "clock", f"group:{self._group_id}"}):
            return
        group = self.group
        if group is None:
            self.host.say("This group is no longer kept in memory", "warning")
            self.dismiss()
            return
        session = self.session
        color = group_color(session.state, group)
        self.read_conversation()
        context = context_words(self.entries, group.turns) or "…"
        self.detail.show(group, session.now(), color, read_only=session.read_only, context=context)
        if self._first is not None:
            self.detail.select(self._first)
            self._first = None
        self.refresh_keys()

    # --- votes -------------------------------------------------------------------------------

    def on_key(self, event: events.Key) -> None:
        """A second press of `t` or `b` confirms the first one only when nothing is between."""
        if event.key not in ("t", "b"):
            self._armed = ""

    def action_vote(self, digit: int) -> None:
        """The answer with that number is best."""
        group = self.group
        if group is None:
            return
        index = digit - 1
        if index not in answered(group):
            self.host.say(f"There is no answer {digit} to vote for", "warning")
            return
        self._rate("best", order=[index])

    def action_tie(self) -> None:
        """No preference, after a second press."""
        self._twice("tie", "A tie: all rewards 0.5, a dead group. t again sends it")

    def action_bad(self) -> None:
        """All bad, after a second press."""
        self._twice("bad", "All bad: all rewards 0, a dead group. b again sends it")

    def _twice(self, rating: str, warning: str) -> None:
        group = self.group
        if group is None:
            return
        if self._armed != rating:
            self._armed = rating
            self.host.say(warning, "warning")
            return
        self._armed = ""
        self._rate(rating)

    def _rate(self, rating: str, **args: list[int]) -> None:
        group = self.group
        if group is None:
            return
        given = {"group_id": group.group_id, "rating": rating, **args}
        note = Ballot(group, blind=False).note()

        async def send() -> None:
            outcome = await cast_vote(self.host, group.query, note=note, **given, **self.rater())
            if outcome.message and not outcome.ok:
                self.host.say(outcome.message, "error")

        def cast() -> None:
            self.run_worker(send(), name="vote", group="votes", exit_on_error=False)

        under_name(self, cast)

    # --- looking -----------------------------------------------------------------------------

    def action_step(self, by: int) -> None:
        """Select another candidate."""
        cards = self.detail.candidates
        if cards.cards:
            self.detail.select((self.detail.selected + by) % len(cards.cards))

    def on_candidates_chosen(self, event: Candidates.Chosen) -> None:
        """A click selects."""
        self.detail.select(event.place)

    def action_scroll_card(self, rows: int) -> None:
        """Scroll the selected candidate."""
        self.detail.candidates.scroll_selected(rows)

    def action_fold(self) -> None:
        """Unfold, or fold again."""
        self.detail.toggle_fold()
        self.update_view(EVERYTHING)

    def action_tokens(self) -> None:
        """The token log of the selected candidate."""
        self.app.push_screen(TokensScreen(self._group_id, self.candidate))

    def action_diff(self) -> None:
        """Compare the others with the selected candidate, or with none again."""
        detail = self.detail
        detail.base = detail.selected if detail.base is None else None
        self.update_view(EVERYTHING)
        if detail.base is not None and not detail.candidates.side_by_side:
            self.action_step(1)  # the base itself shows no difference

    def action_raw(self) -> None:
        """Whole texts as they came, or Markdown made readable."""
        detail = self.detail
        detail.raw = not detail.raw
        self.update_view(EVERYTHING)
        group = self.group
        if detail.raw and group is not None and not detail.whole(detail.selected):
            self._fetch(group.group_id)

    @work(group="whole", exclusive=True, exit_on_error=False)
    async def _fetch(self, group_id: str) -> None:
        try:
            told = await self.session.group_events(group_id)
        except AjetError as error:
            self.host.say(f"The whole text cannot be read: {error}", "error")
            return
        if group_id == self._group_id and self.is_mounted:
            self.detail.take_whole(*whole_texts(told))
            self.update_view(EVERYTHING)

    def action_other(self, by: int) -> None:
        """The next group of the list: 1 is newer."""
        kept = [one for one in self._others if self._find(one) is not None]
        if self._group_id not in kept:
            return
        place = kept.index(self._group_id) - by
        if 0 <= place < len(kept):
            self._group_id = kept[place]
            self._armed = ""
            self.update_view(EVERYTHING)

    def action_leave(self) -> None:
        """Back to the list."""
        self.dismiss()
