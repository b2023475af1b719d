"""Hostile clients: a user beside them is answered, and the proxy's memory stays small."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from core.runtime.sockets import raise_file_limit
from tests.faults.test_floods import peak_mb
from tests.support.proxy.front import BODIES
from tests.support.scripted.swarm import ScriptedSwarm
from tests.support.stack import Stack
from tests.support.wire import Wire, wire

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

CHAT = "/v1/chat/completions"
KEY = "sk-one-two-three-four"
MOST_MB = 20.0
"""By which the peak of the process may grow."""
PART = b" " * (1 << 16)


@contextlib.asynccontextmanager
async def flooded(tmp_path: Path) -> AsyncIterator[tuple[str, int]]:
    """Gives address and pid of a proxy with a key; at the end a new user is answered."""
    async with ScriptedSwarm() as swarm:
        with Stack(tmp_path) as stack:
            key = ("--api-key", KEY)
            info = await asyncio.to_thread(stack.proxy, "--swarm-url", swarm.url, *key)
            url = info.url
            await asked(url)  # objects made once
            Path(f"/proc/{info.pid}/clear_refs").write_text("5")  # the peak is the present memory
            before = peak_mb(info.pid)
            yield url, info.pid
            grown = peak_mb(info.pid) - before
            print(f"\n+{grown:.1f} MB")
            assert grown < MOST_MB


async def asked(url: str) -> None:
    async with wire(url) as one:
        await one.ask("POST", CHAT, BODIES[CHAT], authorization=f"Bearer {KEY}")
        assert (await one.answer(30.0)).status == 200


async def refused(url: str, head: str, size: int) -> int:
    """Return the status of a request whose head is followed by so many bytes.

    As in the SDKs, the response is read once nothing more can be sent: a reset does not discard
    what has arrived.
    """
    loop = asyncio.get_running_loop()
    parts = urlsplit(url)
    with socket.socket() as client:
        client.setblocking(False)
        await loop.sock_connect(client, (parts.hostname, parts.port))
        with contextlib.suppress(ConnectionError):
            await loop.sock_sendall(client, head.encode())
            for _ in range(size // len(PART)):
                await loop.sock_sendall(client, PART)
        return int((await loop.sock_recv(client, len(PART))).split()[1])


async def connections(stack: contextlib.AsyncExitStack, url: str, count: int) -> list[Wire]:
    return [await stack.enter_async_context(wire(url)) for _ in range(count)]


async def test_bodies_without_the_key(tmp_path: Path) -> None:
    size = 31 << 20
    head = f"POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {size}\r\n\r\n"
    async with flooded(tmp_path) as (url, _):
        async with asyncio.TaskGroup() as tasks:
            requests = [tasks.create_task(refused(url, head, size)) for _ in range(40)]
            await asked(url)
        assert {request.result() for request in requests} == {401}


async def test_a_head_of_a_hundred_megabytes(tmp_path: Path) -> None:
    head = "GET / HTTP/1.1\r\nhost: localhost\r\nx-large: "
    async with flooded(tmp_path) as (url, _):
        async with asyncio.TaskGroup() as tasks:
            request = tasks.create_task(refused(url, head, 100 << 20))
            await asked(url)
        assert request.result() == 431


async def test_two_thousand_slow_heads(tmp_path: Path) -> None:
    raise_file_limit()
    async with flooded(tmp_path) as (url, _), contextlib.AsyncExitStack() as stack:
        for connection in await connections(stack, url, 2_000):
            await connection.send("POST /v1/chat/comp")
        await asked(url)


async def test_nine_thousand_silent_connections(tmp_path: Path) -> None:
    raise_file_limit()
    async with flooded(tmp_path) as (url, _), contextlib.AsyncExitStack() as stack:
        silent = await connections(stack, url, 9_000)
        await asked(url)
        assert await silent[0].closed() == b""
        assert not silent[-1].reader.at_eof()
