"""Column `groups.rated` where it is unknown or was written by an earlier version, see
`core.journal.rated`.
"""

import sqlite3
from collections.abc import Callable, Sequence
from functools import partial

from core.journal import storage
from core.journal.batch import TaskAction
from core.journal.rated import is_rated
from core.journal.reader import JournalReader
from core.journal.texts import TextWriter

_SKIPS_APART = "skips_apart"
"""Key in `meta` of a journal in which no group has a 1 because of a skip, as earlier versions wrote
it."""
_GROUPS = 32
"""Groups of one task."""


class RatedMarks:
    """Looks up from their events whether groups count as rated, and stores that.

    Args:
        journal: The journal.
        run: Has the writer carry out a transaction; blocks until it is done.
    """

    def __init__(self, journal: JournalReader, run: Callable[[TaskAction], None]) -> None:
        self._journal = journal
        self._run = run

    def look_up(self, db: sqlite3.Connection, groups: Sequence[str]) -> None:
        """Store whether groups count as rated, where that is unknown."""
        ratings = [(is_rated(storage.events_of(db, one)), one) for one in groups]
        self._run(partial(_set_rated, ratings))

    def correct(self) -> None:
        """Look up once whether the groups that did not end as DONE count as rated: earlier versions
        counted a skip."""
        with self._journal.reading() as db:
            if db.execute("select 1 from meta where key=?", (_SKIPS_APART,)).fetchone():
                return
            sql = "select id from groups where rated=1 and phase<>'DONE'"
            groups = [str(row[0]) for row in db.execute(sql).fetchall()]
            for first in range(0, len(groups), _GROUPS):
                some = groups[first : first + _GROUPS]
                self._run(partial(_forget_rated, some))
                self.look_up(db, some)
        self._run(_set_skips_apart)


def _set_rated(ratings: Sequence[tuple[bool, str]], db: sqlite3.Connection, _: TextWriter) -> None:
    """Store whether groups count as rated where that is unknown; an event may be faster."""
    db.executemany("update groups set rated=? where id=? and rated is null", ratings)


def _forget_rated(groups: Sequence[str], db: sqlite3.Connection, _: TextWriter) -> None:
    """Store that only their events show whether these groups count as rated."""
    db.executemany("update groups set rated=null where id=?", [(one,) for one in groups])


def _set_skips_apart(db: sqlite3.Connection, _: TextWriter) -> None:
    """Record that no group counts as rated because of a skip."""
    db.execute("insert or replace into meta values (?, '1')", (_SKIPS_APART,))
