"""HTTP/1.1 answers from bytes; no I/O.

Most answers of a swarm server come in one piece with a content length, and are read without being
looked at twice; everything else the standard allows goes the long way.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache

MAX_HEAD = 1 << 16
"""Bytes of an answer's head."""
_LENGTH = b"\r\ncontent-length:"
_CODED = b"\r\ntransfer-encoding:"
_CONNECTION = b"\r\nconnection:"
_BODILESS = (b"204", b"304")


class MalformedResponse(ValueError):
    """What came is no HTTP answer."""


class BodyTooLarge(ValueError):
    """The body is larger than the bound."""


class Headers(Mapping[str, str]):
    """Headers of an answer, looked at when they are asked for; names in any case."""

    __slots__ = ("_found", "_head")

    def __init__(self, head: bytes) -> None:
        self._head = head
        self._found: dict[str, str] | None = None

    def _all(self) -> dict[str, str]:
        if self._found is None:
            lines = self._head.decode("latin-1").split("\r\n")[1:]
            pairs = (line.partition(":") for line in lines if ":" in line)
            self._found = {name.strip().lower(): value.strip() for name, _, value in pairs}
        return self._found

    def __getitem__(self, name: str) -> str:
        return self._all()[name.lower()]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())


headers = lru_cache(maxsize=512)(Headers)
"""`Headers` of a head, kept: most heads of a server are the same for a second."""


def parse_whole(data: bytes, largest: int) -> tuple[int, bytes, bytes, bool] | None:
    """Status, head, body and whether the connection stays, when `data` is just one plain answer.

    Plain is what nearly all are: final, with a content length and nothing else that frames it.
    None sends it to a `ResponseParser`.
    """
    end = data.find(b"\r\n\r\n")
    if end < 0:
        return None
    head = data[:end]
    plain = _plain(head)
    if plain is None:
        return None
    status, length, keep = plain
    if length != len(data) - end - 4 or length > largest:
        return None
    return status, head, data[end + 4 :], keep


@lru_cache(maxsize=512)
def _plain(head: bytes) -> tuple[int, int, bool] | None:
    """Status, length of the body and whether the connection stays; None when it is not plain.

    Kept, as `headers`.
    """
    low = head.lower()
    at = low.find(_LENGTH)
    if not low.startswith(b"http/1.1 ") or at < 0 or _CODED in low or low.count(_LENGTH) > 1:
        return None
    told, status = _value(low, _LENGTH), low[9:12]
    if not (told.isdigit() and status.isdigit()) or len(told) > 18:
        return None
    if status in _BODILESS or status.startswith(b"1"):
        return None
    keep = _CONNECTION not in low or b"close" not in _value(low, _CONNECTION)
    return int(status), int(told), keep


