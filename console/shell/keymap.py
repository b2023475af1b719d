"""All keys there are, and those the operator has changed: checked before they are used.

Textual silently takes the key away from an action whose key another one is given, when both have
ids; so clashes are found here and reported, and the key that clashes stays as it was.
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
from console.screens.parts import ScreenPart

_MODIFIERS = frozenset({"ctrl", "shift", "alt", "super", "hyper", "meta"})
_NAMED = frozenset(key.value.rpartition("+")[2] for key in Keys) | {f"f{n}" for n in range(1, 25)}
_OURS = "console."
_TEXTUAL = (
    Binding("ctrl+p", "command_palette", "Palette", id="app.palette"),
    Binding("tab", "app.focus_next", "Next"),
    Binding("shift+tab", "app.focus_previous", "Previous"),
)
"""Keys of Textual's own that work on every screen."""


@dataclass(frozen=True, slots=True)
class Key:
    """One key of one action, as the list of all keys shows it."""

    area: str
    """`Everywhere`, the title of a screen, or the name of a dialog."""
    keys: tuple[str, ...]
    action_id: str
    """What `console.keys` calls it; empty for one that cannot be changed."""
    title: str
    about: str


def key_problems(
    wanted: Mapping[str, str], app: type[Any], screens: Sequence[type[Any]]
) -> tuple[dict[str, str], list[str]]:
    """Check the operator's keys.

    Args:
        wanted: Id of an action -> its keys, comma separated.
        app: The app's class; its keys work on every screen.
        screens: Classes of all screens.

    Returns:
        The keys that can be used, and one sentence for each that cannot.
    """
    places = _places(app, screens)
    ids = {one.id for chain in places for owner in chain for one in _bindings(owner) if one.id}
    problems: list[str] = []
    usable: dict[str, list[str]] = {}
    for name, text in wanted.items():
        if name not in ids:
            hint = did_you_mean(name, ids) or "`ajet-console --keys` lists them"
            problems.append(f"console.keys: there is no action `{name}`. {hint}")
            continue
        keys = [binding.key for binding in Binding.make_bindings([Binding(text, "none")])]
        if bad := [key for key in keys if not _valid(key)]:
            problems.append(f"console.keys: `{name}`: `{bad[0]}` is no key")
            continue
        usable[name] = keys
    while clash := _clash(usable, places):
        name, sentence = clash
        del usable[name]
        problems.append(sentence)
    return {name: ",".join(keys) for name, keys in usable.items()}, problems


def clashes(app: type[Any], screens: Sequence[type[Any]]) -> list[str]:
    """Named actions of the program itself that take each other's key, one sentence each.

    Two widgets of a screen never have the keys at once; an action that a more special class gives
    another meaning is meant so. Keys without a name (arrows, digits) belong to what has the focus.
    """
    found: list[str] = []
    for chain in _places(app, screens):
        widgets = [one for one in chain if not issubclass(one, Screen) and one is not app]
        rest = [one for one in chain if one not in widgets]
        for owners in (rest, *([one, *rest] for one in widgets)):
            found += [f"{_area(chain, app)}: {said}" for said in _taken_twice(owners)]
    return list(dict.fromkeys(found))


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
    """Every key that has a name or a description, area by area.

    Args:
        keymap: Keys the operator has changed, as `key_problems` returns them.
    """
    told: set[tuple[str, str, str]] = set()
    for chain in _places(app, screens):
        area = _area(chain, app)
        owners = chain if chain == [app] else [one for one in chain if one is not app]
        rows: dict[tuple[str, str], tuple[dict[str, None], list[str]]] = {}
        for binding in (one for owner in owners for one in _effective(owner)):
            if binding.description:
                row = rows.setdefault((binding.id or "", binding.description), ({}, []))
                row[0].update(dict.fromkeys(keymap.get(binding.id or "", binding.key).split(",")))
                row[1].append(binding.tooltip)
        for (name, title), (keys, abouts) in rows.items():
            if (area, name, title) not in told:
                told.add((area, name, title))
                yield Key(area, tuple(keys), name, title, next(filter(None, abouts), ""))


