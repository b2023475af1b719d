"""What the columns of a dataset are called, and what is said when they are called otherwise."""

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
"""What a part of a row may be called, the first that is there counts."""


class DatasetError(UsageError):
    """A dataset cannot be used at all."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Which column holds which part of a row.

    Args:
        named: Part (a key of `ALIASES`) -> column, where it is not one of the usual names.
    """

    named: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return ",".join(f"{part}={column}" for part, column in self.named.items())

    def names(self, part: str) -> tuple[str, ...]:
        """Columns to look for, in order."""
        named = self.named.get(part)
        return (named,) if named else ALIASES[part]

    def find(self, part: str, record: Mapping[str, Any]) -> tuple[str, Any]:
        """Column and value of a part; an empty name when the record does not have it."""
        for name in self.names(part):
            if record.get(name) is not None:
                return name, record[name]
        return "", None

    def check(self, columns: Iterable[str], where: str) -> None:
        """Complain about a dataset that has not the columns asked for.

        Raises:
            DatasetError: names the column, those there are, and near ones.
        """
        there = list(columns)
        for part, column in self.named.items():
            if column not in there:
                raise DatasetError(
                    f"there is no column `{column}` for {part}; {_near(column, there)}",
                    where,
                    f"Columns: {_list(there)}",
                )
        parts = ("query", "messages", "turns", "persona")
        asked = [name for part in parts for name in self.names(part)]
        if not any(name in there for name in asked):
            near = next((one for one in there if _alike(one, ALIASES["query"])), "")
            hint = near or (there[0] if there else "NAME")
            raise DatasetError(
                f"no column holds the query; columns: {_list(there)}",
                where,
                f"Name it: --columns query={hint}",
            )

    def parts(self, columns: Iterable[str]) -> dict[str, str]:
        """Part -> column, of the parts these columns hold."""
        there = set(columns)
        found = {part: next((n for n in self.names(part) if n in there), "") for part in ALIASES}
        return {part: name for part, name in found.items() if name}


def read_columns(text: str) -> Columns:
    """`query=question,reference=label` as columns.

    Raises:
        UsageError: a part is unknown, or a name is missing.
    """
    named: dict[str, str] = {}
    for piece in filter(None, (one.strip() for one in text.split(","))):
        part, sign, column = (one.strip() for one in piece.partition("="))
        part = "reference" if part == "answer" else part
        if part not in ALIASES or not sign or not column:
            meant = did_you_mean(part, ALIASES, cutoff=0.5)
            todo = f"{meant} Give PART=COLUMN, part one of {', '.join(ALIASES)}"
            raise UsageError(f"columns cannot be `{piece}`", todo=todo.strip())
        named[part] = column
    return Columns(named)


def _alike(name: str, wanted: Iterable[str]) -> bool:
    return bool(closest(name, wanted, cutoff=0.7))


def _near(name: str, there: list[str]) -> str:
    near = closest(name, there, 3, 0.5)
    return f"near ones: {_list(near)}" if near else "none is near it"


def _list(names: Iterable[str]) -> str:
    found = [f"`{one[:40]}`" for one in names]
    more = f" and {len(found) - 12} more" if len(found) > 12 else ""
    return ", ".join(found[:12]) + more if found else "none"


def either(names: tuple[str, ...]) -> str:
    return " or ".join(f"`{one}`" for one in names)
