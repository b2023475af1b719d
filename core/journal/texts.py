"""Storage of the long texts of events: each text is stored once, and lines refer to it.

A text is a piece of an event's JSON, such as the string of a message. The table `texts` has it
under a number, `text_index` gives the number by the text's hash. A line with references is

    @[GAP,STEP,GAP,STEP,...]{"kind":...}

Each pair means GAP bytes of the line followed by a text; STEP is the difference of its number to
the previous one. The original line is restored byte for byte.

Rows of `events` and `texts` may be compressed by zlib; such a row begins with `x`, JSON never does.
"""

import contextlib
import hashlib
import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from core.events import CandidatesAnswered, Event, GroupOpened
from core.journal.dictionary import DICTIONARY

LEAST = 128
"""Minimum bytes of JSON of a text of a request that is stored separately."""
LEAST_ANSWER = 2_048
"""The same for a text of a candidate's message: most are never sent again."""
STALE = 5_000
"""Interval in events at which the use of a text is recorded: its last use is at most this many
events after the recorded number."""
CACHE_TEXTS = 20_000
"""Number of hashes in the writer's memory; others are looked up in the file."""
CACHE_BYTES = 32 << 20
"""Bytes of texts in a reader's cache."""
LOST = b'"[this text is missing in the journal]"'

_LEVEL = 3
"""Compression level. Measured: 41 µs and 656 bytes for a row of 3 kB; level 6: 73 µs, 596 bytes."""
_SMALL = 96
"""Size below which data is not compressed."""
_ONE_WINDOW = 4_096
"""Size up to which a window of 8 kB, which has room for the dictionary too, compresses as well as
the largest one. Measured for a text of 130 bytes: 18 instead of 72 µs, because zlib does not clear
256 kB of memory first."""
_HEADER = zlib.compressobj(_LEVEL, zdict=DICTIONARY).flush()[:2]
"""Header of every compressed row: the one of the largest window, valid for a smaller one too."""
_MARK = ord("@")
_PACKED = ord("x")
_BARE = (bool, int, float)
"""Types of values without text."""
UNDECODABLE = (msgspec.MsgspecError, UnicodeDecodeError)
"""Errors of JSON that is damaged or of another version."""
_encode = msgspec.json.encode


def packed(data: bytes) -> bytes:
    """Compress a row if that makes it smaller."""
    if len(data) < _SMALL:
        return data
    if len(data) <= _ONE_WINDOW:
        work = zlib.compressobj(_LEVEL, wbits=13, memLevel=6, zdict=DICTIONARY)
        compressed = _HEADER + (work.compress(data) + work.flush())[len(_HEADER) :]
    else:
        work = zlib.compressobj(_LEVEL, zdict=DICTIONARY)
        compressed = work.compress(data) + work.flush()
    return compressed if len(compressed) < len(data) else data


def unpacked(data: bytes) -> bytes:
    """Return the original of a row made by `packed`.

    Raises:
        ValueError: It is damaged.
    """
    if not data or data[0] != _PACKED:
        return data
    work = zlib.decompressobj(zdict=DICTIONARY)
    try:
        row = work.decompress(data)
    except zlib.error as error:
        raise ValueError(f"a compressed row is damaged: {error}") from error
    if not work.eof:
        raise ValueError("a compressed row is damaged: it has no end")
    return row


def readable_part(data: bytes) -> bytes:
    """Return the beginning of a possibly damaged row, as far as it can be decompressed."""
    if not data or data[0] != _PACKED:
        return data
    work, row = zlib.decompressobj(zdict=DICTIONARY), bytearray()
    for first in range(0, len(data), 64):
        try:
            row += work.decompress(data[first : first + 64])
        except zlib.error:
            break
    return bytes(row)


def lines_in(data: bytes) -> list[bytes]:
    """Return the lines of a row of `events`; none if it is damaged."""
    try:
        return unpacked(data).split(b"\n")
    except ValueError:
        return []


# --- writing ------------------------------------------------------------------------------------


