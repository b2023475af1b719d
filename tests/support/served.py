"""An ASGI application on a real socket, in the test's own loop."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Generator
from typing import Any

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount

from ajet_swarm.common.tasks import Tasks
from core.runtime.sockets import bind
from tests.support.server_close import stop_accepting


class QuickServer(uvicorn.Server):
    """uvicorn's server, which ends at once on a stop and not at its next tick.

    Its behaviour is uvicorn's own, except for two pauses of a tenth of a second: the one before it
    notices the stop is an event here, the one before it checks its connections is shorter. Tests
    with real processes check how a real one ends.
    """

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._ended = asyncio.Event()

    def end(self) -> None:
        """Stop serving."""
        self.should_exit = True
        self._ended.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield

    async def main_loop(self) -> None:
        counter = 0
        while not await self.on_tick(counter):
            counter += 1
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ended.wait(), 0.1)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await stop_accepting(*self.servers)
        for server in self.servers:
            server.close()
        for sock in sockets or []:
            sock.close()
        state = self.server_state
        try:
            async with asyncio.timeout(self.config.timeout_graceful_shutdown):
                while state.connections or state.tasks:
                    for connection in list(state.connections):
                        connection.shutdown()
                    await asyncio.sleep(0.002)
        except TimeoutError:
            for task in state.tasks:
                task.cancel()
            for connection in list(state.connections):
                connection.transport.abort()
        await self.lifespan.shutdown()


def client(url: str, timeout: float = 10.0) -> httpx.AsyncClient:
    """A client without TLS: it does not spend 20 ms on certificates."""
    return httpx.AsyncClient(base_url=url, timeout=timeout, verify=False)


def below(path: str, app: Any) -> Starlette:
    """An application that is mounted at `path`, as the control API in the proxy."""
    return Starlette(routes=[Mount(path, app)])


@contextlib.asynccontextmanager
async def served(
    app: Any, config: uvicorn.Config | None = None, port: int = 0
) -> AsyncIterator[str]:
    """Serve `app` on a free loopback port or on `port`, as in `config`; yields its URL."""
    with bind("127.0.0.1", port) as sock:
        config = config or uvicorn.Config(
            app, log_config=None, lifespan="off", timeout_graceful_shutdown=1, loop="asyncio"
        )
        server = QuickServer(config)
        async with Tasks("served") as tasks:
            serving = tasks.spawn(server.serve(sockets=[sock]), "http")
            try:
                scheme = "https" if config.ssl_certfile else "http"
                yield f"{scheme}://127.0.0.1:{sock.getsockname()[1]}"
            finally:
                server.end()
                await serving