# --- what is there -------------------------------------------------------------------------------


def _places(app: type[Any], screens: Sequence[type[Any]]) -> list[list[type[Any]]]:
    """What has keys together: the app; each screen with its widgets and the app; each dialog."""
    found: list[list[type[Any]]] = [[app]]
    seen: set[type[Any]] = set()
    wanted = list(screens)
    dialogs = [one for one in _named_in(app) if issubclass(one, Screen)]
    while wanted or dialogs:
        screen = wanted.pop(0) if wanted else dialogs.pop(0)
        if screen in seen or not _own(screen):
            continue
        seen.add(screen)
        reached = _reached(screen)
        dialogs += [one for one in reached if issubclass(one, Screen)]
        widgets = [one for one in reached if not issubclass(one, Screen)]
        asks = issubclass(screen, ModalScreen)  # the app's keys do not work there
        found.append([*widgets, screen, *(() if asks else (app,))])
    return found


def _own(owner: type[Any]) -> bool:
    """Whether it is shown itself and is no mere base of what is."""
    return bool(_bindings(owner)) and not owner.__module__.startswith("textual.")


def _reached(screen: type[Any]) -> list[type[Any]]:
    """Widgets and screens that the modules of a screen, and of its widgets, know by name."""
    found: dict[type[Any], None] = {}
    wanted = [screen]
    while wanted:
        for one in _named_in(wanted.pop()):
            if one in found or one is screen or issubclass(screen, one):
                continue
            found[one] = None
            if not issubclass(one, Screen):
                wanted.append(one)
    return list(found)


def _named_in(owner: type[Any]) -> list[type[Any]]:
    """Return the widgets that the modules of a class, and those of its parts, import."""
    modules = [base.__module__ for base in owner.__mro__ if base.__module__.startswith(_OURS)]
    found: dict[type[Any], None] = {}
    for name in modules:  # grows by the modules of screen parts
        for one in vars(sys.modules[name]).values():
            if not (isinstance(one, type) and one.__module__.startswith(_OURS)):
                continue
            if issubclass(one, Widget):
                found[one] = None
            elif issubclass(one, ScreenPart) and one.__module__ not in modules:
                modules.append(one.__module__)
    return list(found)


def _area(chain: Sequence[type[Any]], app: type[Any]) -> str:
    screen = next((one for one in chain if issubclass(one, Screen)), None)
    if screen is None:
        return "Everywhere"
    return str(getattr(screen, "area", "")) or f"Question: {screen.__name__.removesuffix('Screen')}"


def _clash(
    usable: Mapping[str, Sequence[str]], places: Sequence[Sequence[type[Any]]]
) -> tuple[str, str] | None:
    """The first action whose new key another action of the same screen has, and what to say."""
    for chain in places:
        found = [binding for owner in chain for binding in _bindings(owner)]
        taken: dict[str, Binding] = {one.key: one for one in _TEXTUAL}
        for binding in found:
            if not (binding.id and binding.id in usable):
                taken.setdefault(binding.key, binding)
        for binding in found:
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
    """All bindings of a class that are ours, its bases' included, its own first."""
    found: list[Binding] = []
    for base in owner.__mro__:
        if base.__module__.startswith("textual."):
            continue
        given: Iterable[Any] = vars(base).get("BINDINGS", ())
        found += Binding.make_bindings(given)
    return found


def _effective(owner: type[Any]) -> list[Binding]:
    """Return the bindings in effect: where two classes bind a key, the subclass wins."""
    standing: dict[str, list[Binding]] = {}
    for base in reversed(owner.__mro__):
        if base.__module__.startswith("textual."):
            continue
        own: dict[str, list[Binding]] = {}
        for binding in Binding.make_bindings(vars(base).get("BINDINGS", ())):
            own.setdefault(binding.key, []).append(binding)
        standing.update(own)
    return [binding for some in standing.values() for binding in some]


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
