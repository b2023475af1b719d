"""Comparison of two jobs, key by key."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final


class _Missing:
    """Marker of a missing key; null is a value."""

    def __repr__(self) -> str:
        return "not there"


MISSING: Final = _Missing()


@dataclass(frozen=True, slots=True)
class Change:
    """One key that differs; `MISSING` on the side without it."""

    path: str
    before: Any
    after: Any


def flat(job: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Yield dotted path and value of every leaf; lists and empty mappings are leaves.

    Args:
        job: A tree.
        above: Prefix of all paths, ending with a dot.
    """
    for key, value in job.items():
        path = f"{above}{key}"
        if isinstance(value, Mapping) and value:
            yield from flat(value, f"{path}.")
        else:
            yield path, value


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Change]:
    """Return the differences of two trees: in the order of `after`, then its missing keys."""
    old, new = dict(flat(before)), dict(flat(after))
    changed = [
        Change(path, old.get(path, MISSING), value)
        for path, value in new.items()
        if path not in old or not same(old[path], value)
    ]
    return [*changed, *(Change(path, old[path], MISSING) for path in old if path not in new)]


def same(left: Any, right: Any) -> bool:
    """Return whether two values are equal; 1 equals 1.0 but not true."""
    if isinstance(left, bool) != isinstance(right, bool):
        return False
    return bool(left == right)
