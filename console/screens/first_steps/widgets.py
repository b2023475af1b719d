"""The first steps with their keys: on the overview before the first request, later in a dialog."""

import asyncio
from collections.abc import Coroutine
from typing import Any, ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.screen import ModalScreen
from textual.widgets import Static

from console.clients.catalog import AGENT_PROMPT, DEFAULT_CONTEXT, SMALL, Client, window_of
from console.models.app_host import AppHost, host
from console.models.datasets import one_question
from console.screens.first_steps.steps import (
    content,
    curl_line,
    installed,
    may_mock,
    settings_of,
    to_start,
)
from console.screens.progress.model import mock_start_args
from console.session.app_state import EVERYTHING, Session
from console.text.sections import Room
from console.ui.keys import keys
from console.widgets.section import Section


class FirstSteps(Section):
    """Explains the program and offers the first steps; its keys work while it has the focus."""

    HELP = "Each line shows its key. The palette opens it again: `Console: First steps`."
    can_focus = True
    BINDINGS: ClassVar[list[BindingType]] = [
        *keys(
            ("s", "start", "Start", "first.start", "Start the OFFLINE engine"),
            ("m", "mock", "Mock user", "first.mock", "Send the shipped questions as a user"),
            ("r", "rate", "Rate by hand", "first.rate", "One question, then the Rate screen"),
            ("c", "curl", "Copy curl", "first.curl", "A command line that sends a request"),
        ),
        *keys(
            ("v", "client", "Copy settings", "first.client", "Of a program found here"),
            ("w", "setup", "Setup", "first.setup", "Five questions in place of the console"),
            shown=False,
        ),
    ]

    class Taken(Message):
        """A step was chosen."""

    def __init__(self, id: str | None = None) -> None:  # noqa: A002 - Textual's own name
        keys_of = frozenset({"server", "servers", "proxy", "mock", "groups", "children", "clock"})
        super().__init__(self._lines, keys_of, id=id)
        self._client: Client | None = None

    def _lines(self, session: Session, room: Room) -> Content:
        return content(session, room, self._client)

    @work(group="first", exit_on_error=False)
    async def on_mount(self) -> None:
        """Find client programs, off the event loop."""
        self._client = await asyncio.to_thread(installed)
        self.repaint()

    def paint(self, session: Session, dirty: frozenset[str]) -> None:
        """Paint it, and refresh the keys in the footer."""
        super().paint(session, dirty)
        self.refresh_bindings()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer keys that have an effect now."""
        session = host(self).session
        serves = bool(session.state.proxy_url) and not session.state.watch_only
        match action:
            case "start":
                return to_start(session) is not None
            case "mock" | "rate":
                return may_mock(session)
            case "curl":
                return serves
            case "setup":
                return session.offers_setup
            case "client":
                return serves and self._client is not None
        return super().check_action(action, parameters)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        """Do a step in the background: the app goes on with it after a dialog has closed."""
        host(self).run_worker(work, name="first step", group="command", exit_on_error=False)
        self.post_message(self.Taken())

    def action_start(self) -> None:
        """Start the engine; confirm the first job of an AgentJet server."""
        server = to_start(host(self).session)
        if server is not None:
            host(self).run_command("engine.start", server=server.name)
            self.post_message(self.Taken())

    def action_mock(self) -> None:
        """Send the shipped questions as a user would."""
        self._start(_start_mock(host(self)))

    def action_curl(self) -> None:
        """Copy a command line that sends one question."""
        host(self).copy(curl_line(host(self).session), "Copied the curl line")
        self.post_message(self.Taken())

    def action_client(self) -> None:
        """Copy the settings of the client program."""
        if self._client is not None:
            self._start(copy_settings(host(self), self._client))

    async def action_setup(self) -> None:
        """Close the console for the setup, which opens it again."""
        await host(self).action_quit(setup=True)

    def action_rate(self) -> None:
        """Switch to answer first unless ratings are on, and send one question."""
        self._start(rate_one(host(self)))


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


async def copy_settings(app: AppHost, client: Client) -> None:
    """Copy the settings of a client program, with the window of the policy."""
    window = await asyncio.to_thread(window_of, app.session.state.proxy_url, "", "")
    text = settings_of(client, app.session, window or DEFAULT_CONTEXT)
    app.copy(text, f"Copied the settings of {client.title}")
    if window is not None and window < AGENT_PROMPT:
        app.say(SMALL.format(context=window), "warning")


async def _start_mock(app: AppHost) -> None:
    args = await mock_start_args(app)
    if args is not None:
        await app.send_command("mock.start", **args)


async def rate_one(app: AppHost) -> None:
    """Send one question and open the rating screen."""
    args = await mock_start_args(app, dataset=one_question(), restart=True)
    if args is None:
        return
    if app.session.state.rating_mode == "off" and not await app.send_command(
        "rating.mode", mode="answer_first"
    ):
        return
    if await app.send_command("mock.start", **args):
        app.action_go("rate")
