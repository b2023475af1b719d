"""Tables of the journal's file, and how events are stored in them.

A row of `events` holds the events of one commit as lines of JSON, in order, under the number of the
last one; a row of a single event has the same form. An index entry per event would cost more than
everything else: the events of a group are found between its first and last number, and those after
its end by the table `late`.

Rows are compressed and their long texts are in `texts`, see `core.journal.texts`; `base` has the
state at the last pruned event, see `core.journal.prune`.
"""

import contextlib
import logging
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from ajet_swarm.common.text import one_line
from core.events import (
    AnyEvent,
    CandidatesAnswered,
    Event,
    GroupClosed,
    GroupEvent,
    GroupOpened,
    ProxyStarted,
    decode,
    encode_lines,
)
from core.journal.rated import CHANGES_RATED, rated_after
from core.journal.texts import UNDECODABLE, TextReader, TextWriter, lines_in, packed
from core.version import version

log = logging.getLogger(__name__)

SCHEMA = 4
"""A journal of another schema is refused."""
ROW_BYTES = 1 << 20
"""Size at which a row is closed."""
PAGE = 8192

TABLES = """
create table if not exists meta(key text primary key, value text not null);
create table if not exists events(seq integer primary key, data blob not null);
create table if not exists groups(
    id text primary key, opened_seq integer not null, opened_at real not null,
    phase text not null, cause text not null, query text not null, closed_seq integer,
    rated integer);
create index if not exists groups_by_seq on groups(opened_seq);
create table if not exists late(group_id text not null, seq integer not null);
create index if not exists late_by_group on late(group_id);
create table if not exists snapshots(
    seq integer primary key, version integer not null, state blob not null);
create table if not exists texts(id integer primary key, data blob not null);
create table if not exists text_index(
    hash blob primary key, id integer not null, used integer not null) without rowid;
create table if not exists pins(
    text integer not null, seq integer not null, primary key(text, seq)) without rowid;
create table if not exists base(
    seq integer primary key, at real not null, groups integer not null, state blob not null);
"""
_TEXTS = frozenset({GroupOpened, CandidatesAnswered})
"""Events that may have long texts."""
_RATED = frozenset(CHANGES_RATED)
_MARKS = frozenset({GroupOpened, GroupClosed, *_RATED})
"""Events that change their group's row in `groups`."""

_ROWS = "select seq, cast(data as blob) from events"
_OPEN = "QUEUED"
"""Phase of a group in `groups` until it is closed."""


def prepare(db: sqlite3.Connection, from_version: int) -> None:
    """Create the tables of a new file in one transaction."""
    set_version = "" if from_version == SCHEMA else f"pragma user_version={SCHEMA};"
    set_program = (
        f"insert or replace into meta values('written_by', '{version()}');" if set_version else ""
    )
    # One transaction, so one wait for the disk. Closing ends a transaction left open by an error.
    db.executescript(f"begin immediate; {TABLES} {set_program} {set_version} commit")


def begin_file(db: sqlite3.Connection) -> None:
    """Set options that must precede the first table; does nothing for a file that has one."""
    if db.execute("pragma page_count").fetchone()[0]:
        return
    db.execute(f"pragma page_size={PAGE}")
    db.execute("pragma auto_vacuum=incremental")


def refusal(db: sqlite3.Connection, file_version: int) -> str:
    """Return why a journal of this version, which is not `SCHEMA`, cannot be read."""
    by = ""
    with contextlib.suppress(sqlite3.Error):  # the table may be missing
        row = db.execute("select value from meta where key='written_by'").fetchone()
        by = f", written by ajet-console {one_line(str(row[0]), 20)}" if row else ""
    return (
        f"the journal is of version {file_version}{by}; this program, ajet-console {version()}, "
        f"reads version {SCHEMA}"
    )


def open_ids(db: sqlite3.Connection) -> set[str]:
    """Return the ids of the groups that are not closed."""
    return {row[0] for row in db.execute("select id from groups where phase=?", (_OPEN,))}


