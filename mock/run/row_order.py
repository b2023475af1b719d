"""Order of the rows: passes, shuffling, split, weights, and what earlier starts have finished."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from mock.dataset import Dataset
from mock.dataset.rows import BadRow, Row, Side, chance, side_of
from mock.run.progress import Key, Progress
from mock.tally import RunCounters

UNPLAYED = "a persona without an opening, and no model plays the user (--user-url, --user-model)"
_STRIDE = 2_000
"""Rows after which the iterator yields control to its caller."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSelection:
    """Which rows are asked, how often, in what order."""

    passes: int = 1
    seed: int | None = None
    """Shuffles each pass; None keeps the dataset's order."""
    split: Side | None = None
    """Side of the split to ask; None asks both."""
    held_out: float = 0.1
    """Share of the rows on the side `held-out`."""

    @property
    def expected(self) -> float:
        """Expected share of the selected rows."""
        held_out = min(max(self.held_out, 0.0), 1.0)
        return {"train": 1.0 - held_out, "held-out": held_out}.get(self.split or "", 1.0)


@dataclass(frozen=True, slots=True)
class ScheduledRow:
    """A row to ask now."""

    key: Key
    row: Row

    @property
    def sent_id(self) -> str:
        """Id of the row in this pass."""
        number, copy = self.key.number, self.key.copy
        pass_mark = f"~{number}" if number > 1 else ""
        return f"{self.row.row_id}{pass_mark}" + (f"+{copy}" if copy > 1 else "")


@dataclass(slots=True)
class RowOrder:
    """Iterator over the rows of a run. `next` is for one caller at a time."""

    dataset: Dataset
    """Source of the rows; scanned on the way."""
    progress: Progress
    """Finished rows."""
    selection: RowSelection
    counters: RunCounters
    """Updated on the way."""
    has_user_model: bool = True
    """Whether a model plays the user; otherwise a persona needs an opening."""
    _rows: Iterator[ScheduledRow | BadRow | Literal[False]] = field(init=False)

    def __post_init__(self) -> None:
        self._rows = self._all()

    async def next(self) -> ScheduledRow | BadRow | None:
        """Return the next row to ask or a broken one; None after the last."""
        row: ScheduledRow | BadRow | Literal[False] | None = False
        while row is False:
            row = await asyncio.to_thread(next, self._rows, None)
        return row

    def _all(self) -> Iterator[ScheduledRow | BadRow | Literal[False]]:
        """Yield every row; False from time to time while rows are skipped."""
        for number in range(1, self.selection.passes + 1):
            copy, more = 1, True
            while more:
                more = False
                self.progress.forget_ids()
                for steps, position in enumerate(self._positions(number, copy)):
                    if position is None or steps % _STRIDE == _STRIDE - 1:
                        yield False
                    if position is None:
                        continue
                    row, asked_again = self._select(position, number, copy)
                    more = more or asked_again
                    if isinstance(row, ScheduledRow):
                        yield ScheduledRow(row.key, self._with_unique_id(row.row))
                    elif row is not None:
                        yield row
                copy += 1

    def _positions(self, number: int, copy: int) -> Iterator[int | None]:
        dataset = self.dataset
        if self.selection.seed is None:
            position = 0
            while True:
                if position < dataset.records.count:
                    yield position
                    position += 1
                elif dataset.records.whole:
                    return
                else:
                    dataset.records.scan()
        while dataset.records.scan():
            yield None
        salt = f"{number}" if copy == 1 else f"{number}+{copy}"
        yield from dataset.order(salt, self.selection.seed)

    def _select(
        self, position: int, number: int, copy: int
    ) -> tuple[ScheduledRow | BadRow | None, bool]:
        """Return the row to ask, if any, and whether it is asked again in this pass."""
        key = Key(number, self.dataset.records.line(position), copy)
        counters, first = self.counters, copy == 1
        counters.passed += first
        done = key in self.progress
        if done and not self.progress.weighted:
            counters.selected += first
            return None, False
        row = self.dataset.row(position)
        if isinstance(row, Row) and not row.query and not self.has_user_model:
            row = BadRow(line=row.line, cause=UNPLAYED)
        if isinstance(row, BadRow):
            if not (first and number == 1):
                return None, False
            counters.skipped += 1
            return row, False
        split = self.selection.split
        if split is not None and side_of(row, self.selection.held_out) != split:
            return None, False
        if row.weight != 1.0:
            self.progress.weigh()
        copies = self._copies(row, number)
        counters.selected += copies * first
        return (ScheduledRow(key, row) if copy <= copies and not done else None), copies > copy

    def _with_unique_id(self, row: Row) -> Row:
        """Return the row, with a changed id when an earlier row of the pass has the same one."""
        if self.progress.is_new_id(row.row_id):
            return row
        return msgspec.structs.replace(row, row_id=f"{row.row_id}@{row.line}")

    def _copies(self, row: Row, number: int) -> int:
        """Return how often a row is asked in a pass: its weight, the fraction by chance."""
        whole = int(row.weight)
        rest = row.weight - whole
        return whole + (chance(f"{self.selection.seed}:{number}:{row.line}") < rest)
