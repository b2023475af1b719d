"""File of the journal: its tables, its version and its place.

A proxy holds the file open. If it is deleted or replaced, the open file still has every row: it is
copied back to its path, and any file that is now there is renamed.
"""

import contextlib
import logging
import os
import sqlite3
import time
import zlib
from pathlib import Path
from typing import Any

import msgspec

from ajet_swarm.common.errors import AjetError
from ajet_swarm.common.text import one_line
from core import events
from core.version import version
from core.whole_file import make_private

log = logging.getLogger(__name__)

SCHEMA = 7
"""A journal of another schema is refused."""
PAGE = 4096
"""Bytes of a page: a damaged one takes its rows with it, some twenty."""
SIBLINGS = ("-wal", "-shm")
"""Suffixes of the files that SQLite keeps beside a database."""
SNAPSHOT_SPACING = 20_000
"""Minimum number of events between two snapshots that are kept; the newest is always kept."""

VOTES = (events.GroupRated, events.VoteCast, events.DisagreementSettled)
REMARKS = (events.GroupEdited, events.GroupMarked, events.GroupNoted)
WITHDRAWN = (events.RatingUndone, events.VoteWithdrawn)


def name_of(kind: type[events.Event]) -> str:
    """Return the name of an event class in `rows`."""
    return str(kind.__struct_config__.tag)


def kinds(*classes: type[events.Event]) -> str:
    """Return the names of event classes as a list in SQL."""
    return ", ".join(f"'{name_of(kind)}'" for kind in classes)


_REST = "iif({0}.size is null, {0}.data, sqlar_uncompress({0}.data, {0}.size))"

_TABLES = f"""
create table meta(key text primary key, value text not null);
create table rows(
    seq integer primary key, at real not null, opened_seq integer, kind text not null,
    size integer, data not null);
create index rows_of_group on rows(opened_seq);
create table groups(
    opened_seq integer primary key, group_id text not null unique, run_id text not null,
    server text not null, closed_seq integer, rated integer, last_message integer);
create index groups_of_message on groups(last_message);
create table messages(
    id integer primary key, hash blob not null, parent integer, size integer not null,
    zlib blob not null);
create index messages_by_hash on messages(hash);
create index messages_by_parent on messages(parent);
create table snapshots(seq integer primary key, version integer not null, state blob not null);
create view events as
    select seq, at, group_id, kind,
        '{{"kind":"' || kind || '","seq":' || seq || ',"at":' || at
        || iif(rows.opened_seq is null or rows.opened_seq = seq, '',
            ',"run_id":' || json_quote(coalesce(run_id, ''))
            || ',"server":' || json_quote(coalesce(server, ''))
            || ',"group_id":' || json_quote(coalesce(group_id, 'lost-' || rows.opened_seq)))
        || {_REST.format("rows")} as json
    from rows left join groups on groups.opened_seq = rows.opened_seq;
create trigger group_opened after insert on rows when new.kind in ({kinds(events.GroupOpened)})
begin
    insert or ignore into groups select
        new.opened_seq, json_extract(json, '$.group_id'),
        coalesce(json_extract(json, '$.run_id'), ''), coalesce(json_extract(json, '$.server'), ''),
        (select min(seq) from rows
            where opened_seq = new.opened_seq and kind in ({kinds(events.GroupClosed)})),
        iif(exists (select 1 from rows
            where opened_seq = new.opened_seq and kind in ({kinds(*VOTES, *REMARKS)})), null, 0),
        json_extract(json, '$.last_message')
        from (select '{{' || substr({_REST.format("new")}, 2) as json limit 1);
end;
create trigger group_closed after insert on rows when new.kind in ({kinds(events.GroupClosed)})
begin
    update groups set closed_seq = new.seq
        where opened_seq = new.opened_seq and closed_seq is null;
end;
create trigger group_rated after insert on rows
    when new.kind in ({kinds(*VOTES, *REMARKS, *WITHDRAWN)}) begin
    update groups set rated = iif(
        new.kind in ({kinds(*WITHDRAWN)})
        or json_extract('{{"":0' || {_REST.format("new")}, '$.rating') = 'skip', null, 1)
    where opened_seq = new.opened_seq;
end;
"""
"""Tables of a new file. `rows` has the JSON of an event from its run on (`data`, compressed if it
has a `size`), and that of a later event of a group without what its first event, number
`opened_seq`, says: `events` puts it together. The triggers keep `groups` by the events, which the
copy of a damaged file adds in another order. `rated` is 1 after a vote or a remark, and null where
only all events of the group show it: after a skip or a withdrawn vote."""