_STAGING = f"""
create temp view if not exists staging as
    select 0 as seq, '' as data, '' as late, '' as begun, '' as ended, '' as rated,
        '' as numbers, '' as hashes, '' as texts;
create temp trigger if not exists take instead of insert on staging begin
    insert into texts
        select json_extract(value, '$[0]'),
            substr(new.texts, json_extract(value, '$[1]'), json_extract(value, '$[2]'))
        from json_each(new.numbers);
    insert into text_index
        select substr(new.hashes, key * 16 + 1, 16), json_extract(value, '$[0]'),
            json_extract(value, '$[3]')
        from json_each(new.numbers);
    insert into events values (new.seq, new.data);
    insert into late select value, new.seq from json_each(new.late);
    insert or replace into groups
        select json_extract(value, '$[0]'), json_extract(value, '$[1]'),
            json_extract(value, '$[2]'), '{_OPEN}', '', json_extract(value, '$[3]'), null, 0
        from json_each(new.begun);
    update groups set phase = ended.phase, cause = ended.cause, closed_seq = ended.seq
        from (
            select json_extract(value, '$[0]') as id, json_extract(value, '$[1]') as phase,
                json_extract(value, '$[2]') as cause, json_extract(value, '$[3]') as seq
            from json_each(new.ended)
        ) as ended
        where groups.id = ended.id;
    update groups set rated = marked.rated
        from (
            select json_extract(value, '$[0]') as id, json_extract(value, '$[1]') as rated
            from json_each(new.rated)
        ) as marked
        where groups.id = marked.id;
end;
"""
"""A view whose insert trigger writes a whole commit by one statement.

Each statement releases the interpreter's lock several times and waits to get it back, which costs
more than the statement itself.
"""


def prepare_writer(db: sqlite3.Connection) -> None:
    """Prepare a connection for writing; it is in autocommit mode from then on."""
    db.isolation_level = None
    db.executescript(_STAGING)


class Packer:
    """Packs the events of one commit into as few statements as possible, mostly one.

    Args:
        opened: Ids of groups that are not closed; updated.
        texts: Store of the long texts.
    """

    def __init__(self, opened: set[str], texts: TextWriter) -> None:
        self._opened = opened
        self._texts = texts
        self._events: list[Event] = []
        self._late: list[tuple[str, int]] = []
        """Events of closed groups: group and number."""
        self._begun: list[tuple[str, int, float, str]] = []
        self._ended: list[tuple[str, str, str, int]] = []
        self._rated: dict[str, int | None] = {}
        """See `core.journal.rated`."""
        self.last = 0
        """Number of the newest event."""

    def add(self, event: Event) -> None:
        """Add one event."""
        self._events.append(event)
        self.last = seq = event.seq
        if not isinstance(event, GroupEvent):
            return
        name, kind = event.group_id, type(event)
        if kind not in _MARKS:
            if name not in self._opened:
                self._late.append((name, seq))
            return
        if kind in _RATED:
            self._rated[name] = rated_after(event)
        if isinstance(event, GroupOpened):
            self._opened.add(name)
            self._begun.append((name, seq, event.at, event.shown_query[:200]))
        elif name not in self._opened:
            self._late.append((name, seq))
        elif isinstance(event, GroupClosed):
            self._opened.discard(name)
            self._ended.append((name, event.phase, event.cause, seq))

    def finish(self, db: sqlite3.Connection, *, alone: bool = True) -> None:
        """Write and commit the events.

        Args:
            db: Connection from `prepare_writer`.
            alone: Whether nothing else is committed with them; else a transaction is open.
        """
        if not self._events:
            return
        rows = self._rows()
        used = self._texts.take_used()
        several = alone and (len(rows) > 1 or bool(used))
        if several:
            db.execute("begin")
        if used:
            db.executemany("update text_index set used=? where hash=?", used)
        rated = [*self._rated.items()]
        ends = (_json(self._begun), _json(self._ended), _json(rated))  # with the last row
        texts = self._texts.take()  # with the first one
        first = 0
        for number, data in rows:
            late = {name for name, seq in self._late if first < seq <= number}
            groups = ends if number == self.last else ("[]", "[]", "[]")
            values = (number, data, _json(sorted(late)), *groups, *texts)
            db.execute("insert into staging values (?,?,?,?,?,?,?,?,?)", values)
            first, texts = number, ("[]", b"", b"")
        if several:
            db.execute("commit")

    def _rows(self) -> list[tuple[int, bytes]]:
        """Return the rows of `events`: number and data, of about `ROW_BYTES` at most."""
        events, lines = self._events, encode_lines(self._events).split(b"\n")
        long = [at for at, event in enumerate(events) if type(event) in _TEXTS]
        self._texts.look_up([(events[at], lines[at]) for at in long])
        for at in long:
            lines[at] = self._texts.shortened(lines[at], events[at])
        rows: list[tuple[int, bytes]] = []
        size = first = 0
        for at, event in enumerate(events):
            size += len(lines[at])
            if size >= ROW_BYTES or event.seq == self.last:
                row = b"\n".join(lines[first : at + 1])
                # `ProxyStarted` is searched for in the bytes of the rows.
                plain = ProxyStarted in map(type, events[first : at + 1])
                rows.append((event.seq, row if plain else packed(row)))
                size, first = 0, at + 1
        return rows


