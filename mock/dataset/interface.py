"""A dataset: the records of a file or folder, and the columns by which they become rows."""

import hashlib
import random
from array import array
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from itertools import accumulate
from typing import Any

from ajet_swarm.data.records import Records, RowError
from ajet_swarm.protocol.errors import DatasetError
from mock.dataset.columns import Columns
from mock.dataset.rows import BadRow, BadRows, Row, parse_record

HEAD = 200
"""Number of records checked before a dataset counts as usable."""


class Dataset(AbstractContextManager["Dataset"]):
    """An opened dataset; its positions are those of its records.

    Args:
        records: Reader of its format.
        columns: Column names; the usual ones by default.
    """

    def __init__(self, records: Records, columns: Columns | None = None) -> None:
        self.records = records
        self.path = records.path
        self.columns = columns or Columns()

    def __exit__(self, *error: object) -> None:
        self.records.close()

    def row(self, position: int) -> Row | BadRow:
        """Read one row."""
        line = self.records.line(position)
        try:
            return parse_record(line, self.records.record(position), self.columns)
        except RowError as error:
            return BadRow(line=line, cause=str(error))

    def values(self, position: int) -> dict[str, Any]:
        """Return a record as it is; empty when it is broken."""
        try:
            return dict(self.records.record(position))
        except RowError:
            return {}

    def order(self, salt: str, seed: int | None) -> Iterator[int]:
        """Return the positions in the order of a pass; all records must have been found.

        The blocks of the records are shuffled, and each block within itself.

        Args:
            salt: Distinguishes the passes: each has its own order.
            seed: None keeps the dataset's order.
        """
        if seed is None:
            return iter(range(self.records.count))
        return _shuffled(self.records.blocks(), random.Random(f"{seed}:{salt}"))

    def fingerprint(self) -> str:
        """Return a digest of path, size, head, tail and columns, stable while the file is
        unchanged."""
        identity = f"{self.path.absolute()}\0{sorted(self.columns.named.items())}\0".encode()
        return hashlib.sha256(identity + self.records.sample()).hexdigest()[:16]

    def check_head(self) -> None:
        """Check the first rows.

        Raises:
            DatasetError: a column is missing, or there is no usable row.
        """
        records = self.records
        records.scan(HEAD)
        columns: dict[str, Any] = dict.fromkeys(records.names)
        if records.count:
            columns |= self.values(0)
        if records.names:
            self.columns.check(columns, str(self.path))
        bad = BadRows(records.place)
        for position in range(min(records.count, HEAD)):
            row = self.row(position)
            if isinstance(row, Row):
                return
            bad.add(row)
            columns = {**self.values(position), **columns}
        if columns:
            self.columns.check(columns, str(self.path))
        if records.whole and records.count <= HEAD:
            raise self.no_usable_row(bad)

    def no_usable_row(self, bad: BadRows) -> DatasetError:
        """Return the error for a dataset without a usable row."""
        cause = f": {'; '.join(bad.lines(3))}" if bad.firsts else ", it is empty"
        todo = "Name a file with one question per row"
        return DatasetError(f"the dataset has no usable row{cause}", str(self.path), todo)


def _shuffled(blocks: Sequence[int], chance: random.Random) -> Iterator[int]:
    """Yield all positions in a random order; 8 bytes for each of the largest block."""
    parts = list(zip(accumulate(blocks), blocks, strict=True))
    chance.shuffle(parts)
    for end, length in parts:
        positions = array("Q", range(end - length, end))
        chance.shuffle(positions)
        yield from positions
