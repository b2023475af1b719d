"""An event loop on a thread of its own, for callers that wait."""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

from ajet_swarm.client.waits import result
from ajet_swarm.protocol.errors import SwarmError, WrongUse

T = TypeVar("T")

CLOSE = 8.0
"""Seconds to end, at most."""


class LoopThread:
    """Runs coroutines for any thread but its own.

    Args:
        name: What to call it in errors.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._loop = asyncio.new_event_loop()
        self._pid = os.getpid()
        self._closing = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=f"swarm:{name}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
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

    def _begin(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Have `work` run.

        Raises:
            WrongUse: it cannot run here; `work` is closed.
        """
        try:
            self._check_usable()
        except WrongUse:
            work.close()
            raise
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def _check_usable(self) -> None:
        """Nothing, where this thread may use it.

        Raises:
            WrongUse: it is closed, was made in another process, or this is its own thread.
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

    def _call(
        self,
        work: Coroutine[Any, Any, T],
        unwanted: Callable[[T], Coroutine[Any, Any, object]] | None = None,
    ) -> T:
        """Run `work` and wait; interrupted, what it got nobody wants is undone by `unwanted`."""
        future = self._begin(work)
        try:
            return result(future)
        except CancelledError:
            raise SwarmError("this client was closed meanwhile", self.name) from None
        except BaseException:
            if not future.cancel() and unwanted is not None and not future.exception():
                self._begin(unwanted(future.result()))
            raise

    def _end(self, last: Callable[[], Coroutine[Any, Any, None]]) -> bool:
        """Run `last`, then end the thread; False when that was done before, or not from here."""
        with self._closing:
            if self._closed:
                return False
            self._closed = True
        if self._pid != os.getpid():
            return False  # the thread is in the process that made it
        try:
            asyncio.run_coroutine_threadsafe(last(), self._loop).result(CLOSE)
        except TimeoutError:
            pass
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(CLOSE)
        return True
