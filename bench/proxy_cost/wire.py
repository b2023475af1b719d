"""Minimal HTTP/1.1 for the parts of the proxy bench whose cost must be negligible."""

import asyncio
from typing import cast

import uvloop

LENGTH = b"content-length:"
CHUNKED_END = b"0\r\n\r\n"


class Messages(asyncio.Protocol):
    """Splitter of a byte stream into messages: with a content length, chunked, or without a body.

    Of a chunked message the body is handed on as it was sent; nothing may follow it before the
    next request.
    """

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Part of `asyncio.Protocol`."""
        self.transport = cast(asyncio.Transport, transport)

    def connection_lost(self, error: Exception | None) -> None:
        """Part of `asyncio.Protocol`."""
        self.transport = None

    def data_received(self, data: bytes) -> None:
        """Part of `asyncio.Protocol`."""
        rest = self._rest + data if self._rest else data
        while (end := rest.find(b"\r\n\r\n") + 4) > 3:
            head = rest[:end]
            last = _end_of(head, rest, end)
            if last < 0:
                break
            body, rest = rest[end:last], rest[last:]
            self.message(head, body)
        self._rest = rest

    def write(self, data: bytes) -> None:
        """Send, unless the peer has disconnected."""
        if self.transport is not None:
            self.transport.write(data)

    def message(self, head: bytes, body: bytes) -> None:
        """Handle one complete message."""


def _end_of(head: bytes, data: bytes, at: int) -> int:
    """Return where the message at the start of `data` ends; -1 when it is incomplete."""
    low = head.lower()
    header_at = low.find(LENGTH)
    if header_at >= 0:
        at += int(low[header_at + len(LENGTH) : low.find(b"\r\n", header_at)])
        return at if len(data) >= at else -1
    if low.find(b"transfer-encoding: chunked") >= 0:
        return len(data) if data.endswith(CHUNKED_END) else -1
    return at


def answer(body: bytes, status: bytes = b"200 OK") -> bytes:
    """Return a response with the headers that uvicorn would send."""
    return (
        b"HTTP/1.1 %b\r\ndate: Mon, 01 Jun 2026 12:00:00 GMT\r\nserver: uvicorn\r\n"
        b"content-length: %d\r\ncontent-type: application/json\r\n\r\n%b"
    ) % (status, len(body), body)


def request(method: str, path: str, host: str, body: bytes, *more: str) -> bytes:
    """Return a request."""
    lines = (
        f"{method} {path} HTTP/1.1",
        f"host: {host}",
        "accept: application/json",
        "user-agent: bench",
        "content-type: application/json",
        f"content-length: {len(body)}",
        *more,
    )
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


async def serve(protocol: type[Messages], port: int) -> None:
    """Listen until terminated; print the port on stdout."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(protocol, "127.0.0.1", port, backlog=2048)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def run(protocol: type[Messages], port: int = 0) -> None:
    """Run `serve` in its own process."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(protocol, port))
