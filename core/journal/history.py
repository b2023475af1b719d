"""Pages of all groups in the journal, rebuilt by the reducer, including those no longer in state.

A group's place is its rank by opening, 0 for the oldest: new groups do not change it. Places of
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
from core.reducer import apply
from core.state import Group, State

PAGE_CAP = 200
"""Maximum number of groups in a page."""

END = (1 << 63) - 1
"""Greater than the number of any event."""
_GROUP_ID = re.compile(rb'"group_id":"((?:[^"\\]|\\.)*)"')
_INDEX = "select id, opened_seq, closed_seq, opened_at, phase, cause, query from groups"
_ROWS = "select seq, cast(data as blob) from events where seq>=? and seq<=?"


class HistoryPage(msgspec.Struct, frozen=True):
    """Consecutive groups in the order in which they were opened."""

    first: int
    """Place of the first one."""
    total: int
    """Number of groups ever opened."""
    groups: list[Group]
    start: int = 0
    """Place of the oldest group in the journal, which is the number of pruned groups. Rated groups
    that were not pruned move to the first places after the pruned ones."""
    since: float = 0.0
    """Unix seconds of the newest pruned event; 0 if nothing was pruned."""


class ReadableJournal(Protocol):
    """Any journal that can be read."""

    def reading(self) -> AbstractContextManager[sqlite3.Connection]:
        """Return a new connection."""
        ...


def read_page(
    journal: ReadableJournal, first: int, limit: int, until: int | None = None
) -> HistoryPage:
    """Return up to `limit` groups from place `first` on.

    Args:
        journal: The journal.
        first: Place of the first group; places of pruned groups are skipped.
        limit: Maximum number of groups, up to `PAGE_CAP`.
        until: Number of the last event to apply: the page is as it was then.
    """
    with journal.reading() as db:
        return _page(db, first, limit, END if until is None else until)


def read_group(journal: ReadableJournal, group_id: str) -> Group | None:
    """Return one group by its whole id; None if it is not in the journal."""
    with journal.reading() as db:
        row = db.execute(f"{_INDEX} where id=?", (group_id,)).fetchone()
        return None if row is None else _rebuild(db, [row]).get(group_id) or _from_row(row)


def _page(db: sqlite3.Connection, first: int, limit: int, until: int) -> HistoryPage:
    base = base_of(db)
    start, since = (base.groups, base.at) if base is not None else (0, 0.0)
    sql = "select count(*) from groups" + ("" if until == END else " where opened_seq<=?")
    count = int(db.execute(sql, () if until == END else (until,)).fetchone()[0])
    end, first = max(0, first) + max(0, min(limit, PAGE_CAP)), max(0, first, start)
    rows = db.execute(
        f"{_INDEX} where opened_seq<=? order by opened_seq limit ? offset ?",
        (until, max(0, end - first), first - start),
    ).fetchall()
    rebuilt = _rebuild(db, rows, until)
    groups = [rebuilt.get(row[0]) or _from_row(row) for row in rows]
    return HistoryPage(first, start + count, groups, start, since)


_Row = tuple[str, int, int | None, float, str, str, str]


def _rebuild(db: sqlite3.Connection, rows: list[_Row], until: int = END) -> dict[str, Group]:
    """Return the groups of `rows` by id, without those whose events are deleted."""
    if not rows:
        return {}
    group_ids = {row[0].encode() for row in rows}
    state = State()
    for event in _events(db, rows, group_ids):
        if event.seq <= until:
            apply(state, event)
    return state.groups


def _events(db: sqlite3.Connection, rows: list[_Row], group_ids: set[bytes]) -> list[AnyEvent]:
    begin = min(row[1] for row in rows)
    # A group that never closed has no last event: the groups open at the same time bound it.
    last = max((row[2] for row in rows if row[2] is not None), default=max(row[1] for row in rows))
    end = db.execute("select min(seq) from events where seq>=?", (last,)).fetchone()[0]
    matches = lines_of(db.execute(_ROWS, (begin, end or last)), group_ids)
    seen = {seq for seq, _ in matches}
    marks = ",".join("?" * len(rows))
    late = db.execute(
        "select seq, cast(data as blob) from events"
        f" where seq in (select seq from late where group_id in ({marks}))",
        [row[0] for row in rows],
    )
    matches += [(seq, lines) for seq, lines in lines_of(late, group_ids) if seq not in seen]
    texts = TextReader(db)
    return [
        event
        for seq, lines in sorted(matches, key=lambda each: each[0])
        for event in decoded(seq, lines, texts)
        if isinstance(event, GroupEvent)
    ]


def lines_of(cursor: sqlite3.Cursor, group_ids: set[bytes]) -> list[tuple[int, list[bytes]]]:
    """Return number and lines of the rows that have events of these groups, without the others.

    Args:
        cursor: Rows of `events`: number and data.
        group_ids: Ids of the groups.
    """
    rows = []
    for seq, data in cursor:
        lines = [
            line
            for line in lines_in(data)
            if (match := _GROUP_ID.search(line)) is not None and match[1] in group_ids
        ]
        if lines:
            rows.append((int(seq), lines))
    return rows


def _from_row(row: _Row) -> Group:
    """Return a group whose events cannot be read, with the columns of its row."""
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