class JournalError(AjetError):
    """The journal cannot be read or written."""


class OlderJournal(JournalError):
    """The journal was written by an older program, in another form."""


class Base(msgspec.Struct, frozen=True):
    """Beginning of a pruned journal, whose oldest snapshot has the state at it."""

    seq: int
    """Number of the last pruned event."""
    at: float
    """Unix seconds of that event."""
    groups: int
    """Number of deleted groups."""


def as_json(value: Any) -> str:
    """Return a value as JSON, for SQL."""
    return msgspec.json.encode(value).decode()


def base_of(db: sqlite3.Connection) -> Base | None:
    """Return the beginning of a pruned journal; None if nothing was pruned."""
    row = db.execute("select value from meta where key='base'").fetchone()
    return None if row is None else msgspec.json.decode(row[0], type=Base)


def last_seq(db: sqlite3.Connection) -> int:
    """Return the number of the newest event; 0 for none."""
    newest = int(db.execute("select coalesce(max(seq), 0) from rows").fetchone()[0])
    base = base_of(db)
    return newest if base is None else max(newest, base.seq)


def add_snapshot(db: sqlite3.Connection, seq: int, version: int, state: bytes) -> None:
    """Store a snapshot of the state at event `seq`.

    Args:
        db: Connection in a transaction.
        seq: Number of the event.
        version: Version of the reducer.
        state: JSON of the state, compressed by zlib.
    """
    sql = "select seq from snapshots where seq<? order by seq desc limit 2"
    earlier = [row[0] for row in db.execute(sql, (seq,))]
    if len(earlier) == 2 and earlier[0] - earlier[1] < SNAPSHOT_SPACING:
        db.execute("delete from snapshots where seq=?", earlier[:1])
    db.execute("insert or replace into snapshots values (?,?,?)", (seq, version, state))


# --- connection ---------------------------------------------------------------------------------

SMALL = 4_096
"""Bytes below which a small window compresses as well, in a sixth of the time."""


def packed(data: bytes) -> bytes:
    """Compress `data` if that makes it smaller, as `sqlar_compress` of SQLite's shell does."""
    level, window, memory = (6, 12, 5) if len(data) < SMALL else (3, 15, 8)
    packer = zlib.compressobj(level, zlib.DEFLATED, window, memory)
    compressed = packer.compress(data) + packer.flush()
    return compressed if len(compressed) < len(data) else data


def unpacked(data: bytes, size: int) -> bytes:
    """Return the original of `packed`, of `size` bytes.

    Raises:
        ValueError: It is damaged.
    """
    if len(data) == size:
        return data
    try:
        whole = zlib.decompress(data)
    except zlib.error as error:
        raise ValueError(f"what is compressed is damaged: {error}") from error
    if len(whole) != size:
        raise ValueError("what is compressed is damaged: it has another size")
    return whole


def _readable(data: bytes, size: int) -> bytes:
    """Return the original of `packed`, or what is damaged as it is: other rows are read on."""
    try:
        return unpacked(data, size)
    except (ValueError, TypeError):
        return b"damaged"


def connect(path: Path, timeout: float, mode: str = "ro") -> sqlite3.Connection:
    """Return a connection for any thread that reads `events`, as SQLite's shell does.

    Args:
        path: The journal, which exists.
        timeout: Seconds to wait for a lock.
        mode: `rw` to write; `ro` writes nothing, not even beside the file of a closed journal.
    """
    path = path.resolve()  # the log of a linked file is beside the file
    closed = mode == "ro" and not any(Path(f"{path}{end}").exists() for end in SIBLINGS)
    uri = f"{path.as_uri()}?mode={mode}{'&immutable=1' * closed}"
    db = sqlite3.connect(
        uri, uri=True, timeout=timeout, check_same_thread=False, isolation_level=None
    )
    db.create_function("sqlar_uncompress", 2, _readable, deterministic=True)
    return db


# --- version ------------------------------------------------------------------------------------


def check_version(db: sqlite3.Connection, path: Path) -> int:
    """Return the schema version of the file; 0 for a new one.

    Raises:
        OlderJournal: It is older than this program.
        JournalError: It is newer.
    """
    file_version = int(db.execute("pragma user_version").fetchone()[0])
    if file_version > SCHEMA:
        todo = "Use the newer program, or name another home"
        raise JournalError(_refusal(db, file_version), str(path), todo)
    if 0 < file_version < SCHEMA:
        raise OlderJournal(_refusal(db, file_version), str(path), export_remedy(path))
    return file_version


