"""Parser of HTTP/1.1 responses; no I/O.

Most responses of a swarm server arrive in one piece with a content length: `parse_whole` reads
them in one step. `ResponseParser` reads everything else that the standard allows.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache

MAX_HEAD = 1 << 16
"""Bytes of the largest response head."""
PIECE = 32
"""Bytes that each piece of a body counts in addition: tiny chunks cost time."""
_LENGTH = b"\r\ncontent-length:"
_CODED = b"\r\ntransfer-encoding:"
_CONNECTION = b"\r\nconnection:"
_BODILESS = (b"204", b"304")


class MalformedResponse(ValueError):
    """The bytes are not an HTTP response."""


class BodyTooLarge(ValueError):
    """The body, or the heads before it, are larger than the limit."""


class Headers(Mapping[str, str]):
    """Headers of a response, parsed on first access; names compare without regard to case."""

    __slots__ = ("_head", "_parsed")

    def __init__(self, head: bytes) -> None:
        self._head = head
        self._parsed: dict[str, str] | None = None

    def _all(self) -> dict[str, str]:
        if self._parsed is None:
            lines = self._head.decode("latin-1").split("\r\n")[1:]
            pairs = (line.partition(":") for line in lines if ":" in line)
            self._parsed = {name.strip().lower(): value.strip() for name, _, value in pairs}
        return self._parsed

    def __getitem__(self, name: str) -> str:
        return self._all()[name.lower()]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())


headers = lru_cache(maxsize=512)(Headers)
"""`Headers` of a head, cached: most heads of a server are identical for a second."""


def parse_whole(data: bytes, largest: int) -> tuple[int, bytes, bytes, bool] | None:
    """Return status, head, body and keep-alive of a response that `data` holds exactly.

    The response must be final and framed by a content length alone, as nearly all are. For any
    other response the result is None, and a `ResponseParser` has to parse it.
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
    """Return status, length of the body and keep-alive; None for any other head.

    Cached for the same reason as `headers`.
    """
    low = head.lower()
    at = low.find(_LENGTH)
    if not low.startswith(b"http/1.1 ") or at < 0 or _CODED in low or low.count(_LENGTH) > 1:
        return None
    length, status = _value(low, _LENGTH), low[9:12]
    if not (length.isdigit() and status.isdigit()) or len(length) > 18:
        return None
    if status in _BODILESS or status.startswith(b"1"):
        return None
    keep = _CONNECTION not in low or b"close" not in _value(low, _CONNECTION)
    return int(status), int(length), keep


class ResponseParser:
    """Incremental parser of one response; feed it bytes until `done` is set.

    Args:
        largest: Bytes of the largest body accepted.

    Attributes:
        status: HTTP status; 0 until the head is complete.
        head: Bytes of the head, without the empty line.
        body: Bytes of the body that the caller has not taken yet.
        done: Whether the response is complete.
        keep: Whether the connection can be used again.
    """

    __slots__ = (
        "_chunked",
        "_heads",
        "_largest",
        "_left",
        "_rest",
        "_size",
        "body",
        "done",
        "head",
        "keep",
        "status",
    )  # fmt: skip

    def __init__(self, largest: int) -> None:
        self.status = 0
        self.head = b""
        self.body = bytearray()
        self.done = False
        self.keep = True
        self._largest = largest
        self._rest = b""
        self._size = 0
        self._heads = 0
        """Bytes of the interim responses (1xx) so far."""
        self._left = -1
        """Missing bytes of the body, or of its chunk; -1 when the length is unknown."""
        self._chunked = False

    def feed(self, data: bytes) -> None:
        """Parse more bytes.

        Raises:
            MalformedResponse: the bytes are not a response.
            BodyTooLarge: the body is too large.
        """
        if self.done:  # bytes after the response belong to no request
            self.keep = False
            return
        if not self.status:
            data = self._begin(self._rest + data if self._rest else data)
            if not self.status:
                return
        self._parse_body(data)

    def _parse_body(self, data: bytes) -> None:
        if self.done:
            self.keep = self.keep and not data
        elif self._chunked:
            self._chunks(self._rest + data if self._rest else data)
        elif data:
            self._body(data)

    def end(self) -> None:
        """Record that the connection was closed.

        Raises:
            MalformedResponse: the response is incomplete.
        """
        if not self.done:
            if not self.status or self._chunked or self._left >= 0:
                raise MalformedResponse("it ended in the middle of the response")
            self.done = True
        self.keep = False

    def _begin(self, data: bytes) -> bytes:
        """Parse the head and return the bytes after it."""
        at = 0
        while (end := data.find(b"\r\n\r\n", at)) >= 0:
            head = data[at:end]
            at = end + 4
            status = head[9:12]
            if not (head.startswith((b"HTTP/1.1 ", b"HTTP/1.0 ")) and status.isdigit()):
                raise MalformedResponse("not an HTTP response")
            code = int(status)
            if code >= 200:
                self._rest = b""
                self.head, self.status = head, code
                self._frame(head.lower())
                return data[at:]
            if code == 101 or code < 100:
                raise MalformedResponse(f"a response with status {code}")
            self._heads += len(head)
            if self._heads > MAX_HEAD:
                raise BodyTooLarge
        self._rest = data[at:]
        if not self._rest.startswith(b"HTTP/1."[: len(self._rest)]):
            raise MalformedResponse("not an HTTP response")
        if len(self._rest) > MAX_HEAD:
            raise BodyTooLarge
        return b""

    def _frame(self, head: bytes) -> None:
        """Determine the length of the body and whether the connection can be used again."""
        if _CONNECTION in head or head.startswith(b"http/1.0"):
            self.keep = head.startswith(b"http/1.1") and b"close" not in _value(head, _CONNECTION)
        if _CODED in head:
            if _value(head, _CODED) != b"chunked" or head.count(_CODED) > 1 or _LENGTH in head:
                raise MalformedResponse("unsupported transfer coding")
            self._chunked = True
        elif self.status in (204, 304):
            self.done = True
        elif _LENGTH in head:
            length = _value(head, _LENGTH)
            if not length.isdigit() or head.count(_LENGTH) > 1:
                raise MalformedResponse("invalid content length")
            self._left = int(length[:19])
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
        self._size += len(data) + PIECE
        if self._size > self._largest:
            raise BodyTooLarge
        self.body += data

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
            raise MalformedResponse("chunk head without an end")

    def _line(self, line: bytes, at: int) -> int:
        """Parse a line between chunks: end of a chunk, size of the next one, trailer or end."""
        if self._left == 0:  # at the end of a chunk
            if line:
                raise MalformedResponse("a chunk longer than its size")
            self._left = -1
        elif self._left == -1:
            size = line.split(b";", 1)[0].strip()
            try:
                self._left = int(size, 16) if size.isalnum() else -1
            except ValueError:
                self._left = -1
            if self._left < 0:
                raise MalformedResponse("invalid chunk size")
            if self._left == 0:
                self._left = -2
        elif not line:  # -2: trailers, up to an empty line
            self.done = True
        return at


def _value(head: bytes, name: bytes) -> bytes:
    at = head.find(name) + len(name)
    end = head.find(b"\r\n", at)
    return head[at : end if end >= 0 else len(head)].strip()
