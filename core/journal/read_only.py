"""Read-only access to a journal: nothing in it or beside it is ever written.

A closed journal is read in place, one in use by a proxy is read beside its writer. If neither is
possible (a leftover log in a read-only folder), a copy in a temporary folder is read.
"""

import contextlib
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import msgspec

from ajet_swarm.common.errors import UsageError
from ajet_swarm.common.text import one_line
from core.events import AnyEvent, ProxyStarted
from core.journal import storage
from core.journal.history import END, HistoryPage, read_page
from core.journal.reader import STATE_VERSION, state_of
from core.journal.texts import UNDECODABLE, TextReader, lines_in
from core.journal.writer import JournalError, check_version
from core.reducer import apply
from core.state import State

_MAGIC = b"SQLite format 3\x00"
_DATASETS = (".jsonl", ".json", ".ndjson", ".csv", ".tsv", ".txt", ".parquet")
_CHUNK = 2_000


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


class JournalFile:
    """One journal file, open for reading; `close` deletes a temporary copy.

    Args:
        path: The file.

    Raises:
        UsageError: There is no such file, or it is no journal.
        JournalError: It is damaged, or of another version.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._copy: tempfile.TemporaryDirectory[str] | None = None
        _check_kind(path)
        beside = [Path(f"{path}{end}") for end in ("-wal", "-shm")]
        still = not any(one.exists() for one in beside)
        self._uri = f"{path.absolute().as_uri()}?mode=ro" + ("&immutable=1" if still else "")
        try:
            self._check()
        except JournalError:
            if still:
                raise
            self._take_copy()
            self._check()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Delete the temporary copy, if any."""
        if self._copy is not None:
            self._copy.cleanup()
            self._copy = None

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Yield a new connection.

        Raises:
            JournalError: The file is damaged.
        """
        try:
            db = sqlite3.connect(self._uri, uri=True, timeout=5, check_same_thread=False)
            with contextlib.closing(db):
                yield db
        except sqlite3.Error as error:
            raise JournalError(
                f"the journal cannot be read: {error}",
                str(self.path),
                "It may be cut short or damaged: take another copy of it",
            ) from error

    def _check(self) -> None:
        with self.reading() as db:
            names = {row[0] for row in db.execute("select name from sqlite_master")}
            if not {"events", "groups"} <= names:
                raise UsageError("this database is no journal of ours", str(self.path))
            check_version(db, self.path)
            db.execute("select seq, data from events order by seq desc limit 1").fetchone()

    def _take_copy(self) -> None:
        """Switch to a temporary copy."""
        self._copy = tempfile.TemporaryDirectory(prefix="ajet-replay-")
        target = Path(self._copy.name) / "journal.db"
        try:
            for end in ("", "-wal"):
                source = Path(f"{self.path}{end}")
                if not end or source.exists():
                    shutil.copyfile(source, f"{target}{end}")
            with contextlib.closing(sqlite3.connect(target)) as db:
                db.execute("pragma wal_checkpoint(truncate)")
        except (OSError, sqlite3.Error) as error:
            self.close()
            raise JournalError(f"the journal cannot be read: {error}", str(self.path)) from error
        self._uri = f"{target.as_uri()}?mode=ro"

    # --- contents ---------------------------------------------------------------------------------

    def last_seq(self) -> int:
        """Return the number of the newest event; 0 for none."""
        with self.reading() as db:
            return storage.last_seq(db)

    def last_at(self, until: int) -> float:
        """Return the time of the last event up to `until`, Unix seconds; 0 for none."""
        with self.reading() as db:
            row = db.execute(
                "select seq, cast(data as blob) from events where seq>=? order by seq limit 1",
                (until,),
            ).fetchone()
            if row is None:
                return 0.0
            events = list(storage.decoded(row[0], lines_in(row[1]), TextReader(db)))
        return max((one.at for one in events if one.seq <= until), default=0.0)

    def events(self, after: int, limit: int = 500) -> list[AnyEvent]:
        """Return up to `limit` events with `seq` above `after`, in order."""
        with self.reading() as db:
            return storage.events_after(db, after, limit)

    def group_events(self, group_id: str, until: int) -> list[AnyEvent]:
        """Return all events of one group up to `until`, with their whole texts."""
        with self.reading() as db:
            return [one for one in storage.events_of(db, group_id) if one.seq <= until]

    def page(self, first: int, limit: int, until: int) -> HistoryPage:
        """Return a page of groups, as they were at event `until`."""
        return read_page(self, first, limit, until)

    def state(self, until: int = END, advance: Callable[[int], None] | None = None) -> State:
        """Return the state after event `until`.

        Args:
            until: Number of the last event to apply.
            advance: Called with the number of the newest applied event, now and then; it ends the
                reading by raising.
        """
        state = self._snapshot(until) or State()
        base = self._base()
        if base is not None and base.seq >= state.seq:
            state = base
        while events := self.events(state.seq, _CHUNK):
            for event in events:
                if event.seq > until:
                    return state
                apply(state, event)
            if advance is not None:
                advance(state.seq)
        return state

    def base(self) -> storage.Base | None:
        """Return the beginning of a pruned journal; None if nothing was pruned."""
        with self.reading() as db:
            return storage.base_of(db)

    def _base(self) -> State | None:
        return state_of(self.base())

    def _snapshot(self, until: int) -> State | None:
        with self.reading() as db:
            row = db.execute(
                "select state from snapshots where version=? and seq<=? order by seq desc limit 1",
                (STATE_VERSION, until),
            ).fetchone()
        if row is None:
            return None
        try:
            return msgspec.json.decode(row[0], type=State)
        except UNDECODABLE:
            return None

    def runs(self) -> list[JournalRun]:
        """Return the runs of the proxy, oldest first; the first may have been pruned in part."""
        with self.reading() as db:
            rows = db.execute(
                "select seq, cast(data as blob) from events "
                """where instr(cast(data as blob), cast('"proxy_started"' as blob)) order by seq"""
            ).fetchall()
        started = [
            event
            for seq, data in rows
            for event in storage.decoded(
                seq, [line for line in lines_in(data) if b'"proxy_started"' in line]
            )
            if isinstance(event, ProxyStarted)
        ]
        starts = [(one.run_id, one.seq, one.at, one.url) for one in started]
        state = self._base()
        if state is not None and state.run_id and (not starts or starts[0][1] > state.seq + 1):
            starts.insert(0, (state.run_id, state.seq + 1, state.started_at, state.proxy_url))
        ends = [one[1] - 1 for one in starts[1:]] + [self.last_seq()]
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
        matches = runs[-1:] if name == "last" else [one for one in runs if one.run_id == name]
        matches = matches or [one for one in runs if one.run_id.startswith(name)]
        if len(matches) == 1:
            return matches[0]
        what = f"{len(matches)} runs begin" if matches else "no run begins"
        raise UsageError(
            f"{what} with `{one_line(name, 40)}`",
            str(self.path),
            f"It has {len(runs)}: `ajet-console replay {self.path} --list` names them",
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
            f"To ask its questions: `ajet-console mock {path}`",
        )
    what = "the file is empty" if not head else "this is no journal"
    raise UsageError(what, str(path), "A journal is `journal.db` in a home")
