"""Opening of the journal when a proxy starts, and the copy of a damaged one.

A damaged file is renamed, and a new one gets its rows. A page of SQLite's tree that is lost hides
all pages below it, and a lost first page the whole file, so the rows are not read by SQLite: every
page of the file is looked at for rows of ours. Of a large file, the new journal gets the state and
the open groups first, and the other rows in the background.
"""

import contextlib
import logging
import os
import sqlite3
import struct
import threading
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from ajet_swarm.common.errors import AjetError
from core.journal import file as journal_file
from core.journal.file import PAGE, JournalError, OlderJournal, as_json, export_remedy, unpacked
from core.journal.read_only import JournalFile
from core.journal.reader import STATE_VERSION
from core.journal.storage import TaskFailed, is_damage
from core.journal.writer import Journal
from core.state import State

log = logging.getLogger(__name__)

CHECKED_WHOLE = 64 << 20
"""Bytes up to which a journal is checked whole at each start, and copied whole if it is damaged."""
NEWEST = 1_000
"""Number of newest events that the new journal of a large one has from the beginning."""
BATCH = 200
"""Rows of one transaction of a copy."""

Row = tuple[Any, ...]


class DamagedPages(sqlite3.DatabaseError):
    """`quick_check` finds damaged pages."""

    sqlite_errorcode = sqlite3.SQLITE_CORRUPT


@dataclass(frozen=True, slots=True)
class OpenedJournal:
    """An open journal and its state."""

    journal: Journal
    state: State
    notice: str
    """Message for the operator about a file that was set aside; empty without one."""
    client_uuid: str | None
    """Id of this home's proxy on swarm servers; None in a new journal."""


def open_journal(path: Path) -> OpenedJournal:
    """Open a journal and read its state; salvage it if the file is damaged, and begin a new one if
    an older program wrote it.

    Raises:
        JournalError: The journal cannot be opened for another reason, or there is no room to
            salvage it.
    """
    try:
        return _open(path)
    except OlderJournal as older:
        return _begin_new(path, older)
    except JournalError as error:
        if not is_damage(error.__cause__):
            raise
        damage = str(error.__cause__)
    log.error("the journal is damaged: %s. What can be read of it is copied", damage)
    return _salvage(path, damage)


def _open(path: Path) -> OpenedJournal:
    """Open it, check it, and read its state.

    A large journal that is not marked as damaged is checked in the background, see
    `proxy.control.journal_alerts`.
    """
    with contextlib.ExitStack() as on_error:
        journal = Journal(path)
        on_error.callback(journal.close)
        mark = journal_file.mark_of(path)
        try:
            # After a full disk no second connection can read it.
            if not journal.error and (mark.exists() or path.stat().st_size <= CHECKED_WHOLE):
                if damage := find_damage(path):
                    raise DamagedPages(damage)
                mark.unlink(missing_ok=True)
            client_uuid = journal.meta("client_uuid")
            opened = OpenedJournal(journal, journal.load_state(), "", client_uuid)
        except sqlite3.Error as error:
            raise JournalError(f"the journal cannot be read: {error}", str(path)) from error
        on_error.pop_all()
        return opened


def _begin_new(path: Path, older: OlderJournal) -> OpenedJournal:
    """Rename a journal of an older program and begin a new one.

    The id of the proxy stays, so the episodes that the older program held are found at the server.
    """
    client_uuid = None
    with contextlib.suppress(sqlite3.Error), contextlib.closing(sqlite3.connect(path)) as db:
        row = db.execute("select value from meta where key='client_uuid'").fetchone()
        client_uuid = None if row is None else str(row[0])
    try:
        aside = journal_file.set_aside(path, "older")
    except OSError as error:
        what = f"{older.what}. It cannot be renamed: {error}"
        raise JournalError(what, older.where, "Move it away to begin a new one") from error
    assert aside is not None
    notice = f"{older.what}. It is now {aside}, and a new one begins. {export_remedy(aside)}"
    log.warning("%s", notice)
    return replace(_open(path), notice=notice, client_uuid=client_uuid)


# --- detection ----------------------------------------------------------------------------------


def find_damage(path: Path) -> str:
    """Return the damage of a journal's pages by SQLite's `quick_check`; empty for none.

    Raises:
        sqlite3.Error: The file cannot be opened or is locked.
    """
    try:
        with contextlib.closing(journal_file.connect(path, 5)) as db:
            result = str(db.execute("pragma quick_check(1)").fetchone()[0])
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

    return _in_background(check, "journal-check")


def _in_background(work: Callable[[], None], name: str) -> threading.Thread:
    thread = threading.Thread(target=work, name=name, daemon=True)
    thread.start()
    return thread


# --- copy ---------------------------------------------------------------------------------------


