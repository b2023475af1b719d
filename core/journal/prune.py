"""Pruning: deletion of the oldest part of the journal in the background, in small transactions.

A pruned journal has a `base`, whose snapshot is the state at the last pruned event. State is built
from it and the events after it, so it is the same as before. Before the base only groups remain
that are listed in `groups`: open ones, those of a pinned engine run, those of the inbox, those
rated by a person, and the newest.

One round moves the base on, deletes the groups that are closed by then with their events and the
messages that only they lead to, and the events without a group. Then free pages are released.
Reading happens here, in a thread of its own; each write is a short task of the journal's writer,
between two commits. An interrupted round leaves a valid journal; the next one continues.
"""

import logging
import sqlite3
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import msgspec

from ajet_swarm.common.errors import AjetError
from core.journal import file as journal_file
from core.journal.file import Base, as_json, base_of, last_seq
from core.journal.reader import STATE_VERSION, is_rated
from core.journal.storage import TaskFailed
from core.journal.writer import Journal

log = logging.getLogger(__name__)

Spans = Sequence[tuple[int, int]]
"""First and last numbers of the events of pinned engine runs, in order and without overlap."""
NOT_PINNED = (
    "not exists (select 1 from json_each(?) as span"
    " where opened_seq<=json_extract(span.value, '$[1]')"
    " and coalesce(closed_seq, opened_seq)>=json_extract(span.value, '$[0]'))"
)
"""Condition on a row of `groups`: it was open in none of the spans; its value is their JSON."""

NOT_KEPT = "group_id not in (select value from json_each(?))"
"""Condition on a row of `groups`: it is none of the groups of a JSON list."""
INBOX_BYTES = 200_000_000
"""Bytes of the newest groups of the inbox that are never pruned."""
EVERY = 60.0
"""Seconds between two checks of the size."""
KEEP_GROUPS = 500
"""Number of newest groups, which are in state and never pruned."""
KEEP_EVENTS = 20_000
"""Number of newest events that are never pruned: as many as a follower may read
(`proxy.control.api.REPLAY_CAP`)."""
TARGET_SHARE = 0.95
"""Share of `keep_bytes` to which a journal beyond that limit is pruned."""
ROUND_EVENTS = 1_000
"""Minimum number of events by which a round moves the base."""
ROUND_GROUPS = 1_000
"""Maximum groups that one round deletes."""
ROUND_RATED = 20
"""The same for rated groups: their size is only known afterwards."""
GROUPS, ROWS, PAGES = 16, 200, 32
"""Groups, rows and pages of one task, which then takes some milliseconds."""
PAUSE = 2.0
"""Pause before the next task, as a multiple of the last task's duration."""
SLACK = 256
"""Free pages that are not released: the next events use them."""


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

    @property
    def before(self) -> float:
        """Unix seconds before which events are too old; 0 without a limit."""
        return time.time() - self.days * 86_400 if self.days else 0.0


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
                f"groups, those of pinned runs and of the inbox, the newest {KEEP_GROUPS} and the "
                f"newest {KEEP_EVENTS:,} events"
            )
        return (
            f"deleted {self.groups} groups ({self.rated} rated) and what happened beside them: "
            f"{self.bytes / 1e6:.1f} MB"
        )


def kept_inbox(db: sqlite3.Connection, inbox: Sequence[str]) -> str:
    """Return the groups of the inbox that are not pruned, as the value of `NOT_KEPT`.

    Args:
        db: The journal.
        inbox: Ids of all groups of the inbox, newest last.
    """
    kept, seen, size = list[str](), set[int](), 0
    sql = (
        "select last_message, (select sum(length(cast(data as blob))) from rows"
        " where opened_seq=groups.opened_seq) from groups where group_id=?"
    )
    for group_id in reversed(inbox):
        message, own = db.execute(sql, (group_id,)).fetchone() or (None, 0)
        size += own or 0
        while message is not None and message not in seen:
            seen.add(message)
            row = "select parent, length(zlib) from messages where id=?"
            message, own = db.execute(row, (message,)).fetchone() or (None, 0)
            size += own
        if size > INBOX_BYTES:
            break
        kept.append(group_id)
    return as_json(kept)


