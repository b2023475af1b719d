"""What a journal has and how large that is; what pruning would delete; whether all of it reads."""

import sqlite3
import time

import msgspec

from core.journal import storage
from core.journal.prune import KEEP_GROUPS, Retention, Size
from core.journal.texts import references_of, unpacked, without_texts

_ROWS = "select seq, cast(data as blob) from events where seq>? order by seq limit 50"


class JournalStats(msgspec.Struct, frozen=True, kw_only=True):
    """Counts and sizes; sizes in bytes, times in Unix seconds."""

    schema: int
    events: int
    """Since the journal's beginning, or since the last one that was pruned."""
    groups: int
    rated: int
    """Of the groups, those rated, marked or noted by a person."""
    open: int
    used: int
    """Of the file."""
    free: int
    """Pages of the file that the next events take."""
    rows: int
    """Rows of events, as stored."""
    texts: int
    text_bytes: int
    oldest: float
    """When the oldest group was opened; 0 without one."""
    newest: float
    pruned_groups: int
    pruned_until: float
    """When the newest pruned event happened; 0 when nothing was pruned."""
    shrinks: bool
    """Free pages are given back; else they are only used again."""


def journal_stats(db: sqlite3.Connection) -> JournalStats:
    """Count what is there."""

    def one(sql: str) -> int:
        return int(db.execute(sql).fetchone()[0] or 0)

    schema, base, size = one("pragma user_version"), storage.base_of(db), Size.of(db)
    new = schema >= 3
    times = db.execute("select min(opened_at), max(opened_at) from groups").fetchone()
    return JournalStats(
        schema=schema,
        events=storage.last_seq(db) - (base.seq if base else 0),
        groups=one("select count(*) from groups"),
        rated=one("select count(*) from groups where rated=1") if new else 0,
        open=len(storage.open_ids(db)),
        used=size.used,
        free=size.free,
        rows=one("select sum(length(data)) from events"),
        texts=one("select count(*) from texts") if new else 0,
        text_bytes=one("select sum(length(data)) from texts") if new else 0,
        oldest=float(times[0] or 0),
        newest=float(times[1] or 0),
        pruned_groups=base.groups if base else 0,
        pruned_until=base.at if base else 0.0,
        shrinks=one("pragma auto_vacuum") == 2,
    )


class PrunePlan(msgspec.Struct, frozen=True, kw_only=True):
    """What pruning would delete."""

    by_age: int
    """Groups that are older than the days given."""
    rated: int
    """Of those, rated ones."""
    excess: int
    """Bytes in use beyond the limit."""
    share: float
    """About which share of the groups that frees as much, the oldest first; 0 to 1."""

    @property
    def nothing(self) -> bool:
        """All is within the limits."""
        return not self.by_age and not self.excess


def plan_pruning(db: sqlite3.Connection, keep: Retention) -> PrunePlan:
    """What pruning would delete, without the newest groups and open ones."""
    rated = "ifnull(rated, 0)" if db.execute("pragma user_version").fetchone()[0] >= 3 else "0"
    row = db.execute(
        "select opened_seq from groups order by opened_seq desc limit 1 offset ?",
        (KEEP_GROUPS - 1,),
    ).fetchone()
    groups, of_them = 0, 0
    if row is not None and keep.days:
        before = time.time() - keep.days * 86_400
        groups, of_them = db.execute(
            f"select count(*), coalesce(sum({rated}), 0) from groups"
            f" where opened_at<? and opened_seq<? and phase<>'QUEUED' and (? or not {rated})",
            (before, row[0], keep.rated),
        ).fetchone()
    used = Size.of(db).used
    excess = max(0, used - keep.bytes) if keep.bytes else 0
    return PrunePlan(
        by_age=groups, rated=of_them, excess=excess, share=min(1.0, excess / max(used, 1))
    )


class RowCheck(msgspec.Struct, frozen=True, kw_only=True):
    """What reading each row of a journal has shown."""

    events: int
    unreadable: int
    """Rows of events, or lines of them, that are damaged."""
    lost_texts: int
    """Texts that events name and that are missing or damaged."""

    @property
    def ok(self) -> bool:
        """Everything reads."""
        return not self.unreadable and not self.lost_texts


def check_rows(db: sqlite3.Connection) -> RowCheck:
    """Read every row of events and every text; a few at a time, so that writing goes on."""
    there = set[int]()
    if db.execute("select 1 from sqlite_master where name='texts'").fetchone() is not None:
        after = 0
        sql = "select id, data from texts where id>? order by id limit 200"
        while rows := db.execute(sql, (after,)).fetchall():
            there.update(number for number, data in rows if _reads(data))
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
                except msgspec.MsgspecError:
                    unreadable += 1
                else:
                    events += 1
                    named.update(references_of(line))
    return RowCheck(events=events, unreadable=unreadable, lost_texts=len(named - there))


def _reads(data: bytes) -> bool:
    try:
        unpacked(data)
    except ValueError:
        return False
    return True
