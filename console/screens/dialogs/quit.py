"""Quitting while child processes run."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal

from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widgets import Button, Static

from ajet_swarm.common.text import one_line, plural
from console.session.app_state import ChildProcess, ProcessManager, Session
from console.text.format import elapsed
from core.commands.plan_engines import pool_costs
from core.state import State

Choice = Literal["stop", "now", "leave", "stay"]

NOW = "Requests in flight get no answer, and the next start cleans up after them."
"""What a stop without waiting costs."""
POLL_SECONDS = 0.2
"""Seconds between two refreshes of the progress."""


class QuitScreen(ModalScreen[Choice]):
    """Asks whether to stop the processes, leave them running, or stay."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("s", "choose('stop')", "Stop them", id="quit.stop"),
        Binding("q", "choose('now')", "Stop now", id="quit.now"),
        Binding("l", "choose('leave')", "Leave running", id="quit.leave"),
        Binding("escape", "choose('stay')", "Stay", id="quit.stay"),
    ]

    def __init__(self, session: Session, running: Sequence[ChildProcess]) -> None:
        super().__init__()
        self._session = session
        self._children_at_start = running
        self._ending = [child.role for child in running if child.phase == "stopping"]

    def compose(self) -> ComposeResult:
        """The processes, the cost of stopping them, three answers."""
        with Vertical(classes="dialog", id="quit"):
            yield Static("Quit: processes are still running", markup=False, classes="dialog-title")
            yield Static(self._body(), markup=False, classes="dialog-body")
            with Horizontal(classes="dialog-buttons"):
                yield Button("Stop them  s", id="stop", variant="error", compact=True)
                if self._ending:
                    yield Button("Now  q", id="now", variant="error", compact=True)
                leave = "Leave  l" if self._ending else "Leave running  l"  # all four fit
                yield Button(leave, id="leave", compact=True)
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
        lines += unsent(self._session.state)
        if any(child.role == "engine" for child in self._children_at_start):
            loss = quit_loss(self._session)
            lines += [f"Stop them: {loss[0].lower()}{loss[1:]}"] if loss else []
        if self._ending:
            lines.append(f"Already stopping: {', '.join(self._ending)}. Leave: that goes on.")
            lines.append(f"Now: {NOW[0].lower()}{NOW[1:]}")
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
        chosen: dict[str | None, Choice] = {"stop": "stop", "now": "now", "leave": "leave"}
        self.dismiss(chosen.get(event.button.id, "stay"))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer to stop at once only what is already stopping."""
        return bool(self._ending) if parameters == ("now",) else True

    def action_choose(self, choice: Choice) -> None:
        """Close with an answer."""
        self.dismiss(choice)


class StoppingScreen(ModalScreen[None]):
    """Shows the progress of stopping; closed when the console ends."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("q", "hurry", "Stop now", id="quit.hurry")]

    def __init__(
        self,
        session: Session,
        processes: Sequence[ChildProcess],
        hurry: Callable[[], None] | None = None,
    ) -> None:
        """Start watching the processes.

        Args:
            session: Has the current state of the processes.
            processes: The processes to stop, as they were when stopping began.
            hurry: Stops them without waiting; None if that is done already.
        """
        super().__init__()
        self._session = session
        self._processes = [(child.role, child.pid) for child in processes]
        self._began = session.now()
        self._leave_requested = False
        self._hurry = hurry
        self._unsent = unsent(session.state)

    def compose(self) -> ComposeResult:
        """The processes and their progress."""
        with Vertical(classes="dialog", id="quit"):
            yield Static("Stopping before quitting", markup=False, classes="dialog-title")
            yield Static(self._body(), markup=False, classes="dialog-body", id="stopping")
            yield Static(self._hint(), markup=False, classes="dialog-hint")

    def on_mount(self) -> None:
        """Refresh regularly."""
        self.set_interval(POLL_SECONDS, self._refresh_progress)

    def _hint(self) -> str:
        if self._hurry is None:
            return "They are stopped without waiting. Ctrl+Q asks again."
        lines = [
            "Requests in flight finish first, which takes 20 s at most.",
            *self._unsent,
            f"q stops now: {NOW[0].lower()}{NOW[1:]} Ctrl+Q asks again.",
        ]
        return "\n".join(lines)

    def action_hurry(self) -> None:
        """Stop the processes without waiting for what they still do."""
        if self._hurry is not None:
            self._hurry()
            self._hurry = None

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


async def stop_and_leave(
    app: App[Any],
    session: Session,
    processes: ProcessManager,
    running: Sequence[ChildProcess],
    code: int,
    *,
    now: bool = False,
) -> None:
    """Stop the processes, then end the console.

    Args:
        app: The console.
        session: Has the state of the processes.
        processes: Stops the processes.
        running: The processes that are shown.
        code: Exit code of the console.
        now: Whether to stop them without waiting for what they still do.
    """

    def hurry() -> None:
        work = stop_and_leave(app, session, processes, running, code, now=True)
        app.run_worker(work, group="quit", exclusive=True, exit_on_error=False)

    stopping = StoppingScreen(session, running, None if now else hurry)
    try:
        await app.push_screen(stopping)
        await processes.stop_all(now=now)
    except BaseException:  # quit was requested again, or stopping failed
        stopping.leave()
        raise
    app.exit(code)


def quit_loss(session: Session) -> str:
    """Return what stopping the home's own engine after its proxy costs; empty for nothing."""
    lines = []
    for server in session.state.servers.values():
        pool = server.pool
        if server.own and pool is not None and (pool.completed_tasks or pool.other_clients):
            lines += pool_costs(session.state, server, pool)
    return " ".join(lines)


def unsent(state: State) -> list[str]:
    """Return which finished groups are not sent yet, and what a stop means for their rewards."""
    counts = Counter(group.server for group in state.open_groups() if group.phase == "SUBMITTING")
    lines = []
    for name, number in counts.items():
        server = state.servers.get(name)
        fate = "the next start sends them if the server still holds their episodes"
        if server is not None and server.own:
            fate = "they are lost if its engine is stopped before it takes them"
        rewards = f"The rewards of {plural(number, 'finished group')}"
        lines.append(f"{rewards} are not on {one_line(name, 24)} yet: {fate}.")
    return lines
