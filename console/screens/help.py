"""Help dialog (`?`): the purpose of the current screen and the keys that work now."""

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import ActiveBinding, Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen, Screen
from textual.widget import Widget
from textual.widgets import Static

from ajet_swarm.common.text import plain
from console.screens.base import ConsoleScreen
from console.widgets.key_area import KeyArea

_WIDTH = 84
_FRAME = 10
"""Cells of the dialog, and those of its border, padding and scroll bar."""
_COMMON = frozenset(
    binding.key
    for bindings in (Screen.BINDINGS, ConsoleScreen.BINDINGS)
    for binding in Binding.make_bindings(bindings)
)
"""The keys of every screen."""


def _is_listed(binding: ActiveBinding) -> bool:
    """Return whether to list a key; scroll keys need no explanation."""
    scrolls = binding.binding.action.startswith(("scroll_", "page_")) and not binding.binding.id
    return not scrolls and not type(binding.node).__module__.startswith("textual.")


class HelpScreen(ModalScreen[None]):
    """Text and keys of a screen."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark", "app.pop_screen", "Close", id="help.close"),
    ]

    def __init__(self, screen: ConsoleScreen, problems: Sequence[str] = ()) -> None:
        """Create the help of a screen.

        Args:
            problems: Keys of the settings that cannot be used, a sentence each.
        """
        super().__init__()
        self._area, self._text = screen.area, screen.help_text
        focused = screen.focused
        self._focused = focused if not isinstance(focused, KeyArea) else None
        self._active = list(screen.active_bindings.values())
        self._problems = problems

    def compose(self) -> ComposeResult:
        """Title, global keys, help of the focused widget, text and keys of the screen."""
        with VerticalScroll(classes="dialog -wide"):
            yield Static(f"{self._area}: help", markup=False, classes="dialog-title")
            yield Static(self._global_keys(), markup=False, id="help-everywhere")
            for problem in self._problems:
                yield Static(f"! {plain(problem)}", markup=False, classes="dialog-problem")
            yield from self._about_focus()
            if self._text:
                yield Static(f"This screen: {self._area}", markup=False, classes="dialog-heading")
                yield Static(plain(self._text), markup=False)
            here = [
                active_binding
                for active_binding in self._active
                if active_binding.node not in (self.app, self._focused)
                and _is_listed(active_binding)
            ]
            # the keys of every screen come first, then those of its areas from the inside out
            here.sort(key=lambda active_binding: active_binding.binding.key not in _COMMON)
            yield Static("Here", markup=False, classes="dialog-heading")
            yield Static(self._keys(here), markup=False)
            yield Static("Esc closes", markup=False, classes="dialog-hint")

    def _about_focus(self) -> ComposeResult:
        name, text = about(self._focused)
        keys = [
            active_binding
            for active_binding in self._active
            if active_binding.node is self._focused and _is_listed(active_binding)
        ]
        if not name and not keys:
            return
        yield Static(f"In focus: {name or 'this part'}", markup=False, classes="dialog-heading")
        if text:
            yield Static(plain(text), markup=False)
        if keys:
            yield Static(self._keys(keys), markup=False)

    def on_resize(self) -> None:
        """Wrap the keys for another width."""
        self.query_one("#help-everywhere", Static).update(self._global_keys())

    def _global_keys(self) -> Content:
        """Return the global keys on few lines, so that they are always visible."""
        active = [
            active_binding for active_binding in self._active if active_binding.node is self.app
        ]
        rows: dict[str, list[str]] = {}
        for active_binding in active:
            if not active_binding.binding.system and active_binding.binding.description:
                key = self.app.get_key_display(active_binding.binding)
                rows.setdefault(active_binding.binding.description, []).append(key)
        room = min(_WIDTH, int(0.94 * self.app.size.width)) - _FRAME
        rows_shown = [Content.styled("Everywhere", "bold $heading")]
        for description, keys in rows.items():
            piece = Content.assemble((" ".join(keys), "bold $accent"), (f" {description}", ""))
            if rows_shown[-1].cell_length + 2 + piece.cell_length <= room:
                rows_shown[-1] = Content.assemble(rows_shown[-1], "  ", piece)
            else:
                rows_shown.append(piece)
        return Content("\n").join(rows_shown)

    def _keys(self, active: list[ActiveBinding]) -> Content:
        rows: dict[tuple[str, str], list[str]] = {}
        for binding in active:
            if binding.binding.system or not binding.binding.description:
                continue
            words = (binding.binding.description, binding.tooltip or binding.binding.tooltip)
            rows.setdefault(words, []).append(self.app.get_key_display(binding.binding))
        lines = []
        for (description, tooltip), keys in rows.items():
            more = f"  {tooltip}" if tooltip and tooltip != description else ""
            lines.append(
                Content.assemble(
                    (f"  {' '.join(_folded(keys)):<12}", "bold $accent"),
                    f" {description:<14}",
                    (plain(more), "$muted"),
                )
            )
        return Content("\n").join(lines) if lines else Content("  no keys of its own")


def _folded(keys: Sequence[str]) -> Sequence[str]:
    """Fold the digits into `1-9`."""
    return [key for key in keys if not key.isdecimal()] if "1-9" in keys else keys


_TEXTS = {
    "ItemList": (
        "the list",
        "Enter opens what is under the cursor: for a part its results on the newest groups, for a "
        "group its candidates. The cursor stays on its row while new ones arrive.",
    ),
    "GroupList": (
        "the list of requests",
        "The cursor stays on its group while new ones arrive. Enter or a second click opens it; "
        "past the last row the list continues from the journal.",
    ),
    "#alerts": (
        "the alerts",
        "Enter opens exactly the groups the alert names, else the screen on which it is acted on. "
        "d dismisses it until its cause has gone.",
    ),
    "LogView": (
        "the lines of the log",
        "The list follows the newest line until you scroll up. Up and Down move a cursor; the line "
        "under it is shown in full below. t folds the tracebacks; Enter or a click unfolds the one "
        "under the cursor.",
    ),
    "ServerPanel": (
        "one swarm server",
        "Start, stop and restart apply to this one. Tab goes to the next.",
    ),
    "CheckpointPanel": (
        "the checkpoints of this server",
        "The cursor selects the one to restore. The engine's own checkpoints are never pruned.",
    ),
    "FilterText": (
        "the filter",
        "Words of the request and terms; all must match. Tab completes, Enter keeps it, Esc clears "
        "it.",
    ),
    "TextArea": (
        "a text of several lines",
        "Letters are text here. Esc leaves, Ctrl+O jumps to another part, F-keys to other screens.",
    ),
    "Input": (
        "a line of text",
        "Letters and digits are text here. Enter confirms, Esc cancels, Ctrl+O jumps to another "
        "part, F-keys to other screens.",
    ),
    "Button": ("a button", "Enter presses it, Tab goes to the next."),
}


def about(widget: Widget | None) -> tuple[str, str]:
    """Return the name and the explanation of a widget; both empty when there is none."""
    if widget is None:
        return "", ""
    for key in (f"#{widget.id}", *(base.__name__ for base in type(widget).__mro__)):
        if key in _TEXTS:
            name, text = _TEXTS[key]
            return name, widget.HELP or text
    return "", widget.HELP or ""
