"""Panels below the answers of a wide rating screen: guidelines, reference, session."""

from textual.app import ComposeResult
from textual.containers import Horizontal

from console.screens.group.widgets import Candidates
from console.screens.rate.model import RateQueue
from console.screens.rate.text import (
    MINUTES,
    guideline_lines,
    last_vote_words,
    reference_lines,
    session_lines,
)
from console.widgets.pane import TextPane

_PROBE_WIDTH = 80
"""Cells for which it is asked whether there is a reference to show."""


class RateAside(Horizontal):
    """Up to three panels side by side; a short or narrow terminal has no room for them.

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
        for name in ("guidelines", "reference", "session"):
            pane = TextPane(id=f"rate-{name}")
            pane.border_title = name.upper()
            yield pane

    def paint(self, queue: RateQueue, answers: Candidates | None, roomy: bool) -> None:
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

        figures, waiting = queue.progress.figures(), len(queue.waiting())
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
