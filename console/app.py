"""The console: one Textual app over one session. It paints first and asks questions later."""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from textual import events
from textual.app import App
from textual.binding import Binding, BindingType
from textual.worker import Worker, WorkerState

from console.keys import key_problems
from console.logs import ConsoleHandler
from console.palette import ConsoleCommands
from console.places import SCREENS, Place
from console.screens.base import ConsoleScreen
from console.screens.confirm import AskScreen, ConfirmScreen, LineScreen
from console.screens.help import HelpScreen
from console.screens.quit import QuitScreen
from console.screens.small import MIN_HEIGHT, MIN_WIDTH, TooSmallScreen
from console.session import Session
from console.themes import DEFAULTS, THEMES
from core.text import plain

if TYPE_CHECKING:
    from console.options import ConsoleOptions

log = logging.getLogger(__name__)

FLUSH_SECONDS = 0.2
WIDTHS = [(0, "-narrow"), (120, "-wide"), (160, "-very-wide")]
HEIGHTS = [(0, "-short"), (36, "-tall"), (44, "-very-tall")]
Severity = Literal["information", "warning", "error"]
Starter = Callable[[Session], Awaitable[None]]
"""Starts or finds what the session needs and follows it until cancelled."""

_SEVERITIES: Mapping[str, Severity] = {"warning": "warning", "error": "error"}
_STYLES = Path(__file__).parent / "styles"


def _places() -> list[BindingType]:
    bindings: list[BindingType] = []
    for place in SCREENS:
        bindings.append(
            Binding(
                f"f{place.digit}",
                f"go('{place.name}')",
                place.title,
                show=False,
                tooltip=place.help,
                id=f"screen.{place.name}",
            )
        )
        bindings.append(
            Binding(str(place.digit), f"go('{place.name}', True)", place.title, show=False)
        )
    return bindings


