"""Quitting while child processes run."""

from collections.abc import Sequence
from typing import ClassVar, Literal

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widgets import Button, Static

from ajet_swarm.common.text import one_line
from console.models.consequences import quit_loss
from console.session.app_state import ChildProcess, Session
from console.text.format import elapsed, plural

Choice = Literal["stop", "leave", "stay"]

POLL_SECONDS = 0.2
"""Seconds between two refreshes of the progress."""


class QuitScreen(ModalScreen[Choice]):
    """Asks whether to stop the processes, leave them running, or stay."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("s", "choose('stop')", "Stop them", id="quit.stop"),
        Binding("l", "choose('leave')", "Leave running", id="quit.leave"),
        Binding("escape", "choose('stay')", "Stay", id="quit.stay"),
    ]

    def __init__(self, session: Session, running: Sequence[ChildProcess]) -> None:
        super().__init__()
        self._session = session
        self._children_at_start = running

    def compose(self) -> ComposeResult:
        """The processes, the cost of stopping them, three answers."""
        with Vertical(classes="dialog", id="quit"):
            yield Static("Quit: processes are still running", markup=False, classes="dialog-title")
            yield Static(self._body(), markup=False, classes="dialog-body")
            with Horizontal(classes="dialog-buttons"):
                yield Button("Stop them  s", id="stop", variant="error", compact=True)
                yield Button("Leave running  l", id="leave", compact=True)
                yield Button("Stay  Esc", id="stay", compact=True)

    def on_mount(self) -> None:
        """Focus the harmless button."""
        self.query_one("#stay", Button).focus()

    def _body(self) -> str:
        lines = []
        for child in self._children_at_start:
            lines.append(f"  {child.role:<7} pid {child.pid}  {one_line(child.url, 60)}")
        open_groups = len(self._session.state.open_groups())
        if open_groups:
            verb = "is" if open_groups == 1 else "are"
            lines.append(
                f"{plural(open_groups, 'group')} {verb} open; stopping finishes them or gives "
                "them back."
            )
        if any(child.role == "engine" for child in self._children_at_start):
            loss = quit_loss(self._session)
            lines += [f"Stop them: {loss[0].lower()}{loss[1:]}"] if loss else []
        ending = [child.role for child in self._children_at_start if child.phase == "stopping"]
        if ending:
            lines.append(f"Already stopping: {', '.join(ending)}.")
        elif self._session.state.watch_only:
            lines.append("Leave running: it keeps watching; ajet-console finds it again.")
        elif any(child.role == "proxy" for child in self._children_at_start):
            lines.append("Leave running: users are still answered; ajet-console finds it again.")
        else:
            lines.append("Leave running: ajet-console finds it again.")
        return "\n".join(lines)

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """Answer as the key of the button does."""
        event.stop()
        chosen: dict[str | None, Choice] = {"stop": "stop", "leave": "leave"}
        self.dismiss(chosen.get(event.button.id, "stay"))

    def action_choose(self, choice: Choice) -> None:
        """Close with an answer."""
        self.dismiss(choice)


class StoppingScreen(ModalScreen[None]):
    """Shows the progress of stopping; closed when the console ends."""

    def __init__(self, session: Session, processes: Sequence[ChildProcess]) -> None:
        """Start watching the processes.

        Args:
            session: Has the current state of the processes.
            processes: The processes to stop, as they were when stopping began.
        """
        super().__init__()
        self._session = session
        self._processes = [(child.role, child.pid) for child in processes]
        self._began = session.now()
        self._leave_requested = False

    def compose(self) -> ComposeResult:
        """The processes and their progress."""
        with Vertical(classes="dialog", id="quit"):
            yield Static("Stopping before quitting", markup=False, classes="dialog-title")
            yield Static(self._body(), markup=False, classes="dialog-body", id="stopping")
            yield Static(
                "Requests in flight finish first. Ctrl+Q asks again.",
                markup=False,
                classes="dialog-hint",
            )

    def on_mount(self) -> None:
        """Refresh regularly."""
        self.set_interval(POLL_SECONDS, self._refresh_progress)

    def leave(self) -> None:
        """Close as soon as no other screen is on top."""
        self._leave_requested = True
        if self.is_current:
            self.dismiss()

    def on_screen_resume(self) -> None:
        """Close now if it was requested while another screen was on top."""
        if self._leave_requested and self.is_current:
            self.dismiss()

    def _refresh_progress(self) -> None:
        self.query_one("#stopping", Static).update(self._body())

    def _body(self) -> str:
        took = elapsed(self._session.now() - self._began)
        lines = []
        for role, pid in reversed(self._processes):  # the order they are stopped in
            child = self._session.children.get(role)
            if child is None or child.pid is None:
                how = "✓ stopped"
            elif child.phase == "stopping":
                how = f"… stopping, {took}"
            else:
                how = "· next"
            lines.append(f"  {role:<7} pid {pid}  {how}")
        return "\n".join(lines)
