"""Rating by hand: one group at a time, blind, by digits."""

from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from console.models.ballot import Ballot
from console.models.rate_progress import progress_words
from console.models.rate_queue import digit
from console.screens.group_actions import digit_bindings
from console.screens.rate.mode import ModeScreen
from console.screens.rate.tools import Asides
from console.session.app_state import EVERYTHING
from console.text.lines import EMPTY, Line, fit
from console.text.wrap import wrapped
from console.views.conversation import context_words
from console.views.rate_aside import MINUTES
from console.views.rating import (
    banner_line,
    clock_line,
    last_vote_line,
    missing_text,
    others_words,
    queue_notes,
    rate_cards,
    title_line,
    vote_words,
)
from console.widgets.candidates import Candidates
from console.widgets.pane import Pane, centred
from console.widgets.rate_aside import RateAside
from core.state import Group

PROMPT_ROWS = 4


class RateScreen(Asides):
    """The queue of groups that wait for the operator: waiting users first, then by clock."""

    area: ClassVar[str] = "Rate"
    help_text: ClassVar[str] = (
        "One digit and Enter: that answer is best. Digits in order: a ranking; the last one sends "
        "it. s: a score from 0 to 9 for each. t tie and b all bad make a dead group: press twice. "
        "k skip: the group is aborted; x asks first and takes a reason. Answers are shuffled and "
        "rewards hidden; v shows them, with the number each answer has in the group's detail as "
        "#1 #2. u undoes the last vote until it is sent. e rewrites the best answer: kept as "
        "a preference, no reward and no user gets it. Some groups come back reshuffled: that "
        "vote is compared with the first and not sent; j shows how often they agree."
    )
    digits_vote: ClassVar[bool] = True
    spare_keys: ClassVar[tuple[str, ...]] = (
        "abort",
        "tie",
        "bad",
        "mode",
        "take",
        "edit",
        "note",
        "diff",
        "guidelines",
        "zoom",
        "step(1)",
        "tags",
        "held",
        "judge",
        "unsure",
    )
    most_keys: ClassVar[int] = 20
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("a", "accept", "Accept", show=False, id="group.accept"),
        Binding(
            "x",
            "abort",
            "Abort",
            show=False,
            id="group.abort",
            tooltip="Give its episodes back; asks first",
        ),
        *digit_bindings("digit", "Best", "Best first; then the next ones for a ranking"),
        Binding("0", "digit(0)", "Score 0", show=False),
        Binding("enter", "commit", "Send", id="rate.commit", tooltip="Send what was typed"),
        Binding("s", "scores", "Score", id="rate.scores", tooltip="A digit for each answer"),
        Binding(
            "t", "tie", "Tie", show=False, id="rate.tie", tooltip="No preference: a dead group"
        ),
        Binding("b", "bad", "Bad", show=False, id="rate.bad", tooltip="All 0: a dead group"),
        Binding("k", "skip", "Skip", id="rate.skip", tooltip="Send nothing: the group is aborted"),
        Binding("u", "undo", "Undo", id="rate.undo", tooltip="Undo the last vote"),
        Binding("v", "reveal", "Show", id="rate.reveal", tooltip="Rewards, marks and numbers"),
        Binding(
            "o", "mode", "Mode", show=False, id="rating.mode", tooltip="off, answer first, hold"
        ),
        Binding("backspace", "back", "Take a key back", show=False),
        Binding("tab,right", "step(1)", "Select", show=False, tooltip="The next answer"),
        Binding("shift+tab,left", "step(-1)", "Previous answer", show=False),
        Binding("down,space", "scroll_card(3)", "Down", show=False),
        Binding("up", "scroll_card(-3)", "Up", show=False),
        Binding("z", "zoom", "Zoom", show=False, id="rate.zoom"),
        Binding("right_square_bracket", "other(1)", "Next group", show=False, key_display="]"),
        Binding("left_square_bracket", "other(-1)", "Previous group", show=False, key_display="["),
        Binding("escape", "clear", "Clear", show=False, id="rate.clear"),
        Binding(
            "N",
            "name",
            "Your name",
            show=False,
            id="rate.name",
            tooltip="Who rates: recorded with the votes from now on",
        ),
    ]

    def compose_body(self) -> ComposeResult:
        """Title, clock, question, answers, what the keys will send."""
        yield Pane(id="rate-title")
        yield Pane(id="rate-banner")
        yield Pane(id="rate-clock")
        yield Pane(id="rate-prompt")
        yield Candidates(stack=True)
        yield Pane(id="rate-empty")
        yield RateAside()
        yield Pane(id="rate-ballot")
        yield Pane(id="rate-last")

    @property
    def candidate(self) -> int:
        """The candidate behind the selected answer."""
        cards = self.answers
        card = cards.cards[cards.selected or 0] if cards.cards else None
        return card.index if card is not None else 0

    # --- painting ----------------------------------------------------------------------------

    def update_view(self, dirty: frozenset[str]) -> None:
        """Paint what changed."""
        if dirty.isdisjoint({"*", "groups", "clock", "proxy", "link", "alerts", "servers"}):
            return
        state, now = self.session.state, self.session.now()
        queue = self.waiting()
        if self.queue.keep(queue, state, now):
            self.fresh_cards()
        self.tend_lease(now)
        self.refresh_keys()
        width = max(20, self.size.width)
        held = sum(group.rating is not None for group in state.waiting())
        more = queue_notes(self.queue, state, now, len(queue))
        if session_words := progress_words(self.queue.progress.figures()):
            more.append(f"session: {session_words}")
        looks = self.session.read_only
        title = title_line(len(queue), held, state.rating_mode, width, more, read_only=looks)
        self.query_one("#rate-title", Pane).show_lines([title])
        # an empty page says itself who has the groups
        others = self.queue.with_others(state, now) if self.group is not None else ()
        banner = banner_line(state, now, width, others, read_only=looks)
        self.query_one("#rate-banner", Pane).show_lines([banner])
        group = self.group
        self.set_class(group is None, "-empty")
        if group is not None:
            clocked = group if not self.queue.second else (queue[0] if queue else None)
            self._show_clock(clocked, now, width)
            self._show_group(group)
        else:
            lines = self._nothing(state.rating_mode)
            self.query_one("#rate-empty", Pane).show(
                tuple(lines), lambda room: [EMPTY, *(_centred(lines, room))]
            )
        self._show_last(now, width)
        self._show_aside(now, len(queue))

    def _show_aside(self, now: float, waiting: int) -> None:
        """Guidelines, reference and session, where the terminal has room for them."""
        if not self.has_class("-roomy"):
            return
        aside, session = self.query_one(RateAside), self.session
        aside.show_guidelines(self.guide, bool(session.rating.guidelines))
        last = self.queue.last
        rated = session.state.groups.get(last.group_id) if last is not None else None
        vote = vote_words(rated, last) if rated is not None and last is not None else ""
        aside.show_reference(self.group, self.ballot, rated, vote)
        rater = session.rater
        stats = session.state.raters.get(rater)
        progress = self.queue.progress
        minutes = progress.by_minute(now, MINUTES)
        sent = stats.votes if stats is not None else 0
        aside.show_session(progress.figures(), minutes, sent, waiting, rater)

    def _show_clock(self, group: Group | None, now: float, width: int) -> None:
        """The shortest clock of the queue: while a group is there again, the next one's."""
        line = clock_line(group, now, width) if group is not None else EMPTY
        self.query_one("#rate-clock", Pane).show_lines([line])

    def _show_group(self, group: Group) -> None:
        self.read_conversation()
        context = context_words(self.entries, group.turns)
        self.query_one("#rate-prompt", Pane).show(
            (group.query, context), lambda room: prompt_lines(group.query, room, context)
        )
        ballot = self.ballot
        if ballot is not None:
            answers = self.answers
            beside = answers.columns >= len(ballot.shown)
            made = rate_cards(group, ballot, compact=not (beside or answers.zoomed))
            answers.show_cards(made, answers.selected)
            self._show_ballot(group, ballot)

    def _show_ballot(self, group: Group, ballot: Ballot) -> None:
        tone = "$muted" if ballot.empty else ("bold $warning" if ballot.armed else "bold")
        looks = "this console only looks: v shows rewards and marks"
        said = looks if self.session.read_only else ballot.meaning()
        missing = missing_text(group)
        text = f"{missing}. {said}" if missing else said
        if ballot.tags:
            text = f"[{', '.join(ballot.tags)}] {text}"
        self.query_one("#rate-ballot", Pane).show(
            (text, tone), lambda room: [((f" {row}", tone),) for row in wrapped(text, room - 2)]
        )

    def _show_last(self, now: float, width: int) -> None:
        last = self.queue.last
        line: Line = EMPTY
        if news := self.queue.fresh_news(now):
            line = ((fit(f" {news}", width), "$muted"),)
        elif last is not None:
            group = self.session.state.groups.get(last.group_id)
            words = vote_words(group, last) if group is not None else last.words
            typed = self.ballot is not None and not self.ballot.empty
            line = last_vote_line(group, words, now, width, sends=not typed)
        self.query_one("#rate-last", Pane).show_lines([line])

    def _nothing(self, mode: str) -> list[str]:
        if not self.session.seen:
            return ["No connection to the proxy yet."]
        if self.session.state.watch_only:
            return [
                "This console only watches: it claims nothing, so no answer comes here.",
                "F9 shows the servers.",
            ]
        lines = ["Nothing waits for you."]
        now = self.session.now()
        if self.queue.open(self.session.state, now):
            if others := self.queue.with_others(self.session.state, now):
                lines.append(f"{others_words(others, now, read_only=self.session.read_only)}.")
            else:
                lines.append(self._hidden(len(self.queue.open(self.session.state, now))))
            return lines
        if mode == "off" and self.session.read_only:
            lines.append("The rating mode is off: what is scored is sent by itself.")
        elif mode == "off":
            lines += [
                "The rating mode is off: a scored group comes here for a few seconds,",
                "then its automatic reward is sent. o switches the mode:",
                "answer first and rate later, or let the user wait for you.",
            ]
        else:
            lines.append("The next request that is scored comes here by itself.")
        asks = "" if self.session.read_only else ", F4 asks a dataset as a user would"
        return [*lines, f"F2 shows all requests{asks}."]

    def _hidden(self, count: int) -> str:
        """What the filter for unsure groups leaves out."""
        groups = "1 open group" if count == 1 else f"{count} open groups"
        hides = f"The automatic rewards are sure about {groups}"
        return f"{hides}; f shows {'it' if count == 1 else 'them'}."

    # --- looking -----------------------------------------------------------------------------

    def action_reveal(self) -> None:
        """Show what the rewards say; the vote's note tells that it was not blind."""
        ballot = self.ballot
        if ballot is not None:
            ballot.revealed = True
            self.update_view(EVERYTHING)

    @work(group="question", exclusive=True, exit_on_error=False)
    async def action_mode(self) -> None:
        """Ask for the mode and switch."""
        present = self.session.state.rating_mode
        chosen = await self.host.push_screen_wait(ModeScreen(present))
        if chosen is not None and chosen != present:
            self.run_command("rating.mode", mode=chosen)

    def action_step(self, by: int) -> None:
        """Select an answer: it gets more room."""
        cards = self.answers
        if cards.cards:
            start = -1 if cards.selected is None and by > 0 else (cards.selected or 0)
            cards.select((start + by) % len(cards.cards))

    def number_of(self, index: int) -> str:
        """The digit an answer has here, not the number of the candidate behind it."""
        ballot = self.ballot
        return digit(index, ballot.shown) if ballot is not None else super().number_of(index)

    def abort_words(self, group: Group) -> str:
        """Which answer the user has would tell the winner: blind it stays untold."""
        ballot = self.ballot
        if group.returned is None or ballot is None:
            return super().abort_words(group)
        if ballot.blind and not ballot.revealed:
            return "The user has been answered."
        return f"The user has been answered, with answer {self.number_of(group.returned)}."

    def on_candidates_chosen(self, event: Candidates.Chosen) -> None:
        """A click selects; it does not vote."""
        self.answers.select(event.place)

    def action_scroll_card(self, rows: int) -> None:
        """Scroll the selected answer."""
        self.answers.scroll_selected(rows)

    def action_zoom(self) -> None:
        """One answer on the whole screen, or all again."""
        self.answers.toggle_zoom()
        self.update_view(EVERYTHING)


def prompt_lines(query: str, width: int, context: str) -> list[Line]:
    """What the question came with in one row, then the question in a few."""
    rows = wrapped(query or "(no text)", max(10, width - 2))
    if len(rows) > PROMPT_ROWS:
        more = len(rows) - PROMPT_ROWS + 1
        rows = [*rows[: PROMPT_ROWS - 1], f"… {more} more lines"]
    key = "  i shows all of it"
    about = (fit(f" {context or '…'}", width - len(key)).rstrip(), "$muted")
    return [(about, (key, "$accent")), *(((f" {row}", "bold"),) for row in rows)]


def _centred(lines: list[str], width: int) -> list[Line]:
    return [centred(text, width, "bold" if at == 0 else "$muted") for at, text in enumerate(lines)]
