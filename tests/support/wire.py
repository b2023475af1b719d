"""HTTP as raw bytes, sent and received."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit


@dataclass
class Answer:
    """A whole answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class Wire:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes | str) -> None:
        self.writer.write(data.encode() if isinstance(data, str) else data)
        await self.writer.drain()

    async def ask(self, method: str, path: str, body: Any = None, **headers: str) -> None:
        """Send one request; a body that is not bytes is sent as JSON."""
        data = (
            b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        )
        head = [f"{method} {path} HTTP/1.1", "host: localhost"]
        if body is not None:
            head += ["content-type: application/json", f"content-length: {len(data)}"]
        head += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        await self.send("\r\n".join(head).encode() + b"\r\n\r\n" + data)

    async def head(self) -> tuple[int, dict[str, str]]:
        """Status and headers of the next answer, names in lower case."""
        raw = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = raw.strip().split("\r\n")
        pairs = (line.partition(":") for line in lines)
        return int(first.split()[1]), {name.lower(): value.strip() for name, _, value in pairs}

    async def chunks(self) -> AsyncIterator[bytes]:
        """The parts of a chunked body, as they were sent."""
        while size := int(await self.reader.readline(), 16):
            yield (await self.reader.readexactly(size + 2))[:-2]
        await self.reader.readexactly(2)

    async def answer(self, seconds: float = 60.0) -> Answer:
        """The next answer, whole."""
        async with asyncio.timeout(seconds):
            status, headers = await self.head()
            if "content-length" in headers:
                body = await self.reader.readexactly(int(headers["content-length"]))
            elif headers.get("transfer-encoding") == "chunked":
                body = b"".join([part async for part in self.chunks()])
            else:
                body = await self.reader.read()
            return Answer(status, headers, body)

    async def closed(self, seconds: float = 60.0) -> bytes:
        """The bytes until the server closes the connection."""
        async with asyncio.timeout(seconds):
            try:
                return await self.reader.read()
            except ConnectionError:
                return b""


@contextlib.asynccontextmanager
async def wire(url: str, ssl: Any = None) -> AsyncIterator[Wire]:
    """A connection to the host and port of `url`."""
    parts = urlsplit(str(url))
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port, ssl=ssl)
    try:
        yield Wire(reader, writer)
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
