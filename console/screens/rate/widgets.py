"""The answers on the rating screen, and the panels below them on a wide one."""

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.content import Content
from textual.geometry import NULL_OFFSET, NULL_SPACING, Region, Size
from textual.layout import ArrangeResult, Layout, WidgetPlacement
from textual.widget import Widget

from ajet_swarm.common.text import one_line, plural
from console.screens.group.card import Card, body, in_border
from console.screens.group.widgets import HEAD, Candidates
from console.screens.rate import text
from console.screens.rate.arrangement import GRID, NOTHING, Arrangement, Spot, arranged
from console.screens.rate.ballot import Ballot
from console.screens.rate.model import RateQueue, RatingFigures, session_figures, tag_keys
from console.text.lines import EMPTY, Line, fit, line_text
from console.text.markdown import markdown_lines
from console.text.wrap import wrapped_lines
from console.widgets.pane import TextPane
from core.state import Group


class AnswerPane(TextPane):
    """One answer; its head or its frame says how many lines are below.

    Attributes:
        hint: Whether it names the key that reads on.
    """

    hint = False

    def repaint(self) -> None:
        super().repaint()
        self.border_subtitle = _rows_below(self) if self.has_class("-framed") else None

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        self.repaint()

    def on_resize(self) -> None:
        super().on_resize()
        self.repaint()


def is_cut(pane: AnswerPane) -> bool:
    """Return whether not all lines of an answer fit."""
    return pane.content_rows() > pane.size.height


def page_rows(pane: AnswerPane) -> int:
    """Return the number of an answer's lines on screen."""
    return pane.size.height - (pane.content_rows() - len(pane.lines))


def _rows_below(pane: AnswerPane) -> str:
    """Return how much is left to read, in words."""
    below = max(0, pane.content_rows() - pane.size.height - round(pane.scroll_offset.y))
    return text.rows_left(below, is_cut(pane), pane.hint)


def inner_width(width: int, framed: bool) -> int:
    """Return the cells of a line in a pane: without its frame and its scroll bar."""
    return width - (3 if framed else 1)


class _Spots(Layout):
    """Places the panes of `Answers` in the spots of its arrangement."""

    name = "spots"

    def arrange(
        self, parent: Widget, children: list[Widget], size: Size, greedy: bool = True
    ) -> ArrangeResult:
        assert isinstance(parent, Answers)
        parent.pre_layout(self)
        return [
            WidgetPlacement(
                Region(spot.x, spot.y, spot.width, spot.height), NULL_OFFSET, NULL_SPACING, pane
            )
            for pane, spot in zip(children, parent.arrangement(size).spots, strict=False)
        ]