def texts_of(event: Event, line: bytes) -> list[bytes]:
    """Return the JSON of an event's long texts, in the order of its line."""
    texts: list[bytes] = []
    if isinstance(event, GroupOpened):
        _strings((event.query,), LEAST, texts)
        for name, value in event.body.items():
            if isinstance(value, _BARE):
                continue
            if name == "messages" or isinstance(value, str):
                _strings((value,), LEAST, texts)
            elif isinstance(value, list | dict):  # tools, schemas: equal in each request
                data = _encode(value)
                if len(data) >= LEAST:
                    texts.append(data)
        _strings((event.reference, event.metadata), LEAST, texts)
    elif len(line) < LEAST_ANSWER:
        pass
    elif isinstance(event, CandidatesAnswered):
        _strings([one.message for one in event.candidates], LEAST_ANSWER, texts)
    return texts


def _strings(values: Iterable[Any], least: int, texts: list[bytes]) -> None:
    """Append the JSON of the long strings in `values` to `texts`."""
    for value in values:
        if isinstance(value, str):
            if len(value) * 6 >= least and len(data := _encode(value)) >= least:
                texts.append(data)
        elif not value or isinstance(value, _BARE):  # most fields of an answer are null
            continue
        elif isinstance(value, dict):  # a faster test than `Mapping`
            _strings(value.values(), least, texts)
        elif isinstance(value, list | tuple):
            _strings(value, least, texts)
        elif isinstance(value, Mapping):
            _strings(value.values(), least, texts)


class TextWriter:
    """Assigner of numbers to texts; new texts are written with the next commit.

    Invalid after a failed commit.

    Args:
        db: The writer's connection.
    """

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._known: dict[bytes, tuple[int, int]] = {}
        """Number and last recorded use by hash, most recently used last."""
        self._last = int(db.execute("select coalesce(max(id), 0) from texts").fetchone()[0])
        self._new: list[tuple[int, bytes, bytes, int]] = []
        self._used: dict[bytes, int] = {}
        self._numbers: dict[bytes, tuple[int, int]] = {}
        """Number and last recorded use of texts that `look_up` found in the file."""
        self._rows: dict[int, list[tuple[bytes, bytes]]] = {}
        """Texts and hashes of the events of `look_up`, by number of the event."""

    def shortened(self, line: bytes, event: Event) -> bytes:
        """Return the line of an event with references in place of its long texts.

        The event must be one of the last `look_up`.
        """
        references: list[int] = []
        parts: list[bytes] = []
        at = before = 0
        for text, key in self._rows.pop(event.seq):
            place = line.find(text, at)
            if place < 0:
                continue
            number = self._number(text, key, event.seq)
            references += (place - at, number - before)
            parts.append(line[at:place])
            at, before = place + len(text), number
        if not references:
            return line
        parts.append(line[at:])
        return b"@" + _encode(references) + b"".join(parts)

    def look_up(self, events: Iterable[tuple[Event, bytes]]) -> None:
        """Find the numbers of all texts of a commit by one statement.

        Each statement releases the interpreter's lock, and waiting for it costs more than the
        statement itself.

        Args:
            events: Events of the commit with their lines.
        """
        self._rows = {
            event.seq: [(text, text_hash(text)) for text in texts_of(event, line)]
            for event, line in events
        }
        keys = {key for texts in self._rows.values() for _, key in texts}
        self._numbers.clear()
        if unknown := b"".join(key for key in keys if key not in self._known):
            rows = self._db.execute(
                "with wanted(at) as (select 1 union all select at + 16 from wanted where"
                " at + 16 < length(?1))"
                " select hash, id, used from wanted cross join text_index"
                " on hash = substr(?1, at, 16)",
                (unknown,),
            )
            self._numbers.update((row[0], (row[1], row[2])) for row in rows.fetchall())

    def _number(self, text: bytes, key: bytes, seq: int) -> int:
        entry = self._known.pop(key, None) or self._numbers.get(key)
        if entry is None:
            self._last += 1
            entry = self._last, seq
            self._new.append((self._last, key, packed(text), seq))
        elif seq - entry[1] > STALE:
            entry = entry[0], seq
            self._used[key] = seq
        self._known[key] = entry
        return int(entry[0])

    def take(self) -> tuple[str, bytes, bytes]:
        """Return and clear the new texts: numbers, offsets and lengths as JSON; hashes; data.

        Only here hashes leave the memory: `look_up` did not look for those it knew, so a text of
        the commit that left earlier would be stored twice.
        """
        while len(self._known) > CACHE_TEXTS:
            del self._known[next(iter(self._known))]
        rows: list[tuple[int, int, int, int]] = []
        place = 1
        for number, _, data, seq in self._new:
            rows.append((number, place, len(data), seq))
            place += len(data)
        hashes = b"".join(one[1] for one in self._new)
        texts = b"".join(one[2] for one in self._new)
        self._new.clear()
        return _encode(rows).decode(), hashes, texts

    def take_used(self) -> list[tuple[int, bytes]]:
        """Return and clear the uses to record: number of the event, and hash of the text."""
        uses = [(seq, key) for key, seq in self._used.items()]
        self._used.clear()
        return uses

    def forget(self, hashes: Iterable[bytes]) -> None:
        """Forget texts that were deleted."""
        for key in hashes:
            self._known.pop(key, None)


