"""How events lie in the journal's file.

A row of `events` holds what one commit brought, as lines of JSON in order, under the number of its
last event; rows that are one event are read the same way. An index entry for each event would cost
more than everything else, so the events of a group are found by its first and last number, and
what came after its end by `late`.
"""

import logging
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from core.events import AnyEvent, Event, GroupClosed, GroupEvent, GroupOpened, decode, encode_lines

log = logging.getLogger(__name__)

SCHEMA = 2
ROW_BYTES = 1 << 20
"""A row is closed once it is as large."""
PAGE = 8192

TABLES = """
create table if not exists meta(key text primary key, value text not null);
create table if not exists events(
    seq integer primary key, kind text not null, group_id text, data blob not null);
create index if not exists events_by_group on events(group_id) where group_id is not null;
create table if not exists groups(
    id text primary key, opened_seq integer not null, opened_at real not null,
    phase text not null, cause text not null, query text not null, closed_seq integer);
create index if not exists groups_by_seq on groups(opened_seq);
create table if not exists late(group_id text not null, seq integer not null);
create index if not exists late_by_group on late(group_id);
create table if not exists snapshots(
    seq integer primary key, version integer not null, state blob not null);
"""

_ROWS = "select seq, cast(data as blob) from events"
_OPEN = "QUEUED"
"""Phase of a group in `groups` until it is closed."""


def prepare(db: sqlite3.Connection, found: int) -> None:
    """Make the tables, or bring those of an older version up to date: all of it, or nothing."""
    older = "alter table groups add column closed_seq integer;" if found == 1 else ""
    known = "" if found == SCHEMA else f"pragma user_version={SCHEMA};"
    # One transaction, so one wait for the disk. Where one is open at an error, closing ends it.
    db.executescript(f"begin immediate; {older} {TABLES} {known} commit")


def open_ids(db: sqlite3.Connection) -> set[str]:
    """Groups that are not closed."""
    return {row[0] for row in db.execute("select id from groups where phase=?", (_OPEN,))}


_INTAKE = f"""
create temp view if not exists intake as
    select 0 as seq, '' as data, '' as late, '' as begun, '' as ended;
create temp trigger if not exists take instead of insert on intake begin
    insert into events values (new.seq, 'events', null, new.data);
    insert into late select value, new.seq from json_each(new.late);
    insert or replace into groups
        select json_extract(value, '$[0]'), json_extract(value, '$[1]'),
            json_extract(value, '$[2]'), '{_OPEN}', '', json_extract(value, '$[3]'), null
        from json_each(new.begun);
    update groups set phase = told.phase, cause = told.cause, closed_seq = told.seq
        from (
            select json_extract(value, '$[0]') as id, json_extract(value, '$[1]') as phase,
                json_extract(value, '$[2]') as cause, json_extract(value, '$[3]') as seq
            from json_each(new.ended)
        ) as told
        where groups.id = told.id;
end;
"""
"""What one commit brings goes in by one statement.

Each statement gives the interpreter's lock away several times and has to wait until it gets it
back, which costs the threads on both sides of it more than the statement.
"""


def open_intake(db: sqlite3.Connection) -> None:
    """Make a connection the one that writes; it is in autocommit mode from then on."""
    db.isolation_level = None
    db.executescript(_INTAKE)


