"""Confirmation dialog of an abort: the loss, and a reason that is recorded."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widgets import Button, Input, Static

from ajet_swarm.common.text import plain
from core.commands.table import ABORT_REASONS

TALL = 22
"""Rows from which each reason has a row of its own."""


class AbortScreen(ModalScreen[str | None]):
    """Asks for a reason, which may be empty; returns None when the operator cancels."""

    RECORDED_IN: ClassVar[str] = "with the group"
    """Where the reason is recorded."""
    BINDINGS: ClassVar[list[BindingType]] = [
        *(
            Binding(str(digit), f"reason({digit})", reason, show=False)
            for digit, reason in enumerate(ABORT_REASONS, 1)
        ),
        Binding("t", "type", "Type a reason", show=False),
        Binding("y", "answer(True)", "Abort", id="abort.yes"),
        Binding("n,escape", "answer(False)", "No", id="abort.no"),
        Binding("left,right", "app.focus_next", "Other button", show=False),
    ]

    def __init__(self, title: str, body: str) -> None:
        super().__init__()
        self._title = title
        self._body = body
        self._reason = 0
        """Number of the chosen reason; 0 for none."""

    def compose(self) -> ComposeResult:
        """Title, loss, reasons, two buttons."""
        with Vertical(classes="dialog -danger"):
            yield Static(plain(self._title), markup=False, classes="dialog-title")
            yield Static(plain(self._body), markup=False, classes="dialog-body")
            yield Static(self._reasons(), markup=False, id="abort-reasons")
            with Horizontal(id="abort-own"):
                yield Static(" t ", markup=False, id="abort-own-key")
                yield Input(compact=True, placeholder="another reason, in your own words")
            with Horizontal(classes="dialog-buttons"):
                yield Button("No, keep  n", id="no", compact=True)
                yield Button("Abort  y", id="yes", variant="error", compact=True)

    def on_mount(self) -> None:
        """Treat keys as answers until a reason is typed."""
        self.set_class(self.app.size.height < TALL, "-tight")
        self.query_one("#no", Button).focus()

    def _reasons(self) -> str:
        rows = [
            f"{'▸' if number == self._reason else ' '}{number} {reason}"
            for number, reason in enumerate(ABORT_REASONS, 1)
        ]
        if self.app.size.height < TALL:
            return "Why?  " + " ".join(row.strip() for row in rows)
        return "\n".join([f"Why? It is recorded {self.RECORDED_IN}.", *rows])

    def action_reason(self, number: int) -> None:
        """Choose a reason, or none again."""
        self._reason = 0 if number == self._reason else number
        self.query_one(Input).value = ""
        self.query_one("#abort-reasons", Static).update(self._reasons())

    def action_type(self) -> None:
        """Open the line for another reason."""
        self._reason = 0
        self.query_one("#abort-reasons", Static).update(self._reasons())
        self.query_one(Input).focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Finish typing; the question stays open."""
        event.stop()
        self.query_one("#yes", Button).focus()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """Answer as the key of the button does."""
        event.stop()
        self.action_answer(event.button.id == "yes")

    def action_answer(self, yes: bool) -> None:
        """Close with an answer; Escape while typing only leaves the line."""
        line = self.query_one(Input)
        if not yes and line.has_focus:
            line.value = ""
            self.query_one("#no", Button).focus()
            return
        typed = line.value.strip()
        chosen = ABORT_REASONS[self._reason - 1] if self._reason else typed
        self.dismiss(chosen if yes else None)
