"""Groups of the whole journal by page: what has fallen out of state, made again by the reducer.

A group's place is its rank by opening, 0 for the oldest: new groups do not move it. Places of
pruned groups are empty.
"""

import re
import sqlite3
from contextlib import AbstractContextManager
from typing import Protocol

import msgspec

from core.events import AnyEvent, GroupEvent
from core.journal.storage import base_of, decoded
from core.journal.texts import TextReader, lines_in
from core.reducer import reduce
from core.state import Group, State

PAGE_CAP = 200
"""Groups of one page at most."""

END = (1 << 63) - 1
"""Comes after every event."""
_GROUP_ID = re.compile(rb'"group_id":"((?:[^"\\]|\\.)*)"')
_INDEX = "select id, opened_seq, closed_seq, opened_at, phase, cause, query from groups"
_ROWS = "select seq, cast(data as blob) from events where seq>=? and seq<=?"


class HistoryPage(msgspec.Struct, frozen=True):
    """Some groups in the order in which they were opened."""

    first: int
    """Place of the first one, from 0 for the oldest."""
    total: int
    """Groups that were ever opened."""
    groups: list[Group]
    start: int = 0
    """Place of the oldest group that is still there: as many were pruned. Rated groups that were
    kept moved up to the first places after the pruned ones."""
    since: float = 0.0
    """When the newest pruned event happened, Unix seconds; 0 when nothing was pruned."""


class ReadableJournal(Protocol):
    """A journal that can be read, whoever writes it."""

    def reading(self) -> AbstractContextManager[sqlite3.Connection]:
        """A connection of one's own."""
        ...


def read_page(
    journal: ReadableJournal, first: int, limit: int, until: int | None = None
) -> HistoryPage:
    """Up to `limit` groups from place `first` on, as the reducer leaves them.

    Args:
        until: Number of the last event that counts: the page is as it was then.
    """
    with journal.reading() as db:
        return _page(db, first, limit, END if until is None else until)


def read_group(journal: ReadableJournal, group_id: str) -> Group | None:
    """One group by its whole id, however old; None when the journal does not know it."""
    with journal.reading() as db:
        row = db.execute(f"{_INDEX} where id=?", (group_id,)).fetchone()
        return None if row is None else _made(db, [row]).get(group_id) or _bare(row)


def _page(db: sqlite3.Connection, first: int, limit: int, until: int) -> HistoryPage:
    base = base_of(db)
    start, since = (base.groups, base.at) if base is not None else (0, 0.0)
    there = "select count(*) from groups" + ("" if until == END else " where opened_seq<=?")
    count = int(db.execute(there, () if until == END else (until,)).fetchone()[0])
    end, first = max(0, first) + max(0, min(limit, PAGE_CAP)), max(0, first, start)
    rows = db.execute(
        f"{_INDEX} where opened_seq<=? order by opened_seq limit ? offset ?",
        (until, max(0, end - first), first - start),
    ).fetchall()
    made = _made(db, rows, until)
    groups = [made.get(row[0]) or _bare(row) for row in rows]
    return HistoryPage(first, start + count, groups, start, since)


_Row = tuple[str, int, int | None, float, str, str, str]


def _made(db: sqlite3.Connection, rows: list[_Row], until: int = END) -> dict[str, Group]:
    """The groups of `rows` by id; those whose events are gone are left out."""
    if not rows:
        return {}
    wanted = {row[0].encode() for row in rows}
    state = State()
    for event in _events(db, rows, wanted):
        if event.seq <= until:
            reduce(state, event)
    return state.groups


def _events(db: sqlite3.Connection, rows: list[_Row], wanted: set[bytes]) -> list[AnyEvent]:
    begin = min(row[1] for row in rows)
    # A group that never closed has no end to look for: what else was open with it bounds it.
    last = max((row[2] for row in rows if row[2] is not None), default=max(row[1] for row in rows))
    end = db.execute("select min(seq) from events where seq>=?", (last,)).fetchone()[0]
    found = _wanted(db.execute(_ROWS, (begin, end or last)), wanted)
    seen = {seq for seq, _ in found}
    marks = ",".join("?" * len(rows))
    late = db.execute(
        f"select seq, cast(data as blob) from events where group_id in ({marks})"
        f" or seq in (select seq from late where group_id in ({marks}))",
        [row[0] for row in rows] * 2,
    )
    found += [(seq, lines) for seq, lines in _wanted(late, wanted) if seq not in seen]
    texts = TextReader(db)
    return [
        event
        for seq, lines in sorted(found, key=lambda each: each[0])
        for event in decoded(seq, lines, texts)
        if isinstance(event, GroupEvent)
    ]


def _wanted(cursor: sqlite3.Cursor, wanted: set[bytes]) -> list[tuple[int, list[bytes]]]:
    found = []
    for seq, data in cursor:
        lines = [
            line
            for line in lines_in(data)
            if (match := _GROUP_ID.search(line)) is not None and match[1] in wanted
        ]
        if lines:
            found.append((int(seq), lines))
    return found


def _bare(row: _Row) -> Group:
    """What the index knows of a group whose events cannot be read."""
    group_id, _, _, opened_at, phase, cause, query = row
    return Group(
        group_id=group_id,
        request_id="",
        server="",
        task_id="",
        n=0,
        query=query,
        opened_at=opened_at,
        phase=phase,
        cause=cause,
    )
