"""Size of a journal, preview of pruning, and check that every row is readable."""

import sqlite3
from collections.abc import Sequence

import msgspec

from core.journal.file import as_json, base_of, last_seq, unpacked
from core.journal.messages import Reference
from core.journal.prune import (
    NOT_KEPT,
    NOT_PINNED,
    Retention,
    Size,
    Spans,
    kept_inbox,
    newest_from,
)
from core.journal.reader import UNDECODABLE

AT_ONCE = 200
"""Rows read at a time, so as not to block the writer."""


class JournalStats(msgspec.Struct, frozen=True, kw_only=True):
    """Counts and sizes; sizes in bytes, times in Unix seconds."""

    schema: int
    events: int
    """Number of events that are not pruned."""
    groups: int
    rated: int
    """Groups rated, edited, marked or noted by a person, without those whose events have to be read
    for it, see `core.journal.file`."""
    pinned: int
    """Groups of pinned engine runs, which are never pruned."""
    open: int
    used: int
    """Bytes of the file in use."""
    free: int
    """Bytes of the file that the next events reuse."""
    rows: int
    """Bytes of the events as they are stored."""
    messages: int
    message_bytes: int
    """Bytes of the messages as they are stored."""
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

    schema, base, size = one("pragma user_version"), base_of(db), Size.of(db)
    free = db.execute(f"select count(*) from groups where {NOT_PINNED}", (as_json(pinned),))
    at = "(select at from rows where seq=(select {}(opened_seq) from groups))"
    times = db.execute(f"select {at.format('min')}, {at.format('max')}").fetchone()
    return JournalStats(
        schema=schema,
        events=last_seq(db) - (base.seq if base else 0),
        groups=one("select count(*) from groups"),
        rated=one("select count(*) from groups where rated=1"),
        pinned=one("select count(*) from groups") - int(free.fetchone()[0]),
        open=one("select count(*) from groups where closed_seq is null"),
        used=size.used,
        free=size.free,
        rows=one("select sum(length(cast(data as blob))) from rows"),
        messages=one("select count(*) from messages"),
        message_bytes=one("select sum(length(zlib)) from messages"),
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


def plan_pruning(
    db: sqlite3.Connection, keep: Retention, pinned: Spans = (), inbox: Sequence[str] = ()
) -> PrunePlan:
    """Return what pruning would delete; the newest, open, pinned and inbox groups are never
    deleted.

    Args:
        db: The journal.
        keep: The limits.
        pinned: Spans of the pinned engine runs.
        inbox: Ids of the groups of the inbox, newest last.
    """
    rated, at = "ifnull(rated, 0)", "(select at from rows where seq=groups.opened_seq)"
    groups = of_them = 0
    if keep.days:
        groups, of_them = db.execute(
            f"select count(*), coalesce(sum({rated}), 0) from groups"
            f" where {at}<? and opened_seq<? and closed_seq is not null and (? or not {rated})"
            f" and {NOT_PINNED} and {NOT_KEPT}",
            (keep.before, newest_from(db), keep.rated, as_json(pinned), kept_inbox(db, inbox)),
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
    """Damaged events."""
    lost_messages: int
    """Messages that a request or another message leads to, and that are missing or damaged."""

    @property
    def ok(self) -> bool:
        """Whether everything is readable."""
        return not self.unreadable and not self.lost_messages


def check_rows(db: sqlite3.Connection) -> RowCheck:
    """Read every event and every message."""
    present, named = set[int](), set[int]()
    after = 0
    sql = "select id, parent, size, zlib from messages where id>? order by id limit ?"
    while rows := db.execute(sql, (after, AT_ONCE)).fetchall():
        after = rows[-1][0]
        named.update(parent for _, parent, _, _ in rows if parent is not None)
        present.update(number for number, _, size, data in rows if _reads(data, size))
    events = unreadable = after = 0
    sql = "select seq, cast(json as blob) from events where seq>? order by seq limit ?"
    while rows := db.execute(sql, (after, AT_ONCE)).fetchall():
        after = rows[-1][0]
        for _, row in rows:
            try:
                reference = msgspec.json.decode(row, type=Reference)
            except UNDECODABLE:
                unreadable += 1
            else:
                events += 1
                named.add(reference.last_message)
    lost = len(named - present - {0})
    return RowCheck(events=events, unreadable=unreadable, lost_messages=lost)


def _reads(data: bytes, size: int) -> bool:
    try:
        msgspec.json.decode(unpacked(data, size))
    except (ValueError, msgspec.MsgspecError):
        return False
    return True
