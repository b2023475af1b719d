"""Faults of the connection to a server, and a scripted swarm behind it.

A `Relay` forwards bytes, and can vanish (nothing listens, open connections are reset), be mute (it
accepts connections and drops their data), or freeze (data is held and forwarded later).
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Literal

from tests.support.scripted.swarm import ScriptedSwarm

RelayState = Literal["well", "gone", "mute", "frozen"]

_BLOCK = 1 << 16


class Relay:
    """A loopback port before another one."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.port = 0
        self.state: RelayState = "well"
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self._flows = asyncio.Event()

    async def become(self, state: RelayState) -> None:
        """Change the state; open connections to a mute or vanished server are reset."""
        before, self.state = self.state, state
        if state in ("well", "frozen") and self._server is None:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
            self.port = self._server.sockets[0].getsockname()[1]
        if state == "gone" and self._server is not None:
            self._server.close()
            self._server = None
        if state == "gone" or before == "mute":
            for writer in tuple(self._open):
                writer.transport.abort()
        if state == "frozen":
            self._flows.clear()
        else:
            self._flows.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        pipes: list[asyncio.StreamWriter] = [writer]
        self._open.add(writer)
        try:
            with contextlib.suppress(OSError):
                there, back = await asyncio.open_connection("127.0.0.1", self.target)
                pipes.append(back)
                self._open.add(back)
                async with asyncio.TaskGroup() as both:
                    both.create_task(self._pump(reader, back))
                    both.create_task(self._pump(there, writer))
        finally:
            for pipe in pipes:
                self._open.discard(pipe)
                pipe.transport.abort()

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(_BLOCK):
                await self._flows.wait()
                if self.state != "mute":
                    sink.write(data)
                    await sink.drain()
        if not sink.transport.is_closing() and sink.can_write_eof():
            with contextlib.suppress(OSError):
                sink.write_eof()


class FarSwarm(ScriptedSwarm):
    """A scripted swarm server behind a relay."""

    relay: Relay

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.relay.port}"

    def ours(self, client: str = "me") -> list[str]:
        """Episodes that are claimed in a client's name."""
        return [one.uuid for one in self.claimed() if one.client == client]


@contextlib.asynccontextmanager
async def far_swarm(swarm: FarSwarm) -> AsyncIterator[FarSwarm]:
    """`swarm` with its relay, on ports of their own."""
    async with swarm:
        swarm.relay = Relay(swarm.port)
        await swarm.relay.become("well")
        try:
            yield swarm
        finally:
            await swarm.relay.become("gone")
