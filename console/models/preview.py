"""A preview of a dataset before a run. Reads files: call it in a thread."""

import os
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ajet_swarm.common.errors import AjetError
from ajet_swarm.common.text import one_line
from console.models.datasets import FOLDER, SHIPPED
from mock.dataset import Dataset, open_records, shipped
from mock.dataset.columns import ALIASES, Columns, read_columns
from mock.dataset.rows import BadRow, BadRows

ROWS = 30
CHECKED = 5_000
"""Rows that are read in full; further ones are only counted."""
PROBLEMS = 20
_STEP = 500
_COUNT_STEP = 20_000


@dataclass(frozen=True, slots=True)
class Preview:
    """The content of a dataset, as far as it has been read."""

    path: str = ""
    rows: tuple[tuple[str, str], ...] = ()
    """Query and reference answer (empty when there is none) of the first usable rows."""
    problems: tuple[str, ...] = ()
    """Why rows cannot be used: the first row of each reason."""
    error: str = ""
    """Why nothing can be shown, or sent."""
    size: int = 0
    """Bytes; 0 for a folder."""
    kind: str = ""
    """JSONL, CSV, ..."""
    columns: tuple[tuple[str, str], ...] = ()
    """Each column with its part; an empty part for metadata."""
    count: int = 0
    """Rows found so far."""
    whole: bool = False
    """Whether all rows were found."""
    checked: int = 0
    """Rows that were read in full."""
    bad: int = 0
    """Unusable rows among them."""

    @property
    def readable(self) -> bool:
        """Whether it is a dataset at all, even with columns of other names."""
        return not self.error or bool(self.kind)


def read_preview(path: str, columns: str = "", home: Path | None = None) -> Preview:
    """Return the first rows of a dataset; never raises."""
    with closing(previews(path, columns, home)) as results:
        return next(results)


def previews(
    path: str, columns: str = "", home: Path | None = None
) -> Generator[Preview, None, None]:
    """Yield growing previews until all rows are counted; never raises.

    Args:
        path: A file or folder, or its name in the home's datasets folder; empty for the questions
            that come with the program.
        columns: `PART=COLUMN,...`.
        home: The home's folder.
    """
    empty = Preview(path)
    try:
        file = _find(path, home)
        if not file.exists():
            yield replace(empty, error="cannot be read: No such file or directory")
            return
        named = read_columns(columns)
        with Dataset(open_records(file), named) as dataset:
            size = file.stat().st_size if file.is_file() else 0
            yield from _scan(replace(empty, size=size), dataset)
    except AjetError as error:
        todo = f". {error.todo}" if error.todo and "JSONL, JSON" not in error.todo else ""
        what = error.what.removeprefix("the dataset ")
        yield replace(empty, error=f"{what}{todo}")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        yield replace(empty, error=f"cannot be read: {reason or error}")


def _find(path: str, home: Path | None) -> Path:
    if path in ("", SHIPPED):
        return shipped()
    file = Path(path).expanduser()
    if home is not None and not os.path.exists(file) and not file.is_absolute():
        own = home / FOLDER / path
        return own if own.exists() else file
    return file


def _scan(first: Preview, dataset: Dataset) -> Iterator[Preview]:
    rows_read = _RowsRead(dataset.records.place)
    position = 0
    while True:
        more = dataset.records.scan(_STEP if position < CHECKED else _COUNT_STEP)
        while position < min(dataset.records.count, CHECKED) and rows_read.take(dataset, position):
            position += 1
            if position % _STEP == 0:
                break
        values = rows_read.values or dict.fromkeys(dataset.records.names)
        error = _fault(dataset, values, rows_read, position)
        now = replace(
            first,
            kind=dataset.records.kind,
            rows=tuple(rows_read.rows),
            problems=tuple(rows_read.bad_rows.lines(PROBLEMS)),
            columns=_parts(dataset.columns, tuple(values)),
            count=dataset.records.count,
            whole=dataset.records.whole,
            checked=position,
            bad=rows_read.bad,
            error=error,
        )
        yield now
        if error or (not more and position >= min(dataset.records.count, CHECKED)):
            return


class _RowsRead:
    """The content of the rows read so far."""

    def __init__(self, place: str) -> None:
        self.rows: list[tuple[str, str]] = []
        self.bad_rows = BadRows(place)
        self.values: dict[str, Any] = {}
        """Column -> its first value."""
        self.bad = 0

    def take(self, dataset: Dataset, position: int) -> bool:
        """Read one row."""
        row = dataset.row(position)
        if len(self.rows) < ROWS:
            for name, value in dataset.values(position).items():
                self.values.setdefault(name, value)
        if isinstance(row, BadRow):
            self.bad += 1
            self.bad_rows.add(row)
        elif len(self.rows) < ROWS:
            turns = f"  (+{len(row.then)} turns)" if row.then else ""
            played = "  (a persona)" if row.persona else ""
            query = one_line(row.query or row.goal or row.persona, 300) + turns + played
            self.rows.append((query, one_line(row.reference or "", 100)))
        return True


def _fault(dataset: Dataset, values: dict[str, Any], rows_read: _RowsRead, position: int) -> str:
    """Return why the dataset cannot be used, as far as known."""
    if dataset.columns.named or not rows_read.rows:
        try:
            if values:
                dataset.columns.check(values, "")
        except AjetError as error:
            todo = error.todo.replace("Name it: --columns", "Put into Columns:")
            return f"{error.what}. {todo}"
    if not rows_read.rows and (
        position >= 200 or (dataset.records.whole and position >= dataset.records.count)
    ):
        return "no usable row at its beginning" if dataset.records.count else "it is empty"
    return ""


def _parts(columns: Columns, column_names: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    parts_by_name = {name: part for part, name in columns.parts(column_names).items()}
    order = list(ALIASES)
    named = sorted(parts_by_name.items(), key=lambda item: order.index(item[1]))
    return (*named, *((name, "") for name in column_names if name not in parts_by_name))
