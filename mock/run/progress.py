"""Progress and results of all runs in one SQLite file; a run continues after any kind of end.

`<home>/mock/<fingerprint>.sqlite` has a row per row that was sent, readable with `sqlite3` while
the mock user runs. It is committed before the row is sent, gets its `result` with the answer, and
is removed when the row was given up without one. A row without a result at the next start was in
flight when the process was killed: it is lost, and not asked again.
"""

import contextlib
import os
import secrets
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Self

import msgspec

from ajet_swarm.common.errors import UsageError

_SCHEMA = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = NORMAL;
CREATE TABLE IF NOT EXISTS runs (id TEXT, starts INTEGER, weighted INTEGER, finished INTEGER);
CREATE TABLE IF NOT EXISTS rows (
    run TEXT, pass INTEGER, line INTEGER, copy INTEGER,
    row_id TEXT, query TEXT, mock_id TEXT, result TEXT,
    PRIMARY KEY (run, pass, line, copy)
) WITHOUT ROWID;
CREATE TEMP TABLE written (pass, line, copy);
CREATE TEMP TABLE ids (id TEXT PRIMARY KEY) WITHOUT ROWID;
"""
_THIS = "run = ? AND pass = ? AND line = ? AND copy = ?"


class Key(NamedTuple):
    """Identity of one asking of one row."""

    number: int
    """The pass, from 1."""
    line: int
    copy: int = 1
    """Number of the asking within the pass, for rows that are asked several times."""

    def __str__(self) -> str:
        return f"{self.number}:{self.line}" + (f":{self.copy}" if self.copy > 1 else "")


class InFlightRow(NamedTuple):
    """A row in flight, as recorded before it was sent."""

    key: Key
    row_id: str
    query: str
    mock_id: str
    """The start that sent it."""


class _Line(msgspec.Struct):
    """A line of a file of results."""

    run: str
    line: int
    number: int = msgspec.field(name="pass")
    copy: int = 1


class Progress:
    """Progress of one dataset against one target.

    Args:
        folder: Created when missing.
        name: Distinguishes the files of different runs.
        restart: Begin a new run, even when the last one is unfinished.

    Raises:
        UsageError: the file is damaged.
    """

    def __init__(self, folder: Path, name: str, restart: bool = False) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f"{name}.sqlite"
        self.path.touch(mode=0o600)
        self._db = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
        try:
            self._db.executescript(_SCHEMA)
            self._begin(restart)
        except sqlite3.DatabaseError as error:
            self._db.close()
            todo = "Move the file away to start over"
            raise UsageError(
                f"the progress is unreadable: {error}", str(self.path), todo
            ) from error

    def _begin(self, restart: bool) -> None:
        if restart:
            self.finish()
        unfinished = "SELECT id, starts, weighted FROM runs WHERE NOT finished"
        found = self._db.execute(unfinished).fetchone()
        if found is None:
            found = "mock-" + secrets.token_hex(4), 0, 0
            self._db.execute("INSERT INTO runs VALUES (?, ?, ?, 0)", found)
        self._db.execute("UPDATE runs SET starts = starts + 1 WHERE NOT finished")
        self.run = str(found[0])
        self.mock_id = f"{self.run}-{found[1] + 1}"
        """Name of this start: `<run>-<start>`."""
        self.weighted = bool(found[2])
        """True once a row with a weight other than 1 was read."""
        in_flight = self._db.execute(
            "SELECT pass, line, copy, row_id, query, mock_id FROM rows"
            " WHERE run = ? AND result IS NULL",
            (self.run,),
        )
        self.lost = [InFlightRow(Key(*row[:3]), *row[3:]) for row in in_flight]
        """Rows that were in flight when an earlier start was killed."""

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __contains__(self, key: Key) -> bool:
        """Whether a row was sent and not given up."""
        found = self._db.execute(f"SELECT 1 FROM rows WHERE {_THIS}", (self.run, *key))
        return found.fetchone() is not None

    def count(self, passes: int) -> int:
        """Return the number of rows that were sent in the first `passes`."""
        of_run = "SELECT count(*) FROM rows WHERE run = ? AND pass <= ?"
        found = self._db.execute(of_run, (self.run, passes))
        return int(found.fetchone()[0])

    def ask(self, key: Key, row_id: str = "", query: str = "") -> None:
        """Record that a row is about to be sent."""
        row = (self.run, *key, row_id, query, self.mock_id)
        self._db.execute("INSERT OR REPLACE INTO rows VALUES (?, ?, ?, ?, ?, ?, ?, NULL)", row)

    def back(self, key: Key) -> None:
        """Record that a row was given up without an answer: the next start asks it again."""
        unanswered = f"DELETE FROM rows WHERE {_THIS} AND result IS NULL"
        self._db.execute(unanswered, (self.run, *key))

    def mark(self, key: Key, result: dict[str, Any]) -> None:
        """Record the result of a finished row."""
        self._db.execute(
            "INSERT INTO rows (run, pass, line, copy, result) VALUES (?, ?, ?, ?, ?)"
            " ON CONFLICT DO UPDATE SET result = excluded.result",
            (self.run, *key, msgspec.json.encode(result).decode()),
        )

    def weigh(self) -> None:
        """Record that rows have weights."""
        if not self.weighted:
            self.weighted = True
            self._db.execute("UPDATE runs SET weighted = 1 WHERE NOT finished")

    def is_new_id(self, row_id: str) -> bool:
        """Remember an id; return whether it was unknown."""
        return self._db.execute("INSERT OR IGNORE INTO ids VALUES (?)", (row_id,)).rowcount == 1

    def forget_ids(self) -> None:
        """Forget the ids of a pass."""
        self._db.execute("DELETE FROM ids")

    def finish(self) -> None:
        """Record the end of the run; the next start begins a new run."""
        self._db.execute("UPDATE runs SET finished = 1")

    def results(self, missing_in: Path | None = None) -> Iterator[dict[str, Any]]:
        """Yield the results of all starts of this run, but not those that a file has."""
        for text in whole_lines(missing_in) if missing_in is not None else ():
            with contextlib.suppress(msgspec.MsgspecError):
                line = msgspec.json.decode(text, type=_Line)
                if line.run == self.run:
                    key = (line.number, line.line, line.copy)
                    self._db.execute("INSERT INTO written VALUES (?, ?, ?)", key)
        rows = self._db.execute(
            "SELECT result FROM rows WHERE run = ? AND result IS NOT NULL"
            " AND (pass, line, copy) NOT IN (SELECT * FROM written)",
            (self.run,),
        )
        for (result,) in rows:
            yield msgspec.json.decode(result)


def whole_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file, none without one; a last line torn by a crash is removed."""
    whole = 0
    with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
        for line in file:
            if not line.endswith(b"\n"):
                os.truncate(path, whole)
                return
            whole += len(line)
            yield line