class Packer:
    """Packs the events of one commit into as few statements as can be, mostly one.

    Args:
        opened: Ids of groups that are not closed; kept up to date.
    """

    def __init__(self, opened: set[str]) -> None:
        self._opened = opened
        self._events: list[Event] = []
        self._late: list[tuple[str, int]] = []
        """Events of groups that are closed: group and number."""
        self._begun: list[tuple[str, int, float, str]] = []
        self._ended: list[tuple[str, str, str, int]] = []
        self.last = 0
        """Number of the newest event."""

    def add(self, event: Event) -> None:
        """One event more."""
        self._events.append(event)
        self.last = seq = event.seq
        if not isinstance(event, GroupEvent):
            return
        name = event.group_id
        if isinstance(event, GroupOpened):
            self._opened.add(name)
            self._begun.append((name, seq, event.at, event.query[:200]))
        elif name not in self._opened:
            self._late.append((name, seq))
        elif isinstance(event, GroupClosed):
            self._opened.discard(name)
            self._ended.append((name, event.phase, event.cause, seq))

    def finish(self, db: sqlite3.Connection, *, alone: bool = True) -> None:
        """Write and commit them.

        Args:
            db: One of `open_intake`.
            alone: Nothing else is to be committed with them; else a transaction has begun.
        """
        if not self._events:
            return
        rows = self._rows()
        if alone and len(rows) > 1:
            db.execute("begin")
        begun, ended = _json(self._begun), _json(self._ended)  # in order, with the last row
        first = 0
        for number, data in rows:
            late = {name for name, seq in self._late if first < seq <= number}
            last = number == self.last
            values = (number, data, _json(sorted(late)))
            groups = (begun, ended) if last else ("[]", "[]")
            db.execute("insert into intake values (?,?,?,?,?)", values + groups)
            first = number
        if alone and len(rows) > 1:
            db.execute("commit")

    def _rows(self) -> list[tuple[int, bytes]]:
        """Rows of `events`, number and data; one is closed once it is as large as `ROW_BYTES`."""
        data = encode_lines(self._events)
        if len(data) < ROW_BYTES:
            return [(self.last, data[:-1])]
        rows: list[tuple[int, bytes]] = []
        lines: list[bytes] = []
        size = 0
        for event, line in zip(self._events, data.split(b"\n"), strict=False):
            lines.append(line)
            size += len(line)
            if size >= ROW_BYTES or event.seq == self.last:
                rows.append((event.seq, b"\n".join(lines)))
                lines, size = [], 0
        return rows


def _json(rows: Sequence[Any]) -> str:
    return msgspec.json.encode(rows).decode() if rows else "[]"


# --- reading ------------------------------------------------------------------------------------


def events_after(db: sqlite3.Connection, after: int, limit: int) -> list[AnyEvent]:
    """Up to `limit` events with `seq` above `after`, in order; unreadable ones are left out."""
    found: list[AnyEvent] = []
    rows = db.execute(_ROWS + " where seq>? order by seq", (after,))
    for seq, data in rows:
        found += [event for event in decoded(seq, data.split(b"\n")) if event.seq > after]
        if len(found) >= limit:
            break
    return found[:limit]


def events_of(db: sqlite3.Connection, group_id: str) -> list[AnyEvent]:
    """All events of one group, in order; unreadable ones are left out."""
    needle = msgspec.json.encode(group_id)
    lines: dict[int, list[bytes]] = {}
    for seq, data in _rows_of(db, group_id):
        if needle in data:
            lines[seq] = [line for line in data.split(b"\n") if needle in line]
    found: list[AnyEvent] = []
    for seq in sorted(lines):
        for event in decoded(seq, lines[seq]):
            if isinstance(event, GroupEvent) and event.group_id == group_id:
                found.append(event)
    return found


def _rows_of(db: sqlite3.Connection, group_id: str) -> Iterator[tuple[int, bytes]]:
    """Rows in which events of a group may lie, some perhaps twice."""
    yield from db.execute(_ROWS + " where group_id=?", (group_id,))
    known = db.execute(
        "select opened_seq, closed_seq, phase from groups where id=?", (group_id,)
    ).fetchone()
    if known is not None:
        opened, closed, phase = known
        if closed is not None:
            last = "select min(seq) from events where seq>=?"
            yield from db.execute(f"{_ROWS} where seq>=? and seq<=({last})", (opened, closed))
        elif phase == _OPEN:
            yield from db.execute(_ROWS + " where seq>=?", (opened,))
    late = "select seq from late where group_id=?"
    yield from db.execute(f"{_ROWS} where seq in ({late})", (group_id,))


def last_seq(db: sqlite3.Connection) -> int:
    """Number of the newest event; 0 when there is none."""
    return int(db.execute("select coalesce(max(seq), 0) from events").fetchone()[0])


def first_seq(db: sqlite3.Connection) -> int:
    """Number of the oldest event; 0 when there is none."""
    row = db.execute(_ROWS + " order by seq limit 1").fetchone()
    if row is None:
        return 0
    return next((event.seq for event in decoded(row[0], row[1].split(b"\n"))), int(row[0]))


def decoded(seq: int, lines: Iterable[bytes]) -> Iterator[AnyEvent]:
    """The events of one row; what this program does not know is left out."""
    for line in lines:
        try:
            yield decode(line)
        except msgspec.MsgspecError as error:
            log.warning("journal row %s has an event this program does not know: %s", seq, error)
