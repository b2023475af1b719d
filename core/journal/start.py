"""Opens the journal for a proxy that starts: a damaged file is set aside and salvaged first."""

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


class DamagedPages(sqlite3.DatabaseError):
    """`quick_check` found damaged pages."""

    sqlite_errorcode = sqlite3.SQLITE_CORRUPT


@dataclass(frozen=True, slots=True)
class OpenedJournal:
    """A journal and what is in it."""

    journal: Journal
    state: State
    notice: str
    """What happened to the file, for the operator; empty when nothing did."""


def open_journal(path: Path) -> OpenedJournal:
    """Open a journal and read its state; salvage it where its file is damaged.

    Raises:
        JournalError: it cannot be opened for another reason, or there is no room to salvage it.
    """
    try:
        return _opened(path)
    except JournalError as error:
        if not is_damage(error.__cause__):
            raise
        damage = str(error.__cause__)
    log.error("the journal is damaged: %s. What can be read of it is copied", damage)
    try:
        found = salvage(path)
    except (sqlite3.Error, OSError) as error:
        raise JournalError(
            f"the journal is damaged ({damage}) and cannot be copied: {error}",
            str(path),
            "Make room for a copy of it, or move it away to begin a new one",
        ) from error
    total = found.kept + found.missing
    notice = (
        f"the journal was damaged ({damage}): {found.kept} of {total} events are kept, "
        f"{found.missing} are missing; the damaged file is {found.aside.name}"
    )
    log.error("%s", notice)
    return _opened(path, notice)


def _opened(path: Path, notice: str = "") -> OpenedJournal:
    """Open it, check it where an earlier run marked it as damaged, and read its state."""
    journal = Journal(path)
    try:
        if mark_of(path).exists():
            if damage := find_damage(path):
                raise DamagedPages(damage)
            mark_of(path).unlink(missing_ok=True)
        return OpenedJournal(journal, journal.load_state(), notice)
    except sqlite3.Error as error:
        journal.close()
        raise JournalError(f"the journal cannot be read: {error}", str(path)) from error
