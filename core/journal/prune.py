"""Pruning: deletion of the oldest part of the journal in the background, in small transactions.

A pruned journal has a `base`: the state at the last pruned event. State is built from it and the
events after it, so it is the same as before. Before the base only groups remain that are listed in
`groups`: open ones, those of a pinned engine run, those rated by a person, and the newest.

One round applies the next events to the base, deletes the groups that are closed by then, removes
their rows, deletes unused texts and releases free pages. Reading happens here, in a thread of its
own; each write is a short task of the journal's writer, between two commits. An interrupted round
leaves a valid journal; the next round continues.
"""

import contextlib
import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TypeVar

from ajet_swarm.common.errors import AjetError
from core.events import AnyEvent, GroupOpened
from core.journal import storage
from core.journal.batch import TaskAction, TaskFailed
from core.journal.pace import Pace
from core.journal.pinned import NOT_PINNED, Spans, no_pins, spans_json
from core.journal.prune_rows import (
    Listed,
    RowChange,
    change_rows,
    delete_texts,
    read_rows,
    release_pages,
    set_cleaned,
)
from core.journal.rated import is_rated
from core.journal.reader import compressed, state_of
from core.journal.texts import STALE, TextReader, TextWriter, lines_in
from core.journal.writer import Journal
from core.reducer import apply
from core.state import State

log = logging.getLogger(__name__)

EVERY = 60.0
"""Seconds between two checks of the size."""
KEEP_GROUPS = 500
"""Number of newest groups, which are in state and never pruned."""
KEEP_EVENTS = 20_000
"""Number of newest events that are never pruned: as many as a follower may read
(`proxy.control.api.REPLAY_CAP`)."""
TARGET_SHARE = 0.95
"""Share of `keep_bytes` to which a journal beyond that limit is pruned."""
AIM_SHARE = 0.9
"""Share of `keep_bytes` by which a round is sized, so that the last rounds are not many small ones:
each one reads and writes the whole base."""
FULL_HASTE = 0.3
"""Excess over the target, as a share of `keep_bytes`, at which pruning is fastest."""
ROUND_GROUPS = 4_000
"""Maximum groups that one round moves into the base, and deletes: rows of groups that are moved but
not deleted are read and written twice."""
ROUND_ROWS = 2_000
ROUND_BYTES = 32 << 20
"""Maximum rows, and stored bytes of them, that one round moves into the base."""
ROUND_RATED = 20
"""Maximum rated groups that one round deletes: their size is only known afterwards."""
ROUND_EVENTS = 1_000
"""Minimum events that one round moves into the base."""
READ = 8
"""Rows per read."""
PAUSE = 2.0
"""Pause before the next task, as a multiple of the last task's duration."""
HASTY_PAUSE = 0.5
"""The same at full haste."""
HASTE_TASKS = 32
"""Tasks between two measurements of the haste."""
SLACK = 256
"""Free pages that are not released: the next events use them."""
CHECKPOINT = 50
"""Tasks between two checkpoints of the log, so that no commit has to do one."""

_One = TypeVar("_One")


class PruneError(AjetError):
    """The journal cannot be pruned now."""


@dataclass(frozen=True, slots=True)
class Retention:
    """Limits of a journal."""

    days: float = 0.0
    """Days that events are kept; 0 for no limit. Rated groups are kept longer."""
    bytes: int = 0
    """Maximum bytes of the file in use; 0 for no limit. Rated groups are deleted last."""
    rated: bool = False
    """Whether rated groups older than `days` are pruned too."""


@dataclass(frozen=True, slots=True)
class Size:
    """Used and free bytes of a journal's file."""

    used: int
    free: int

    @classmethod
    def of(cls, db: sqlite3.Connection) -> "Size":
        """Return the size as seen by one connection."""
        page, count, free = (
            int(db.execute(f"pragma {name}").fetchone()[0])
            for name in ("page_size", "page_count", "freelist_count")
        )
        return cls((count - free) * page, free * page)


