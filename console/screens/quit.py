"""What becomes of the processes when the operator leaves."""

from collections.abc import Sequence
from typing import ClassVar, Literal

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widgets import Button, Static

from console.session import Child, Session
from console.widgets.words import plural
from core.text import one_line

Choice = Literal["stop", "leave", "stay"]


class QuitScreen(ModalScreen[Choice]):
    """Stop what runs, leave it running, or stay."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("s", "choose('stop')", "Stop them", id="quit.stop"),
        Binding("l", "choose('leave')", "Leave running", id="quit.leave"),
        Binding("escape", "choose('stay')", "Stay", id="quit.stay"),
    ]

    def __init__(self, session: Session, running: Sequence[Child]) -> None:
        super().__init__()
        self._session = session
        self._left = running

    def compose(self) -> ComposeResult:
        """What runs, what stopping costs, three ways."""
        with Vertical(classes="dialog", id="quit"):
            yield Static("Quit: something still runs", markup=False, classes="dialog-title")
            yield Static(self._body(), markup=False, classes="dialog-body")
            with Horizontal(classes="dialog-buttons"):
                yield Button("Stop them  s", id="stop", variant="error", compact=True)
                yield Button("Leave running  l", id="leave", compact=True)
                yield Button("Stay  Esc", id="stay", compact=True)

    def on_mount(self) -> None:
        """The harmless button is the one Enter presses."""
        self.query_one("#stay", Button).focus()

    def _body(self) -> str:
        lines = []
        for child in self._left:
            lines.append(f"  {child.role:<7} pid {child.pid}  {one_line(child.url, 60)}")
        open_groups = len(self._session.state.open_groups())
        if open_groups:
            verb = "is" if open_groups == 1 else "are"
            lines.append(
                f"{plural(open_groups, 'group')} {verb} open; stopping finishes them or gives "
                "them back."
            )
        if self._session.state.watch_only:
            lines.append("Leave running: it watches on; ajet-console finds it again.")
        elif any(child.role == "proxy" for child in self._left):
            lines.append("Leave running: users are served on; ajet-console finds it again.")
        else:
            lines.append("Leave running: ajet-console finds it again.")
        return "\n".join(lines)

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """A button says what its key says."""
        event.stop()
        chosen: dict[str | None, Choice] = {"stop": "stop", "leave": "leave"}
        self.dismiss(chosen.get(event.button.id, "stay"))

    def action_choose(self, choice: Choice) -> None:
        """End with a choice."""
        self.dismiss(choice)