class ResponseParser:
    """Reads one answer. Feed it what comes; `done` tells when it is whole.

    Args:
        largest: Bytes of the largest body accepted.

    Attributes:
        status: 0 until the head is there.
        head: The bytes of the head, without the empty line.
        parts: What came of the body since it was last taken.
        done: The answer is whole.
        keep: The connection can be used again.
    """

    __slots__ = ("_chunked", "_got", "_largest", "_left", "_rest", "done", "head", "keep", "parts",
                 "status")  # fmt: skip

    def __init__(self, largest: int) -> None:
        self.status = 0
        self.head = b""
        self.parts: list[bytes] = []
        self.done = False
        self.keep = True
        self._largest = largest
        self._rest = b""
        self._got = 0
        self._left = -1
        """Bytes of the body, or of its chunk, that are still to come; -1 when that is not told."""
        self._chunked = False

    def feed(self, data: bytes) -> None:
        """More bytes.

        Raises:
            BadAnswer: they make no answer.
            TooMuch: the body is too large.
        """
        if self.done:  # bytes behind the answer belong to nobody
            self.keep = False
            return
        if not self.status:
            data = self._begin(self._rest + data if self._rest else data)
            if not self.status:
                return
        self._go_on(data)

    def _go_on(self, data: bytes) -> None:
        if self.done:
            self.keep = self.keep and not data
        elif self._chunked:
            self._chunks(self._rest + data if self._rest else data)
        elif data:
            self._body(data)

    def end(self) -> None:
        """The connection was closed.

        Raises:
            BadAnswer: in the midst of the answer.
        """
        if not self.done:
            if not self.status or self._chunked or self._left >= 0:
                raise MalformedResponse("it ended in the midst of the answer")
            self.done = True
        self.keep = False

    def _begin(self, data: bytes) -> bytes:
        """Look for the head; returns what follows it."""
        end = data.find(b"\r\n\r\n")
        if end < 0:
            if len(data) > MAX_HEAD or not data.startswith(b"HTTP/1."[: len(data)]):
                raise MalformedResponse("no HTTP answer")
            self._rest = data
            return b""
        head, rest = data[:end], data[end + 4 :]
        self._rest = b""
        status = head[9:12]
        if not (head.startswith((b"HTTP/1.1 ", b"HTTP/1.0 ")) and status.isdigit()):
            raise MalformedResponse("no HTTP answer")
        code = int(status)
        if code < 200:
            if code == 101 or code < 100:
                raise MalformedResponse(f"an answer with status {code}")
            return self._begin(rest)
        self.head, self.status = head, code
        self._frame(head.lower())
        return rest

    def _frame(self, head: bytes) -> None:
        """How long the body is, and whether the connection stays."""
        if _CONNECTION in head or head.startswith(b"http/1.0"):
            self.keep = head.startswith(b"http/1.1") and b"close" not in _value(head, _CONNECTION)
        if _CODED in head:
            if not _value(head, _CODED).endswith(b"chunked") or _LENGTH in head:
                raise MalformedResponse("a transfer coding that is not understood")
            self._chunked = True
        elif self.status in (204, 304):
            self.done = True
        elif _LENGTH in head:
            told = _value(head, _LENGTH)
            if not told.isdigit() or head.count(_LENGTH) > 1:
                raise MalformedResponse("a content length that is not understood")
            self._left = int(told[:19])
            if self._left > self._largest:
                raise BodyTooLarge
            self.done = self._left == 0

    def _body(self, data: bytes) -> None:
        if self._left >= 0:
            if len(data) > self._left:
                data = data[: self._left]
                self.keep = False
            self._left -= len(data)
            self.done = self._left == 0
        self._add(data)

    def _add(self, data: bytes) -> None:
        self._got += len(data)
        if self._got > self._largest:
            raise BodyTooLarge
        self.parts.append(data)

    def _chunks(self, data: bytes) -> None:
        at = 0
        while not self.done:
            if self._left > 0:
                part = data[at : at + self._left]
                if not part:
                    break
                self._add(part)
                self._left -= len(part)
                at += len(part)
                continue
            end = data.find(b"\r\n", at)
            if end < 0:
                break
            at = self._line(data[at:end], end + 2)
        self._rest = data[at:]
        self.keep = self.keep and not (self.done and self._rest)
        if len(self._rest) > MAX_HEAD:
            raise MalformedResponse("a chunk's head without an end")

    def _line(self, line: bytes, at: int) -> int:
        """A line between chunks: the end of one, the size of the next, a trailer, the end."""
        if self._left == 0:  # behind a chunk, or behind the last one
            if line:
                raise MalformedResponse("a chunk longer than it said")
            self._left = -1
        elif self._left == -1:
            size = line.split(b";", 1)[0].strip()
            try:
                self._left = int(size, 16) if size.isalnum() else -1
            except ValueError:
                self._left = -1
            if self._left < 0:
                raise MalformedResponse("a chunk's size that is not understood")
            if self._left == 0:
                self._left = -2
        elif not line:  # -2: trailers, up to an empty line
            self.done = True
        return at


def _value(head: bytes, name: bytes) -> bytes:
    at = head.find(name) + len(name)
    end = head.find(b"\r\n", at)
    return head[at : end if end >= 0 else len(head)].strip()
