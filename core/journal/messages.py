"""Messages of requests, each stored once: a request names its last message, a message its parent.

The id of a message is found by the hash of the message before it and its own JSON. What a request
sends beside its messages and is long, such as its tools, is stored like a message before the first
one. So a conversation takes the space of its distinct messages, however many requests repeat it.
"""

import hashlib
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ajet_swarm.common.text import content_text
from core.events import AnyEvent, GroupOpened, decode, encode
from core.journal.file import packed, unpacked

QUERY_KEPT = 200
"""Characters of the query that a row contains even if they are in a message too."""
LONG = 256
"""Bytes of JSON from which on a list or object of the request is stored apart."""
CACHE = 50_000
"""Number of hashes in the writer's memory; others are looked up in the file."""
CACHE_BYTES = 32 << 20
"""Bytes of messages in a reader's memory."""
AHEAD = 16
"""Messages that a reader reads at once: those of a conversation are often adjacent."""
LOST = "[this text is missing in the journal]"

_encode = msgspec.json.encode


class Reference(msgspec.Struct, omit_defaults=True):
    """Fields of a stored request that are not fields of its event."""

    last_message: int = 0
    """Id of its last message; 0 if its messages are in the row."""
    apart: bool = False
    """Whether the message without a parent is what the request has beside its messages."""
    query_message: int = 0
    """Id of the message whose text is the query; 0 if the query is in the row."""


# --- writing ------------------------------------------------------------------------------------


class MessageWriter:
    """Stores the messages of requests; invalid after a transaction that failed.

    Args:
        db: The writer's connection.
    """

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._known: dict[bytes, int] = {}
        """Id by hash, the most recently used last."""
        self._last = 0
        self.refresh()

    def stored(self, event: GroupOpened) -> bytes:
        """Return the JSON of a request that names its last message; stores new messages."""
        messages = event.body.get("messages")
        if not isinstance(messages, list) or not messages:
            return encode(event)
        body, apart = dict(event.body), dict[str, Any]()
        body["messages"] = []
        for name, value in event.body.items():
            is_list = isinstance(value, list | dict) and name != "messages"
            if is_list and len(_encode(value)) >= LONG:
                apart[name], body[name] = value, None
        chain = [_encode(apart)] if apart else []
        chain += [_encode(message) for message in messages]
        ids = self._ids(chain)[-len(messages) :]
        reference, query = Reference(ids[-1], bool(apart)), event.query
        if len(query) > QUERY_KEPT:
            for number, message in zip(reversed(ids), reversed(messages), strict=True):
                if isinstance(message, Mapping) and content_text(message.get("content")) == query:
                    reference.query_message, query = number, query[:QUERY_KEPT]
                    break
        row = encode(msgspec.structs.replace(event, body=body, query=query))
        return b"%b,%b" % (row[:-1], _encode(reference)[1:])

    def _ids(self, chain: Sequence[bytes]) -> list[int]:
        """Return the ids of messages of which each is the parent of the next; store new ones."""
        hashes: list[bytes] = []
        before = b""
        for data in chain:
            before = hashlib.blake2b(before + data, digest_size=16).digest()
            hashes.append(before)
        unknown = [digest for digest in hashes if digest not in self._known]
        for first in range(0, len(unknown), 500):
            some = unknown[first : first + 500]
            marks = ",".join("?" * len(some))
            sql = f"select hash, id from messages where hash in ({marks})"
            self._known.update(self._db.execute(sql, some).fetchall())
        ids: list[int] = []
        rows: list[tuple[int, bytes, int | None, int, bytes]] = []
        for key, data in zip(hashes, chain, strict=True):
            number = self._known.pop(key, 0)
            if not number:
                number = self._last = self._last + 1
                parent = ids[-1] if ids else None
                rows.append((number, key, parent, len(data), packed(data)))
            self._known[key] = number
            ids.append(number)
        self._db.executemany("insert into messages values (?,?,?,?,?)", rows)
        while len(self._known) > CACHE:
            del self._known[next(iter(self._known))]
        return ids

    def refresh(self) -> None:
        """Note that messages were added or deleted otherwise."""
        self._known.clear()
        sql = "select coalesce(max(id), 0) from messages"
        self._last = max(self._last, self._db.execute(sql).fetchone()[0])


# --- reading ------------------------------------------------------------------------------------


class MessageReader:
    """Puts messages back into requests.

    Args:
        db: Connection for reading.
    """

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self.lost = 0
        """Number of times that a message was missing or damaged."""
        self._read: dict[int, tuple[int | None, int, bytes]] = {}
        """Parent, size and data of messages, by id."""
        self._bytes = 0

    def event(self, row: bytes, *, whole: bool = True) -> AnyEvent:
        """Return the event of a row.

        Args:
            row: The JSON in `events`.
            whole: Whether a request has its messages; if not, it has its query only.

        Raises:
            msgspec.MsgspecError: This version does not know such an event.
            UnicodeDecodeError: The row is damaged.
        """
        event = decode(row)
        if not isinstance(event, GroupOpened) or b'"last_message":' not in row:
            return event
        reference = msgspec.json.decode(row, type=Reference)
        if whole and reference.last_message:
            self._restore(event.body, reference)
        if reference.query_message:
            query = self._query(reference.query_message)
            event = msgspec.structs.replace(event, query=query)
        return event

    def _restore(self, body: dict[str, Any], reference: Reference) -> None:
        """Put its messages into a request, and what it has beside them."""
        chain: list[bytes] = []
        number: int | None = reference.last_message
        while number is not None:
            entry = self._entry(number)
            if entry is None:
                chain.append(_encode({"role": "system", "content": LOST}))
                break
            number, data = entry
            chain.append(data)
        if reference.apart and number is None:
            body.update(msgspec.json.decode(chain.pop()))
        chain.reverse()
        body["messages"] = msgspec.json.decode(b"[%b]" % b",".join(chain))

    def _query(self, number: int) -> str:
        entry = self._entry(number)
        message = None if entry is None else msgspec.json.decode(entry[1])
        return LOST if message is None else content_text(message.get("content"))

    def _entry(self, number: int) -> tuple[int | None, bytes] | None:
        """Return the parent and the JSON of a message; None if it cannot be read."""
        if number not in self._read:
            self._read_from(number)
        parent, size, data = self._read.get(number, (None, -1, b""))
        try:
            if size < 0 or (parent is not None and parent >= number):
                raise ValueError("it is missing")
            return parent, unpacked(data, size)
        except ValueError:
            self.lost += 1
            return None

    def _read_from(self, number: int) -> None:
        if self._bytes > CACHE_BYTES:
            self._read.clear()
            self._bytes = 0
        sql = "select id, parent, size, zlib from messages where id<=? order by id desc limit ?"
        for key, parent, size, data in self._db.execute(sql, (number, AHEAD)):
            self._read[key] = parent, size, data
            self._bytes += len(data)
