"""Column names of a dataset, and the errors for unknown ones."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ajet_swarm.common.errors import UsageError
from ajet_swarm.common.text import closest, did_you_mean

ALIASES: Mapping[str, tuple[str, ...]] = {
    "query": ("main_query", "query", "question", "prompt", "instruction", "problem"),
    "reference": ("answer", "reference", "solution", "ground_truth"),
    "id": ("id", "task_id"),
    "system": ("system",),
    "messages": ("init_messages", "messages"),
    "turns": ("turns",),
    "persona": ("persona",),
    "goal": ("goal",),
    "opening": ("opening",),
    "weight": ("weight",),
    "metadata": ("metadata",),
}
"""Usual names of each part of a row; the first present one is used."""


class DatasetError(UsageError):
    """A dataset cannot be used at all."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Mapping from the parts of a row to columns.

    Args:
        named: Part (a key of `ALIASES`) -> column, where it has none of the usual names.
    """

    named: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return ",".join(f"{part}={column}" for part, column in self.named.items())

    def names(self, part: str) -> tuple[str, ...]:
        """Return the columns to look for, in order."""
        named = self.named.get(part)
        return (named,) if named else ALIASES[part]

    def find(self, part: str, record: Mapping[str, Any]) -> tuple[str, Any]:
        """Return column and value of a part; an empty name when the record lacks it."""
        for name in self.names(part):
            if record.get(name) is not None:
                return name, record[name]
        return "", None

    def check(self, columns: Iterable[str], where: str) -> None:
        """Check that a dataset has the named columns and a query.

        Raises:
            DatasetError: names the missing column, the existing ones and similar names.
        """
        existing = list(columns)
        for part, column in self.named.items():
            if column not in existing:
                raise DatasetError(
                    f"there is no column `{column}` for {part}; {_similar_names(column, existing)}",
                    where,
                    f"Columns: {_list(existing)}",
                )
        parts = ("query", "messages", "turns", "persona")
        accepted = [name for part in parts for name in self.names(part)]
        if not any(name in existing for name in accepted):
            similar = next(
                (column for column in existing if _is_similar(column, ALIASES["query"])), ""
            )
            hint = similar or (existing[0] if existing else "NAME")
            raise DatasetError(
                f"no column holds the query; columns: {_list(existing)}",
                where,
                f"Name it: --columns query={hint}",
            )

    def parts(self, columns: Iterable[str]) -> dict[str, str]:
        """Return part -> column for the parts that these columns contain."""
        existing = set(columns)
        columns_of = {
            part: next((n for n in self.names(part) if n in existing), "") for part in ALIASES
        }
        return {part: name for part, name in columns_of.items() if name}


def read_columns(text: str) -> Columns:
    """Parse `query=question,reference=label`.

    Raises:
        UsageError: a part is unknown, or a name is missing.
    """
    named: dict[str, str] = {}
    for piece in filter(None, map(str.strip, text.split(","))):
        part, sign, column = map(str.strip, piece.partition("="))
        part = "reference" if part == "answer" else part
        if part not in ALIASES or not sign or not column:
            meant = did_you_mean(part, ALIASES, cutoff=0.5)
            todo = f"{meant} Give PART=COLUMN; PART is one of {', '.join(ALIASES)}"
            raise UsageError(f"columns cannot be `{piece}`", todo=todo.strip())
        named[part] = column
    return Columns(named)


def _is_similar(name: str, expected: Iterable[str]) -> bool:
    return bool(closest(name, expected, cutoff=0.7))


def _similar_names(name: str, there: list[str]) -> str:
    near = closest(name, there, 3, 0.5)
    return f"similar: {_list(near)}" if near else "none is similar"


def _list(names: Iterable[str]) -> str:
    quoted = [f"`{name[:40]}`" for name in names]
    more = f" and {len(quoted) - 12} more" if len(quoted) > 12 else ""
    return ", ".join(quoted[:12]) + more if quoted else "none"


def either(names: tuple[str, ...]) -> str:
    """Return quoted names joined with `or`."""
    return " or ".join(f"`{name}`" for name in names)
