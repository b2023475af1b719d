"""Opening of the journal when a proxy starts.

A damaged file is renamed and salvaged first; one of an older program is renamed.
"""

import contextlib
import logging
import sqlite3
from dataclasses import dataclass, replace
from pathlib import Path

from core.journal.batch import is_damage
from core.journal.damage import find_damage, salvage
from core.journal.file import mark_of, set_aside
from core.journal.writer import Journal, JournalError, OlderJournal, export_remedy
from core.state import State

log = logging.getLogger(__name__)

CHECKED_WHOLE = 64 << 20
"""Bytes up to which a journal is checked whole at each start, which takes 0.2 s for the largest."""


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
    try:
        salvaged = salvage(path)
    except (sqlite3.Error, OSError) as error:
        raise JournalError(
            f"the journal is damaged ({damage}) and cannot be copied: {error}",
            str(path),
            "Make room for a copy of it, or move it away to begin a new one",
        ) from error
    total = salvaged.preserved + salvaged.missing
    notice = (
        f"the journal was damaged ({damage}): {salvaged.preserved} of {total} events are kept, "
        f"{salvaged.missing} are missing; the damaged file is {salvaged.aside.name}"
    )
    log.error("%s", notice)
    return _open(path, notice)


def _begin_new(path: Path, older: OlderJournal) -> OpenedJournal:
    """Rename a journal of an older program and begin a new one.

    The id of the proxy stays, so the episodes that the older program held are found at the server.
    """
    client_uuid = None
    with contextlib.suppress(sqlite3.Error), contextlib.closing(sqlite3.connect(path)) as db:
        row = db.execute("select value from meta where key='client_uuid'").fetchone()
        client_uuid = None if row is None else str(row[0])
    try:
        aside = set_aside(path, "older")
    except OSError as error:
        what = f"{older.what}. It cannot be renamed: {error}"
        raise JournalError(what, older.where, "Move it away to begin a new one") from error
    assert aside is not None
    notice = f"{older.what}. It is now {aside}, and a new one begins. {export_remedy(aside)}"
    log.warning("%s", notice)
    return replace(_open(path, notice), client_uuid=client_uuid)


def _open(path: Path, notice: str = "") -> OpenedJournal:
    """Open it, check it, and read its state.

    Of a large journal that is not marked as damaged only `meta` is checked here, and the rest in
    the background, see `proxy.control.journal_alerts`.
    """
    with contextlib.ExitStack() as on_error:
        journal = Journal(path)
        on_error.callback(journal.close)
        try:
            marked = mark_of(path).exists()
            if marked or not journal.error:  # after a full disk no second connection can read it
                whole = marked or path.stat().st_size <= CHECKED_WHOLE
                if damage := find_damage(path, "" if whole else "meta"):
                    raise DamagedPages(damage)
                mark_of(path).unlink(missing_ok=True)
            client_uuid = journal.meta("client_uuid")
            opened = OpenedJournal(journal, journal.load_state(), notice, client_uuid)
        except sqlite3.Error as error:
            raise JournalError(f"the journal cannot be read: {error}", str(path)) from error
        on_error.pop_all()
        return opened
