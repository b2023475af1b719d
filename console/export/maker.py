"""What a format uses while it makes rows: options, provenance, counts of what is left out."""

import hashlib
import sqlite3
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from console.export.chat import Unsuitable, answer_message, prompt_messages
from console.export.records import ExportedCandidate, ExportedGroup, provenance


class RowMaker:
    """Options and counters of one export.

    Args:
        only_human: Whether only judgements by a person are exported.
        names: Whether raters are named.
    """

    def __init__(self, *, only_human: bool = False, names: bool = False) -> None:
        self.only_human = only_human
        self.names = names
        self.split = "train"
        """Name of the file that the rows of the present group go to."""
        self.written: Counter[str] = Counter()
        """Number of rows in each file so far."""
        self.left_out: Counter[str] = Counter()
        """Cause -> number."""
        self._seen: sqlite3.Connection | None = None

    def provenance(
        self, record: ExportedGroup, candidates: Sequence[ExportedCandidate]
    ) -> dict[str, Any]:
        """Return the column `provenance` of a row."""
        return provenance(record, candidates, names=self.names)

    def check(self, record: ExportedGroup) -> None:
        """Check that a group is exported by its rating or correction.

        Raises:
            Unsuitable: It is not; the export counts it.
        """
        if self.only_human and not record.rated and record.correction is None:
            raise Unsuitable("neither rated nor corrected by a person")

    def prompt_of(self, record: ExportedGroup) -> list[dict[str, Any]]:
        """Return the prompt of a group that is exported by its rating.

        Raises:
            Unsuitable: It is not, or its prompt has no form in a file.
        """
        if self.only_human and not record.rated:
            raise Unsuitable("not rated by a person")
        return prompt_messages(record)

    def answer_of(self, candidate: ExportedCandidate) -> dict[str, Any] | None:
        """Return the message of an answer; None, and counted, for one without a form in a file."""
        try:
            return answer_message(candidate)
        except Unsuitable as cause:
            self.leave_out(str(cause))
            return None

    def leave_out(self, cause: str, count: int = 1) -> None:
        """Count groups or answers that are not exported, for the dataset card."""
        self.left_out[cause] += count

    def check_new(self, value: Any) -> None:
        """Check that no equal prompt was seen before in this export.

        Raises:
            Unsuitable: One was.
        """
        if not self.is_new(value):
            raise Unsuitable("prompt that is already in the file")

    def is_new(self, value: Any) -> bool:
        """Return whether no equal value was seen before in this export.

        The hashes are on disk, so that the memory stays flat.

        Args:
            value: Plain JSON value.
        """
        if self._seen is None:
            self._seen = sqlite3.connect("", isolation_level=None)
            self._seen.execute("pragma journal_mode=off")
            self._seen.execute("create table seen(hash blob primary key) without rowid")
            self._seen.execute("begin")
        data = msgspec.json.encode(value, order="sorted")
        row = (hashlib.blake2b(data, digest_size=16).digest(),)
        cursor = self._seen.execute("insert or ignore into seen values (?)", row)
        return cursor.rowcount > 0

    def close(self) -> None:
        """Delete the hashes."""
        if self._seen is not None:
            self._seen.close()
            self._seen = None
