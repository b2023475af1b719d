"""Secrets in structured values, which the name beside them announces: `{"password": "..."}`.

The same tests decide as for texts (`assignments`): the name is the key of an object, the field
`name` or `key` beside a field `value`, or the flag before an item of a list.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from console.export.redaction.assignments import announces, is_spoken
from console.export.redaction.marks import mark

LONGEST = 200
"""Maximum length of a name."""
_NAME_FIELDS = ("name", "key", "variable", "field", "header")
_VALUE_FIELDS = frozenset({"value", "val", "values", "default", "example", "content", "text"})


class SecretName(NamedTuple):
    """The name of a secret, with how certain it is that the value is one."""

    text: str
    certain: bool = True
    """Whether the value is directly under the name; else its own characters must show it."""


@lru_cache(4_096)
def _name(text: str) -> SecretName | None:
    return SecretName(text) if announces(text, "") is not None else None


def _of_text(text: object) -> SecretName | None:
    return _name(text) if isinstance(text, str) and len(text) <= LONGEST else None


def secret_name(parent: Mapping[Any, Any] | Sequence[Any], at: Any) -> SecretName | None:
    """Return the name that announces a value of an object or a list; None for none.

    Args:
        parent: The object or list.
        at: Key or index of the value.
    """
    if isinstance(parent, Mapping):
        if at in _VALUE_FIELDS and "role" not in parent:  # `name` of a message is a tool
            for field in _NAME_FIELDS:
                if (name := _of_text(parent.get(field))) is not None:
                    return name
        return _of_text(at)
    if at == 0 or not isinstance(before := parent[at - 1], str):
        return None
    name = _of_text(before)
    if name is None or before.startswith("-"):
        return name
    return SecretName(before, certain=False) if len(parent) == 2 else None


def inherited(parent: Mapping[Any, Any], key: Any, name: SecretName | None) -> SecretName | None:
    """Return the name for a value of an object that is itself announced by a name.

    A description of a type (`{"type": "string", "description": ...}`) passes it on to its value
    fields alone.
    """
    if name is None or key in _VALUE_FIELDS:
        return name
    return None if isinstance(parent.get("type"), str) else SecretName(name.text, certain=False)


def without_named_value(value: str | int, name: SecretName, kinds: list[str]) -> str | int:
    """Return the mark in place of a secret; else the value.

    Args:
        value: The value; a number can be a password.
        name: What announces it.
        kinds: Kinds of the replaced secrets; extended.
    """
    if isinstance(value, bool):
        return value
    text = str(value)
    kind = announces(name.text, text) if text else None
    if kind is None or (not isinstance(value, str) and kind != "password"):
        return value
    if not name.certain and not is_spoken(text, kind):
        return value
    kinds.append(kind)
    return mark(kind)
