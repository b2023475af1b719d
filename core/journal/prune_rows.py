"""Rows that pruning reads, and the statements that change or delete rows, texts and pages."""

import contextlib
import re
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from core.journal.texts import TextWriter, lines_in, packed, references_of

READ_BYTES = 256 << 10
"""Stored bytes after which a read ends, so that little is in memory at once."""

_GROUP_ID = re.compile(rb'"group_id":"((?:[^"\\]|\\.)*)"')


def read_rows(db: sqlite3.Connection, after: int, last: int, most: int) -> list[tuple[int, bytes]]:
    """Return the next rows of events, of `READ_BYTES` and a row at most; none at the end."""
    sql = "select seq, cast(data as blob) from events where seq>? and seq<=? order by seq limit ?"
    rows: list[tuple[int, bytes]] = []
    size = 0
    with contextlib.closing(db.execute(sql, (after, last, most))) as cursor:
        for seq, data in cursor:
            rows.append((seq, data))
            size += len(data)
            if size >= READ_BYTES:
                break
    return rows


class Listed:
    """Whether groups are listed, each looked up once.

    Args:
        db: Connection for reading.
    """

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._looked_up: dict[bytes, bool] = {}

    def has(self, line: bytes) -> bool:
        """Return whether a line up to the base belongs to a remaining group."""
        match = _GROUP_ID.search(line)
        if match is None:
            return False
        listed = self._looked_up.get(match[1])
        if listed is None:
            name = str(msgspec.json.decode(b'"' + match[1] + b'"'))
            row = self._db.execute("select 1 from groups where id=?", (name,)).fetchone()
            listed = self._looked_up[match[1]] = row is not None
        return listed


@dataclass(frozen=True, slots=True)
class RowChange:
    """Change of one row of events."""

    seq: int
    data: bytes | None
    """The row with the remaining lines; None to delete it."""
    pins: frozenset[int]
    """Texts of the remaining lines."""
    unpinned: frozenset[int]
    """Texts only of the deleted lines."""
    same: bool = False

    @classmethod
    def of(cls, listed: Listed, seq: int, data: bytes) -> "RowChange":
        """Return the change of a row up to the base."""
        lines = lines_in(data)
        stay = [line for line in lines if listed.has(line)]
        pins = frozenset(number for line in stay for number in references_of(line))
        others = frozenset(number for line in lines for number in references_of(line)) - pins
        if not stay:
            return cls(seq, None, pins, others)
        if len(stay) == len(lines):
            return cls(seq, data, pins, others, same=True)
        return cls(seq, packed(b"\n".join(stay)), pins, others)


def change_rows(changes: Sequence[RowChange], db: sqlite3.Connection, _: TextWriter) -> None:
    """Rewrite or delete rows."""
    for one in changes:
        gone = [(text, one.seq) for text in one.unpinned]
        db.executemany("delete from pins where text=? and seq=?", gone)
        pins = [(text, one.seq) for text in one.pins]
        db.executemany("insert or ignore into pins values (?,?)", pins)
        if one.data is None:
            db.execute("delete from events where seq=?", (one.seq,))
        elif not one.same:
            db.execute("update events set data=? where seq=?", (one.data, one.seq))


def set_cleaned(seq: int, db: sqlite3.Connection, _: TextWriter) -> None:
    """Record the event up to which the rows are clean."""
    db.execute("insert or replace into meta values ('cleaned', ?)", (str(seq),))
    db.execute("delete from meta where key='unlisted'")


def delete_texts(
    unused: Sequence[tuple[bytes, int]], bound: int, db: sqlite3.Connection, texts: TextWriter
) -> None:
    """Delete texts, except those used meanwhile."""
    sql = "delete from text_index where hash=? and used<?"
    gone = [(key, one) for key, one in unused if db.execute(sql, (key, bound)).rowcount]
    db.executemany("delete from texts where id=?", [(one,) for _, one in gone])
    texts.forget(key for key, _ in gone)


def release_pages(pages: int, db: sqlite3.Connection, _: TextWriter) -> None:
    """Release free pages by moving the last pages of the file to their places."""
    for _page in range(pages):  # `sqlite3` stops at its first row: one page, whatever the argument
        db.execute("pragma incremental_vacuum(1)")