def _salvage(path: Path, damage: str) -> OpenedJournal:
    """Rename a damaged journal and begin a new one with its rows.

    Raises:
        JournalError: The new one cannot be written; the damaged one is at its place again.
    """
    aside = journal_file.set_aside(path, "damaged")
    assert aside is not None
    journal_file.mark_of(path).unlink(missing_ok=True)
    try:
        with contextlib.ExitStack() as on_error:
            journal = Journal(path)
            on_error.callback(journal.close)
            if journal.error:
                raise journal.failure()
            state = _first_rows(aside, journal) if aside.stat().st_size > CHECKED_WHOLE else None
            if state is None:
                what = _copy_rows(aside, journal)
                state = journal.load_state()
            else:
                what = "its rows are copied in the background"
            on_error.pop_all()
    except (TaskFailed, JournalError, sqlite3.Error, OSError) as error:
        journal_file.remove(path)
        for end in ("", *journal_file.SIBLINGS):
            with contextlib.suppress(FileNotFoundError):
                Path(f"{aside}{end}").rename(f"{path}{end}")
        raise JournalError(
            f"the journal is damaged ({damage}) and cannot be copied: {error}",
            str(path),
            "Make room for a copy of it, or move it away to begin a new one",
        ) from error
    notice = f"the journal was damaged ({damage}): {what}; the damaged file is {aside.name}"
    log.error("%s", notice)
    return OpenedJournal(journal, state, notice, journal.meta("client_uuid"))


def _first_rows(aside: Path, journal: Journal) -> State | None:
    """Copy what a start needs; return the state, or None if it cannot be read."""
    try:
        old = JournalFile(aside)
        state = old.load_state()
        ids = [group.group_id for group in state.open_groups()]
        of = "from groups where group_id in (select value from json_each(?))"
        with old.reading() as db:
            groups = db.execute(f"select * {of}", (as_json(list(state.groups)),)).fetchall()
            sql = f"select * from rows where seq>? or opened_seq in (select opened_seq {of})"
            events = db.execute(sql, (state.seq - NEWEST, as_json(ids))).fetchall()
            meta = db.execute("select * from meta").fetchall()
            sql = "select * from messages order by id desc limit 1"  # new ids begin after it
            messages = db.execute(sql).fetchall()
    except (AjetError, sqlite3.Error) as error:
        log.warning("the state is not readable before all rows are copied: %s", error)
        return None
    data = zlib.compress(msgspec.json.encode(state))
    rows: list[tuple[str, Row]] = [("snapshots", (state.seq, STATE_VERSION, data))]
    rows += [("meta", row) for row in (*meta, ("salvage", aside.name))]
    rows += [("messages", row) for row in messages] + [("groups", row) for row in groups]
    rows += [("rows", row) for row in events]
    journal.run(partial(_insert, rows), threading.Event())
    return state


def continue_salvage(journal: Journal) -> threading.Thread | None:
    """Copy the other rows of a large damaged journal in a daemon thread; None without one.

    A copy that is interrupted begins again at the next start. Its end is a notice of the journal.
    """
    name = None if journal.error else journal.meta("salvage")
    if not name:
        return None
    aside = journal.path.with_name(name)

    def copy() -> None:
        try:
            what = _copy_rows(aside, journal)
            journal.run(_end_salvage, threading.Event())
        except (TaskFailed, sqlite3.Error, OSError) as error:
            what = f"its rows are not copied, the next start tries again: {error}"
        notice = f"the journal was damaged: {what}; the damaged file is {name}"
        log.error("%s", notice)
        journal.on_notice(notice)

    return _in_background(copy, "journal-salvage")


def _copy_rows(aside: Path, journal: Journal) -> str:
    """Copy every readable row; return how many events are kept and missing."""
    never = threading.Event()
    last = 0
    found = rows_in(aside)
    while rows := list(islice(found, BATCH)):
        journal.run(partial(_insert, rows), never)
        last = max([last, *(row[0] for table, row in rows if table == "rows")])
    with journal.reading() as db:
        base = journal_file.base_of(db)
        first = base.seq if base else 0
        sql = "select count(*) from rows where seq>? and seq<=?"
        kept = int(db.execute(sql, (first, last)).fetchone()[0])
    total = max(0, last - first)
    return f"{kept} of {total} events are kept, {total - kept} are missing"


def _insert(rows: list[tuple[str, Row]], db: sqlite3.Connection) -> None:
    for table, row in rows:
        marks = ",".join("?" * len(row))
        db.execute(f"insert or ignore into {table} values ({marks})", row)


def _end_salvage(db: sqlite3.Connection) -> None:
    db.execute("delete from meta where key='salvage'")


# --- rows of a damaged file ---------------------------------------------------------------------

_LEAF = 13
"""First byte of a page with rows of a table."""
_FREE = 2
"""Type of an unused page in the map of pages."""
_FRAME, _HEAD = 24, 32
"""Bytes before each page in the log, and before the first of them."""


_DAMAGE = (ValueError, IndexError, struct.error, zlib.error, msgspec.MsgspecError)
"""Errors of a row that is not intact."""