class ConsoleApp(App[int]):
    """The operator's seat.

    Attributes:
        session: What this console sees and orders.
        view_faults: Failures of screens to paint; each is logged, none ends the console.
    """

    TITLE = "ajet-console"
    CSS_PATH: ClassVar[Any] = sorted(_STYLES.glob("*.tcss"))
    COMMANDS: ClassVar[Any] = {ConsoleCommands}
    HORIZONTAL_BREAKPOINTS = WIDTHS
    VERTICAL_BREAKPOINTS = HEIGHTS
    BINDINGS: ClassVar[list[BindingType]] = [
        *_places(),
        Binding(
            "question_mark", "help", "Help", key_display="?", id="app.help", tooltip="Keys and text"
        ),
        Binding(
            "colon",
            "line",
            "Go to",
            show=False,
            key_display=":",
            id="app.line",
            tooltip="F1 to F7, or a screen by its name",
        ),
        Binding(
            "ctrl+q",
            "quit",
            "Quit",
            priority=True,
            id="app.quit",
            tooltip="Asks when something runs",
        ),
    ]

    def __init__(
        self,
        session: Session,
        starter: Starter | None = None,
        *,
        theme: str = "dark",
        keys: Mapping[str, str] | None = None,
        places: Sequence[Place] = SCREENS,
    ) -> None:
        self.session = session
        self.places = places
        self.view_faults: list[str] = []
        self._starter = starter
        self._keys = dict(keys or {})
        self._last_tick = 0
        super().__init__()
        for mode in places:
            self.add_mode(mode.name, mode)
        for known in THEMES.values():
            self.register_theme(known)
        self.theme = theme if theme in THEMES else "dark"
        self._handler = ConsoleHandler(session.note)

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """Semantic colours for themes that are not ours."""
        return dict(DEFAULTS)

    # Life

    def on_mount(self) -> None:
        """Show the first screen; whatever takes time begins after it was painted."""
        logging.getLogger().addHandler(self._handler)
        self.switch_mode(self.places[0].name)
        self.set_interval(FLUSH_SECONDS, self.flush)
        self.call_after_refresh(self._begin)

    def on_unmount(self) -> None:
        """Leave nothing behind in this process."""
        logging.getLogger().removeHandler(self._handler)

    def _begin(self) -> None:
        if self._keys:
            screens = [place.load() for place in self.places]
            keymap, problems = key_problems(self._keys, type(self), screens)
            self.set_keymap(keymap)
            for problem in problems:
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

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """Background work that fails is told, and written to the log with its traceback."""
        if event.state is WorkerState.ERROR:
            error = event.worker.error
            log.error("%s failed", event.worker.name, exc_info=error)
            self.say(f"{event.worker.name} failed: {error}. See the log (F7)", "error")

    # Painting

    def flush(self) -> None:
        """Show what changed since the last flush; five times a second."""
        tick = int(self.session.now())
        if tick != self._last_tick:
            self._last_tick = tick
            self.session.touch(("clock",))
        while self.session.told:
            text, level = self.session.told.pop(0)
            self.say(text, _SEVERITIES.get(level, "information"))
        dirty = self.session.take_dirty()
        if dirty:
            self.flush_screen(self.front, dirty)

    @property
    def front(self) -> ConsoleScreen | None:
        """The console screen the operator looks at, be it below a question."""
        for screen in reversed(self.screen_stack):
            if isinstance(screen, ConsoleScreen):
                return screen
        return None

    def flush_screen(self, screen: ConsoleScreen | None, dirty: frozenset[str]) -> None:
        """Repaint one screen."""
        if screen is not None and screen.is_attached:
            with self.batch_update():
                self.guarded(lambda: screen.flush(dirty))

    def guarded(self, paint: Callable[[], None]) -> None:
        """Paint a part; a fault in it is told and logged once and does not end the console."""
        try:
            paint()
        except Exception as error:  # the seat must outlive a fault in one view
            front = self.front
            area = front.area if front is not None else "?"
            fault = f"{area}: {type(error).__name__}: {error}"
            if fault in self.view_faults:  # it comes back with every flush
                return
            self.view_faults.append(fault)
            log.exception("a screen could not be painted")
            self.say(f"A part of this screen cannot be shown ({fault}). See the log (F7)", "error")

    def on_resize(self, event: events.Resize) -> None:
        """Say that the terminal is too small, and take it back."""
        small = event.size.width < MIN_WIDTH or event.size.height < MIN_HEIGHT
        shown = [screen for screen in self.screen_stack if isinstance(screen, TooSmallScreen)]
        if small and not shown:
            self.push_screen(TooSmallScreen())
        elif not small:
            for screen in shown:
                screen.dismiss()

    # Going places

    def action_go(self, name: str, by_digit: bool = False) -> None:
        """Show a screen; its own front page when it is the present one."""
        if self.current_mode != name:
            self.switch_mode(name)
            return
        while len(self.screen_stack) > 1 and isinstance(self.screen, ConsoleScreen):
            self.pop_screen()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Bare digits switch screens only where they do not vote."""
        if action == "go" and len(parameters) > 1:
            return not (isinstance(self.screen, ConsoleScreen) and self.screen.digits_vote)
        return True

    def action_help(self) -> None:
        """Keys and text of the present screen."""
        screen = self.screen
        if isinstance(screen, ConsoleScreen):
            self.push_screen(HelpScreen(screen.area, screen.help_text, screen.active_bindings))

    def action_line(self) -> None:
        """`:name` opens a screen by its name."""
        self.push_screen(LineScreen(self.places), self._go_by_name)

    def _go_by_name(self, given: str | None) -> None:
        name = (given or "").strip().lower()
        if not name:
            return
        if name in ("q", "quit"):
            self.run_worker(self._quit(), group="quit", exclusive=True, exit_on_error=False)
            return
        found = [p for p in self.places if p.name.startswith(name) or p.title.lower() == name]
        if found:
            self.action_go(found[0].name)
        else:
            names = ", ".join(place.name for place in self.places)
            self.say(f"There is no screen `{name}`. There are: {names}", "warning")

    # Asking and telling

    def say(self, message: str, severity: Severity = "information") -> None:
        """A toast; text from anywhere, shown as it is."""
        shown = plain(message)
        self.notify(
            shown if len(shown) <= 600 else shown[:599] + "…",
            severity=severity,
            markup=False,
            timeout=4 if severity == "information" else 8,
        )

    async def confirm(self, title: str, body: str, danger_label: str = "Do it") -> bool:
        """Ask before something is lost; await it inside a worker.

        Args:
            title: What is about to be done.
            body: What it costs, in numbers.
            danger_label: The verb on the button, "Abort" say.
        """
        return await self.push_screen_wait(ConfirmScreen(title, body, danger_label))

    async def ask(self, title: str, label: str = "", value: str = "") -> str | None:
        """Ask for one line of text; None when the operator leaves. Await it inside a worker."""
        return await self.push_screen_wait(AskScreen(title, label, value))

    def run_command(self, name: str, /, **args: Any) -> None:
        """Order something in the background; a toast says how it went."""
        self.run_worker(
            self.order(name, **args),
            name=name,
            group="command",
            description=name,
            exit_on_error=False,
        )

    async def order(self, name: str, /, **args: Any) -> bool:
        """Order something, tell how it went, and return whether it was done."""
        outcome = await self.session.command(name, **args)
        if outcome.message:
            self.say(outcome.message, "information" if outcome.ok else "error")
        return outcome.ok

    async def action_quit(self) -> None:
        """Leave; asks when processes that were started here still run."""
        if isinstance(self.screen, QuitScreen):
            return
        self.run_worker(self._quit(), group="quit", exclusive=True, exit_on_error=False)

    async def _quit(self) -> None:
        boss = self.session.boss
        running = [child for child in self.session.children.values() if child.pid is not None]
        if boss is None or not running:
            self.exit(0)
            return
        choice = await self.push_screen_wait(QuitScreen(self.session, running))
        if choice == "leave":
            self.exit(0)
        elif choice == "stop":
            self.say("Stopping: requests in flight are finished first")
            await boss.stop_all()
            self.exit(0)

    def copy(self, text: str, what: str = "Copied") -> None:
        """Put text on the operator's clipboard (OSC 52) and say so."""
        self.copy_to_clipboard(text)
        self.say(f"{what} ({len(text)} characters)")


def run_console(options: "ConsoleOptions") -> int:
    """Run the console until the operator leaves.

    Returns:
        The exit code.
    """
    from console.startup import open_session

    logging.getLogger().setLevel(logging.INFO)
    logging.getLogger("httpx").setLevel(logging.WARNING)  # one line for each request otherwise
    session, starter = open_session(options)
    app = ConsoleApp(
        session,
        starter,
        theme=options.settings.console.theme,
        keys=options.settings.console.keys,
    )
    return app.run() or app.return_code or 0
