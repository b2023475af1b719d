"""Footer with the keys that work now."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from rich.cells import cell_len
from textual.app import ComposeResult
from textual.binding import ActiveBinding
from textual.css.query import NoMatches
from textual.events import Resize
from textual.widgets import Footer, Input, TextArea
from textual.widgets._footer import FooterKey

RETRY_SECONDS = 0.05
"""Seconds until an incomplete screen is tried again."""
MAX_KEYS = 12
"""Most keys shown on a wide screen, unless the screen sets `most_keys`."""
_ALWAYS = frozenset({"help", "quit"})
"""Actions whose key is shown even on a narrow screen."""
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
    kind: str = ""
    """CSS class of its style, beside the common one."""


class KeyBar(Footer):
    """A footer that rebuilds its keys only when they differ from those shown.

    Textual's own footer rebuilds them at each refresh of the bindings, as at each move of the
    focus, and styles each key twice: nearly half of the CPU time while the operator types.
    """

    _keys: tuple[ShownKey, ...] = ()
    _width = 0

    def __init__(self) -> None:
        super().__init__(compact=True)

    async def recompose(self) -> None:
        """Show the keys that work now, when they have changed."""
        if not self.is_attached or self._pruning or not self.app.is_running:
            return  # on exit widgets are removed one by one
        if not self.screen.is_mounted:  # on start they are added one by one
            self.call_after_refresh(self.recompose)
            return
        try:
            keys = self._active_keys()
        except NoMatches:  # a widget that decides which keys work is not there yet
            self.set_timer(RETRY_SECONDS, self.recompose)
            return
        if keys != self._keys:
            self._keys = keys
            await super().recompose()

    def compose(self) -> ComposeResult:
        """The keys that `recompose` collected."""
        for key in self._keys:
            yield FooterKey(
                key.key,
                key.display,
                key.description,
                key.action,
                disabled=not key.enabled,
                tooltip=key.tooltip,
                classes=f"-compact {key.kind}",
            )

    def _active_keys(self) -> tuple[ShownKey, ...]:
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
        limit = getattr(self.screen, "most_keys", MAX_KEYS)
        if self.app.ENABLE_COMMAND_PALETTE and self.app.COMMAND_PALETTE_BINDING in active:
            palette = self._shown_key(active[self.app.COMMAND_PALETTE_BINDING], "-command-palette")
            if not self.screen.has_class("-narrow"):  # it is hidden there
                room -= _cells(palette) + 1
            return (*_fitting(shown, room, limit), palette)
        return _fitting(shown, room, limit)

    def _with_spare(
        self, shown: Sequence[ShownKey], active: Iterable[ActiveBinding]
    ) -> list[ShownKey]:
        """Return the screen's first keys, its others, its spare ones, then help and quit."""
        hidden: dict[str, ActiveBinding] = {}
        for one in active:
            if not one.binding.show:
                hidden.setdefault(one.binding.action, one)
        spare = [
            self._shown_key(hidden[action])
            for action in getattr(self.screen, "spare_keys", ())
            if action in hidden
        ]
        lead = getattr(self.screen, "first_keys", ())
        own = [one for one in shown if one.action not in _ALWAYS]
        own.sort(key=lambda one: lead.index(one.action) if one.action in lead else len(lead))
        return [*own, *spare, *(one for one in shown if one.action in _ALWAYS)]

    def _shown_key(self, active: ActiveBinding, kind: str = "") -> ShownKey:
        binding = active.binding
        words: Mapping[str, str] = getattr(self.screen, "footer_words", {})
        return ShownKey(
            binding.key,
            self.app.get_key_display(binding),
            words.get(binding.action, binding.description),
            binding.action,
            active.enabled,
            active.tooltip or (binding.tooltip or binding.description if kind else ""),
            kind,
        )

    def on_resize(self, event: Resize) -> None:
        """Fit the keys to another width."""
        if event.size.width != self._width:
            self._width = event.size.width
            self.call_after_refresh(self.recompose)


def _cells(key: ShownKey) -> int:
    """Return the cells of a key, with the space that separates it from the next one."""
    return cell_len(f"{key.display} {key.description}") + 1


def _fitting(shown: Sequence[ShownKey], room: int, limit: int) -> tuple[ShownKey, ...]:
    """Return the keys that fit, at limit `limit`, in order; help and quit take precedence."""
    room += 1  # no separator after the last one
    actions = {one.action for one in shown if one.action in _ALWAYS}
    room -= sum(_cells(one) for one in shown if one.action in actions)
    for one in shown:
        if one.action in actions:
            continue
        room -= _cells(one)
        if room < 0 or len(actions) == limit:
            break
        actions.add(one.action)
    return tuple(one for one in shown if one.action in actions)
