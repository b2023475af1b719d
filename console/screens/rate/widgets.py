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

from ajet_swarm.common.text import plural
from console.screens.group.card import Card, body, in_border
from console.screens.group.widgets import HEAD, Candidates
from console.screens.rate.arrangement import GRID, NOTHING, Arrangement, Spot, arranged
from console.screens.rate.last_vote import last_vote_words, vote_rows
from console.screens.rate.model import RateQueue, session_figures, tag_keys
from console.screens.rate.text import (
    MINUTES,
    answer_head,
    first_lines,
    guideline_lines,
    reference_lines,
    rows_left,
    session_lines,
)
from console.text.lines import Line, line_text
from console.widgets.pane import TextPane


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
    return rows_left(below, is_cut(pane), pane.hint)


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
        self.reader = Reader(self)
        self._layout = _Spots()

    @property
    def layout(self) -> Layout:
        """How its panes are placed; not by styles, which know the layouts of Textual only."""
        return self._layout

    @property
    def count(self) -> int:
        """Number of answers."""
        return len(self._cards)

    @property
    def opened(self) -> int:
        """Place of the answer that is read where not all are open."""
        return self._selected or 0

    @property
    def together(self) -> bool:
        """Whether all answers scroll together: beside each other, and none is selected."""
        return self.shown.form == "grid" and self._selected is None

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
        self.reader.first()
        self.select(None)

    def toggle_zoom(self) -> None:
        """Give the selected card the whole size, or share it again."""
        self.zoomed = not self.zoomed
        self._arrange()

    def open_panes(self) -> list[AnswerPane]:
        """Return the panes that scroll: the open answer, or all of them."""
        panes = zip(self.query_children(AnswerPane), self.shown.spots, strict=False)
        return [
            pane
            for pane, spot in panes
            if not spot.folded and (self.together or spot.place == self.opened)
        ]

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
            line = answer_head(card, HEAD, chosen, words)
            pane.put_in_border(Content.assemble(*in_border(line)))
        else:
            pane.show_head(
                (card, chosen, words),
                lambda width: answer_head(card, width, chosen, words, _rows_below(pane)),
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
            words = line_text(next(iter(first_lines(card, texts, width)), ())).strip()
            return answer_head(card, width, chosen, words if spot.height == 1 else "", rows)

        pane.show_head((card, chosen, texts, spot), titled)
        pane.show((card, texts), lambda width: first_lines(card, texts, width))


def _mark(pane: AnswerPane, *, chosen: bool, framed: bool = False, folded: bool = False) -> None:
    pane.set_class(chosen, "-selected")
    pane.set_class(framed, "-framed")
    pane.set_class(folded, "-folded")


def _texts(cards: Sequence[Card]) -> tuple[str, ...]:
    return tuple(card.text for card in cards if card.text)


class Reader:
    """Scrolls the answers, and pages through them."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers

    def first(self) -> None:
        """Show the first lines of all answers."""
        for pane in self._answers.query_children(AnswerPane):
            pane.scroll_home(animate=False, immediate=True)

    def scroll(self, rows: int) -> None:
        """Scroll the open answer, or all of them together."""
        for pane in self._answers.open_panes():
            pane.scroll_relative(y=rows, animate=False, immediate=True)

    def page(self, by: int) -> None:
        """Show the next page of what is read; after its end the next answer, or all again.

        One of several answers under each other is read on the whole screen.

        Args:
            by: 1 for the next page, -1 for the one before.
        """
        answers, arrangement = self._answers, self._answers.shown
        panes = [pane for pane in answers.open_panes() if is_cut(pane)]
        before = [pane.scroll_offset.y for pane in panes]
        rows = min((page_rows(pane) for pane in panes), default=0)
        for pane in panes:
            pane.scroll_relative(y=by * rows, animate=False, immediate=True)
        moved = before != [pane.scroll_offset.y for pane in panes]
        if arrangement.form == "stack" and not arrangement.whole:
            self._read_alone(answers.opened if moved else answers.opened + by, rows if moved else 0)
        elif arrangement.form in ("list", "alone") and not moved:
            self._read_next(answers.opened + by)
        elif not moved:
            self.first()

    def _read_alone(self, place: int, row: int) -> None:
        """Show one answer on the whole screen, from a row on."""
        self._answers.zoomed = True
        self._answers.select(max(0, place))
        for pane in self._answers.open_panes():
            self._answers.call_after_refresh(pane.scroll_to, y=row, animate=False, immediate=True)

    def _read_next(self, place: int) -> None:
        """Show an answer from its first line; all of them if there is none at that place."""
        if 0 <= place < self._answers.count:
            self.first()
            self._answers.select(place)
        else:
            self._answers.reset()


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
        text = queue.guidelines.text if queue.guidelines is not None else ""
        named = bool(session.rating.guidelines)
        pane = self._pane("guidelines", named or bool(text.strip()))
        pane.show((text, named), lambda width: guideline_lines(text, named, width))
        pane.border_subtitle = "g shows all" if text else ""

        group, ballot, last = queue.group, queue.ballot, queue.last_voted
        words = last_vote_words(queue) if last is not None else ""
        source = tuple(reference_lines(group, ballot, last, words, _PROBE_WIDTH))
        pane = self._pane("reference", bool(source))
        pane.show(source, lambda width: reference_lines(group, ballot, last, words, width))

        votes = [line for _, line in vote_rows(queue)] if answers is not None else []
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
