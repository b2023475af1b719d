"""Read-only access to a journal, which may be in use by a proxy."""

import contextlib
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ajet_swarm.common.errors import UsageError
from ajet_swarm.common.text import one_line
from core.events import ProxyStarted
from core.journal.file import JournalError, check_version, connect, last_seq
from core.journal.reader import JournalReader, events_of_kind

_MAGIC = b"SQLite format 3\x00"
_DATASETS = (".jsonl", ".json", ".ndjson", ".csv", ".tsv", ".txt", ".parquet")


@dataclass(frozen=True, slots=True)
class JournalRun:
    """One start of the proxy."""

    run_id: str
    first: int
    """Number of its first event."""
    last: int
    began: float
    """Unix seconds."""
    url: str


class JournalFile(JournalReader):
    """One journal file, open for reading.

    Args:
        path: The file.

    Raises:
        UsageError: There is no such file, or it is no journal.
        JournalError: It is damaged, or of another version.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        _check_kind(path)
        with self.reading() as db:
            names = {row[0] for row in db.execute("select name from sqlite_master")}
            if not {"events", "groups"} <= names:
                raise UsageError("this database is no journal of ours", str(path))
            check_version(db, path)
            last_seq(db)

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Yield a new connection.

        Raises:
            JournalError: The file is damaged, or has a log in a folder that cannot be written.
        """
        try:
            with contextlib.closing(connect(self.path, 5)) as db:
                yield db
        except sqlite3.Error as error:
            raise JournalError(
                f"the journal cannot be read: {error}",
                str(self.path),
                "It may be cut short or damaged: copy it, with its `-wal`, to a folder of yours",
            ) from error

    # --- contents ---------------------------------------------------------------------------------

    def last_at(self, until: int) -> float:
        """Return the time of the last event up to `until`, Unix seconds; 0 for none."""
        sql = "select at from rows where seq<=? order by seq desc limit 1"
        with self.reading() as db:
            row = db.execute(sql, (until,)).fetchone()
        return 0.0 if row is None else float(row[0])

    def runs(self) -> list[JournalRun]:
        """Return the runs of the proxy, oldest first; the first may have been pruned in part."""
        with self.reading() as db:
            started = [
                event
                for event in events_of_kind(db, ProxyStarted)
                if isinstance(event, ProxyStarted)
            ]
        starts = [(start.run_id, start.seq, start.at, start.url) for start in started]
        state = self.base_state()
        if state is not None and state.run_id and (not starts or starts[0][1] > state.seq + 1):
            starts.insert(0, (state.run_id, state.seq + 1, state.started_at, state.proxy_url))
        ends = [start[1] - 1 for start in starts[1:]] + [self.last_seq()]
        return [
            JournalRun(run_id, first, end, at, url)
            for (run_id, first, at, url), end in zip(starts, ends, strict=False)
        ]

    def run(self, name: str) -> JournalRun:
        """Return the run whose id begins with `name`; `last` is the newest.

        Raises:
            UsageError: There is none, or there are several.
        """
        runs = self.runs()
        matches = runs[-1:] if name == "last" else [run for run in runs if run.run_id == name]
        matches = matches or [run for run in runs if run.run_id.startswith(name)]
        if len(matches) == 1:
            return matches[0]
        what = f"{len(matches)} runs begin" if matches else "no run begins"
        raise UsageError(
            f"{what} with `{one_line(name, 40)}`",
            str(self.path),
            f"It has {len(runs)}: `ajet-console journal replay {self.path} --list` names them",
        )


def _check_kind(path: Path) -> None:
    """Check that the file is an SQLite database.

    Raises:
        UsageError: It is not; says what to do.
    """
    try:
        with path.open("rb") as file:
            head = file.read(len(_MAGIC))
    except OSError as error:
        raise UsageError(
            f"the journal cannot be read: {error.strerror or error}",
            str(path),
            "Give a journal file, a home or a run of this home",
        ) from error
    if head == _MAGIC:
        return
    if path.suffix.lower() in _DATASETS or head[:1] in (b"{", b"["):
        raise UsageError(
            "this is a dataset, no journal",
            str(path),
            f"To ask its questions: `ajet-console run mock {path}`",
        )
    what = "the file is empty" if not head else "this is no journal"
    raise UsageError(what, str(path), "A journal is `journal.db` in a home")
