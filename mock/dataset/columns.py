"""Column names of a dataset, and the errors for unknown ones."""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ajet_swarm.common.errors import UsageError
from ajet_swarm.common.text import closest, did_you_mean
from ajet_swarm.protocol.errors import DatasetError

ALIASES: Mapping[str, tuple[str, ...]] = {
    "query": ("main_query", "query", "question", "prompt", "instruction", "problem", "input"),
    "context": ("input", "context", "passage", "history", "choices", "options", "image", "images"),
    "reference": (
        "answer",
        "reference",
        "solution",
        "ground_truth",
        "reward_model.ground_truth",
        "output",
        "response",
        "target",
        "ideal",
        "answers",
        "chosen",
    ),
    "id": ("id", "task_id", "dataset_task_id"),
    "system": ("system", "system_prompt"),
    "messages": (
        "init_messages",
        "messages",
        "conversations",
        "conversation",
        "request.messages",
        "body.messages",
    ),
    "tools": ("tools", "request.tools", "body.tools"),
    "turns": ("turns",),
    "persona": ("persona",),
    "goal": ("goal",),
    "opening": ("opening",),
    "weight": ("weight",),
    "metadata": ("metadata",),
}
"""Usual names of each part of a row; the first present one is used. `a.b` is the field `b` of the
object in column `a`. The context is every present column of its names."""
_ID = re.compile(r"(^|[_-])(u?u?id|index|idx|key|hash)$|(I[dD]|Hash|Index|Key)$", re.ASCII)


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
        """Return the columns to look for, in order; none for a part named as empty."""
        named = self.named.get(part)
        if named is not None:
            return (named,) if named else ()
        other = self.named.values()
        return tuple(name for name in ALIASES[part] if name not in other)

    def find(self, part: str, record: Mapping[str, Any]) -> tuple[str, Any]:
        """Return column and value of a part; an empty name when the record lacks it."""
        for name in self.names(part):
            if (found := value_of(name, record)) is not None:
                return name, found
        return "", None

    def check(self, columns: Mapping[str, Any], where: str) -> None:
        """Check that a dataset has the named columns and a query.

        Args:
            columns: Column -> a value of it, None where unknown.
            where: The dataset.

        Raises:
            DatasetError: names the missing column, the existing ones and similar names.
        """
        existing = list(columns)
        for part, column in self.named.items():
            if column and not _exists(column, columns):
                raise DatasetError(
                    f"there is no column `{column}` for {part}; {_similar_names(column, existing)}",
                    where,
                    f"Columns: {_list(existing)}",
                )
        parts = ("query", "messages", "turns", "persona")
        if not any(_exists(name, columns) for part in parts for name in self.names(part)):
            raise DatasetError(
                f"no column holds the query; columns: {_list(existing)}",
                where,
                f"Name it: --columns {_likely_query(columns)}",
            )

    def parts(self, columns: Iterable[str]) -> dict[str, str]:
        """Return part -> column for the parts that these columns contain."""
        existing = dict.fromkeys(columns)
        columns_of: dict[str, str] = {}
        for part in ALIASES:
            for name in self.names(part):
                if _exists(name, existing) and _root(name, existing) not in columns_of.values():
                    columns_of[part] = _root(name, existing)
                    break
        return columns_of


def value_of(name: str, record: Mapping[str, Any]) -> Any:
    """Return the value of a column, or of a field in it (`a.b`); None where it is missing or not
    a number."""
    value: Any = record.get(name)
    if value is None and "." in name:
        value = record
        for key in name.split("."):
            value = value.get(key) if isinstance(value, dict) else None
    return None if isinstance(value, float) and math.isnan(value) else value


def _root(name: str, columns: Iterable[str]) -> str:
    return name if name in columns else name.split(".")[0]


def _exists(name: str, columns: Mapping[str, Any]) -> bool:
    """Return whether a column exists; for a field in it, the value must not contradict."""
    if name in columns:
        return True
    root = columns.get(_root(name, columns))
    return _root(name, columns) in columns and (root is None or value_of(name, columns) is not None)


def read_columns(text: str) -> Columns:
    """Parse `query=question,reference=label`; `context=` ignores the usual columns of a part.

    Raises:
        UsageError: a part is unknown, or a name is missing.
    """
    named: dict[str, str] = {}
    for piece in filter(None, map(str.strip, text.split(","))):
        part, sign, column = map(str.strip, piece.partition("="))
        part = "reference" if part == "answer" else part
        if part not in ALIASES or not sign or (not column and part == "query"):
            meant = did_you_mean(part, ALIASES, cutoff=0.5)
            todo = f"{meant} Give PART=COLUMN; PART is one of {', '.join(ALIASES)}"
            raise UsageError(f"columns cannot be `{piece}`", todo=todo.strip())
        named[part] = column
    return Columns(named)


def _likely_query(columns: Mapping[str, Any]) -> str:
    """Return the mapping to advise: never a column of ids."""
    for column, value in columns.items():
        if is_conversation(value):
            return f"messages={column}"
    texts = {
        column: value
        for column, value in columns.items()
        if not _ID.search(column) and (value is None or isinstance(value, str))
    }
    for column in texts:
        if closest(column, ALIASES["query"], cutoff=0.7):
            return f"query={column}"
    sentences = (column for column, value in texts.items() if value and " " in value.strip())
    return f"query={next(sentences, 'COLUMN')}"


def is_conversation(value: Any) -> bool:
    """Return whether a value is a list of messages: with `role` and `content`, or, as in ShareGPT,
    with `from` and `value`."""
    first = value[0] if isinstance(value, list) and value else None
    return isinstance(first, dict) and ("role" in first or {"from", "value"} <= first.keys())


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
