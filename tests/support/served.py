"""An ASGI application on a real socket, in the test's own loop."""

import contextlib
from collections.abc import AsyncIterator, Generator
from typing import Any

import uvicorn

from core.sockets import bind
from core.tasks import Tasks


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


@contextlib.asynccontextmanager
async def served(app: Any, config: uvicorn.Config | None = None) -> AsyncIterator[str]:
    """Serve `app` on a free loopback port, or what `config` says; gives its URL."""
    with bind("127.0.0.1", 0) as sock:
        config = config or uvicorn.Config(
            app, log_config=None, lifespan="off", timeout_graceful_shutdown=1, loop="asyncio"
        )
        server = _Server(config)
        async with Tasks("served") as tasks:
            serving = tasks.spawn(server.serve(sockets=[sock]), "http")
            try:
                scheme = "https" if config.ssl_certfile else "http"
                yield f"{scheme}://127.0.0.1:{sock.getsockname()[1]}"
            finally:
                server.should_exit = True
                await serving
