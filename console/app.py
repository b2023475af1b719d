"""The console: one Textual app over one session; slow work starts after the first paint."""

import gc
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from inspect import isawaitable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from textual import events
from textual.binding import BindingType
from textual.command import CommandPalette
from textual.driver import Driver
from textual.filter import LineFilter
from textual.widgets import TextArea

from console.messages import OperatorMessages
from console.models.app_host import HostedScreen, Severity
from console.models.screen_registry import SCREENS, ScreenSpec, shown_screens
from console.screens.base import ConsoleScreen
from console.screens.dialogs.confirm import LineScreen
from console.screens.dialogs.jump import JumpScreen, JumpTarget
from console.screens.dialogs.quit import QuitScreen, stop_and_leave
from console.screens.dialogs.too_small import MIN_HEIGHT, MIN_WIDTH, TooSmallScreen
from console.screens.help import HelpScreen
from console.session.app_state import Session, Starter
from console.session.history import read_curves, read_texts
from console.session.logs import ConsoleHandler
from console.shell.app_keys import EVERYWHERE
from console.shell.key_queue import KeyQueue
from console.shell.keymap import key_problems
from console.shell.open_by_name import open_by_name
from console.shell.output_sanitizer import OutputSanitizer
from console.shell.palette import ConsoleCommands, open_palette
from console.text.theme import DEFAULTS, THEMES

if TYPE_CHECKING:
    from console.backend.options import ConsoleOptions

log = logging.getLogger(__name__)

SETUP_FOLLOWS = 64
"""Exit code of the console when the operator chose the setup."""
FLUSH_SECONDS = 0.2
WIDTHS = [(0, "-narrow"), (120, "-wide"), (160, "-very-wide")]
HEIGHTS = [(0, "-short"), (36, "-tall"), (44, "-very-tall")]

_MOUSE = (events.MouseDown, events.MouseScrollDown, events.MouseScrollUp)
"""Events that show that an operator is present, besides keys."""
_SEVERITIES: Mapping[str, Severity] = {"warning": "warning", "error": "error"}
_STYLES = Path(__file__).parent / "styles"