class Answers(Candidates):
    """Shows the answers to rate as `arrangement.py` places them, and pages through them."""

    DEFAULT_CSS = """
    Answers > TextPane { margin: 0; }
    Answers > TextPane.-folded { overflow-y: hidden; }
    """
    pane_type: ClassVar[type[TextPane]] = AnswerPane

    def __init__(self) -> None:
        super().__init__()
        self.zoomed = False
        """Only the selected answer is shown."""
        self.shown = NOTHING
        """Where the answers stand now."""

        self._layout = _Spots()

    @property
    def layout(self) -> Layout:
        """How its panes are placed; not by styles, which know the layouts of Textual only."""
        return self._layout

    @property
    def opened(self) -> int:
        """Place of the answer that is read where not all are open."""
        return self._selected or 0

    def arrangement(self, size: Size) -> Arrangement:
        """Return where the answers stand in a size."""
        framed = self._framed(size)

        def needed(width: int) -> list[int]:
            inner = inner_width(width, framed)
            return [len(body(card, inner)) + (2 if framed else 1) for card in self._cards]

        return arranged(len(self._cards), needed, size, self.opened, self.zoomed)

    def _framed(self, size: Size) -> bool:
        return self.screen.has_class("-roomy") and size.width >= GRID

    def fits(self, rows: int) -> bool:
        """Return whether no answer would be cut if this widget had `rows` rows."""
        return self.arrangement(Size(self.size.width, rows)).whole

    def reset(self) -> None:
        """Show the answers of another group: all of them, from their first lines, none selected."""
        self.zoomed = False
        self.show_starts()
        self.select(None)

    def toggle_zoom(self) -> None:
        """Give the selected card the whole size, or share it again."""
        self.zoomed = not self.zoomed
        self._arrange()

    def open_panes(self) -> list[AnswerPane]:
        """Return the panes that scroll: the open answer, or all that stand beside each other while
        none is selected."""
        together = self.shown.form == "grid" and self._selected is None
        panes = zip(self.query_children(AnswerPane), self.shown.spots, strict=False)
        return [
            pane
            for pane, spot in panes
            if not spot.folded and (together or spot.place == self.opened)
        ]

    # --- reading -----------------------------------------------------------------------------

    def show_starts(self) -> None:
        """Show the first lines of all answers."""
        for pane in self.query_children(AnswerPane):
            pane.scroll_home(animate=False, immediate=True)

    def scroll_by(self, rows: int) -> None:
        """Scroll the open answer, or all of them together."""
        for pane in self.open_panes():
            pane.scroll_relative(y=rows, animate=False, immediate=True)

    # --- painting ----------------------------------------------------------------------------

    def window(self) -> Sequence[int]:
        return [spot.place for spot in self.shown.spots]

    def _arrange(self) -> None:
        before = self.shown.spots
        self.shown = self.arrangement(self.size) if self.is_mounted else NOTHING
        if self.shown.spots != before:
            self.refresh(layout=True)
        super()._arrange()

    def fill(self, pane: TextPane, at: int) -> None:
        assert isinstance(pane, AnswerPane)
        form, spot = self.shown.form, self.shown.spots[at]
        card, chosen = self._cards[spot.place], spot.place == self._selected
        if spot.folded:
            self._fold(pane, spot)
            return
        if form == "grid" and not any(other.base for other in self._cards):
            card = replace(card, beside=_texts(self._cards))
        framed = self._framed(self.size)
        inner = inner_width(spot.width, framed)
        pane.hint = spot.place == self.opened
        _mark(pane, chosen=chosen, framed=framed)
        words = f"of {len(self._cards)}" if form == "alone" and len(self._cards) > 1 else ""
        if framed:
            pane.drop_head()
            line = text.answer_head(card, HEAD, chosen, words)
            pane.put_in_border(Content.assemble(*in_border(line)))
        else:
            pane.show_head(
                (card, chosen, words),
                lambda width: text.answer_head(card, width, chosen, words, _rows_below(pane)),
            )
        pane.show((card, inner), lambda _: body(card, inner))

    def _fold(self, pane: AnswerPane, spot: Spot) -> None:
        """Show the number, the first words and the length of an answer that is not open."""
        card, last = self._cards[spot.place], self.shown.spots[-1]
        texts = _texts(self._cards)
        chosen = spot.place == (last.place if not last.folded else self._selected)
        inner = inner_width(max(spot.width, last.width), self._framed(self.size))
        rows = plural(len(body(card, inner)), "line")
        _mark(pane, chosen=chosen, folded=True)
        pane.scroll_home(animate=False, immediate=True)

        def titled(width: int) -> Line:
            words = line_text(next(iter(text.first_lines(card, texts, width)), ())).strip()
            shown = words if spot.height == 1 else ""
            return text.answer_head(card, width, chosen, note=rows, words=shown)

        pane.show_head((card, chosen, texts, spot), titled)
        pane.show((card, texts), lambda width: text.first_lines(card, texts, width))


