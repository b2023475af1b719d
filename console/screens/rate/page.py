"""Paints the rating screen, and moves between the answers on it."""

from console.models.advice import context_of
from console.models.ballot import Ballot
from console.models.rating.progress import progress_words
from console.screens.conversation import ConversationActions
from console.screens.parts import ScreenPart
from console.screens.rate.context import RatingContext
from console.text.lines import EMPTY, Line, fit
from console.text.wrap import wrapped
from console.views.conversation import context_words
from console.views.rate_aside import MINUTES
from console.views.rating import (
    banner_line,
    clock_line,
    last_vote_line,
    leased_text,
    missing_text,
    present_names,
    queue_notes,
    rate_cards,
    title_line,
    vote_words,
)
from console.widgets.pane import TextPane, centred
from console.widgets.rate_aside import RateAside
from core.state import Group

PROMPT_ROWS = 4


class RatingPage(ScreenPart):
    """The panes of the rating screen and its answers."""

    def __init__(self, context: RatingContext, conversation: ConversationActions) -> None:
        super().__init__(context.screen)
        self._context = context
        self._queue = context.queue
        self._conversation = conversation

    def _pane(self, name: str) -> TextPane:
        return self.screen.query_one(f"#rate-{name}", TextPane)

    # --- painting ----------------------------------------------------------------------------

    def paint(self, waiting: list[Group], now: float) -> None:
        """Paint all panes.

        Args:
            waiting: Groups that wait for a vote from here.
            now: Unix seconds.
        """
        state, context = self.session.state, context_of(self.session)
        width = max(20, self.screen.size.width)
        held = sum(group.is_rated for group in state.waiting())
        skipped = sum(group.is_skipped for group in state.waiting())
        notes = queue_notes(self._queue, state, now, len(waiting))
        if progress := progress_words(self._queue.progress.figures()):
            notes.append(f"session: {progress}")
        if present := present_names(state, self._queue.holder):  # last: the first to be cut off
            notes.append(present)
        title = title_line(len(waiting), held, state.rating_mode, width, notes, context, skipped)
        self._pane("title").show_lines([title])
        group = self._context.group
        # the empty page already lists the other consoles
        others = self._queue.leased_by_others(state, now) if group is not None else ()
        banner = banner_line(state, now, width, others, context)
        self._pane("banner").show_lines([banner])
        self.screen.set_class(group is None, "-empty")
        if group is not None:
            # a repeated group has no clock: show that of the next group
            clocked = group if not self._queue.second else (waiting[0] if waiting else None)
            clock = clock_line(clocked, now, width) if clocked is not None else EMPTY
            self._pane("clock").show_lines([clock])
            self._paint_group(group)
        else:
            lines = self._empty_lines(state.rating_mode)
            self._pane("empty").show(tuple(lines), lambda room: [EMPTY, *(_centred(lines, room))])
        self._paint_last(now, width)
        self._paint_aside(now, len(waiting))

    def _paint_aside(self, now: float, waiting: int) -> None:
        """Paint guidelines, reference and session figures where they take no room of an answer."""
        aside, session = self.screen.query_one(RateAside), self.session
        aside.show_guidelines(self._context.guidelines, bool(session.rating.guidelines))
        last = self._queue.last
        rated = self._context.last_voted()
        vote = vote_words(rated, last) if rated is not None and last is not None else ""
        aside.show_reference(self._context.group, self._context.ballot, rated, vote)
        rater = session.rater
        stats = session.state.raters.get(rater)
        progress = self._queue.progress
        minutes = progress.by_minute(now, MINUTES)
        sent = stats.votes if stats is not None else 0
        aside.show_session(progress.figures(), minutes, sent, waiting, rater)
        answers = self._context.answers if self._context.group is not None else None
        aside.appear(answers, self.screen.has_class("-roomy"))

    def _paint_group(self, group: Group) -> None:
        self._conversation.read()
        context = context_words(self._conversation.entries, group.turns)
        self._pane("prompt").show(
            (group.query, context), lambda room: prompt_lines(group.query, room, context)
        )
        ballot = self._context.ballot
        if ballot is not None:
            answers = self._context.answers
            beside = answers.columns >= len(ballot.shown)
            cards = rate_cards(group, ballot, compact=not (beside or answers.zoomed))
            answers.show_cards(cards, answers.selected)
            self._paint_ballot(group, ballot)

    def _paint_ballot(self, group: Group, ballot: Ballot) -> None:
        tone = "$muted" if ballot.empty else ("bold $warning" if ballot.armed else "bold")
        text = ballot.meaning()
        if self.session.read_only:
            text = "view only: v shows rewards and marks"
        if missing := missing_text(group):
            text = f"{missing}. {text}"
        if ballot.tags:
            text = f"[{', '.join(ballot.tags)}] {text}"
        self._pane("ballot").show(
            (text, tone), lambda room: [((f" {row}", tone),) for row in wrapped(text, room - 2)]
        )

    def _paint_last(self, now: float, width: int) -> None:
        last, ballot = self._queue.last, self._context.ballot
        line: Line = EMPTY
        if message := self._queue.current_message(now):
            line = ((fit(f" {message}", width), "$muted"),)
        elif last is not None:
            group = self._context.last_voted()
            words = vote_words(group, last) if group is not None else last.words
            typed = ballot is not None and not ballot.empty
            line = last_vote_line(group, words, now, width, sends=not typed)
        self._pane("last").show_lines([line])

    def _empty_lines(self, mode: str) -> list[str]:
        """Return the text shown while there is no group to rate."""
        session, now = self.session, self.session.now()
        if not session.seen:
            return ["No connection to the proxy yet."]
        if session.state.watch_only:
            return [
                "This console is view only: it claims no episodes, so there are no answers here.",
                "F9 shows the servers.",
            ]
        lines = ["No group is waiting for your rating."]
        if unrated := self._queue.open(session.state, now):
            others = self._queue.leased_by_others(session.state, now)
            if others:
                lines.append(f"{leased_text(others, now, context_of(session))}.")
            else:
                lines.append(_hidden_words(len(unrated)))
            return lines
        if mode == "off" and not session.allows("rating.mode"):
            lines.append("The rating mode is off: scored groups are sent automatically.")
        elif mode == "off":
            key = context_of(session).keys["rating.mode"]
            lines += [
                "The rating mode is off: a scored group is shown here for a few seconds,",
                f"then its automatic reward is sent. {key} switches the mode:",
                "answer first and rate later, or let the user wait for you.",
            ]
        else:
            lines.append("The next scored request appears here.")
        mock = "" if not session.allows("mock.start") else ", F4 sends the questions of a dataset"
        return [*lines, f"F2 shows all requests{mock}."]

    # --- answers -----------------------------------------------------------------------------

    def action_reveal(self) -> None:
        """Show the rewards; the note of the vote records that it was not blind."""
        if (ballot := self._context.ballot) is not None:
            ballot.revealed = True
            self._context.repaint()

    def action_step(self, by: int) -> None:
        """Select another answer; it gets more room."""
        cards = self._context.answers
        if cards.cards:
            start = -1 if cards.selected is None and by > 0 else (cards.selected or 0)
            cards.select((start + by) % len(cards.cards))

    def action_scroll_card(self, rows: int) -> None:
        """Scroll the selected answer."""
        self._context.answers.scroll_selected(rows)

    def action_zoom(self) -> None:
        """Show one answer on the whole screen, or all again."""
        self._context.answers.toggle_zoom()
        self._context.repaint()


def _hidden_words(count: int) -> str:
    """Return how many groups the filter for unsure groups hides, as a sentence."""
    groups = "1 open group" if count == 1 else f"{count} open groups"
    return (
        f"The automatic rewards are sure about {groups}; f shows {'it' if count == 1 else 'them'}."
    )


def prompt_lines(query: str, width: int, context: str) -> list[Line]:
    """Return the context of the question in one row, then the question in a few.

    Args:
        query: The last user message.
        width: Cells.
        context: As `turn 3, 5 tools`.
    """
    rows = wrapped(query or "(no text)", max(10, width - 2))
    if len(rows) > PROMPT_ROWS:
        more = len(rows) - PROMPT_ROWS + 1
        rows = [*rows[: PROMPT_ROWS - 1], f"… {more} more lines"]
    key = "  i shows all of it"
    about = (fit(f" {context or '…'}", width - len(key)).rstrip(), "$muted")
    return [(about, (key, "$accent")), *(((f" {row}", "bold"),) for row in rows)]


def _centred(lines: list[str], width: int) -> list[Line]:
    return [
        centred(text, width, "bold" if row_index == 0 else "$muted")
        for row_index, text in enumerate(lines)
    ]