@dataclass(slots=True)
class PruneResult:
    """Counts of what was deleted."""

    events: int = 0
    groups: int = 0
    rated: int = 0
    """Groups of them rated by a person."""
    bytes: int = 0
    """Reduction of the file's used bytes."""

    @property
    def summary(self) -> str:
        """Text for the operator."""
        if not self.groups and not self.events:
            return (
                f"nothing was deleted: the journal is within its limits, or all in it stays: open "
                f"groups, those of pinned runs, the newest {KEEP_GROUPS} and the newest "
                f"{KEEP_EVENTS:,} events"
            )
        return (
            f"deleted {self.groups} groups ({self.rated} rated) and what happened beside them: "
            f"{self.bytes / 1e6:.1f} MB"
        )


@dataclass(frozen=True, slots=True)
class _Selection:
    """Groups to delete: their ids, and the first and last number of their rows."""

    ids: frozenset[str] = frozenset()
    first: int = 0
    last: int = 0


class Pruner:
    """Pruner of one open journal.

    Args:
        journal: The journal; only its own writer writes it.
        keep: Limits for the background thread.
        rest: Pause between tasks as a multiple of their duration; 0 if nothing else writes.
        pinned: Returns the spans of the pinned engine runs, whose groups stay; called from the
            pruning thread.
    """

    def __init__(
        self,
        journal: Journal,
        keep: Retention,
        rest: float = PAUSE,
        pinned: Callable[[], Spans] = no_pins,
    ) -> None:
        self.journal = journal
        self.keep = keep
        self._pinned = pinned
        self._pause_share = rest
        self._ends = threading.Event()
        self._pruning = threading.Lock()
        """Lock that is held while pruning."""
        self._groups_pace = Pace()
        self._rows_pace = Pace()
        self._texts_pace = Pace()
        self._pages_pace = Pace()
        self._haste = 0.0
        """Speed in proportion to the excess: 0 for none to 1 from `FULL_HASTE` on."""
        self._tasks = 0
        self._target: int | None = None
        """Used bytes to prune to; None if only the days are limited."""
        self._warned = False
        self._failing = False
        """Whether the last round ended with an unexpected error."""
        self.on_change: Callable[[Exception | None], None] | None = None
        """Called by the pruning thread with the error when rounds begin to fail unexpectedly, and
        with None once one succeeds again."""
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start pruning every `EVERY` seconds."""
        self._thread = threading.Thread(target=self._run, name="journal-prune", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop after the current task; call this before the journal is closed."""
        self._ends.set()
        if self._thread is not None:
            self._thread.join(timeout=10)

    def _run(self) -> None:
        while not self._ends.wait(EVERY):
            try:
                self.prune(self.keep)
                self._notify(None)
            except (AjetError, sqlite3.Error) as error:
                log.warning("the journal is not pruned now: %s", error)
            except Exception as error:  # boundary of the pruning thread: the next round follows
                log.exception("the journal is not pruned now")
                self._notify(error)

    def _notify(self, error: Exception | None) -> None:
        if self._failing == (error is not None):
            return
        self._failing = error is not None
        if self.on_change is not None:
            self.on_change(error)

    def prune(self, keep: Retention) -> PruneResult:
        """Delete everything beyond the limits; block until that is done.

        Raises:
            PruneError: The journal cannot be written now, or is being closed.
            sqlite3.Error: It cannot be read.
        """
        with self._pruning:
            done = PruneResult()
            before = self._size().used
            exceeded = bool(keep.bytes) and before > keep.bytes
            self._target = int(keep.bytes * TARGET_SHARE) if exceeded else None
            self._measure_haste()
            self._clean()  # left by an interrupted round
            while self._round(keep, done):
                pass
            self._sweep()
            self._release_pages(keep)
            done.bytes = max(0, before - self._size().used)
            if done.groups or done.events:
                log.info(
                    "pruned the journal: %d events, %d groups (%d rated), %.1f MB",
                    *(done.events, done.groups, done.rated, done.bytes / 1e6),
                )
            self._warn(keep)
            return done

    def _warn(self, keep: Retention) -> None:
        used = self._size().used
        exceeded = bool(keep.bytes) and used > keep.bytes
        if exceeded and not self._warned:
            log.warning(
                "the journal uses %.1f MB, more than journal.keep_bytes (%.1f MB): the newest %d "
                "groups, open ones and those of pinned runs are never pruned",
                *(used / 1e6, keep.bytes / 1e6, KEEP_GROUPS),
            )
        self._warned = exceeded

    def _round(self, keep: Retention, done: PruneResult) -> bool:
        """Prune one part; return False if nothing is left to do."""
        moved = self._move_base(keep)
        done.events += moved
        gone = self._select(keep)
        if not moved and not gone.ids:
            return False
        done.rated += self._unlist(gone)  # first: a listed group has all its events
        self._clean()
        done.groups += len(gone.ids)
        self._sweep()
        return True

    def _excess(self) -> int:
        """Return the used bytes beyond the target."""
        return 0 if self._target is None else max(0, self._size().used - self._target)

    def _size(self) -> Size:
        with self.journal.reading() as db:
            return Size.of(db)

    # --- the base -------------------------------------------------------------------------------

    def _move_base(self, keep: Retention) -> int:
        """Advance the base; return the number of events."""
        excess = self._excess()
        before = time.time() - keep.days * 86_400 if keep.days else 0.0
        if not excess and not before:
            return 0
        with self.journal.reading() as db:
            base = storage.base_of(db)
            last = self._last(db)
            used = Size.of(db).used
        state = state_of(base) or State()
        # Half of the excess' share, because the texts of an event may be of any size.
        aim = excess + int(keep.bytes * (TARGET_SHARE - AIM_SHARE))
        most = max(ROUND_EVENTS, (last - state.seq) * aim // (2 * used)) if excess else last
        began, at = state.seq, base.at if base else 0.0
        rows = size = opened = 0
        for seq, length, events in self._rows(state.seq, last):
            newest = max((one.at for one in events), default=0.0)
            if not excess and newest >= before:
                break
            for event in events:
                if event.seq > state.seq:
                    apply(state, event)
                    opened += isinstance(event, GroupOpened)
            state.seq, at = seq, max(at, newest)
            rows, size = rows + 1, size + length
            if rows >= ROUND_ROWS or size >= ROUND_BYTES or seq - began >= most:
                break
            if opened >= ROUND_GROUPS:
                break
        if state.seq == began:
            return 0
        groups = base.groups if base else 0
        row = (state.seq, at, groups, compressed(state))

        def work(db: sqlite3.Connection, _: TextWriter) -> None:
            db.execute("delete from base")
            db.execute("insert into base values (?,?,?,?)", row)
            db.execute("delete from snapshots where seq<=?", (row[0],))
            db.execute("insert or replace into meta values ('pruned', ?)", (str(row[0]),))

        self._task(work)
        return state.seq - began

    def _last(self, db: sqlite3.Connection) -> int:
        """Return the number of the last event that may be pruned."""
        last = storage.last_seq(db) - KEEP_EVENTS
        newest = _newest(db)
        return min(last, newest - 1) if newest else last

    def _rows(self, after: int, last: int) -> Iterator[tuple[int, int, list[AnyEvent]]]:
        """Yield rows of events in order: number, stored bytes, and the events.

        Rows are read a few at a time, without a connection open in between.
        """
        while True:
            began = time.monotonic()
            with self.journal.reading() as db:
                rows = read_rows(db, after, last, READ)
                texts = TextReader(db)
                decoded_rows = [
                    (seq, len(data), list(storage.decoded(seq, lines_in(data), texts)))
                    for seq, data in rows
                ]
            if not rows:
                return
            yield from decoded_rows
            after = rows[-1][0]
            self._pause(time.monotonic() - began)

    # --- groups ---------------------------------------------------------------------------------

    def _select(self, keep: Retention) -> _Selection:
        """Return the groups to delete: first all unrated ones, then the oldest rated ones."""
        with self.journal.reading() as db:
            base = storage.base_of(db)
            if base is None:
                return _Selection()
            until = _newest(db) or (1 << 62)
            gone = self._among(db, base.seq, until, "coalesce(rated, 2)<>1", ())
            if gone.ids:
                return gone
            if self._excess() and not self._has_more(db, base.seq):
                gone = self._among(db, base.seq, until, "rated=1", ())
            elif keep.rated and keep.days:
                before = time.time() - keep.days * 86_400
                gone = self._among(db, base.seq, until, "rated=1 and opened_at<?", (before,))
            return gone

    def _has_more(self, db: sqlite3.Connection, after: int) -> bool:
        """Return whether rows after the base may be pruned."""
        sql = "select 1 from events where seq>? and seq<=? limit 1"
        return db.execute(sql, (after, self._last(db))).fetchone() is not None

    def _among(
        self, db: sqlite3.Connection, base: int, until: int, which: str, values: tuple[float, ...]
    ) -> _Selection:
        sql = (
            "select id, opened_seq, closed_seq, rated from groups where closed_seq<=?"
            f" and opened_seq<? and {which} and {NOT_PINNED} order by opened_seq limit ?"
        )
        pinned = spans_json(self._pinned())
        most = ROUND_GROUPS if "<>" in which else ROUND_RATED
        while True:
            rows = db.execute(sql, (base, until, *values, pinned, most)).fetchall()
            unknown = [row[0] for row in rows if row[3] is None]
            if not unknown:
                break
            ratings = [(is_rated(storage.events_of(db, group)), group) for group in unknown]
            self._task(partial(_set_rated, ratings))
        if not rows:
            return _Selection()
        last = max(row[2] for row in rows)
        for some in _batches([row[0] for row in rows], 500):
            marks = ",".join("?" * len(some))
            late = db.execute(f"select max(seq) from late where group_id in ({marks})", some)
            last = max(last, late.fetchone()[0] or 0)
        end = db.execute("select min(seq) from events where seq>=?", (last,)).fetchone()
        return _Selection(frozenset(row[0] for row in rows), rows[0][1], end[0] or last)

    def _unlist(self, gone: _Selection) -> int:
        """Remove the groups from `groups`; return how many of them were rated.

        The meta value `unlisted` is the range of their rows until `_clean` has removed their lines.
        """
        rated = 0
        rows = f"{gone.first} {gone.last}"
        left = sorted(gone.ids)
        while left:
            some = left[: min(self._groups_pace.amount, 256)]
            del left[: len(some)]
            ids = [(one,) for one in some]
            marks = ",".join("?" * len(some))

            def work(
                db: sqlite3.Connection,
                _: TextWriter,
                ids: list[tuple[str]] = ids,
                marks: str = marks,
            ) -> None:
                nonlocal rated
                names = [one[0] for one in ids]
                sql = f"select count(*) from groups where rated=1 and id in ({marks})"
                rated += int(db.execute(sql, names).fetchone()[0])
                db.execute("insert or replace into meta values ('unlisted', ?)", (rows,))
                db.executemany("delete from groups where id=?", ids)
                db.executemany("delete from late where group_id=?", ids)
                db.execute("update base set groups=groups+?", (len(ids),))

            self._task(work, self._groups_pace, len(some))
        return rated

    # --- rows -----------------------------------------------------------------------------------

    def _clean(self) -> None:
        """Remove lines of unlisted groups from the rows up to the base."""
        with self.journal.reading() as db:
            base = storage.base_of(db)
            sql = "select value from meta where key=?"
            row = db.execute(sql, ("cleaned",)).fetchone()
            unlisted = db.execute(sql, ("unlisted",)).fetchone()
        if base is None:
            return
        cleaned = int(row[0]) if row else 0
        first, last = map(int, unlisted[0].split()) if unlisted else (base.seq + 1, 0)
        if cleaned < base.seq:
            first, last = min(first, cleaned + 1), base.seq
        last = min(last, base.seq)
        if first > last and not unlisted:
            return
        after = first - 1
        while True:
            with self.journal.reading() as db:
                rows = read_rows(db, after, last, min(self._rows_pace.amount, 256))
                listed = Listed(db)
                changes = [RowChange.of(listed, seq, data) for seq, data in rows]
            if not rows:
                break
            self._task(partial(change_rows, changes), self._rows_pace, len(rows))
            after = rows[-1][0]
        self._task(partial(set_cleaned, max(cleaned, base.seq)))

    # --- texts and pages ------------------------------------------------------------------------

    def _sweep(self) -> None:
        """Delete texts that no event refers to."""
        with self.journal.reading() as db:
            row = db.execute("select value from meta where key='cleaned'").fetchone()
        if row is None:
            return
        bound, after = int(row[0]) - STALE, b""
        while True:
            with self.journal.reading() as db:
                unused = db.execute(
                    "select hash, id from text_index where hash>? and used<?"
                    " and not exists (select 1 from pins where text=id) order by hash limit ?",
                    (after, bound, min(self._texts_pace.amount, 256)),
                ).fetchall()
            if not unused:
                return
            after = unused[-1][0]
            self._task(partial(delete_texts, unused, bound), self._texts_pace, len(unused))

    def _release_pages(self, keep: Retention) -> None:
        """Shrink the file by its free pages, last ones first.

        A file that was pruned for its size keeps the pages that do not exceed the limit: the next
        events need them.
        """
        with self.journal.reading() as db:
            free = int(db.execute("pragma freelist_count").fetchone()[0])
        slack = SLACK
        if self._target is not None:
            slack = max(slack, (keep.bytes - self._target) // storage.PAGE)
        while free > slack:
            amount = min(self._pages_pace.amount, free - slack)
            self._task(partial(release_pages, amount), self._pages_pace, amount)
            before = free
            with self.journal.reading() as db:
                free = int(db.execute("pragma freelist_count").fetchone()[0])
            if free >= before:
                return
        self._checkpoint()

    def _checkpoint(self) -> None:
        with contextlib.suppress(sqlite3.Error), self.journal.reading() as db:
            db.execute("pragma wal_checkpoint(passive)").fetchall()

    # --- tasks ----------------------------------------------------------------------------------

    def _task(self, work: TaskAction, pace: Pace | None = None, amount: int = 0) -> None:
        """Have the writer carry out `work` in one transaction, then pause.

        Args:
            work: Statements of the transaction.
            pace: Size of tasks of this kind, to adapt.
            amount: Rows that it changes.
        """
        try:
            took = self.journal.tasks.run(work, self._ends)
        except TaskFailed as error:
            raise PruneError(f"the journal cannot be written: {error}") from error
        if pace is not None:
            pace.adapt(took, amount, self._haste)
        self._tasks += 1
        if self._tasks % CHECKPOINT == 0:
            self._checkpoint()
        if self._tasks % HASTE_TASKS == 0:
            self._measure_haste()
        self._pause(took)

    def _measure_haste(self) -> None:
        """Set the haste by the present excess."""
        full = 0 if self._target is None else self._target / TARGET_SHARE * FULL_HASTE
        self._haste = min(1.0, self._excess() / full) if full else 0.0

    def _pause(self, took: float) -> None:
        usual = self._pause_share
        share = usual + (min(usual, HASTY_PAUSE) - usual) * self._haste
        if self._ends.wait(min(1.0, took * share)):
            raise PruneError("the proxy ends", todo="Prune again once it runs")


def _set_rated(ratings: Sequence[tuple[bool, str]], db: sqlite3.Connection, _: TextWriter) -> None:
    """Store whether groups count as rated where that is unknown; an event may be faster."""
    db.executemany("update groups set rated=? where id=? and rated is null", ratings)


def _newest(db: sqlite3.Connection) -> int:
    """Return the number that opened the oldest of the newest groups; 0 if there are fewer."""
    row = db.execute(
        "select opened_seq from groups order by opened_seq desc limit 1 offset ?",
        (KEEP_GROUPS - 1,),
    ).fetchone()
    return 0 if row is None else int(row[0])


def _batches(whole: Sequence[_One], size: int) -> Iterator[list[_One]]:
    rest = iter(whole)
    while some := list(islice(rest, size)):
        yield some
