"""Current keys and screens of this console, for texts that tell the operator what to press."""

import functools
import unicodedata
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from console.models.screen_registry import SCREENS
from console.text.alert_words import AdviceContext

if TYPE_CHECKING:
    from console.session.app_state import Session

DEFAULT_KEYS: Final[Mapping[str, str]] = {
    "app.quit": "ctrl+q",
    "engine.inside": "i",
    "engine.job": "e",
    "engine.restart_process": "r",
    "engine.resume": "c",
    "engine.start": "s",
    "engine.start_hand": "h",
    "engine.stop": "k",
    "group.abort": "x",
    "group.rerun": "A",
    "group.rescore": "S",
    "mock.start": "s",
    "list.open": "enter",
    "progress.resume": "r",
    "progress.rewind": "w",
    "proxy.restart": "p",
    "quit.stop": "s",
    "rate.take": "T",
    "rating.abort_all": "X",
    "rating.accept_all": "A",
    "rating.mode": "o",
    "rewards.edit": "e",
}
"""Default keys of the actions that texts name; a test compares them with the bindings.

They are repeated here because the command line shows advice too and must not import a screen.
"""
_SCREENS: Final = {screen.name: screen.digit for screen in SCREENS}


def advice_context(
    changed: Mapping[str, str] | None = None,
    *,
    read_only: bool = False,
    watch_only: bool = False,
) -> AdviceContext:
    """Return the keys, screens and permissions that advice depends on.

    Args:
        changed: Keys that the operator has changed, by the id of the action.
        read_only: Whether commands are disabled.
        watch_only: Whether the proxy only watches the servers.
    """
    return _context(tuple((changed or {}).items()), read_only or watch_only, watch_only)


@functools.lru_cache(maxsize=8)  # an idle console asks for it a dozen times a second
def _context(
    changed: tuple[tuple[str, str], ...], read_only: bool, watch_only: bool
) -> AdviceContext:
    keys = {name: _shown(text) for name, text in {**DEFAULT_KEYS, **dict(changed)}.items()}
    return AdviceContext(MappingProxyType(keys), _SCREENS, read_only, watch_only)


def context_of(session: "Session") -> AdviceContext:
    """Return the advice context of a console session: only operators are advised to act."""
    return advice_context(
        session.keymap,
        read_only=session.read_only or not session.identity.permits("operator"),
        watch_only=session.state.watch_only,
    )


def press_words(session: "Session", screen: str, action: str) -> str:
    """Return `press 4 then s`: a screen's digit and a key there; empty if it is read-only."""
    context = context_of(session)
    if context.read_only:
        return ""
    return f"press {context.screens[screen]} then {context.keys[action]}"


def _shown(keys: str) -> str:
    """Return the first key of a comma-separated list as displayed: `Ctrl+Q`, `?`, `s`."""
    *modifiers, key = keys.split(",")[0].strip().split("+")
    if len(key) > 1:
        key = _character(key) or key.capitalize()
    if modifiers and len(key) == 1:
        key = key.upper()
    return "+".join([*(modifier.capitalize() for modifier in modifiers), key])


def _character(name: str) -> str:
    """Return the printable character that a key name stands for; empty if there is none."""
    try:
        character = unicodedata.lookup(name.replace("_", " ").upper())
    except KeyError:
        return ""
    return character if character.isprintable() and not character.isspace() else ""