def _json(rows: Sequence[Any]) -> str:
    return msgspec.json.encode(rows).decode() if rows else "[]"


# --- reading ------------------------------------------------------------------------------------


def events_after(db: sqlite3.Connection, after: int, limit: int) -> list[AnyEvent]:
    """Return up to `limit` readable events with `seq` above `after`, in order.

    Of the pruned range only events of retained groups are left: build a state from `base_of` on.
    """
    events: list[AnyEvent] = []
    texts = TextReader(db)
    rows = db.execute(_ROWS + " where seq>? order by seq", (after,))
    for seq, data in rows:
        events += [event for event in decoded(seq, lines_in(data), texts) if event.seq > after]
        if len(events) >= limit:
            break
    return events[:limit]


def events_of(db: sqlite3.Connection, group_id: str) -> list[AnyEvent]:
    """Return the readable events of one group, in order."""
    needle = msgspec.json.encode(group_id)
    lines: dict[int, list[bytes]] = {}
    for seq, data in _rows_of(db, group_id):
        if matches := [line for line in lines_in(data) if needle in line]:
            lines[seq] = matches
    events: list[AnyEvent] = []
    texts = TextReader(db)
    for seq in sorted(lines):
        for event in decoded(seq, lines[seq], texts):
            if isinstance(event, GroupEvent) and event.group_id == group_id:
                events.append(event)
    return events


def _rows_of(db: sqlite3.Connection, group_id: str) -> Iterator[tuple[int, bytes]]:
    """Yield the rows that may have events of a group, some of them possibly twice."""
    group = db.execute(
        "select opened_seq, closed_seq, phase from groups where id=?", (group_id,)
    ).fetchone()
    if group is not None:
        opened, closed, phase = group
        if closed is not None:
            last = "select min(seq) from events where seq>=?"
            yield from db.execute(f"{_ROWS} where seq>=? and seq<=({last})", (opened, closed))
        elif phase == _OPEN:
            yield from db.execute(_ROWS + " where seq>=?", (opened,))
    late = "select seq from late where group_id=?"
    yield from db.execute(f"{_ROWS} where seq in ({late})", (group_id,))


def last_seq(db: sqlite3.Connection) -> int:
    """Return the number of the newest event; 0 for none."""
    newest = int(db.execute("select coalesce(max(seq), 0) from events").fetchone()[0])
    base = base_of(db)
    return newest if base is None else max(newest, base.seq)


def first_seq(db: sqlite3.Connection) -> int:
    """Return the number of the oldest event that is not pruned; 0 for none."""
    if (base := base_of(db)) is not None:
        return base.seq + 1
    row = db.execute(_ROWS + " order by seq limit 1").fetchone()
    if row is None:
        return 0
    return next((event.seq for event in decoded(row[0], lines_in(row[1]))), int(row[0]))


class Base(msgspec.Struct, frozen=True):
    """Beginning of a pruned journal."""

    seq: int
    """Number of the last pruned event."""
    at: float
    """Unix seconds of that event."""
    groups: int
    """Number of deleted groups."""
    state: bytes
    """State at that event, as JSON compressed by zlib."""


def base_of(db: sqlite3.Connection) -> Base | None:
    """Return the beginning of a pruned journal; None if nothing was pruned."""
    row = db.execute("select seq, at, groups, state from base order by seq desc").fetchone()
    return None if row is None else Base(*row)


def decoded(
    seq: int, lines: Iterable[bytes], texts: TextReader | None = None
) -> Iterator[AnyEvent]:
    """Yield the events of one row, without those unknown to this version.

    Args:
        seq: Number of the row, for the log.
        lines: Lines of the row.
        texts: Restores the long texts; None for lines without references.
    """
    for line in lines if texts is None else texts.whole(lines):
        try:
            yield decode(line)
        except UNDECODABLE as error:
            log.warning("journal row %s has an event this program does not know: %s", seq, error)
