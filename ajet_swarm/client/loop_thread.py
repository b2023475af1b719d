"""An event loop on its own thread that runs coroutines for other threads."""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any, TypeVar

from ajet_swarm.client.waits import result
from ajet_swarm.protocol.errors import SwarmError, WrongUse

T = TypeVar("T")

CLOSE = 8.0
"""Seconds to wait for the end of the thread."""


class LoopThread:
    """Event loop on its own thread; any other thread can run coroutines on it.

    Args:
        name: Name of the client, for errors.

    Attributes:
        closing: Lock under which the thread is marked as closed; hold it to keep the thread open.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.closing = threading.Lock()
        self._loop = asyncio.new_event_loop()
        self._pid = os.getpid()
        self._closed = False
        self._thread = threading.Thread(target=self._run_loop, name=f"swarm:{name}", daemon=True)
        self._thread.start()

    def run(
        self,
        work: Coroutine[Any, Any, T],
        undo: Callable[[T], Coroutine[Any, Any, object]] | None = None,
    ) -> T:
        """Run a coroutine and wait for its result.

        Args:
            work: The coroutine.
            undo: Called with the result if the waiting thread was interrupted too late to cancel
                `work`; its coroutine runs in the background.

        Raises:
            WrongUse: the thread cannot run it.
            SwarmError: the client was closed during the wait.
        """
        future = self.submit(work)
        try:
            return result(future)
        except CancelledError:
            raise SwarmError("this client was closed meanwhile", self.name) from None
        except BaseException:
            if not future.cancel() and undo is not None and not future.exception():
                self.submit(undo(future.result()))
            raise

    @contextmanager
    def entered(self, context: AbstractAsyncContextManager[T]) -> Iterator[T]:
        """Enter a context on the thread; leave it there, unless that has ended.

        Raises:
            WrongUse, SwarmError: as of `run`.
        """

        async def leave(_: object = None) -> None:
            await context.__aexit__(None, None, None)

        async def enter() -> T:
            return await context.__aenter__()

        value = self.run(enter(), undo=leave)
        try:
            yield value
        finally:
            if not self._closed:
                self.run(leave())

    def submit(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Run a coroutine in the background.

        Raises:
            WrongUse: the thread cannot run it; `work` is closed.
        """
        try:
            self.check_usable()
        except WrongUse:
            work.close()
            raise
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def awaitable(self, work: Coroutine[Any, Any, T]) -> "asyncio.Future[T]":
        """Run a coroutine here, awaited in the running event loop, which may be another one.

        Raises:
            WrongUse: this thread is closed; `work` is closed.
        """
        if self._closed:
            work.close()
            raise WrongUse("this client is closed", self.name, "Make a new one")
        return asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def call_soon(self, function: Callable[[], object]) -> None:
        """Call a function on the thread."""
        self._loop.call_soon_threadsafe(function)

    def check_usable(self) -> None:
        """Check that the calling thread may run coroutines here.

        Raises:
            WrongUse: this thread is closed, belongs to another process, or is the caller itself.
        """
        why = ""
        if self._closed:
            why = "is closed"
        elif self._pid != os.getpid():
            why = "was made in another process, before a fork"
        elif threading.current_thread() is self._thread:
            why = "cannot wait for itself"
        if why:
            raise WrongUse(f"this client {why}", self.name, "Make a new one, or use AsyncSwarm")

    def close(self, last: Callable[[], Coroutine[Any, Any, None]]) -> bool:
        """Run `last`, then end the thread.

        Returns:
            False if the thread was already closed, or belongs to another process.
        """
        with self.closing:
            if self._closed:
                return False
            self._closed = True
        if self._pid != os.getpid():
            return False  # the thread runs only in the process that created it
        try:
            asyncio.run_coroutine_threadsafe(last(), self._loop).result(CLOSE)
        except TimeoutError:
            pass
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(CLOSE)
        return True

    def _run_loop(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            left = asyncio.all_tasks(self._loop)
            for task in left:
                task.cancel()
            if left:
                self._loop.run_until_complete(asyncio.wait(left, timeout=CLOSE))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()
