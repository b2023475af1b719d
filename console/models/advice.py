"""The keys and the screens that advice to the operator names, as they are in this console."""

import unicodedata
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from console.models.screen_registry import SCREENS
from console.text.alerts import AdviceContext

if TYPE_CHECKING:
    from console.session.app_state import Session

DEFAULT_KEYS: Final[Mapping[str, str]] = {
    "app.quit": "ctrl+q",
    "engine.inside": "i",
    "engine.job": "e",
    "engine.restart_process": "r",
    "engine.start": "s",
    "engine.stop": "k",
    "group.abort": "x",
    "group.rerun": "A",
    "group.rescore": "S",
    "mock.start": "s",
    "overview.alert": "enter",
    "proxy.restart": "p",
    "quit.stop": "s",
    "rating.abort_all": "X",
    "rating.accept_all": "A",
    "rewards.edit": "e",
}
"""Keys of the actions that advice names, as their bindings have them: a test compares them. They
stand here because the command line shows advice too and imports no screen."""
_SCREENS: Final = {place.name: place.digit for place in SCREENS}


def advice_context(
    changed: Mapping[str, str] | None = None,
    *,
    read_only: bool = False,
    watch_only: bool = False,
) -> AdviceContext:
    """Return the context of advice.

    Args:
        changed: Id of an action -> its keys, for keys that the operator has changed.
        read_only: No command can be given.
        watch_only: The proxy only watches the servers.
    """
    keys = {**DEFAULT_KEYS, **(changed or {})}
    return AdviceContext(
        {name: _shown(text) for name, text in keys.items()},
        _SCREENS,
        read_only or watch_only,
        watch_only,
    )


def context_of(session: "Session") -> AdviceContext:
    """Return the context of advice in a console."""
    return advice_context(
        session.keymap, read_only=session.read_only, watch_only=session.state.watch_only
    )


def _shown(keys: str) -> str:
    """Return the first of some keys as the operator reads it: `Ctrl+Q`, `?`, `s`."""
    *modifiers, key = keys.split(",")[0].strip().split("+")
    if len(key) > 1:
        key = _character(key) or key.capitalize()
    if modifiers and len(key) == 1:
        key = key.upper()
    return "+".join([*(one.capitalize() for one in modifiers), key])


def _character(name: str) -> str:
    """Return the character that a key's name stands for; empty for other names and blanks."""
    try:
        found = unicodedata.lookup(name.replace("_", " ").upper())
    except KeyError:
        return ""
    return found if found.isprintable() and not found.isspace() else ""
