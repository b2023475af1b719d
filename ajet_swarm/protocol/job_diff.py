"""What two jobs differ in, key by key."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final


class _Nothing:
    """Stands for a key that is not there; null is a value."""

    def __repr__(self) -> str:
        return "not there"


NOTHING: Final = _Nothing()


@dataclass(frozen=True, slots=True)
class Change:
    """One key that differs; `NOTHING` on the side that does not have it."""

    path: str
    before: Any
    after: Any


def flat(job: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted path and value of every leaf; lists and empty mappings are leaves."""
    for key, value in job.items():
        path = f"{above}{key}"
        if isinstance(value, Mapping) and value:
            yield from flat(value, f"{path}.")
        else:
            yield path, value


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Change]:
    """What differs between two trees, in the order of the second, then what it lacks."""
    old, new = dict(flat(before)), dict(flat(after))
    changed = [
        Change(path, old.get(path, NOTHING), value)
        for path, value in new.items()
        if path not in old or not same(old[path], value)
    ]
    return [*changed, *(Change(path, old[path], NOTHING) for path in old if path not in new)]


def same(one: Any, other: Any) -> bool:
    """Whether two values mean the same: 1 and 1.0 do, 1 and true do not."""
    if isinstance(one, bool) != isinstance(other, bool):
        return False
    return bool(one == other)
