"""All key bindings, and the validation of the operator's own keys.

When two actions with ids get the same key, Textual silently removes it from one of them. Therefore
conflicts are detected and reported here, and a conflicting key is not changed.
"""

import sys
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from textual.binding import Binding
from textual.keys import Keys
from textual.screen import ModalScreen, Screen
from textual.widget import Widget

from ajet_swarm.common.text import did_you_mean

_MODIFIERS = frozenset({"ctrl", "shift", "alt", "super", "hyper", "meta"})
_NAMED = frozenset(key.value.rpartition("+")[2] for key in Keys) | {f"f{n}" for n in range(1, 25)}
_PACKAGE = "console."
_TEXTUAL = (
    Binding("ctrl+p", "command_palette", "Palette", id="app.palette"),
    Binding("tab", "app.focus_next", "Next"),
    Binding("shift+tab", "app.focus_previous", "Previous"),
)
"""Textual's own keys that work on every screen."""


@dataclass(frozen=True, slots=True)
class Key:
    """The keys of one action, as shown in the list of all keys."""

    area: str
    """`Everywhere`, the title of a screen, or the name of a dialog."""
    keys: tuple[str, ...]
    action_id: str
    """The action's name in `console.keys`; empty when its keys cannot be changed."""
    title: str
    about: str


def key_problems(
    custom: Mapping[str, str], app: type[Any], screens: Sequence[type[Any]]
) -> tuple[dict[str, str], list[str]]:
    """Check the operator's keys.

    Args:
        custom: Id of an action -> its keys, comma separated.
        app: The app's class; its keys work on every screen.
        screens: Classes of all screens.

    Returns:
        The keys that can be used, and one sentence for each that cannot.
    """
    scopes = _scopes(app, screens)
    ids = {
        binding.id
        for chain in scopes
        for owner in chain
        for binding in _bindings(owner)
        if binding.id
    }
    problems: list[str] = []
    usable: dict[str, list[str]] = {}
    for name, text in custom.items():
        if name not in ids:
            hint = did_you_mean(name, ids) or "`ajet-console --keys` lists them"
            problems.append(f"console.keys: there is no action `{name}`. {hint}")
            continue
        keys = [binding.key for binding in Binding.make_bindings([Binding(text, "none")])]
        if bad := [key for key in keys if not _valid(key)]:
            problems.append(f"console.keys: `{name}`: `{bad[0]}` is not a key")
            continue
        usable[name] = keys
    while clash := _clash(usable, scopes):
        name, sentence = clash
        del usable[name]
        problems.append(sentence)
    return {name: ",".join(keys) for name, keys in usable.items()}, problems


def clashes(app: type[Any], screens: Sequence[type[Any]]) -> list[str]:
    """Return one sentence for each conflict between the program's own named actions.

    Two widgets of a screen never get keys at the same time, and a subclass may redefine an action
    of its base. Keys without an id (arrows, digits) belong to the focused widget.
    """
    sentences: list[str] = []
    for chain in _scopes(app, screens):
        widgets = [node for node in chain if not issubclass(node, Screen) and node is not app]
        rest = [node for node in chain if node not in widgets]
        for owners in (rest, *([widget, *rest] for widget in widgets)):
            sentences += [f"{_area(chain, app)}: {sentence}" for sentence in _taken_twice(owners)]
    return list(dict.fromkeys(sentences))


def _taken_twice(owners: Sequence[type[Any]]) -> Iterator[str]:
    taken: dict[str, Binding] = {}
    for owner in owners:
        for binding in _effective(owner):
            other = taken.setdefault(binding.key, binding)
            if other.id and binding.id and other.id != binding.id:
                yield f"`{binding.key}` is the key of `{other.id}` and of `{binding.id}`"


def listing(
    app: type[Any], screens: Sequence[type[Any]], keymap: Mapping[str, str]
) -> Iterator[Key]:
    """Yield the keys of every action that has a description, area by area.

    Args:
        app: The app's class.
        screens: Classes of all screens.
        keymap: Keys the operator has changed, as `key_problems` returns them.
    """
    listed: set[tuple[str, str, str]] = set()
    for chain in _scopes(app, screens):
        area = _area(chain, app)
        owners = chain if chain == [app] else [node for node in chain if node is not app]
        rows: dict[tuple[str, str], tuple[dict[str, None], list[str]]] = {}
        for binding in (binding for owner in owners for binding in _effective(owner)):
            if binding.description:
                row = rows.setdefault((binding.id or "", binding.description), ({}, []))
                row[0].update(dict.fromkeys(keymap.get(binding.id or "", binding.key).split(",")))
                row[1].append(binding.tooltip)
        for (name, title), (keys, abouts) in rows.items():
            if (area, name, title) not in listed:
                listed.add((area, name, title))
                yield Key(area, tuple(keys), name, title, next(filter(None, abouts), ""))