class Pruner:
    """Pruner of one open journal.

    Args:
        journal: The journal; only its own writer writes it.
        keep: Limits for the background thread.
        rest: Pause between tasks as a multiple of their duration; 0 if nothing else writes.
        pinned: Returns the spans of the pinned engine runs, whose groups stay; called from the
            pruning thread.
        inbox: Returns the ids of the groups of the inbox, newest last; as `pinned`.
    """

    def __init__(
        self,
        journal: Journal,
        keep: Retention,
        rest: float = PAUSE,
        pinned: Callable[[], Spans] = tuple,
        inbox: Callable[[], Sequence[str]] = list,
    ) -> None:
        self.journal = journal
        self.keep = keep
        self._pinned = pinned
        self._inbox = inbox
        self._rest = rest
        self._ends = threading.Event()
        self._pruning = threading.Lock()
        """Lock that is held while pruning."""
        self._target: int | None = None
        """Used bytes to prune to; None if only the days are limited."""
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
            PruneError: The journal cannot be written now, is being closed, or its damaged
                predecessor is being copied.
            sqlite3.Error: It cannot be read.
        """
        with self._pruning:
            if self.journal.meta("salvage"):
                raise PruneError("the rows of a damaged journal are being copied")
            done, before = PruneResult(), self._size().used
            exceeded = bool(keep.bytes) and before > keep.bytes
            self._target = int(keep.bytes * TARGET_SHARE) if exceeded else None
            self._delete_events()  # left by an interrupted round
            while self._round(keep, done):
                pass
            if done.groups or done.events:
                self._release_pages(keep)
                done.bytes = max(0, before - self._size().used)
                log.info(
                    "pruned the journal: %d events, %d groups (%d rated), %.1f MB",
                    *(done.events, done.groups, done.rated, done.bytes / 1e6),
                )
            return done

    def _round(self, keep: Retention, done: PruneResult) -> bool:
        """Prune one part; return False if nothing is left to do."""
        moved = self._move_base(keep)
        groups, rated = self._select(keep, at_end=not moved)
        for first in range(0, len(groups), GROUPS):
            self._task(partial(_delete_groups, groups[first : first + GROUPS]))
        self._delete_events()
        done.events += moved
        done.groups += len(groups)
        done.rated += len(groups) if rated else 0
        return bool(moved or groups)

    def _excess(self) -> int:
        """Return the used bytes beyond the target."""
        return 0 if self._target is None else max(0, self._size().used - self._target)

    def _size(self) -> Size:
        with self.journal.reading() as db:
            return Size.of(db)

    # --- the base -------------------------------------------------------------------------------

    def _move_base(self, keep: Retention) -> int:
        """Move the base on; return the number of events."""
        excess, before = self._excess(), keep.before
        with self.journal.reading() as db:
            base = base_of(db) or Base(0, 0.0, 0)
            end = last_seq(db)
            last = min(end - KEEP_EVENTS, (newest_from(db) or end) - 1)
            seq = base.seq
            if excess:  # half of the share, because the messages of an event may be of any size
                share = excess / (2 * Size.of(db).used)
                seq = min(last, base.seq + max(ROUND_EVENTS, int((end - base.seq) * share)))
            if before:
                sql = "select seq from rows where seq>? and at>=? order by seq limit 1"
                young = db.execute(sql, (base.seq, before)).fetchone()
                seq = max(seq, min(last, young[0] - 1 if young else last))
            if seq <= base.seq:
                return 0
            sql = "select max(at) from rows where seq>? and seq<=?"
            at = db.execute(sql, (base.seq, seq)).fetchone()[0] or base.at
        state = self.journal.load_state(seq, lambda _: self._pause(0.01))
        state.seq = seq
        data = zlib.compress(msgspec.json.encode(state), 1)

        def work(db: sqlite3.Connection) -> None:
            db.execute("delete from snapshots where seq<=?", (seq,))
            db.execute("insert into snapshots values (?,?,?)", (seq, STATE_VERSION, data))
            _set_base(db, Base(seq, at, base.groups))

        self._task(work)
        return seq - base.seq

    # --- groups and events ----------------------------------------------------------------------

    def _select(self, keep: Retention, *, at_end: bool) -> tuple[list[str], bool]:
        """Return the groups to delete, and whether they are rated: all unrated ones go first.

        Args:
            keep: The limits.
            at_end: Whether the base has reached its last place.
        """
        with self.journal.reading() as db:
            base = base_of(db)
            if base is None:
                return [], False
            sql = (
                "select group_id from groups where closed_seq<=? and opened_seq<?"
                f" and {NOT_PINNED} and {NOT_KEPT} and {{}} order by opened_seq limit ?"
            )
            kept = kept_inbox(db, self._inbox())
            values = (base.seq, newest_from(db), as_json(self._pinned()), kept)
            unknown = db.execute(sql.format("rated is null"), (*values, ROUND_GROUPS)).fetchall()
            ratings = [(is_rated(db, group_id), group_id) for (group_id,) in unknown]
            if ratings:
                self._task(partial(_set_rated, ratings))
            rows = db.execute(sql.format("rated=0"), (*values, ROUND_GROUPS)).fetchall()
            if rows:
                return [row[0] for row in rows], False
            if at_end and self._excess():
                rows = db.execute(sql.format("rated=1"), (*values, ROUND_RATED)).fetchall()
            elif keep.rated and keep.days:
                old = "rated=1 and (select at from rows where seq=groups.opened_seq)<?"
                rows = db.execute(sql.format(old), (*values, keep.before, ROUND_RATED)).fetchall()
            return [row[0] for row in rows], True

    def _delete_events(self) -> None:
        """Delete the events up to the base that belong to no group."""
        changed = [1]

        def work(db: sqlite3.Connection) -> None:
            base = base_of(db)
            changed[0] = db.execute(
                "delete from rows where seq in"
                " (select seq from rows where opened_seq is null and seq<=? limit ?)",
                (base.seq if base else 0, ROWS),
            ).rowcount

        while changed[0]:
            self._task(work)

    # --- pages ----------------------------------------------------------------------------------

    def _release_pages(self, keep: Retention) -> None:
        """Shrink the file by its free pages, last ones first.

        A file that was pruned for its size keeps the pages that do not exceed the limit: the next
        events need them.
        """
        slack = SLACK
        if self._target is not None:
            slack = max(slack, (keep.bytes - self._target) // journal_file.PAGE)
        while (free := self._size().free // journal_file.PAGE) > slack:
            self._task(partial(_release, min(PAGES, free - slack)))

    # --- tasks ----------------------------------------------------------------------------------

    def _task(self, work: Callable[[sqlite3.Connection], None]) -> None:
        """Have the writer carry out `work` in one transaction, then pause."""
        try:
            took = self.journal.run(work, self._ends)
        except TaskFailed as error:
            raise PruneError(f"the journal cannot be written: {error}") from error
        self._pause(took)

    def _pause(self, took: float) -> None:
        if self._ends.wait(min(1.0, took * self._rest)):
            raise PruneError("the proxy ends", todo="Prune again once it runs")


def _delete_groups(group_ids: Sequence[str], db: sqlite3.Connection) -> None:
    """Delete groups with their events, and the messages that only they lead to."""
    for group_id in group_ids:
        sql = "delete from groups where group_id=? returning opened_seq, last_message"
        opened, message = db.execute(sql, (group_id,)).fetchone() or (None, None)
        db.execute("delete from rows where opened_seq=?", (opened,))
        while message is not None and not db.execute(_LEADS_TO, (message, message)).fetchone():
            sql = "delete from messages where id=? returning parent"
            (message,) = db.execute(sql, (message,)).fetchone() or (None,)
    base = base_of(db)
    assert base is not None
    _set_base(db, msgspec.structs.replace(base, groups=base.groups + len(group_ids)))


_LEADS_TO = (
    "select 1 from groups where last_message=? union all select 1 from messages where parent=?"
)


def _set_base(db: sqlite3.Connection, base: Base) -> None:
    db.execute("insert or replace into meta values ('base', ?)", (as_json(base),))


def _set_rated(ratings: Iterable[tuple[bool, str]], db: sqlite3.Connection) -> None:
    """Store whether groups count as rated where that is unknown; an event may be faster."""
    db.executemany("update groups set rated=? where group_id=? and rated is null", ratings)


def _release(pages: int, db: sqlite3.Connection) -> None:
    """Release free pages by moving the last pages of the file to their places."""
    for _ in range(pages):  # `sqlite3` stops at its first row: one page, whatever the argument
        db.execute("pragma incremental_vacuum(1)")


def newest_from(db: sqlite3.Connection) -> int:
    """Return the number that opened the oldest of the newest groups; 0 if there are fewer."""
    row = db.execute(
        "select opened_seq from groups order by opened_seq desc limit 1 offset ?",
        (KEEP_GROUPS - 1,),
    ).fetchone()
    return 0 if row is None else int(row[0])