def rows_in(path: Path) -> Iterator[tuple[str, Row]]:
    """Yield the readable rows of a journal and its log: table and columns, in any order."""
    with path.open("rb") as file:
        pages = _Pages(file)
        for number in range(1, pages.count + 1):
            page = pages.get(number)
            first = 100 if number == 1 else 0
            if page[first : first + 1] != bytes([_LEAF]) or pages.is_free(number):
                continue
            cells = int.from_bytes(page[first + 3 : first + 5])
            for place in range(first + 8, min(first + 8 + 2 * cells, PAGE), 2):
                with contextlib.suppress(*_DAMAGE):
                    row = _ours(*pages.row(page, int.from_bytes(page[place : place + 2])))
                    if row is not None:
                        yield row


def _ours(rowid: int, row: Row) -> tuple[str, Row] | None:
    """Return the table of a row, and the row; None if it is not one of ours."""
    match row:
        case (None, float() | int(), int() | None, str(), int() | None, str() | bytes()):
            rest = row[5].encode() if isinstance(row[5], str) else unpacked(row[5], row[4])
            msgspec.json.decode(b'{"":0' + rest)
            return "rows", (rowid, *row[1:])
        case (None, bytes(), int() | None, int(), bytes()):
            msgspec.json.decode(unpacked(row[4], row[3]))
            return "messages", (rowid, *row[1:])
        case (None, int(), bytes()):
            zlib.decompress(row[2])
            return "snapshots", (rowid, *row[1:])
        case (str(), str()):
            return "meta", row
    return None


class _Pages:
    """Pages of a database, the newest form of each, in the format of SQLite's files.

    Args:
        file: The database; its log is beside it.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.count = os.fstat(file.fileno()).st_size // PAGE
        self._in_log: dict[int, bytes] = {}
        with contextlib.suppress(FileNotFoundError):
            log_data = Path(f"{file.name}-wal").read_bytes()
            salts = log_data[16:24]
            for first in range(_HEAD, len(log_data) - PAGE - _FRAME + 1, PAGE + _FRAME):
                if log_data[first + 8 : first + 16] != salts:
                    break  # the rest is older
                number = int.from_bytes(log_data[first : first + 4])
                self._in_log[number] = log_data[first + _FRAME : first + _FRAME + PAGE]
        self.count = max(self.count, *self._in_log, 0)

    def get(self, number: int) -> bytes:
        """Return a page by its number from 1."""
        if number in self._in_log:
            return self._in_log[number]
        self._file.seek((number - 1) * PAGE)
        return self._file.read(PAGE)

    def is_free(self, number: int) -> bool:
        """Return whether a page is unused, by the map of pages."""
        each = PAGE // 5
        first = 2 + (number - 2) // (each + 1) * (each + 1)
        if number in (1, first):  # the first page, and one of the map
            return False
        place = 5 * (number - first - 1)
        return self.get(first)[place : place + 1] == bytes([_FREE])

    def row(self, page: bytes, at: int) -> tuple[int, Row]:
        """Return the number and the columns of a row.

        Raises:
            ValueError, IndexError, struct.error: There is no intact row.
        """
        size, at = _varint(page, at)
        rowid, at = _varint(page, at)
        most, least = PAGE - 35, (PAGE - 12) * 32 // 255 - 23
        here = size
        if size > most:
            here = least + (size - least) % (PAGE - 4)
            here = least if here > most else here
        data = bytearray(page[at : at + here])
        number = int.from_bytes(page[at + here : at + here + 4]) if here < size else 0
        while len(data) < size:
            if not 0 < number <= self.count:
                raise ValueError("its other pages are lost")
            other = self.get(number)
            number = int.from_bytes(other[:4])
            data += other[4 : 4 + size - len(data)]
        return rowid, tuple(_columns(bytes(data)))


def _columns(data: bytes) -> Iterator[Any]:
    """Yield the columns of a record."""
    head, at = _varint(data, 0)
    place = head
    while at < head:
        kind, at = _varint(data, at)
        length = (0, 1, 2, 3, 4, 6, 8, 8, 0, 0, 0, 0)[kind] if kind < 12 else (kind - 12) // 2
        value = data[place : place + length]
        if len(value) != length:
            raise ValueError("a column is cut")
        place += length
        if kind == 0:
            yield None
        elif kind == 7:
            yield struct.unpack(">d", value)[0]
        elif kind < 12:
            yield int.from_bytes(value, signed=True) if length else kind - 8
        else:
            yield value.decode() if kind % 2 else value


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a number of variable length, and the place after it."""
    value = 0
    for place in range(at, at + 9):
        byte = data[place]
        if place == at + 8:
            return (value << 8) | byte, place + 1
        value = (value << 7) | (byte & 0x7F)
        if byte < 0x80:
            return value, place + 1
    raise ValueError("a number has no end")
