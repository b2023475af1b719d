"""Interface of the app for screens, widgets and models, so that none of them imports it."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, cast

from console.models.screen_registry import ScreenSpec
from console.session.app_state import Session

if TYPE_CHECKING:
    from textual.await_complete import AwaitComplete
    from textual.screen import Screen
    from textual.widget import AwaitMount, Widget
    from textual.worker import Worker

Severity = Literal["information", "warning", "error"]
"""Level of a toast."""
Result = TypeVar("Result")


class HostedScreen(Protocol):
    """Interface of `console.screens.base.ConsoleScreen` for the app and the palette."""

    @property
    def is_attached(self) -> bool: ...

    @property
    def target_group(self) -> str | None:
        """Id of the group that commands about a group apply to."""

    @property
    def target_server(self) -> str | None:
        """Name of the server that commands about an engine apply to."""

    def flush(self, dirty: frozenset[str]) -> None:
        """Repaint what changed."""

    def action_try_prompt(self) -> None:
        """Open the screen of prompts that were tried."""


class AppHost(Protocol):
    """Interface of `console.app.ConsoleApp` for screens, widgets and models."""

    session: Session
    places: Sequence[ScreenSpec]
    theme: str

    # What is shown

    @property
    def shown_screens(self) -> list[ScreenSpec]:
        """The screens that keys and lists lead to."""

    @property
    def current_mode(self) -> str:
        """Name of the screen that is open."""

    @property
    def screen(self) -> "Screen[Any]":
        """The screen on top of the stack."""

    @property
    def screen_stack(self) -> "list[Screen[Any]]": ...

    @property
    def front(self) -> HostedScreen | None:
        """The console screen in front, even below a dialog."""

    # The operator

    def say(self, message: str, severity: Severity = "information") -> None:
        """Show a toast."""

    async def confirm(
        self, title: str, body: str, danger_label: str = "Do it", detail: str = ""
    ) -> bool:
        """Ask for confirmation before something is lost; await it inside a worker."""

    async def ask(
        self, title: str, label: str = "", value: str = "", hint: str = ...
    ) -> str | None:
        """Ask for one line of text; None when the operator cancels."""

    def copy(self, text: str, what: str = "Copied") -> None:
        """Copy text to the operator's clipboard, with a toast."""

    # Commands

    def run_command(self, name: str, /, **args: Any) -> None:
        """Send a command in the background; a toast shows the outcome."""

    async def send_command(self, name: str, /, **args: Any) -> bool:
        """Send a command, show its outcome, and return whether it succeeded."""

    def run_worker(
        self,
        work: Awaitable[Any],
        name: str | None = "",
        group: str = "default",
        description: str = "",
        exit_on_error: bool = True,
        start: bool = True,
        exclusive: bool = False,
    ) -> "Worker[Any]":
        """Await `work` in the background."""

    # Screens

    def push_screen(
        self, screen: "Screen[Result]", callback: Callable[[Result | None], Any] | None = None
    ) -> "AwaitMount":
        """Open a screen above the present one."""

    async def push_screen_wait(self, screen: "Screen[Result]") -> Result:
        """Open a screen and return its result; await it inside a worker."""

    def pop_screen(self) -> "AwaitComplete":
        """Close the screen on top."""

    def action_go(self, name: str, by_digit: bool = False) -> None:
        """Open a screen of the registry."""

    def action_help(self) -> None:
        """Open the help of the present screen."""

    def action_jump(self) -> None:
        """Open jump mode: a letter for each part of the screen."""

    async def action_quit(self, setup: bool = False) -> None:
        """Quit; ask first while processes started here are running.

        Args:
            setup: Stop them without asking; `ajet-console setup` follows.
        """

    def open_job(self, server: str) -> None:
        """Open the screen with the job of a server."""

    def open_probe(self, server: str | None) -> None:
        """Open the screen of prompts that were tried, for a server."""

    def suspend(self) -> AbstractContextManager[None]:
        """Hand the terminal over to another program."""

    # Painting

    def batch_update(self) -> AbstractContextManager[None]:
        """Paint nothing until the block ends."""

    def guarded(self, paint: Callable[[], None]) -> None:
        """Paint a part; a fault in it is reported once and does not end the console."""

    def flush_screen(self, screen: HostedScreen | None, dirty: frozenset[str]) -> None:
        """Repaint one screen."""


def host(widget: "Widget") -> AppHost:
    """Return the app of a widget, typed."""
    return cast(AppHost, widget.app)
