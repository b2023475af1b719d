"""Panels below the answers of a wide rating screen: guidelines, reference, session."""

from textual.app import ComposeResult
from textual.containers import Horizontal

from console.models.ballot import Ballot
from console.models.guidelines import Guidelines
from console.models.rating.progress import RatingFigures
from console.views.rate_aside import guideline_lines, reference_lines, session_lines
from console.widgets.pane import TextPane
from core.state import Group


class RateAside(Horizontal):
    """Three panels side by side; a short or narrow terminal has no room for them."""

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

    def show_guidelines(self, guidelines: Guidelines | None, named: bool) -> None:
        """Show the guidelines; `named` is whether the settings name a file."""
        text = guidelines.text if guidelines is not None else ""
        pane = self.query_one("#rate-guidelines", TextPane)
        pane.border_subtitle = "g shows all" if text else ""
        pane.show((text, named), lambda room: guideline_lines(text, named, room))

    def show_reference(
        self, group: Group | None, ballot: Ballot | None, last: Group | None, vote: str
    ) -> None:
        """Show the reference, if the rater may see it."""
        pane = self.query_one("#rate-reference", TextPane)
        pane.show(
            tuple(reference_lines(group, ballot, last, vote, 80)),
            lambda room: reference_lines(group, ballot, last, vote, room),
        )

    def show_session(
        self, now: RatingFigures, minutes: tuple[int, ...], sent: int, waiting: int, rater: str
    ) -> None:
        """Show votes and pace; the arguments are those of `session_lines`."""
        self.query_one("#rate-session", TextPane).show(
            (now, minutes, sent, waiting, rater),
            lambda room: session_lines(now, minutes, sent, waiting, rater, room),
        )
