"""Relay between an agent and its model that records every call."""

import http.client
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import urlsplit

MOST = 16_000_000
"""Largest accepted request, and largest recorded part of a response, in bytes."""
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
    """One request of an agent, with its response.

    Attributes:
        status: HTTP status; 0 without a response.
        seconds: Seconds until the last byte of the response.
        error: Reason why the response is missing or incomplete.
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
        """The request's chat messages; the text input of a responses request is a user message."""
        if not isinstance(self.request, dict):
            return []
        messages = self.request.get("messages", self.request.get("input"))
        if isinstance(messages, str):
            return [{"role": "user", "content": messages}]
        return [message for message in messages or [] if isinstance(message, dict)]


class RecordingRelay:
    """HTTP server on a free local port that forwards every request to one address.

    Args:
        base_url: The OpenAI base URL to forward to.
        seconds: Timeout of one call in seconds.
    """

    def __init__(self, base_url: str, seconds: float = 600.0) -> None:
        self.calls: list[RecordedCall] = []
        """The calls, in the order in which they started."""
        self._target = urlsplit(base_url.rstrip("/"))
        self._seconds = seconds
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    @property
    def base_url(self) -> str:
        """The base URL for the agent."""
        return f"http://127.0.0.1:{self._server.server_address[1]}{self._target.path}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
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
                """Log nothing: calls are recorded."""

        return Handler

    def _pass(self, handler: BaseHTTPRequestHandler) -> None:
        size = int(handler.headers.get("content-length") or 0)
        if size > MOST:
            handler.close_connection = True
            handler.send_error(413)
            return
        body = handler.rfile.read(size)
        call = RecordedCall(handler.path, _parsed(body))
        self.calls.append(call)
        try:
            self._forward(handler, call, body)
        except (OSError, http.client.HTTPException) as error:
            call.error = f"{type(error).__name__}: {error}"[:500]
            handler.close_connection = True
            if not call.status:
                handler.send_error(502, explain=call.error)

    def _forward(self, handler: BaseHTTPRequestHandler, call: RecordedCall, body: bytes) -> None:
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
            recorded = bytearray()
            try:
                while piece := answer.read1(PIECE):
                    recorded += piece[: MOST - len(recorded)]
                    handler.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                if answer.length:  # the connection was closed before the end of the response
                    raise http.client.IncompleteRead(bytes(recorded), answer.length)
            finally:  # the record must be complete before the agent receives the end
                _read_answer(call, bytes(recorded))
                call.seconds = time.monotonic() - began
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
        candidates = (_at(piece, path) for path in _TEXTS)
        texts.append(next((text for text in candidates if isinstance(text, str)), ""))
    call.text = "".join(texts) or _blocks(whole)


def _events(body: bytes) -> Iterator[dict[str, Any]]:
    for line in body.decode(errors="replace").splitlines():
        if line.startswith("data:") and isinstance(one := _parsed(line[5:].encode()), dict):
            yield one


def _blocks(whole: Any) -> str:
    """Return the text of an answer of the responses or the messages API."""
    if not isinstance(whole, dict):
        return ""
    blocks = whole.get("content") or [
        part for item in whole.get("output") or [] for part in item.get("content") or []
    ]
    return "".join(str(block.get("text") or "") for block in blocks if isinstance(block, dict))


def _at(tree: Any, path: tuple[str | int, ...]) -> Any:
    for step in path:
        try:
            tree = tree[step]
        except (KeyError, IndexError, TypeError):
            return None
    return tree