class ConsoleApp(OperatorMessages):
    """The terminal console of one operator.

    Attributes:
        session: State and commands of this console.
        view_faults: Errors of screens while painting; each is logged, none ends the console.
        key_problems: Keys of the settings that cannot be used, a sentence each.
        footer_words: Labels of actions in the footer that differ from those of their bindings.
        sanitizer: Keeps control characters, also typed or pasted ones, from the terminal.
    """

    TITLE = "ajet-console"
    CSS_PATH: ClassVar[Any] = sorted(_STYLES.glob("*.tcss"))
    COMMANDS: ClassVar[Any] = {ConsoleCommands}
    HORIZONTAL_BREAKPOINTS = WIDTHS
    VERTICAL_BREAKPOINTS = HEIGHTS
    BINDINGS: ClassVar[list[BindingType]] = EVERYWHERE
    action_command_palette = open_palette

    def __init__(
        self,
        session: Session,
        starter: Starter | None = None,
        *,
        theme: str = "dark",
        keys: Mapping[str, str] | None = None,
        first: str = "",
        places: Sequence[ScreenSpec] = SCREENS,
    ) -> None:
        self.session = session
        self.places = places
        self.view_faults: list[str] = []
        self.key_problems: list[str] = []
        self.footer_words: Mapping[str, str] = {}
        self._starter = starter
        self._first = first or places[0].name
        # Textual would first show an empty screen, with widgets of its own.
        self.DEFAULT_MODE = self._first  # type: ignore[misc]
        self._keys = dict(keys or {})
        self._last_tick = 0
        self._styled_for = -1
        super().__init__()
        for mode in places:
            self.add_mode(mode.name, mode)
        for known in THEMES.values():
            self.register_theme(known)
        self.theme = theme if theme in THEMES else "dark"
        self._handler = ConsoleHandler(session.note)
        self.sanitizer = OutputSanitizer()
        self.keys_ahead = KeyQueue(self, super().on_event, self.flush_screen, session)

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Return the line filters; the sanitizer comes last."""
        return [*super().get_line_filters(), self.sanitizer]

    def get_driver_class(self) -> type[Driver]:
        """Return Textual's driver, on Linux and macOS with job control."""
        driver = super().get_driver_class()
        if driver.__name__ != "LinuxDriver":
            return driver
        from console.shell.terminal_driver import (
            JobControlDriver,
        )  # imports modules that Windows lacks

        return JobControlDriver

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """Return semantic colours for foreign themes."""
        return dict(DEFAULTS)

    def refresh_css(self, animate: bool = True) -> None:
        """Style the screens anew after a change of the theme.

        Textual also asks for it, twice, when a screen is opened for the first time, whose widgets
        have just been styled; that took a tenth of the CPU time of a session.
        """
        count, screens = self._css_update_count, self.screen_stack
        if self._styled_for == count and all(
            screen._css_update_count in (-1, count) for screen in screens
        ):
            for screen in screens:
                screen._css_update_count = count
            return
        super().refresh_css(animate)
        self._styled_for = count

    # Start and end

    def on_mount(self) -> None:
        """Show the first screen; slow work begins after it was painted."""
        logging.getLogger().addHandler(self._handler)
        self.set_interval(FLUSH_SECONDS, self.flush)
        self.call_after_refresh(self._begin)

    def on_unmount(self) -> None:
        """Remove the log handler of this app."""
        logging.getLogger().removeHandler(self._handler)

    def _begin(self) -> None:
        if self._keys:
            screens = [place.load() for place in self.places]
            keymap, self.key_problems = key_problems(self._keys, type(self), screens)
            self.set_keymap(keymap)
            self.session.keymap = keymap
            self.session.touch(("alerts",))
            for problem in self.key_problems:
                log.warning("%s", problem)
                self.say(problem, "warning")
        if self._starter is not None:
            self.run_worker(
                self._starter(self.session),
                name="backend",
                group="backend",
                description="start or find the proxy and follow it",
                exit_on_error=False,
            )

    # Painting

    def flush(self) -> None:
        """Show what changed since the last flush; five times a second."""
        tick = int(self.session.now())
        if tick != self._last_tick:
            self._last_tick = tick
            self.session.touch(("clock",))
        while self.session.messages:
            text, level = self.session.messages.pop(0)
            self.say(text, _SEVERITIES.get(level, "information"))
        front, session = self.front, self.session
        dirty = session.take_dirty()
        if dirty:
            self.flush_screen(front, dirty)
        if front is not None and not session.trouble:
            if front.shows_texts and session.unread_texts.due:
                self.run_worker(read_texts(session), name="texts", group="texts")
            if front.shows_curves and session.unread_curves.due:
                self.run_worker(read_curves(session), name="curves", group="curves")

    @property
    def front(self) -> ConsoleScreen | None:
        """The console screen in front, even below a dialog."""
        for screen in reversed(self.screen_stack):
            if isinstance(screen, ConsoleScreen):
                return screen
        return None

    def flush_screen(self, screen: HostedScreen | None, dirty: frozenset[str]) -> None:
        """Repaint one screen."""
        if screen is not None and screen.is_attached:
            with self.batch_update():
                self.guarded(lambda: screen.flush(dirty))

    def guarded(self, paint: Callable[[], None]) -> None:
        """Paint a part; an error in it is shown and logged once and does not end the console."""
        try:
            paint()
        except Exception as error:  # the console must survive an error in one view
            front = self.front
            area = front.area if front is not None else "?"
            fault = f"{area}: {type(error).__name__}: {error}"
            if fault in self.view_faults:  # it recurs with every flush
                return
            self.view_faults.append(fault)
            log.exception("a screen could not be painted")
            self.say(f"A part of this screen cannot be shown ({fault}). See the log (F7)", "error")

    def on_resize(self, event: events.Resize) -> None:
        """Show or hide the message that the terminal is too small."""
        small = event.size.width < MIN_WIDTH or event.size.height < MIN_HEIGHT
        shown = [screen for screen in self.screen_stack if isinstance(screen, TooSmallScreen)]
        if small and not shown:
            self.push_screen(TooSmallScreen())
        elif not small:
            for screen in shown:
                screen.dismiss()

    async def on_event(self, event: events.Event) -> None:
        """Handle keys one by one, each after the previous one has taken effect."""
        if isinstance(event, events.Key | events.Paste) and not event.is_forwarded:
            await self.keys_ahead.put(event)
            return
        if isinstance(event, _MOUSE):
            self.session.input_at = self.session.now()
        await super().on_event(event)

    # Navigation

    @property
    def shown_screens(self) -> list[ScreenSpec]:
        """The screens that keys and lists offer; others only open by their F-key."""
        return shown_screens(self.places, self.session.state)

    def action_go(self, name: str, by_digit: bool = False) -> None:
        """Show a screen; if it is already open, its front page."""
        if self.current_mode != name:
            self.switch_mode(name)
            return
        while len(self.screen_stack) > 1:
            if not (isinstance(self.screen, ConsoleScreen) and self.screen.may_go()):
                return
            self.pop_screen()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Return whether an action is available; digits switch screens only if they do not vote."""
        if action == "go" and len(parameters) > 1:
            if parameters[0] not in {place.name for place in self.shown_screens}:
                return False
            if not isinstance(self.screen, ConsoleScreen):
                return True
            return not self.screen.takes_digits
        if action == "jump":
            return not isinstance(self.screen, JumpScreen | TooSmallScreen | CommandPalette)
        if action == "suspend_process":
            return not isinstance(self.focused, TextArea)  # ctrl+z undoes there
        return True

    def action_help(self) -> None:
        """Show keys and help of the focused widget and the current screen."""
        screen = self.screen
        if isinstance(screen, ConsoleScreen):
            self.push_screen(HelpScreen(screen, self.key_problems))

    def action_jump(self) -> None:
        """Jump to any part of the screen by one letter."""
        self.push_screen(JumpScreen(self.screen), self._land)

    async def _land(self, target: JumpTarget | None) -> None:
        if target is not None and isawaitable(arrived := target.go()):
            await arrived

    def action_line(self) -> None:
        """Open the `:` line for the name of a screen, or the id of a group or episode."""
        self.push_screen(LineScreen(self.shown_screens), partial(open_by_name, self))

    def open_job(self, server: str) -> None:
        """Open the screen with the job of a server."""
        from console.screens.engine.job import JobScreen  # screens are imported on first use

        self.push_screen(JobScreen(server))

    def open_probe(self, server: str | None) -> None:
        """Open the Try screen unless it is already open."""
        from console.screens.progress.tries import ProbesScreen

        if not isinstance(self.screen, ProbesScreen):
            self.push_screen(ProbesScreen(server))

    # Quitting

    async def action_quit(self, setup: bool = False) -> None:
        """Quit; ask first while processes started here are running.

        Args:
            setup: Stop them without asking; `ajet-console setup` follows.
        """
        if isinstance(self.screen, QuitScreen):
            return
        self.run_worker(self._quit(setup), group="quit", exclusive=True, exit_on_error=False)

    async def _quit(self, setup: bool) -> None:
        processes, code = self.session.processes, SETUP_FOLLOWS if setup else 0
        running = [child for child in self.session.children.values() if child.pid is not None]
        if processes is None or not running:
            self.exit(code)
            return
        choice = "stop" if setup else await self.push_screen_wait(QuitScreen(self.session, running))
        if choice == "leave":
            self.exit(code)
        elif choice != "stay":
            await stop_and_leave(self, self.session, processes, running, code, now=choice == "now")


def run_console(options: "ConsoleOptions") -> int:
    """Run the console until the operator leaves.

    Returns:
        The exit code.
    """
    from console.backend.hangup import watch_terminal
    from console.backend.startup import open_session

    watch_terminal(sys.stdin.fileno())
    logging.getLogger().setLevel(logging.INFO)
    logging.getLogger("httpx").setLevel(logging.WARNING)  # it logs a line per request otherwise
    session, starter = open_session(options)

    async def begin(session: Session) -> None:
        gc.freeze()  # start-up objects stay alive: scanning them delayed keys by 0.1 s
        gc.set_threshold(5_000, 20, 50)
        await starter(session)

    app = ConsoleApp(
        session,
        begin,
        theme=options.settings.console.theme,
        keys=options.settings.console.keys,
        first="servers" if options.settings.proxy.watch_only and not options.attach else "",
    )
    return app.run() or app.return_code or 0
