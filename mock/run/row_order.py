"""Which row comes next: passes, order, split, weights, and what was done before."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

from mock.dataset import Dataset, Seen, unique
from mock.dataset.rows import BadRow, Row, Side, chance, side_of
from mock.run.progress import Key, Progress
from mock.tally import Tally

UNPLAYED = "a persona without an opening, and no model plays the user (--user-url, --user-model)"
_STRIDE = 2_000
"""Rows passed over between two looks at the outside."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which rows are asked, how often, in what order."""

    passes: int = 1
    seed: int | None = None
    """Shuffles each pass; None keeps the dataset's order."""
    split: Side | None = None
    """The side that is asked; both when None."""
    held_out: float = 0.1
    """Share of the rows that is on the side `held-out`."""

    @property
    def expected(self) -> float:
        """The share of the rows it will be, before any was seen."""
        held_out = min(max(self.held_out, 0.0), 1.0)
        return {"train": 1.0 - held_out, "held-out": held_out}.get(self.split or "", 1.0)


@dataclass(frozen=True, slots=True)
class Place:
    """A row whose turn it is."""

    key: Key
    row: Row

    @property
    def sent_id(self) -> str:
        """Its id in this pass."""
        number, copy = self.key.number, self.key.copy
        again = f"~{number}" if number > 1 else ""
        return f"{self.row.row_id}{again}" + (f"+{copy}" if copy > 1 else "")


class Walk:
    """The rows of a run, one after the other. `next` is for one caller at a time.

    Args:
        dataset: Its rows, found while they are walked.
        progress: What is done.
        choice: Which rows.
        tally: Is told of rows that are passed.
        played: A model plays the user; without one a persona needs an opening.
    """

    def __init__(
        self,
        dataset: Dataset,
        progress: Progress,
        choice: Choice,
        tally: Tally,
        played: bool = True,
    ) -> None:
        self._played = played
        self._dataset = dataset
        self._progress = progress
        self._choice = choice
        self._tally = tally
        self._rows = self._all()
        self._over = False
        self.first_bad: BadRow | None = None

    async def next(self) -> Place | BadRow | None:
        """The next row to ask, or one that is broken; None after the last."""
        while not self._over:
            found = await asyncio.to_thread(self._step)
            if found is not None:
                return found
        return None

    def _step(self) -> Place | BadRow | None:
        try:
            return next(self._rows)
        except StopIteration:
            self._over = True
            return None

    def _all(self) -> Iterator[Place | BadRow | None]:
        """Every row; None now and then, while rows are passed over."""
        for number in range(1, self._choice.passes + 1):
            copy, more = 1, True
            while more:
                more = False
                seen = Seen()
                for steps, position in enumerate(self._positions(number, copy)):
                    if position is None or steps % _STRIDE == _STRIDE - 1:
                        yield None
                    if position is None:
                        continue
                    found, further = self._look(position, number, copy)
                    more = more or further
                    if isinstance(found, Place):
                        yield Place(found.key, unique(found.row, seen))
                    elif found is not None:
                        yield found
                copy += 1

    def _positions(self, number: int, copy: int) -> Iterator[int | None]:
        dataset = self._dataset
        if self._choice.seed is None:
            position = 0
            while True:
                if position < dataset.found:
                    yield position
                    position += 1
                elif dataset.whole:
                    return
                else:
                    dataset.scan()
        while dataset.scan():
            yield None
        salt = f"{number}" if copy == 1 else f"{number}+{copy}"
        yield from dataset.order(salt, self._choice.seed)

    def _look(self, position: int, number: int, copy: int) -> tuple[Place | BadRow | None, bool]:
        """What to do with one row, and whether it is asked again in this pass."""
        key = Key(number, self._dataset.line(position), copy)
        tally, first = self._tally, copy == 1
        tally.passed += first
        done = key in self._progress.done
        if done and not self._progress.weighted:
            tally.kept += first
            return None, False
        row = self._dataset.row(position)
        if isinstance(row, Row) and not row.query and not self._played:
            row = BadRow(line=row.line, cause=UNPLAYED)
        if isinstance(row, BadRow):
            if not (first and number == 1):
                return None, False
            tally.skipped += 1
            self.first_bad = self.first_bad or row
            return row, False
        split = self._choice.split
        if split is not None and side_of(row, self._choice.held_out) != split:
            return None, False
        if row.weight != 1.0:
            self._progress.weigh()
        copies = self._copies(row, number)
        tally.kept += copies * first
        return (Place(key, row) if copy <= copies and not done else None), copies > copy

    def _copies(self, row: Row, number: int) -> int:
        """How often a row is asked in a pass: its weight, the fraction by chance."""
        whole = int(row.weight)
        rest = row.weight - whole
        return whole + (chance(f"{self._choice.seed}:{number}:{row.line}") < rest)
