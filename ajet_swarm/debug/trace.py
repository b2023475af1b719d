"""A relay between an agent and its model that keeps every call, whoever makes it."""

import http.client
import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

from ajet_swarm.common.renamed import renamed

log = logging.getLogger(__name__)

MOST = 16_000_000
"""Bytes of a request or an answer that are kept and passed on at most."""
PIECE = 65_536
_HOP = frozenset(
    ["connection", "host", "keep-alive", "content-length", "transfer-encoding", "accept-encoding"]
)
_TEXTS = (
    ("choices", 0, "delta", "content"),
    ("choices", 0, "message", "content"),
    ("delta", "text"),
    ("delta",),
)


@dataclass(slots=True)
class RecordedCall:
    """One request an agent made, and what came of it.

    Attributes:
        status: HTTP status; 0 when the server did not answer.
        seconds: Until the last byte.
        error: Why there is no whole answer.
    """

    path: str
    request: Any
    status: int = 0
    answer: Any = None
    text: str = ""
    seconds: float = 0.0
    error: str = ""
    usage: dict[str, Any] = field(default_factory=dict)
    finish: str = ""

    @property
    def messages(self) -> list[dict[str, Any]]:
        """What was sent, as chat messages; a responses request's input as one of the user."""
        if not isinstance(self.request, dict):
            return []
        given = self.request.get("messages", self.request.get("input"))
        if isinstance(given, str):
            return [{"role": "user", "content": given}]
        return [one for one in given or [] if isinstance(one, dict)]


class RecordingRelay:
    """Listens on a free port of this machine and passes everything on to one address.

    Args:
        base_url: Where calls go: an OpenAI base URL.
        seconds: Seconds that one call may take.
        on_call: Told of each call, with its place, when it begins and when more is known of it;
            before the agent has the end of the answer.
    """

    def __init__(
        self,
        base_url: str,
        seconds: float = 600.0,
        on_call: Callable[[int, RecordedCall], None] | None = None,
    ) -> None:
        self.calls: list[RecordedCall] = []
        """In the order they began."""
        self._target = urlsplit(base_url.rstrip("/"))
        self._seconds = seconds
        self._on_call = on_call
        self._begun = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    @property
    def base_url(self) -> str:
        """What to give the agent instead."""
        return f"http://127.0.0.1:{self._server.server_address[1]}{self._target.path}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        relay = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                relay._pass(self)

            do_GET = do_POST  # noqa: N815

            def log_message(self, *_: object) -> None:
                """Nothing: calls are kept."""

        return Handler

    def _pass(self, handler: BaseHTTPRequestHandler) -> None:
        size = int(handler.headers.get("content-length") or 0)
        if size > MOST:
            handler.close_connection = True
            handler.send_error(413)
            return
        body = handler.rfile.read(size)
        call = RecordedCall(handler.path, _parsed(body))
        with self._begun:
            place = len(self.calls)
            self.calls.append(call)
        self._tell(place, call)
        try:
            self._forward(handler, place, call, body)
        except (OSError, http.client.HTTPException) as error:
            call.error = f"{type(error).__name__}: {error}"[:500]
            self._tell(place, call)
            handler.close_connection = True
            if not call.status:
                handler.send_error(502, explain=call.error)

    def _tell(self, place: int, call: RecordedCall) -> None:
        if self._on_call is None:
            return
        try:
            self._on_call(place, call)
        except Exception:  # who listens must not cost the agent its call
            log.exception("call %d could not be told", place)

    def _forward(
        self, handler: BaseHTTPRequestHandler, place: int, call: RecordedCall, body: bytes
    ) -> None:
        began = time.monotonic()
        kind = (
            http.client.HTTPSConnection
            if self._target.scheme == "https"
            else http.client.HTTPConnection
        )
        upstream = kind(self._target.hostname or "", self._target.port, timeout=self._seconds)
        head = {k: v for k, v in handler.headers.items() if k.lower() not in _HOP}
        try:
            upstream.request(handler.command, handler.path, body or None, head)
            answer = upstream.getresponse()
            call.status = answer.status
            handler.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in _HOP | {"date", "server"}:
                    handler.send_header(name, value)
            handler.send_header("Transfer-Encoding", "chunked")
            handler.end_headers()
            kept = bytearray()
            try:
                while piece := answer.read1(PIECE):
                    kept += piece[: MOST - len(kept)]
                    handler.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                if answer.length:  # the end of the connection came before that of the answer
                    raise http.client.IncompleteRead(bytes(kept), answer.length)
            finally:  # before the agent has its end: then all is known that it did
                _read_answer(call, bytes(kept))
                call.seconds = time.monotonic() - began
                self._tell(place, call)
            handler.wfile.write(b"0\r\n\r\n")
        finally:
            upstream.close()


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return body.decode(errors="replace")


def _read_answer(call: RecordedCall, body: bytes) -> None:
    whole = _parsed(body)
    call.answer = whole
    pieces = [whole] if isinstance(whole, dict) else list(_events(body))
    texts: list[str] = []
    for piece in pieces:
        if isinstance(piece.get("usage"), dict):
            call.usage = piece["usage"]
        finish = _at(piece, ("choices", 0, "finish_reason")) or piece.get("stop_reason")
        call.finish = finish or call.finish
        found = (_at(piece, path) for path in _TEXTS)
        texts.append(next((one for one in found if isinstance(one, str)), ""))
    call.text = "".join(texts) or _blocks(whole)


def _events(body: bytes) -> Iterator[dict[str, Any]]:
    for line in body.decode(errors="replace").splitlines():
        if line.startswith("data:") and isinstance(one := _parsed(line[5:].encode()), dict):
            yield one


def _blocks(whole: Any) -> str:
    """The text of a responses or messages answer."""
    if not isinstance(whole, dict):
        return ""
    blocks = whole.get("content") or [
        part for item in whole.get("output") or [] for part in item.get("content") or []
    ]
    return "".join(str(one.get("text") or "") for one in blocks if isinstance(one, dict))


def _at(tree: Any, path: tuple[str | int, ...]) -> Any:
    for step in path:
        try:
            tree = tree[step]
        except (KeyError, IndexError, TypeError):
            return None
    return tree


if not TYPE_CHECKING:
    __getattr__ = renamed(__name__, {"Call": "RecordedCall", "Relay": "RecordingRelay"})