def export_remedy(path: Path) -> str:
    """Return how to export a journal of an older program."""
    return f"The program that wrote it exports it: `ajet-console export jsonl OUT --journal {path}`"


def _refusal(db: sqlite3.Connection, file_version: int) -> str:
    by = ""
    with contextlib.suppress(sqlite3.Error):  # the table may be missing
        row = db.execute("select value from meta where key='written_by'").fetchone()
        by = f", written by ajet-console {one_line(str(row[0]), 20)}" if row else ""
    return (
        f"the journal is of version {file_version}{by}; this program, ajet-console {version()}, "
        f"reads version {SCHEMA}"
    )


def prepare(db: sqlite3.Connection, path: Path) -> None:
    """Check the version of a file, and create the tables of a new one in one transaction.

    Raises:
        JournalError: It is of another version.
    """
    known = check_version(db, path)
    if not db.execute("pragma page_count").fetchone()[0]:  # these must precede the first table
        db.execute(f"pragma page_size={PAGE}")
        db.execute("pragma auto_vacuum=incremental")
    db.execute("pragma journal_mode=wal")
    if not known:
        db.executescript(
            f"begin immediate; {_TABLES} insert into meta values('written_by', '{version()}');"
            f"pragma user_version={SCHEMA}; commit"
        )


# --- place --------------------------------------------------------------------------------------


Identity = tuple[int, int]
"""Device and inode of a file."""


def create(path: Path) -> None:
    """Create an empty file if there is none, and make it readable for its owner only.

    SQLite gives the files beside it the same mode.

    Raises:
        OSError: The file cannot be created.
    """
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    for name in (path, *(Path(f"{path}{end}") for end in SIBLINGS)):
        with contextlib.suppress(OSError):  # missing, or of another owner
            if name.stat().st_mode & 0o077 and not name.is_symlink():
                make_private(name, 0o600)
                log.warning("%s was open to others, now only you can read it", name)


def mark_of(path: Path) -> Path:
    """Return the path of the mark that makes the next start check the journal."""
    return path.with_name(f"{path.name}.damage")


def mark(path: Path, damage: str) -> None:
    """Mark the journal so that the next start checks it; the mark contains `damage`."""
    try:
        mark_of(path).write_text(damage + "\n", encoding="utf-8")
    except OSError as error:
        log.warning("%s cannot be written: %s", mark_of(path), error)


def identity(path: Path) -> Identity | None:
    """Return the identity of the file at `path`; None if there is none."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


def set_aside(path: Path, why: str) -> Path | None:
    """Rename a journal and the files beside it.

    Args:
        path: The journal.
        why: One word for the new name: `journal.db.WHY-20260131-235959`.

    Returns:
        The new path of the journal; None if there was none.

    Raises:
        OSError: It cannot be renamed.
    """
    stamp = time.strftime("%Y%m%d-%H%M%S")
    aside = path.with_name(f"{path.name}.{why}-{stamp}")
    number = 1
    while aside.exists():
        number += 1
        aside = path.with_name(f"{path.name}.{why}-{stamp}-{number}")
    for end in ("", *SIBLINGS):
        with contextlib.suppress(FileNotFoundError):
            os.rename(f"{path}{end}", f"{aside}{end}")
    return aside if aside.exists() else None


def copy_of(db: sqlite3.Connection, path: Path) -> Path:
    """Copy an open journal, including its log, to a new file beside `path`.

    Raises:
        sqlite3.Error: It cannot be read, or there is no room for the copy.
        OSError: The new file cannot be created.
    """
    copy = path.with_name(f"{path.name}.copy-{os.getpid()}")
    remove(copy)
    create(copy)
    try:
        with contextlib.closing(sqlite3.connect(copy)) as new:
            db.backup(new)
    except BaseException:
        remove(copy)
        raise
    return copy


def put_at(copy: Path, path: Path) -> Path | None:
    """Move `copy` to `path`; rename the file at that path as `replaced` and return its new path.

    The log at `path` belongs to the old file, whose rows are in the copy: it is deleted, else
    SQLite would apply it to the copy. No process may have the old file open.

    Raises:
        OSError: It cannot be moved.
    """
    for end in SIBLINGS:
        Path(f"{path}{end}").unlink(missing_ok=True)
    aside = set_aside(path, "replaced")
    copy.replace(path)
    return aside


def remove(path: Path) -> None:
    """Delete a database and the files beside it, if they exist."""
    for end in ("", *SIBLINGS):
        Path(f"{path}{end}").unlink(missing_ok=True)
