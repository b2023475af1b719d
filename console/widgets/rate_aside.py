"""Panels below the answers of a wide rating screen: guidelines, reference, session.

A panel without content is hidden, and all are where an answer would be cut.
"""

from textual.app import ComposeResult
from textual.containers import Horizontal

from console.models.ballot import Ballot
from console.models.guidelines import Guidelines
from console.models.rating.progress import RatingFigures
from console.views.rate_aside import guideline_lines, reference_lines, session_lines
from console.widgets.candidates import Candidates
from console.widgets.pane import TextPane
from core.state import Group


class RateAside(Horizontal):
    """Up to three panels side by side; a short or narrow terminal has no room for them."""

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

    def appear(self, answers: Candidates | None, roomy: bool) -> None:
        """Show the panels that have content if the terminal is roomy and no answer is cut.

        Args:
            answers: The answers above; None where no group is on screen.
            roomy: Whether the terminal has room for panels.
        """
        filled = any(pane.display for pane in self.query_children(TextPane))
        fits = answers is None or answers.fits(
            answers.size.height - (0 if self.display else self.ROWS)
        )
        self.display = roomy and filled and fits

    def show_guidelines(self, guidelines: Guidelines | None, named: bool) -> None:
        """Show the guidelines; `named` is whether the settings name a file."""
        text = guidelines.text if guidelines is not None else ""
        pane = self.query_one("#rate-guidelines", TextPane)
        pane.display = named or bool(text.strip())
        pane.border_subtitle = "g shows all" if text else ""
        pane.show((text, named), lambda room: guideline_lines(text, named, room))

    def show_reference(
        self, group: Group | None, ballot: Ballot | None, last: Group | None, vote: str
    ) -> None:
        """Show the reference, if the rater may see it."""
        pane = self.query_one("#rate-reference", TextPane)
        lines = tuple(reference_lines(group, ballot, last, vote, 80))
        pane.display = bool(lines)
        pane.show(lines, lambda room: reference_lines(group, ballot, last, vote, room))

    def show_session(
        self, now: RatingFigures, minutes: tuple[int, ...], sent: int, waiting: int, rater: str
    ) -> None:
        """Show votes and pace; the arguments are those of `session_lines`."""
        pane = self.query_one("#rate-session", TextPane)
        pane.display = bool(now.rated or now.skipped)
        pane.show(
            (now, minutes, sent, waiting, rater),
            lambda room: session_lines(now, minutes, sent, waiting, rater, room),
        )
