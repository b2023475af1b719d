"""Messages to the operator: toasts, dialogs, command outcomes, clipboard."""

import asyncio
import logging
import time
from collections.abc import Mapping
from typing import Any, cast

from textual.app import App
from textual.worker import Worker, WorkerState

from ajet_swarm.common.errors import AjetError
from ajet_swarm.common.text import one_line, plain
from console.models.app_host import AppHost, Severity
from console.screens.dialogs.confirm import ASK_HINT, AskScreen, ConfirmScreen
from console.session.app_state import Session
from console.shell.key_queue import KeyQueue
from core.control_payloads import JobInfo

log = logging.getLogger(__name__)


class OperatorMessages(App[int]):
    """App that sends the commands of a session and shows their outcomes."""

    session: Session
    keys_ahead: KeyQueue
    _last_toast: tuple[str, float] = ("", 0.0)
    """Text of the last toast, and its expiry time on the monotonic clock."""

    def say(self, message: str, severity: Severity = "information") -> None:
        """Show a toast without interpreting markup; ignore a repetition of the visible one."""
        shown = plain(message)
        shown = shown if len(shown) <= 600 else shown[:599] + "…"
        seconds, now = (4 if severity == "information" else 8), time.monotonic()
        if shown == self._last_toast[0] and now < self._last_toast[1]:
            return
        self._last_toast = (shown, now + seconds)
        self.notify(shown, severity=severity, markup=False, timeout=seconds)

    def clear_notifications(self) -> None:
        """Remove all toasts."""
        self._last_toast = ("", 0.0)
        super().clear_notifications()

    async def push_screen_wait(self, screen: Any, *, mode: str | None = None) -> Any:
        """Open a screen and return its result; keys typed ahead wait until it is open.

        As Textual's method, whose second step may also wait: here none does between both.
        """
        with self.keys_ahead.opening():
            await self._flush_next_callbacks()  # may remove the dialog answered before
            answer = self.push_screen(screen, wait_for_dismiss=True, mode=mode)
        return await asyncio.shield(answer)  # a cancelled worker leaves the dialog open

    async def confirm(
        self, title: str, body: str, danger_label: str = "Do it", detail: str = ""
    ) -> bool:
        """Ask for confirmation before something is lost; await it inside a worker.

        Args:
            title: Title of the dialog.
            body: What would be lost, in numbers.
            danger_label: Verb on the button, such as "Abort".
            detail: Longer text, which scrolls.
        """
        screen = ConfirmScreen(title, body, danger_label, detail)
        confirmed: bool = await self.push_screen_wait(screen)
        return confirmed

    async def ask(
        self, title: str, label: str = "", value: str = "", hint: str = ASK_HINT
    ) -> str | None:
        """Ask for one line of text; None when the operator cancels. Await it inside a worker."""
        answer: str | None = await self.push_screen_wait(AskScreen(title, label, value, hint))
        return answer

    def run_command(self, name: str, /, **args: Any) -> None:
        """Send a command in the background; a toast shows the outcome."""
        self.run_worker(
            self.send_command(name, **args),
            name=name,
            group="command",
            description=name,
            exit_on_error=False,
        )

    async def send_command(self, name: str, /, **args: Any) -> bool:
        """Send a command, show the outcome, and return whether it succeeded."""
        if name == "engine.start" and not await may_start(cast(AppHost, self), args):
            return False
        outcome = await self.session.command(name, **args)
        if outcome.message:
            self.say(outcome.message, "information" if outcome.ok else "error")
        return outcome.ok

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """Show failed background work, and log it with its traceback."""
        if event.state is WorkerState.ERROR:
            error = event.worker.error
            log.error("%s failed", event.worker.name, exc_info=error)
            self.say(f"{event.worker.name} failed: {error}. See the log (F7)", "error")

    def copy(self, text: str, what: str = "Copied") -> None:
        """Copy text to the operator's clipboard (OSC 52), with a toast."""
        self.copy_to_clipboard(text)
        self.say(f"{what} ({len(text)} characters)")


async def may_start(app: AppHost, args: Mapping[str, Any]) -> bool:
    """Return whether to start; ask first when the server would get its first job from here.

    Opens the job screen for a job that an AgentJet server cannot start with. Await it inside a
    worker.

    Args:
        args: Arguments of the command: server, preset, job.
    """
    servers = app.session.state.servers
    name = args.get("server") or next(iter(servers), "")
    server = servers.get(name)
    if server is None or server.job is not None:
        return True
    try:
        sheet = await app.session.proxy.job(name)
    except AjetError:
        return True  # the command itself reports the error
    text = start_text(sheet, args)
    if not text:
        return True
    from console.models.job_form import first_job_text, for_server, masked

    try:
        text = masked(for_server(text, sheet.model).text)
    except AjetError as error:
        app.say(f"{one_line(name, 30)} is not started: {error.what}. {error.todo}", "warning")
        app.open_job(name)
        return False
    about = first_job_text(text, args.get("preset") or "")
    return await app.confirm(f"Start {one_line(name, 30)}?", about, "Start", text)


def start_text(sheet: JobInfo, args: Mapping[str, Any]) -> str:
    """Return the job a start would send to an AgentJet server; empty when no question is needed."""
    if sheet.embedded:
        return ""
    if job := args.get("job"):
        return str(job)
    if preset := args.get("preset"):
        return sheet.hand if preset == "hand" else sheet.default
    return "" if sheet.last else sheet.next
