"""Detection of a damaged journal, and salvage of its readable rows."""

import contextlib
import logging
import sqlite3
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from core.events import GroupClosed, GroupOpened
from core.journal import file as journal_file
from core.journal import storage
from core.journal.batch import is_damage
from core.journal.rated import CHANGES_RATED, rated_after
from core.journal.texts import (
    UNDECODABLE,
    TextReader,
    index_again,
    lines_in,
    packed,
    readable_part,
    without_texts,
)

log = logging.getLogger(__name__)

_LAST_KEY = (1 << 63) - 1
_FAR = 1_000_000
"""Maximum number of events that may be lost at the end of a journal."""
_CHUNK = 200
"""Rows per commit of the new file."""
_TABLES = ("texts", "base", "events", "groups", "late", "meta", "snapshots")
"""Tables that are copied; the index of the texts is rebuilt."""


def find_damage(path: Path, table: str = "") -> str:
    """Return the damage of a journal's pages by SQLite's `quick_check`; empty for none.

    Args:
        path: The journal.
        table: The table to read with its indexes; empty to read the whole file.

    Raises:
        sqlite3.Error: The file cannot be opened or is locked.
    """
    at_rest = not any(Path(f"{path}{end}").exists() for end in journal_file.SIBLINGS)
    uri = f"{path.absolute().as_uri()}?mode=ro" + ("&immutable=1" if at_rest else "")
    try:
        with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=5)) as db:
            result = str(db.execute(f"pragma quick_check({table or 1})").fetchone()[0])
    except sqlite3.DatabaseError as error:
        if is_damage(error):
            return str(error)
        raise
    return "" if result == "ok" else " ".join(result.replace("*", "").split())


def check_in_background(path: Path, then: Callable[[str], None]) -> threading.Thread:
    """Run `find_damage` in a daemon thread.

    Args:
        path: The journal.
        then: Called by that thread with the damage, which may be empty; not called if the file
            cannot be opened.
    """

    def check() -> None:
        try:
            damage = find_damage(path)
        except sqlite3.Error as error:
            log.warning("the journal could not be checked: %s", error)
        else:
            then(damage)

    thread = threading.Thread(target=check, name="journal-check", daemon=True)
    thread.start()
    return thread


@dataclass(frozen=True, slots=True)
class SalvageResult:
    """Result of salvaging a damaged journal."""

    aside: Path
    """New path of the damaged file."""
    preserved: int
    """Events in the new journal that were not pruned."""
    missing: int
    """Events up to the last known one that are neither preserved nor pruned."""


def salvage(path: Path) -> SalvageResult:
    """Replace a damaged journal by a new one with every readable row; rename the damaged file.

    Raises:
        sqlite3.Error: The new journal cannot be written; the damaged one stays in its place.
        OSError: The same.
    """
    new_path = path.with_name(f"{path.name}.salvaged")
    journal_file.remove(new_path)
    journal_file.create(new_path)
    try:
        with (
            contextlib.closing(sqlite3.connect(path, isolation_level=None)) as old,
            contextlib.closing(sqlite3.connect(new_path, isolation_level=None)) as new,
        ):
            storage.begin_file(new)
            storage.prepare(new, 0)
            for table in _TABLES:
                _copy(old, new, table)
            _list_groups(new)
            pruned = _pruned(new)
            preserved, last = _count(new, pruned)
            index_again(new, pruned, last)
    except BaseException:
        journal_file.remove(new_path)
        raise
    aside = journal_file.set_aside(path, "damaged")
    new_path.replace(path)
    journal_file.mark_of(path).unlink(missing_ok=True)
    return SalvageResult(aside or path, preserved, last - pruned - preserved)


def _copy(old: sqlite3.Connection, new: sqlite3.Connection, table: str) -> None:
    """Copy each readable row of a table; the table may be missing."""
    columns = [str(row[1]) for row in new.execute(f"pragma table_info({table})")]
    rows: list[tuple[Any, ...]] = []

    def write() -> None:
        names, marks = ",".join(columns), ",".join("?" * len(columns))
        new.execute("begin")
        new.executemany(f"insert or ignore into {table} ({names}) values ({marks})", rows)
        new.execute("commit")
        rows.clear()

    try:
        existing = {str(row[1]) for row in old.execute(f"pragma table_info({table})")}
    except sqlite3.DatabaseError as error:
        log.error("nothing of the table %s can be read: %s", table, error)
        return
    columns = [name for name in columns if name in existing]
    if not columns:
        return
    for row in _readable(old, table, ",".join(columns)):
        if table == "events":
            seq, data = _events_in(row[columns.index("data")])
            if seq:
                rows.append((seq, data))
        else:
            rows.append(row)
        if len(rows) >= _CHUNK:
            write()
    write()


