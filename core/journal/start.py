"""Opening of the journal when a proxy starts; a damaged file is renamed and salvaged first."""

import contextlib
import logging
import sqlite3
from dataclasses import dataclass
from pathlib import Path

from core.journal.batch import is_damage
from core.journal.damage import find_damage, salvage
from core.journal.file import mark_of
from core.journal.writer import Journal, JournalError
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
    """Message for the operator about a salvage; empty without one."""


def open_journal(path: Path) -> OpenedJournal:
    """Open a journal and read its state; salvage it if the file is damaged.

    Raises:
        JournalError: The journal cannot be opened for another reason, or there is no room to
            salvage it.
    """
    try:
        return _open(path)
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
            opened = OpenedJournal(journal, journal.load_state(), notice)
        except sqlite3.Error as error:
            raise JournalError(f"the journal cannot be read: {error}", str(path)) from error
        on_error.pop_all()
        return opened
