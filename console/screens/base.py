"""Base class of all screens: status bar, footer and repainting."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, ClassVar

from textual.app import App, ComposeResult
from textual.binding import BindingType
from textual.events import Resize, ScreenResume
from textual.geometry import Size
from textual.screen import Screen
from textual.widget import Widget

from console.models.app_host import AppHost, host
from console.session.app_state import EVERYTHING, Session
from console.ui.keys import keys
from console.widgets.key_bar import KeyBar
from console.widgets.status_bar import StatusBar

ROOMY = Size(120, 36)
"""The smallest terminal in which panels have borders; the screen has the class `-roomy` then."""


def is_roomy(size: Size) -> bool:
    """Return whether a terminal has room for charts beside the text and for borders."""
    return size.width >= ROOMY.width and size.height >= ROOMY.height


def _styling(app: App[Any]) -> tuple[object, ...]:
    """Return what the styles of all widgets depend on besides their own classes."""
    return app._css_update_count, app.app_focus, app.classes


def _set_size_classes(screen: Screen[Any], size: Size) -> None:
    """Set the classes that depend on the size of the terminal, without a restyle."""
    names = {"-roomy": is_roomy(size)}
    breakpoints = screen.app.HORIZONTAL_BREAKPOINTS, screen.app.VERTICAL_BREAKPOINTS
    for pairs, cells in zip(breakpoints, size, strict=True):
        reached = max((pair for pair in pairs or () if cells >= pair[0]), default=None)
        names |= {pair[1]: pair == reached for pair in pairs or ()}
    screen.update_classes(names, update=False)


class ConsoleScreen(Screen[None]):
    """A screen of the console.

    A subclass implements `compose_body` and `update_view`. The app calls `update_view` at most five
    times a second, with the keys of what changed, while the screen is in front.
    """

    area: ClassVar[str] = ""
    """Title in the tab, the palette and the help."""
    help_text: ClassVar[str] = ""
    """Text that `?` shows above the keys: plain text, a few sentences."""
    digits_vote: ClassVar[bool] = False
    """Digits vote on this screen instead of switching screens."""
    shows_texts: ClassVar[bool] = True
    """Needs answers or reward parts of older groups, which are read when it is shown first."""
    shows_curves: ClassVar[bool] = False
    """Needs the curves of ended engine runs, which are read when it is shown first."""
    first_keys: tuple[str, ...] = ()
    """Actions whose keys come first in the footer, in this order."""
    footer_words: Mapping[str, str] = MappingProxyType({})
    """Labels of actions in the footer that differ from those of their bindings."""
    footer_keys: Mapping[str, str] = MappingProxyType({})
    """How the footer names the keys of some actions now, unlike the help."""
    spare_keys: ClassVar[tuple[str, ...]] = ()
    """Actions whose keys the footer adds where there is room, in this order."""
    most_keys: ClassVar[int] = 12
    """Most keys in the footer: more are hard to scan, and the help lists all."""
    keeps_focus: ClassVar[bool] = False
    """Its keys need the focus: the widget of `AUTO_FOCUS` gets it before a key when nothing has it,
    as after the terminal had lost the focus."""
    _painted_for: Size | None = None
    _styled_for: tuple[object, ...] = ()
    BINDINGS: ClassVar[list[BindingType]] = keys(
        ("ctrl+t", "try_prompt", "Try a prompt", "engine.try", "Send one prompt, train nothing"),
        shown=False,
    )

    @property
    def takes_digits(self) -> bool:
        """Whether digits vote now."""
        return self.digits_vote

    @property
    def host(self) -> AppHost:
        """The app, typed."""
        return host(self)

    @property
    def session(self) -> Session:
        """The state and commands of this console."""
        return self.host.session

    @property
    def target_group(self) -> str | None:
        """Id of the group that the `Group: ...` entries of the palette apply to; None for none."""
        return None

    @property
    def target_server(self) -> str | None:
        """Name of the server that the `Engine: ...` entries apply to; None for the first one."""
        return None

    def compose(self) -> ComposeResult:
        """Status bar, body, footer.

        The classes that depend on the size are set before the widgets are styled: Textual sets them
        later, and styles all of them twice.
        """
        _set_size_classes(self, self.app.size)
        self._styled_for = _styling(self.app)
        prefix = "F" if self.digits_vote else ""
        yield StatusBar(self.host.places, self.host.current_mode, prefix)
        yield from self.compose_body()
        yield KeyBar()

    def compose_body(self) -> Iterable[Widget]:
        """The widgets between status bar and footer."""
        return ()

    def update_view(self, dirty: frozenset[str]) -> None:
        """Paint what changed.

        Args:
            dirty: Keys of the reducer ("group:ID", "groups", "server:NAME", "servers", "alerts",
                "mock", "rewards", "totals", "proxy"), and "clock" (a second has passed), "link"
                (feed lost or back), "children", "log"; or {"*"}: everything, on first show,
                on return and after a new snapshot.
        """

    def may_go(self) -> bool:
        """Return whether the screen can be closed at once; a screen that must ask does so first."""
        return True

    def action_try_prompt(self) -> None:
        """Open the screen of prompts with the target server of this screen."""
        self.host.open_probe(self.target_server)

    def flush(self, dirty: frozenset[str]) -> None:
        """Repaint the status bar and the body; the app calls this."""
        if not (
            self.is_mounted and self.app.is_running
        ):  # at shutdown widgets are removed one by one
            return
        for bar in self.query(StatusBar):
            bar.show(self.session)
        self.update_view(EVERYTHING if "*" in dirty else dirty)

    def on_screen_resume(self, event: ScreenResume) -> None:
        """Repaint when in front again; only the screen in front receives a resize.

        Textual would also style all widgets anew, which is needed only after a change of the theme
        or of the focus of the terminal.
        """
        size, styling = self.app.size, _styling(self.app)
        if styling == self._styled_for:
            event.refresh_styles = False
        self._styled_for = styling
        if self._painted_for not in (None, size):
            self.post_message(Resize(size, size))
        self.call_after_refresh(self.host.flush_screen, self, EVERYTHING)

    def on_resize(self, event: Resize) -> None:
        """Repaint what was fitted or wrapped for another size.

        Textual lays a screen out again after its first layout, and when the app starts again for
        the size of the terminal.
        """
        before, self._painted_for = self._painted_for, event.size
        if before in (None, event.size) and event.size == self._compositor.size:
            event.prevent_default()
        self.set_class(is_roomy(event.size), "-roomy")
        if before is not None and before != event.size:
            self.call_after_refresh(self.host.flush_screen, self, EVERYTHING)
