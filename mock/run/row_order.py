"""Order of the rows: passes, shuffling, split, weights, and what earlier starts have finished."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

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


class RowOrder:
    """Iterator over the rows of a run. `next` is for one caller at a time.

    Args:
        dataset: Source of the rows; scanned on the way.
        progress: Finished rows.
        selection: Rows to ask.
        counters: Counters to update.
        has_user_model: Whether a model plays the user; otherwise a persona needs an opening.
    """

    def __init__(
        self,
        dataset: Dataset,
        progress: Progress,
        selection: RowSelection,
        counters: RunCounters,
        has_user_model: bool = True,
    ) -> None:
        self._has_user_model = has_user_model
        self._dataset = dataset
        self._progress = progress
        self._selection = selection
        self._counters = counters
        self._rows = self._all()
        self._exhausted = False

    async def next(self) -> ScheduledRow | BadRow | None:
        """Return the next row to ask or a broken one; None after the last."""
        while not self._exhausted:
            row = await asyncio.to_thread(self._step)
            if row is not None:
                return row
        return None

    def _step(self) -> ScheduledRow | BadRow | None:
        try:
            return next(self._rows)
        except StopIteration:
            self._exhausted = True
            return None

    def _all(self) -> Iterator[ScheduledRow | BadRow | None]:
        """Yield every row; None from time to time while rows are skipped."""
        for number in range(1, self._selection.passes + 1):
            copy, more = 1, True
            while more:
                more = False
                seen = SeenIds()
                for steps, position in enumerate(self._positions(number, copy)):
                    if position is None or steps % _STRIDE == _STRIDE - 1:
                        yield None
                    if position is None:
                        continue
                    row, asked_again = self._select(position, number, copy)
                    more = more or asked_again
                    if isinstance(row, ScheduledRow):
                        yield ScheduledRow(row.key, with_unique_id(row.row, seen))
                    elif row is not None:
                        yield row
                copy += 1

    def _positions(self, number: int, copy: int) -> Iterator[int | None]:
        dataset = self._dataset
        if self._selection.seed is None:
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
        yield from dataset.order(salt, self._selection.seed)

    def _select(
        self, position: int, number: int, copy: int
    ) -> tuple[ScheduledRow | BadRow | None, bool]:
        """Return the row to ask, if any, and whether it is asked again in this pass."""
        key = Key(number, self._dataset.records.line(position), copy)
        counters, first = self._counters, copy == 1
        counters.passed += first
        done = key in self._progress
        if done and not self._progress.weighted:
            counters.selected += first
            return None, False
        row = self._dataset.row(position)
        if isinstance(row, Row) and not row.query and not self._has_user_model:
            row = BadRow(line=row.line, cause=UNPLAYED)
        if isinstance(row, BadRow):
            if not (first and number == 1):
                return None, False
            counters.skipped += 1
            return row, False
        split = self._selection.split
        if split is not None and side_of(row, self._selection.held_out) != split:
            return None, False
        if row.weight != 1.0:
            self._progress.weigh()
        copies = self._copies(row, number)
        counters.selected += copies * first
        return (ScheduledRow(key, row) if copy <= copies and not done else None), copies > copy

    def _copies(self, row: Row, number: int) -> int:
        """Return how often a row is asked in a pass: its weight, the fraction by chance."""
        whole = int(row.weight)
        rest = row.weight - whole
        return whole + (chance(f"{self._selection.seed}:{number}:{row.line}") < rest)


def with_unique_id(row: Row, seen: "SeenIds") -> Row:
    """Return the row, with a changed id when an earlier row had the same one."""
    return (
        row
        if seen.first(row.row_id, row.line)
        else msgspec.structs.replace(row, row_id=f"{row.row_id}@{row.line}")
    )


class SeenIds:
    """Bloom filter of ids: fixed memory; it may report a new id as seen, never the reverse."""

    BITS = 1 << 23

    def __init__(self) -> None:
        self._bits = bytearray(self.BITS // 8)

    def first(self, name: str, line: int) -> bool:
        """Add an id; return whether it is new."""
        known = True
        for number in range(3):
            bit = int(chance(f"{number}:{name}") * self.BITS)
            if not self._bits[bit >> 3] >> (bit & 7) & 1:
                known = False
                self._bits[bit >> 3] |= 1 << (bit & 7)
        return not known
