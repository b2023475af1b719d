"""Helpers of the handlers of all subjects: keys of changes, records made from events."""

from collections.abc import Callable, Mapping
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import msgspec

from core.events.base import Event

if TYPE_CHECKING:
    from core.state import State

TEXT_CAP = 2_000
"""Maximum characters of a query or an answer; the journal has the whole text."""

Dirty: TypeAlias = frozenset[str]
"""Keys of what an event changed, so that a screen repaints only that."""
Handler: TypeAlias = Callable[["State", Any], Dirty]
"""Applies one event of its kind to the state."""
Handlers: TypeAlias = Mapping[type[Event], Handler]

NOTHING: Dirty = frozenset()

_Record = TypeVar("_Record", bound=msgspec.Struct)


def record_of(kind: type[_Record], source: msgspec.Struct, /, **others: Any) -> _Record:
    """Make a record from the fields of an event or another record that have the same names.

    Args:
        kind: The record's class.
        source: The event; its other fields are ignored.
        **others: Fields that the event does not have, or has with another meaning.
    """
    names, values_of = _shared(kind, type(source))
    return kind(**(dict(zip(names, values_of(source), strict=True)) | others))


@cache
def _shared(
    kind: type[msgspec.Struct], source: type[msgspec.Struct]
) -> tuple[tuple[str, ...], Callable[[Any], tuple[Any, ...]]]:
    """Return the fields that two records share, at least two, and their getter."""
    fields = frozenset(source.__struct_fields__)
    names = tuple([name for name in kind.__struct_fields__ if name in fields])
    return names, attrgetter(*names)