# --- reading ------------------------------------------------------------------------------------


def references_of(line: bytes) -> list[int]:
    """Return the numbers of the texts in a stored line, in order."""
    return [number for _, number in _pairs(line)[0]]


def _pairs(line: bytes) -> tuple[list[tuple[int, int]], int]:
    """Return the gaps and numbers of a stored line, and the offset at which the line begins."""
    if not line or line[0] != _MARK:
        return [], 0
    end = line.find(b"]") + 1
    try:
        plain = msgspec.json.decode(line[1:end], type=list[int])
    except msgspec.MsgspecError:
        return [], 0
    number, pairs = 0, []
    for gap, step in zip(plain[::2], plain[1::2], strict=False):
        number += step
        pairs.append((gap, number))
    return pairs, end


def without_texts(line: bytes) -> bytes:
    """Return a stored line as JSON, with `LOST` in place of each text."""
    pairs, at = _pairs(line)
    return _joined(line, pairs, at, {}) if pairs else line


def _joined(
    line: bytes, pairs: Sequence[tuple[int, int]], at: int, texts: Mapping[int, bytes]
) -> bytes:
    parts: list[bytes] = []
    for gap, number in pairs:
        parts += (line[at : at + gap], texts.get(number, LOST))
        at += gap
    parts.append(line[at:])
    return b"".join(parts)


class TextReader:
    """Reader that restores the texts in lines.

    Args:
        db: Connection for reading; its journal may be without texts.
    """

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self.lost = 0
        """Number of times that a text was missing or damaged."""
        self._texts: dict[int, bytes] = {}
        self._bytes = 0

    def whole(self, lines: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the original lines; a lost text is replaced by `LOST`."""
        for line in lines:
            pairs, at = _pairs(line)
            if not pairs:
                yield line
                continue
            yield _joined(line, pairs, at, self._get([number for _, number in pairs]))

    def _get(self, numbers: Sequence[int]) -> dict[int, bytes]:
        texts = {one: self._texts[one] for one in numbers if one in self._texts}
        missing = [one for one in dict.fromkeys(numbers) if one not in texts]
        if self._bytes > CACHE_BYTES:
            self._texts.clear()
            self._bytes = 0
        for first in range(0, len(missing), 500):
            some = missing[first : first + 500]
            marks = ",".join("?" * len(some))
            rows = self._db.execute(f"select id, data from texts where id in ({marks})", some)
            for number, data in rows:
                try:
                    text = unpacked(data)
                except ValueError:
                    continue
                texts[number] = self._texts[number] = text
                self._bytes += len(text)
        self.lost += sum(one not in texts for one in missing)
        return texts


def index_again(db: sqlite3.Connection, pruned: int, last: int) -> None:
    """Rebuild `text_index` and `pins` of a salvaged journal.

    Args:
        db: Its connection.
        pruned: Number of the last pruned event.
        last: Number of the newest event.
    """
    db.execute("begin")
    for number, data in db.execute("select id, data from texts"):
        with contextlib.suppress(ValueError):
            row = (text_hash(unpacked(data)), number, last)
            db.execute("insert or ignore into text_index values (?,?,?)", row)
    for seq, data in db.execute(
        "select seq, cast(data as blob) from events where seq<=?", (pruned,)
    ):
        pins = {(number, seq) for line in lines_in(data) for number in references_of(line)}
        db.executemany("insert or ignore into pins values (?,?)", pins)
    db.execute("commit")


def text_hash(text: bytes) -> bytes:
    """Return the key of a text in `text_index`."""
    return hashlib.blake2b(text, digest_size=16).digest()
