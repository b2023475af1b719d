"""A server whose chat route floods its client; all other requests go to a server behind it.

with flooding(behind=swarm.port) as flood:    # `flood.url`
    ...                                       # a chat request with `user`: "endless body"
    flood.calls["endless body"]
"""

import asyncio
import contextlib
import json
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Any

_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nTransfer-Encoding: chunked\r\n\r\n"
_BLOCK = b"x" * (1 << 16)


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def _event(delta: dict[str, Any]) -> bytes:
    chunk = {"id": "c", "object": "chat.completion.chunk", "model": "m"}
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}
    return b"data: %s\n\n" % json.dumps({**chunk, "choices": [choice]}).encode()


_CALL = {"id": "x", "function": {"name": "f", "arguments": "x"}}
_JSON, _SSE = _HEAD % b"application/json", _HEAD % b"text/event-stream"
_PIECES = {
    "endless body": (_JSON, _chunk(_BLOCK)),
    "endless body in small chunks": (_JSON, _chunk(b"xy") * 8000),
    "endless body without a length": (b"HTTP/1.1 200 OK\r\n\r\n", _BLOCK),
    "endless error": (_JSON.replace(b"200 OK", b"500 No"), _chunk(_BLOCK)),
    "endless head": (b"HTTP/1.1 200 OK\r\nx: ", _BLOCK),
    "100 Continue": (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 4000),
    "stream without a line end": (_SSE + _chunk(b"data: "), _chunk(_BLOCK)),
    "stream of lines without an event": (_SSE, _chunk(b"data:\n" * 10_000)),
    "stream of short deltas": (_SSE, _chunk(_event({"content": "x"}) * 400)),
    "stream of long deltas": (_SSE, _chunk(_event({"content": "x" * (1 << 16)}))),
    "stream of tool calls": (_SSE, _chunk(_event({"tool_calls": [_CALL]}) * 200)),
    "stream of arguments": (
        _SSE + _chunk(_event({"tool_calls": [_CALL]})),
        _chunk(_event({"tool_calls": [{"index": 0, "function": {"arguments": "x"}}]}) * 200),
    ),
}
MODES = tuple(_PIECES)
"""What the chat route sends."""


def _length(head: bytes) -> int:
    """Return the length of the body that follows a head."""
    lines = head.lower().split(b"\r\n")
    return next(
        int(line.partition(b":")[2]) for line in lines if line.startswith(b"content-length:")
    )


class Flood:
    """See `flooding`."""

    def __init__(self, behind: int) -> None:
        self.calls: Counter[str] = Counter()
        """Chat requests so far, by the mode that their `user` names: one may arrive late."""
        self.port = 0
        self._behind = behind

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                head = await reader.readuntil(b"\r\n\r\n")
                if b"/chat/completions " in head.partition(b"\r\n")[0]:
                    mode = json.loads(await reader.readexactly(_length(head)))["user"]
                    self.calls[mode] += 1
                    first, piece = _PIECES[mode]
                    writer.write(first)
                    while True:
                        writer.write(piece)
                        await writer.drain()
                await self._forward(head, reader, writer)
        finally:
            writer.transport.abort()

    async def _forward(
        self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._behind)
        back.write(head[:-2] + b"Connection: close\r\n\r\n")

        async def pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
            while data := await source.read(1 << 16):
                target.write(data)
                await target.drain()
            target.close()

        try:
            await asyncio.gather(pump(reader, back), pump(there, writer))
        finally:
            back.transport.abort()


@contextlib.asynccontextmanager
async def _running(flood: Flood) -> AsyncIterator[None]:
    server = await asyncio.start_server(flood.serve, "127.0.0.1", 0)
    flood.port = server.sockets[0].getsockname()[1]
    yield
    server.close()


@contextlib.contextmanager
def flooding(behind: int) -> Iterator[Flood]:
    """Serve on a loop of its own; `behind` is the port of the server of all other routes."""
    flood, loop = Flood(behind), asyncio.new_event_loop()
    ready, end = threading.Event(), asyncio.Event()

    async def run() -> None:
        async with _running(flood):
            ready.set()
            await end.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(run(),), daemon=True)
    thread.start()
    ready.wait(60)
    try:
        yield flood
    finally:
        loop.call_soon_threadsafe(end.set)
        thread.join(60)
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0.1))
        loop.close()
