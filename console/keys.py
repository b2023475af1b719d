"""Keys the operator has changed: checked against all actions before they are used.

Textual silently takes the key away from an action whose key another one is given, when both have
ids; so clashes are found here and reported, and the key that clashes stays as it was.
"""

import difflib
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from textual.binding import Binding
from textual.keys import Keys

_MODIFIERS = frozenset({"ctrl", "shift", "alt", "super", "hyper", "meta"})
_NAMED = frozenset(key.value.rpartition("+")[2] for key in Keys) | {f"f{n}" for n in range(1, 25)}


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
    places = {one: _bindings(one) for one in (app, *screens)}
    ids = {binding.id for found in places.values() for binding in found if binding.id}
    problems: list[str] = []
    usable: dict[str, list[str]] = {}
    for name, text in wanted.items():
        if name not in ids:
            close = difflib.get_close_matches(name, ids, n=1)
            hint = f"did you mean `{close[0]}`?" if close else "`?` shows the keys of each screen"
            problems.append(f"console.keys: there is no action `{name}`; {hint}")
            continue
        keys = [binding.key for binding in Binding.make_bindings([Binding(text, "none")])]
        if bad := [key for key in keys if not _valid(key)]:
            problems.append(f"console.keys: `{name}`: `{bad[0]}` is no key")
            continue
        usable[name] = keys
    while clash := _clash(usable, app, places):
        name, sentence = clash
        del usable[name]
        problems.append(sentence)
    return {name: ",".join(keys) for name, keys in usable.items()}, problems


def _clash(
    usable: Mapping[str, Sequence[str]], app: type[Any], places: Mapping[type[Any], list[Binding]]
) -> tuple[str, str] | None:
    """The first action whose new key another action of the same screen has, and what to say."""
    for place, own in places.items():
        found = own if place is app else [*own, *places[app]]
        taken: dict[str, Binding] = {}
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
    """All bindings of a class that are ours, its bases' included."""
    found: list[Binding] = []
    for base in owner.__mro__:
        if base.__module__.startswith("textual."):
            continue
        given: Iterable[Any] = vars(base).get("BINDINGS", ())
        found += Binding.make_bindings(given)
    return found


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
