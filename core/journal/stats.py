"""Size of a journal, preview of pruning, and check that every row is readable."""

import sqlite3
import time

import msgspec

from core.journal import storage
from core.journal.pinned import NOT_PINNED, Spans, spans_json
from core.journal.prune import KEEP_GROUPS, Retention, Size
from core.journal.texts import UNDECODABLE, references_of, unpacked, without_texts

_ROWS = "select seq, cast(data as blob) from events where seq>? order by seq limit 50"


class JournalStats(msgspec.Struct, frozen=True, kw_only=True):
    """Counts and sizes; sizes in bytes, times in Unix seconds."""

    schema: int
    events: int
    """Number of events that are not pruned."""
    groups: int
    rated: int
    """Groups rated, edited, marked or noted by a person, without those whose events have to be read
    for it, see `core.journal.rated`."""
    pinned: int
    """Groups of pinned engine runs, which are never pruned."""
    open: int
    used: int
    """Bytes of the file in use."""
    free: int
    """Bytes of the file that the next events reuse."""
    rows: int
    """Bytes of the stored rows of events."""
    texts: int
    text_bytes: int
    oldest: float
    """Opening time of the oldest group; 0 without one."""
    newest: float
    pruned_groups: int
    pruned_until: float
    """Time of the newest pruned event; 0 if nothing was pruned."""


def journal_stats(db: sqlite3.Connection, pinned: Spans = ()) -> JournalStats:
    """Return counts and sizes of an open journal.

    Args:
        db: The journal.
        pinned: Spans of the pinned engine runs.
    """

    def one(sql: str) -> int:
        return int(db.execute(sql).fetchone()[0] or 0)

    schema, base, size = one("pragma user_version"), storage.base_of(db), Size.of(db)
    free = db.execute(f"select count(*) from groups where {NOT_PINNED}", (spans_json(pinned),))
    times = db.execute("select min(opened_at), max(opened_at) from groups").fetchone()
    return JournalStats(
        schema=schema,
        events=storage.last_seq(db) - (base.seq if base else 0),
        groups=one("select count(*) from groups"),
        rated=one("select count(*) from groups where rated=1"),
        pinned=one("select count(*) from groups") - int(free.fetchone()[0]),
        open=len(storage.open_ids(db)),
        used=size.used,
        free=size.free,
        rows=one("select sum(length(data)) from events"),
        texts=one("select count(*) from texts"),
        text_bytes=one("select sum(length(data)) from texts"),
        oldest=float(times[0] or 0),
        newest=float(times[1] or 0),
        pruned_groups=base.groups if base else 0,
        pruned_until=base.at if base else 0.0,
    )


class PrunePlan(msgspec.Struct, frozen=True, kw_only=True):
    """Preview of what pruning deletes."""

    by_age: int
    """Groups older than the given days."""
    rated: int
    """Rated groups among them."""
    excess: int
    """Bytes in use beyond the limit."""
    share: float
    """Estimated share of the groups to delete for that, oldest first; 0 to 1."""

    @property
    def nothing(self) -> bool:
        """Whether the journal is within its limits."""
        return not self.by_age and not self.excess


def plan_pruning(db: sqlite3.Connection, keep: Retention, pinned: Spans = ()) -> PrunePlan:
    """Return what pruning would delete; the newest, open and pinned groups are never deleted.

    Args:
        db: The journal.
        keep: The limits.
        pinned: Spans of the pinned engine runs.
    """
    rated = "ifnull(rated, 0)"
    row = db.execute(
        "select opened_seq from groups order by opened_seq desc limit 1 offset ?",
        (KEEP_GROUPS - 1,),
    ).fetchone()
    groups, of_them = 0, 0
    if row is not None and keep.days:
        before = time.time() - keep.days * 86_400
        groups, of_them = db.execute(
            f"select count(*), coalesce(sum({rated}), 0) from groups"
            f" where opened_at<? and opened_seq<? and phase<>'QUEUED' and (? or not {rated})"
            f" and {NOT_PINNED}",
            (before, row[0], keep.rated, spans_json(pinned)),
        ).fetchone()
    used = Size.of(db).used
    excess = max(0, used - keep.bytes) if keep.bytes else 0
    return PrunePlan(
        by_age=groups, rated=of_them, excess=excess, share=min(1.0, excess / max(used, 1))
    )


class RowCheck(msgspec.Struct, frozen=True, kw_only=True):
    """Result of reading every row of a journal."""

    events: int
    unreadable: int
    """Damaged rows of events, or lines in them."""
    lost_texts: int
    """Texts referenced by events that are missing or damaged."""

    @property
    def ok(self) -> bool:
        """Whether everything is readable."""
        return not self.unreadable and not self.lost_texts


def check_rows(db: sqlite3.Connection) -> RowCheck:
    """Read every row of events and every text, a few at a time so as not to block the writer."""
    present = set[int]()
    after = 0
    sql = "select id, data from texts where id>? order by id limit 200"
    while rows := db.execute(sql, (after,)).fetchall():
        present.update(number for number, data in rows if _reads(data))
        after = rows[-1][0]
    events = unreadable = after = 0
    named = set[int]()
    while rows := db.execute(_ROWS, (after,)).fetchall():
        after = rows[-1][0]
        for _, data in rows:
            if not _reads(data):
                unreadable += 1
                continue
            for line in unpacked(data).split(b"\n"):
                try:
                    msgspec.json.decode(without_texts(line), type=dict)
                except UNDECODABLE:
                    unreadable += 1
                else:
                    events += 1
                    named.update(references_of(line))
    return RowCheck(events=events, unreadable=unreadable, lost_texts=len(named - present))


def _reads(data: bytes) -> bool:
    try:
        unpacked(data)
    except ValueError:
        return False
    return True
