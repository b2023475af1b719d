"""The first steps, opened again from the palette after the first request."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from console.screens.first_steps.widgets import FirstSteps
from console.session.app_state import EVERYTHING
from console.ui.keys import keys
from console.widgets.section import host


class FirstStepsScreen(ModalScreen[None]):
    """The content of the overview before the first request."""

    AUTO_FOCUS: ClassVar[str | None] = "FirstSteps"
    BINDINGS: ClassVar[list[BindingType]] = keys(("escape", "dismiss", "Close"))

    def compose(self) -> ComposeResult:
        """The widget, and a hint how to close it."""
        with VerticalScroll(classes="dialog -wide", can_focus=False):
            yield FirstSteps()
            yield Static("Esc closes", markup=False, classes="dialog-hint")

    def on_mount(self) -> None:
        """Paint it once it has a size."""
        self.call_after_refresh(self._paint)

    def _paint(self) -> None:
        self.query_one(FirstSteps).paint(host(self).session, EVERYTHING)

    def on_first_steps_taken(self, event: FirstSteps.Taken) -> None:
        """Close after a choice: the other screens show its result."""
        event.stop()
        self.dismiss()