def turn_page(answers: Answers, by: int) -> None:
    """Show the next page of what is read; after its end the next answer, or all again.

    One of several answers under each other is read on the whole screen.

    Args:
        answers: The answers.
        by: 1 for the next page, -1 for the one before.
    """
    panes, shown = [pane for pane in answers.open_panes() if is_cut(pane)], answers.shown
    before = [pane.scroll_offset.y for pane in panes]
    rows = min((page_rows(pane) for pane in panes), default=0)
    for pane in panes:
        pane.scroll_relative(y=by * rows, animate=False, immediate=True)
    moved = before != [pane.scroll_offset.y for pane in panes]
    place = answers.opened if moved else answers.opened + by
    if shown.form == "stack" and not shown.whole:
        answers.zoomed = True
        answers.select(max(0, place))
        row = rows if moved else 0
        for pane in answers.open_panes():
            answers.call_after_refresh(pane.scroll_to, y=row, animate=False, immediate=True)
    elif moved:
        return
    elif shown.form not in ("list", "alone"):
        answers.show_starts()
    elif 0 <= place < len(answers.cards):
        answers.show_starts()
        answers.select(place)
    else:
        answers.reset()


def _mark(pane: AnswerPane, *, chosen: bool, framed: bool = False, folded: bool = False) -> None:
    pane.set_class(chosen, "-selected")
    pane.set_class(framed, "-framed")
    pane.set_class(folded, "-folded")


def _texts(cards: Sequence[Card]) -> tuple[str, ...]:
    return tuple(card.candidate.text for card in cards if card.candidate.text)


MINUTES = 15
"""Minutes that the pace is drawn for."""
_CAP = 4_000
_PROBE_WIDTH = 80
"""Cells for which it is asked whether there is a reference to show."""


class RateAside(Horizontal):
    """Up to four panels side by side; a short or narrow terminal has no room for them.

    A panel without content is hidden, and all are where an answer would be cut.
    """

    ROWS = 11

    DEFAULT_CSS = """
    RateAside { display: none; height: 11; }
    RateAside TextPane { width: 1fr; height: 1fr; padding: 0 1; }
    RateAside #rate-session { width: 34; }
    """

    def compose(self) -> ComposeResult:
        """The panels, empty."""
        for name in ("guidelines", "reference", "votes", "session"):
            pane = TextPane(id=f"rate-{name}")
            pane.border_title = name.upper()
            yield pane

    def paint(self, queue: RateQueue, answers: Answers | None, roomy: bool) -> None:
        """Show the panels that have content if the terminal is roomy and no answer is cut.

        Args:
            queue: The rating queue.
            answers: The answers above; None where no group is on screen.
            roomy: Whether the terminal has room for panels.
        """
        session = queue.session
        rules = queue.guidelines.text if queue.guidelines is not None else ""
        named = bool(session.rating.guidelines)
        pane = self._pane("guidelines", named or bool(rules.strip()))
        pane.show((rules, named), lambda width: guideline_lines(rules, named, width))
        pane.border_subtitle = "g shows all" if rules else ""

        group, ballot, last = queue.group, queue.ballot, queue.last_voted
        words = text.last_vote_words(queue) if last is not None else ""
        source = tuple(reference_lines(group, ballot, last, words, _PROBE_WIDTH))
        pane = self._pane("reference", bool(source))
        pane.show(source, lambda width: reference_lines(group, ballot, last, words, width))

        votes = [line for _, line in text.vote_rows(queue)] if answers is not None else []
        pane = self._pane("votes", bool(votes))
        if not pane.border_subtitle:
            reasons = tag_keys(session).items()
            pane.border_subtitle = Content("  ".join(f"{key} {name}" for key, name in reasons))
        pane.show_lines(votes)

        figures, waiting = session_figures(queue), len(queue.waiting())
        minutes = queue.progress.by_minute(session.now(), MINUTES)
        stats = session.state.raters.get(session.rater)
        shown = (figures, minutes, stats.votes if stats is not None else 0, waiting, session.rater)
        pane = self._pane("session", bool(figures.rated or figures.skipped))
        pane.show(shown, lambda width: session_lines(*shown, width))

        filled = any(pane.display for pane in self.query_children(TextPane))
        self.display = (roomy and filled) and (
            answers is None
            or answers.fits(answers.size.height - (0 if self.display else self.ROWS))
        )

    def _pane(self, name: str, has_content: bool) -> TextPane:
        pane = self.query_one(f"#rate-{name}", TextPane)
        pane.display = has_content
        return pane


