"""Footer with the keys that work now."""

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, NamedTuple

from rich.cells import cell_len
from rich.style import Style
from rich.text import Text
from textual.binding import ActiveBinding
from textual.css.query import NoMatches
from textual.events import MouseDown, MouseMove, Resize
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Input, TextArea

RETRY_SECONDS = 0.05
"""Seconds after which the keys are read again from a screen that is not complete yet."""
MAX_KEYS = 12
"""Maximum number of keys on a wide screen, unless the screen sets `most_keys`."""
BORDER = "▏"
"""Separator before the key of the command palette."""
_ALWAYS = frozenset({"help", "quit"})
"""Actions whose key is shown at every width."""
_IN_FIELDS: Mapping[str, Mapping[str, str]] = {
    "enter": {"Submit": "Done"},
    "escape": {},
    "tab": {"Focus Next": "Next"},
    "f12": {},
}
"""Keys that work while text is typed, with shorter labels for those of Textual."""


class ShownKey(NamedTuple):
    """A key in the footer."""

    key: str
    display: str
    description: str
    action: str
    enabled: bool
    tooltip: str


class KeyBar(Widget, can_focus=False):
    """Footer line with the keys that work now; a click on a key presses it.

    Textual's own footer has a widget for each key; building, styling and laying them out took a
    quarter of the CPU time of each key press that changes them.
    """

    ALLOW_SELECT = False
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "key-bar--key",
        "key-bar--description",
        "key-bar--hover",
        "key-bar--border",
    }
    DEFAULT_CSS = """
    KeyBar {
        dock: bottom;
        width: 100%;
        height: 1;
        color: $footer-foreground;
        background: $footer-background;

        .key-bar--key {
            color: $footer-key-foreground;
            background: $footer-key-background;
            text-style: bold;
        }

        .key-bar--description {
            color: $footer-description-foreground;
            background: $footer-description-background;
        }

        .key-bar--hover {
            background: $block-hover-background;
        }

        .key-bar--border {
            color: $foreground 20%;
        }
    }
    """

    _keys: tuple[ShownKey, ...] = ()
    _palette: ShownKey | None = None
    """Key of the command palette, at the right end of a screen that is wide enough."""
    _width = 0
    _hovered: ShownKey | None = None
    _due = False
    """Whether a call of `update_keys` is to come."""

    def on_mount(self) -> None:
        """Follow the bindings of the screen."""
        self.screen.bindings_updated_signal.subscribe(self, self._on_bindings_changed)

    def _on_bindings_changed(self, screen: Screen[object]) -> None:
        if screen.app.app_focus and self.is_attached and screen is self.screen:
            self._update_later()

    def _update_later(self) -> None:
        """Update after the next refresh, once for all widgets that are added until then."""
        if not self._due:
            self._due = self.call_after_refresh(self.update_keys)

    def update_keys(self) -> None:
        """Show the keys that work now, when they have changed."""
        self._due = False
        if not self.is_attached or self._pruning or not self.app.is_running:
            return  # on exit widgets are removed one by one
        if not self.screen.is_mounted:  # on start they are added one by one
            self._update_later()
            return
        try:
            shown = self._active_keys()
        except NoMatches:  # a widget that decides which keys work is not there yet
            self.set_timer(RETRY_SECONDS, self.update_keys)
            return
        if shown != (self._keys, self._palette):
            self._keys, self._palette = shown
            self._hovered = None
            self.refresh()

    @property
    def shown_keys(self) -> tuple[ShownKey, ...]:
        """The keys on the screen, from left to right."""
        return self._keys if self._palette is None else (*self._keys, self._palette)

    def render(self) -> Text:
        """Return the line."""
        line = Text(no_wrap=True, overflow="crop", end="")
        for key in self._keys:
            self._append(line, key)
            line.append(" ")
        if self._palette is not None:
            line.pad_right(max(0, self.size.width - _cells(self._palette) - 1 - line.cell_len))
            line.append(BORDER, self._style("border"))
            self._append(line, self._palette)
        return line

    def _append(self, line: Text, key: ShownKey) -> None:
        dim = "" if key.enabled else "dim"
        hover = self._style("hover") if key is self._hovered else Style.null()
        for word, name in ((key.display, "key"), (f" {key.description}", "description")):
            line.append(word, self._style(name) + Style.parse(dim) + hover)

    def _style(self, name: str) -> Style:
        return self.get_component_rich_style(f"key-bar--{name}", partial=True)

    def _key_at(self, x: int) -> ShownKey | None:
        """Return the key in column `x`; None for a space."""
        start = 0
        for key in self._keys:
            width = _cells(key) - 1
            if start <= x < start + width:
                return key
            start += width + 1
        palette = self._palette
        left = self.size.width - _cells(palette) if palette else 0
        return palette if palette and left <= x < self.size.width - 1 else None

    def on_mouse_move(self, event: MouseMove) -> None:
        """Highlight the key under the mouse and set its tooltip."""
        self._hover(self._key_at(event.x))

    def on_leave(self) -> None:
        """Highlight nothing."""
        self._hover(None)

    def _hover(self, key: ShownKey | None) -> None:
        if key is not self._hovered:
            self._hovered = key
            self.styles.pointer = "pointer" if key else "default"
            self.tooltip = key.tooltip or None if key else None
            self.refresh()

    def on_mouse_down(self, event: MouseDown) -> None:
        """Press the key under the mouse; ring the bell when it does not work now."""
        key = self._key_at(event.x)
        if key is None:
            return
        if key.enabled:
            self.app.simulate_key(key.key)
        else:
            self.app.bell()

    def _active_keys(self) -> tuple[tuple[ShownKey, ...], ShownKey | None]:
        """Return the keys that fit, and that of the command palette if it is shown."""
        active = self.screen.active_bindings
        typing = isinstance(self.screen.focused, Input | TextArea)
        keys: dict[str, ShownKey] = {}
        if typing:  # letters are text there
            for key, word in _IN_FIELDS.items():
                if key in active:
                    shown_key = self._shown_key(active[key])
                    label = word.get(shown_key.description, shown_key.description)
                    keys[shown_key.action] = shown_key._replace(description=label)
        for entry in active.values():
            if entry.binding.show and entry.binding.action not in keys:
                keys[entry.binding.action] = self._shown_key(entry)
        shown = list(keys.values())
        if not typing:
            shown = self._with_spare(shown, active.values())
        room = self.screen.size.width
        maximum = getattr(self.screen, "most_keys", MAX_KEYS)
        palette = self._palette_key(active)
        if palette is not None:
            room -= _cells(palette) + 1
        return _fitting(shown, room, maximum), palette

    def _palette_key(self, active: Mapping[str, ActiveBinding]) -> ShownKey | None:
        """Return the key of the command palette; None when there is none or no room for it."""
        entry = active.get(self.app.COMMAND_PALETTE_BINDING)
        if entry is None or not self.app.ENABLE_COMMAND_PALETTE or self.screen.has_class("-narrow"):
            return None
        binding = entry.binding
        return self._shown_key(entry)._replace(
            tooltip=entry.tooltip or binding.tooltip or binding.description
        )

    def _with_spare(
        self, shown: Sequence[ShownKey], active: Iterable[ActiveBinding]
    ) -> list[ShownKey]:
        """Return the screen's first keys, its others, its spare ones, then help and quit."""
        hidden: dict[str, ActiveBinding] = {}
        for binding in active:
            if not binding.binding.show:
                hidden.setdefault(binding.binding.action, binding)
        spare = [
            self._shown_key(hidden[action])
            for action in getattr(self.screen, "spare_keys", ())
            if action in hidden
        ]
        first = getattr(self.screen, "first_keys", ())
        own = [key for key in shown if key.action not in _ALWAYS]
        own.sort(
            key=lambda binding: (
                first.index(binding.action) if binding.action in first else len(first)
            )
        )
        return [*own, *spare, *(key for key in shown if key.action in _ALWAYS)]

    def _shown_key(self, active: ActiveBinding) -> ShownKey:
        binding = active.binding
        words: Mapping[str, str] = {
            **getattr(self.app, "footer_words", {}),
            **getattr(self.screen, "footer_words", {}),
        }
        named: Mapping[str, str] = getattr(self.screen, "footer_keys", {})
        return ShownKey(
            binding.key,
            named.get(binding.action) or self.app.get_key_display(binding),
            words.get(binding.action, binding.description),
            binding.action,
            active.enabled,
            active.tooltip or "",
        )

    def on_resize(self, event: Resize) -> None:
        """Fit the keys to another width."""
        if event.size.width != self._width:
            self._width = event.size.width
            self._update_later()


def _cells(key: ShownKey) -> int:
    """Return the cells of a key, with the space that separates it from the next one."""
    return cell_len(f"{key.display} {key.description}") + 1


def _fitting(shown: Sequence[ShownKey], room: int, maximum: int) -> tuple[ShownKey, ...]:
    """Return the keys that fit, at most `maximum`, in order; help and quit take precedence."""
    room += 1  # no separator after the last one
    actions = {key.action for key in shown if key.action in _ALWAYS}
    room -= sum(_cells(key) for key in shown if key.action in actions)
    for key in shown:
        if key.action in actions:
            continue
        room -= _cells(key)
        if room < 0 or len(actions) == maximum:
            break
        actions.add(key.action)
    return tuple(key for key in shown if key.action in actions)
