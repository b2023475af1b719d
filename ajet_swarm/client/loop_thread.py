"""The event loop of the blocking clients of a process, on a thread that ends with the process."""

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
"""Seconds to wait for the end of a client."""


_LOOPS: dict[int, tuple[asyncio.AbstractEventLoop, threading.Thread]] = {}
"""The loop of this process by its id; after a fork the child makes its own."""
_STARTING = threading.Lock()


class LoopThread:
    """The calls of one blocking client, on the loop that all clients of the process share.

    Args:
        name: Name of the client, for errors.

    Attributes:
        closing: Lock under which the client is marked as closed; hold it to keep it open.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.closing = threading.Lock()
        self._closed = False
        self._calls: set[Future[Any]] = set()
        self._pid = os.getpid()
        with _STARTING:
            if self._pid not in _LOOPS:
                loop = asyncio.new_event_loop()
                thread = threading.Thread(target=loop.run_forever, name="swarm", daemon=True)
                thread.start()
                _LOOPS[self._pid] = loop, thread
            self._loop, self._thread = _LOOPS[self._pid]

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
        future = self._submit(work)
        try:
            return result(future)
        except CancelledError:
            raise SwarmError("this client was closed meanwhile", self.name) from None
        except BaseException:
            if not future.cancel() and undo is not None and not future.exception():
                self._submit(undo(future.result()))
            raise

    @contextmanager
    def entered(self, context: AbstractAsyncContextManager[T]) -> Iterator[T]:
        """Enter a context on the thread; leave it there, unless the client was closed.

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

    def _submit(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        try:
            self.check_usable()
        except WrongUse:
            work.close()
            raise
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        self._calls.add(future)
        future.add_done_callback(self._calls.discard)
        return future

    def call_soon(self, function: Callable[[], object]) -> None:
        """Call a function on the thread."""
        self._loop.call_soon_threadsafe(function)

    def check_usable(self) -> None:
        """Check that the calling thread may run coroutines here.

        Raises:
            WrongUse: the client is closed, or of another process, or this is the loop's thread.
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
        """Run `last`, then cancel the client's calls.

        Returns:
            False if the client was already closed, or belongs to another process.
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
            for call in tuple(self._calls):
                call.cancel()
        return True