def _events_in(data: Any) -> tuple[int, bytes]:
    """Return the number of the last intact event of a row, and the intact events as lines.

    Returns:
        0 and an empty row if no event is intact.
    """
    last, whole = 0, []
    lines = data.encode() if isinstance(data, str) else data
    for line in readable_part(lines).split(b"\n") if isinstance(lines, bytes) else ():
        with contextlib.suppress(*UNDECODABLE):
            number = msgspec.json.decode(without_texts(line), type=_Numbered).seq
            if number > last:
                last = number
                whole.append(line)
    row = b"\n".join(whole)
    return last, row if b'"proxy_started"' in row else packed(row)


def _readable(db: sqlite3.Connection, table: str, columns: str) -> Iterator[tuple[Any, ...]]:
    """Yield the readable rows by ascending rowid."""
    after = -1
    # One row per statement: Python steps to the next row before it returns the present one.
    sql = f"select rowid, {columns} from {table} where rowid>? order by rowid limit 1"
    while after < _LAST_KEY - 1:
        try:
            row = db.execute(sql, (after,)).fetchone()
        except sqlite3.DatabaseError as error:
            log.error("%s after row %d cannot be read: %s", table, after, error)
            after = _next_readable(db, table, columns, after) - 1
            continue
        if row is None:
            return
        after = row[0]
        yield row[1:]


def _next_readable(db: sqlite3.Connection, table: str, columns: str, after: int) -> int:
    """Return the lowest rowid above `after` with a readable row; `_LAST_KEY` if there is none."""
    sql = f"select {columns} from {table} where rowid>=? order by rowid limit 1"

    def reads(key: int) -> bool:
        try:
            return db.execute(sql, (key,)).fetchone() is not None
        except sqlite3.DatabaseError:
            return False

    low, step = after + 1, 1
    while not reads(after + 1 + step):
        low, step = after + 1 + step, 2 * step
        if step > 1 << 40:  # far above any number of an event
            return _LAST_KEY
    high = after + 1 + step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if reads(middle) else (middle, high)
    return high


_KINDS = [
    f'"kind":"{one.__struct_config__.tag}"'.encode()
    for one in (GroupOpened, GroupClosed, *CHANGES_RATED)
]
"""Events that change the list of groups, as they begin in a row."""
_LISTED = "insert or ignore into groups values (?,?,?,'QUEUED','',?,null,0)"


def _list_groups(db: sqlite3.Connection) -> None:
    """Add groups whose row was lost, from their events."""
    texts = TextReader(db)
    db.execute("begin")
    for seq, data in db.execute("select seq, cast(data as blob) from events order by seq"):
        lines = [line for line in lines_in(data) if any(kind in line for kind in _KINDS)]
        for event in storage.decoded(seq, lines, texts):
            if isinstance(event, GroupOpened):
                row = (event.group_id, event.seq, event.at, event.query[:200])
                db.execute(_LISTED, row)
            elif isinstance(event, GroupClosed):
                end = (event.phase, event.cause, event.seq, event.group_id)
                db.execute("update groups set phase=?, cause=?, closed_seq=? where id=?", end)
            elif isinstance(event, CHANGES_RATED):
                mark = (rated_after(event), event.group_id)
                db.execute("update groups set rated=? where id=?", mark)
    db.execute("commit")


class _Numbered(msgspec.Struct):
    """An event of which only the number is read."""

    seq: int = 0


def _pruned(db: sqlite3.Connection) -> int:
    """Return the number of the last pruned event; 0 for none."""
    row = db.execute("select value from meta where key='pruned'").fetchone()
    noted = int(row[0]) if row is not None and str(row[0]).isdecimal() else 0
    base = storage.base_of(db)
    return noted if base is None else max(noted, base.seq)


def _count(db: sqlite3.Connection, pruned: int) -> tuple[int, int]:
    """Return the number of events after the pruned ones, and the number of the last event."""
    preserved, last = 0, pruned
    for (data,) in db.execute("select cast(data as blob) from events"):
        for line in lines_in(data):
            number = msgspec.json.decode(without_texts(line), type=_Numbered).seq
            last = max(last, number)
            preserved += number > pruned
    far = last + _FAR  # a larger number is itself damaged
    for sql in (
        "select max(opened_seq) from groups where typeof(opened_seq)='integer' and opened_seq<?",
        "select max(closed_seq) from groups where typeof(closed_seq)='integer' and closed_seq<?",
        "select max(seq) from snapshots where seq<?",
    ):
        last = max(last, db.execute(sql, (far,)).fetchone()[0] or 0)
    return preserved, last