# --- panels of a wide screen: no lines means that a panel has no content and is hidden ------------


def guideline_lines(rules: str, named: bool, width: int) -> list[Line]:
    """Return the guidelines; `named` is whether the settings name a file."""
    if rules.strip():
        return markdown_lines(rules, width, _CAP * 5)
    if named:
        words = "The guidelines are empty or cannot be read; g shows why."
        return wrapped_lines(words, width, "$muted")
    return []


def reference_lines(
    group: Group | None, ballot: Ballot | None, last: Group | None, vote: str, width: int
) -> list[Line]:
    """Return the reference of the question on screen, or of the one that was rated last.

    A reference must not influence a blind vote: that of the question on screen is hidden until `v`
    shows it, and that of the last vote is omitted if it is the same.

    Args:
        last: The group of the last vote.
        vote: That vote in words.
    """
    hidden = ballot is not None and not ballot.revealed
    if group is not None and not hidden:
        return _reference(group.reference, width) if group.reference is not None else []
    lines: list[Line] = []
    if group is not None and group.reference is not None:
        words = "This question has a reference: it appears after your vote, v shows it now."
        lines += wrapped_lines(words, width, "$muted")
    if last is not None and _may_show(last, group):
        lines += [EMPTY] if lines else []
        lines.append((("last vote ", "$heading"), (fit(vote, width - 10).rstrip(), "$muted")))
        lines += wrapped_lines(last.query, width, "bold", 400)[:2]
        lines += _reference(last.reference or "", width)
    return lines


def _may_show(last: Group, group: Group | None) -> bool:
    """Return whether the reference of the last vote may be shown beside the question on screen."""
    if last.reference is None or last.rating is None:
        return False
    return group is None or (
        group.group_id != last.group_id
        and group.query != last.query
        and group.reference != last.reference
    )


def _reference(known: str, width: int) -> list[Line]:
    return wrapped_lines(known, width, "$returned", _CAP) or [(("(empty)", "$returned"),)]


def session_lines(
    now: RatingFigures,
    minutes: Sequence[int],
    counted: int,
    waiting: int,
    rater: str,
    width: int,
) -> list[Line]:
    """Return the number of votes, their pace, and how many groups wait.

    Args:
        now: The figures of the session.
        minutes: Votes in each of the last minutes, oldest first.
        counted: Votes of the rater on complete groups, sent or late, of all sessions.
        waiting: Groups that wait for a vote.
        rater: The rater's name; empty before it is known.
        width: Cells of a line.
    """
    pace = "–" if now.per_minute is None else f"{now.per_minute:.1f}"
    goal = text.progress_words(now).removesuffix(" at this pace") if now.goal else ""
    by = f" by {one_line(rater, 20)}" if rater else ""
    rows = (
        ("rated", str(now.rated), "bold $reward-up", by),
        ("goal", goal, "bold", ""),
        ("skipped", str(now.skipped or ""), "bold", ""),
        ("waiting", str(waiting), "bold $winner" if waiting else "bold", ""),
        ("counted", str(counted or ""), "bold", " in all"),
        ("pace", pace, "bold", " a minute"),
    )
    return [
        *(
            ((f"{label:<10}", "$muted"), (value, tone), (note, "$muted"))
            for label, value, tone, note in rows
            if value
        ),
        EMPTY,
        ((_bars(minutes, width), "$curve"),),
        ((fit(f"the last {len(minutes)} minutes", width).rstrip(), "$muted"),),
    ]


def _bars(counts: Sequence[int], width: int) -> str:
    """Return a bar for each count, as wide as the width allows."""
    top = max(1, *counts)
    size = max(1, min(3, width // len(counts)))
    bars = ("▁▂▃▄▅▆▇█"[count * 7 // top] if count else "·" for count in counts)
    return "".join(bar * size for bar in bars)
