"""Rows of events, without what other columns and rows say: the view `events` puts it back."""

import sqlite3

import msgspec

from core.events import Event, GroupEvent, GroupOpened, encode
from core.journal.file import name_of, packed
from core.journal.messages import MessageWriter

SHORT = 56
"""Bytes from which on the JSON of an event is compressed."""
CACHE = 10_000
"""Number of groups in the writer's memory; others are looked up in the file."""

Row = tuple[int, float, int | None, str, int | None, str | bytes]
"""Columns of `rows`."""

_encode = msgspec.json.encode


class RowWriter:
    """Makes the rows of events; invalid after a transaction that failed.

    Args:
        db: The writer's connection.
    """

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._messages = MessageWriter(db)
        self._groups: dict[str, tuple[int, bytes]] = {}
        """Number of the first event of a group, and the JSON of the fields that all have."""

    def row(self, event: Event) -> Row:
        """Return the row of an event; stores new messages.

        An event whose group has no beginning in the file is stored as one without a group.
        """
        opens = isinstance(event, GroupOpened)
        line = self._messages.stored(event) if isinstance(event, GroupOpened) else encode(event)
        first = line.find(b',"run_id":')
        data = line[first:] if first > 0 else b"," + line[1:]
        opened = None
        if isinstance(event, GroupEvent):
            group = self._groups.get(event.group_id) or self._stored(event.group_id)
            if group is None and opens:
                group = self._add(event.group_id, event.seq, event.run_id, event.server)
            if group is not None:
                opened = group[0]
                data = data if opens else data.removeprefix(group[1])
        small = packed(data) if len(data) >= SHORT else data
        size, stored = (None, data.decode()) if small is data else (len(data), small)
        return event.seq, event.at, opened, name_of(type(event)), size, stored

    def refresh(self) -> None:
        """Note that rows were added or deleted otherwise."""
        self._groups.clear()
        self._messages.refresh()

    def _stored(self, group_id: str) -> tuple[int, bytes] | None:
        sql = "select group_id, opened_seq, run_id, server from groups where group_id=?"
        row = self._db.execute(sql, (group_id,)).fetchone()
        return None if row is None else self._add(*row)

    def _add(self, group_id: str, seq: int, run_id: str, server: str) -> tuple[int, bytes]:
        fields = {"run_id": run_id, "server": server, "group_id": group_id}
        shared = b",%b" % _encode({name: text for name, text in fields.items() if text})[1:-1]
        if len(self._groups) >= CACHE:
            self._groups.clear()
        self._groups[group_id] = seq, shared
        return seq, shared