# --- classes and their bindings ------------------------------------------------------------------


def _scopes(app: type[Any], screens: Sequence[type[Any]]) -> list[list[type[Any]]]:
    """Return the classes whose keys work together, one list per scope.

    The scopes are the app, each screen with its widgets and the app, and each dialog.
    """
    scopes: list[list[type[Any]]] = [[app]]
    seen: set[type[Any]] = set()
    pending = list(screens)
    dialogs = [node for node in _named_in(app) if issubclass(node, Screen)]
    while pending or dialogs:
        screen = pending.pop(0) if pending else dialogs.pop(0)
        if screen in seen or not _has_keys(screen):
            continue
        seen.add(screen)
        reachable = _reachable(screen)
        dialogs += [node for node in reachable if issubclass(node, Screen)]
        widgets = [node for node in reachable if not issubclass(node, Screen)]
        modal = issubclass(screen, ModalScreen)  # the app's keys do not work there
        scopes.append([*widgets, screen, *(() if modal else (app,))])
    return scopes


def _has_keys(owner: type[Any]) -> bool:
    """Return whether a class of ours has bindings."""
    return bool(_bindings(owner)) and not owner.__module__.startswith("textual.")


def _reachable(screen: type[Any]) -> list[type[Any]]:
    """Return the widgets and screens that the modules of a screen and its widgets import."""
    classes: dict[type[Any], None] = {}
    pending = [screen]
    while pending:
        for node in _named_in(pending.pop()):
            if node in classes or node is screen or issubclass(screen, node):
                continue
            classes[node] = None
            if not issubclass(node, Screen):
                pending.append(node)
    return list(classes)


def _named_in(owner: type[Any]) -> list[type[Any]]:
    """Return the widgets that the modules of a class import."""
    modules = [base.__module__ for base in owner.__mro__ if base.__module__.startswith(_PACKAGE)]
    named = (var for name in modules for var in vars(sys.modules[name]).values())
    widgets = (
        var
        for var in named
        if isinstance(var, type) and var.__module__.startswith(_PACKAGE) and issubclass(var, Widget)
    )
    return list(dict.fromkeys(widgets))


def _area(chain: Sequence[type[Any]], app: type[Any]) -> str:
    screen = next((node for node in chain if issubclass(node, Screen)), None)
    if screen is None:
        return "Everywhere"
    return str(getattr(screen, "area", "")) or f"Question: {screen.__name__.removesuffix('Screen')}"


def _clash(
    usable: Mapping[str, Sequence[str]], scopes: Sequence[Sequence[type[Any]]]
) -> tuple[str, str] | None:
    """Return the first action whose new key is taken in the same scope, and a message."""
    for chain in scopes:
        bindings = [binding for owner in chain for binding in _bindings(owner)]
        taken: dict[str, Binding] = {binding.key: binding for binding in _TEXTUAL}
        for binding in bindings:
            if not (binding.id and binding.id in usable):
                taken.setdefault(binding.key, binding)
        for binding in bindings:
            if binding.id is None or binding.id not in usable:
                continue
            for key in usable[binding.id]:
                other = taken.setdefault(key, binding)
                if other is not binding and other.id != binding.id:
                    action = other.id or other.description or other.action
                    return binding.id, (
                        f"console.keys: `{binding.id}` cannot have `{key}`: "
                        f"it is the key of `{action}`; the old key stays"
                    )
    return None


def _bindings(owner: type[Any]) -> list[Binding]:
    """Return the bindings of a class and of its bases in our packages, its own first."""
    bindings: list[Binding] = []
    for base in owner.__mro__:
        if base.__module__.startswith("textual."):
            continue
        declared: Iterable[Any] = vars(base).get("BINDINGS", ())
        bindings += Binding.make_bindings(declared)
    return bindings


def _effective(owner: type[Any]) -> list[Binding]:
    """Return the bindings in effect: where two classes bind a key, the subclass wins."""
    effective: dict[str, list[Binding]] = {}
    for base in reversed(owner.__mro__):
        if base.__module__.startswith("textual."):
            continue
        own: dict[str, list[Binding]] = {}
        for binding in Binding.make_bindings(vars(base).get("BINDINGS", ())):
            own.setdefault(binding.key, []).append(binding)
        effective.update(own)
    return [binding for some in effective.values() for binding in some]


def _valid(key: str) -> bool:
    *modifiers, last = key.split("+")
    if not set(modifiers) <= _MODIFIERS or not last:
        return False
    if last in _NAMED or len(last) == 1:
        return True
    try:
        unicodedata.lookup(last.replace("_", " ").upper())
    except KeyError:
        return False
    return True
