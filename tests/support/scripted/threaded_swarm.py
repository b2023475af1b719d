"""The scripted swarm server on a thread of its own, for clients that wait."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from tests.support.scripted.swarm import ScriptedSwarm

T = TypeVar("T")


class ThreadedSwarm:
    """Any thread may read `server`; changes go through `do`."""

    def __init__(self, server: ScriptedSwarm, loop: asyncio.AbstractEventLoop) -> None:
        self.server = server
        self.loop = loop

    @property
    def url(self) -> str:
        return self.server.url

    def do(self, work: Callable[[], T]) -> T:
        """Run `work` on the server's thread."""

        async def run() -> T:
            return work()

        return asyncio.run_coroutine_threadsafe(run(), self.loop).result(10)

    def until(self, test: Callable[[], Any], timeout: float = 20.0) -> None:
        """Wait until `test()` is true."""
        asyncio.run_coroutine_threadsafe(self.server.until(test, timeout), self.loop).result()


@contextmanager
def threaded_swarm(**options: Any) -> Iterator[ThreadedSwarm]:
    """A running server; the options are those of `ScriptedSwarm`."""
    ready: threading.Event = threading.Event()
    box: dict[str, Any] = {}

    async def serve() -> None:
        async with ScriptedSwarm(**options) as server:
            box["swarm"] = ThreadedSwarm(server, asyncio.get_running_loop())
            box["stop"] = asyncio.Event()
            ready.set()
            await box["stop"].wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), name="scripted swarm")
    thread.start()
    assert ready.wait(90)
    swarm: ThreadedSwarm = box["swarm"]
    try:
        yield swarm
    finally:
        swarm.loop.call_soon_threadsafe(box["stop"].set)
        thread.join(90)
