"""Search for lost claims: a claim whose answer was lost may have been granted.

The server's records show the episodes that it holds for this client. Those that nobody here knows,
and whose end or abort is not in flight, are given back. The records are as old as the request, and
a claim in flight is not in them yet: so no claim is in flight while they are read, and what was
known before the request counts as known.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from types import TracebackType

from ajet_swarm.api.watcher import Watcher
from ajet_swarm.api.wire import SwarmWire
from ajet_swarm.common.tasks import Tasks
from ajet_swarm.episodes.holdings import Holdings
from ajet_swarm.protocol.errors import SwarmError
from ajet_swarm.runtime import Clock

log = logging.getLogger(__name__)

RECORDS_TIMEOUT = 3.0
"""Time limit in seconds of a request for the server's records, which delays claims."""
SEARCH_AGAIN = 5.0
"""Seconds until lost claims are searched for again: a frozen server may execute one late."""


class ReadWriteLock:
    """A lock with shared and exclusive holders; an exclusive one goes before later shared ones."""

    def __init__(self) -> None:
        self._alone = asyncio.Lock()
        self._sharing = 0
        self._free = asyncio.Event()
        self._free.set()

    @asynccontextmanager
    async def shared(self) -> AsyncIterator[None]:
        """Hold the lock together with other shared holders."""
        async with self._alone:
            self._sharing += 1
            self._free.clear()
        try:
            yield
        finally:
            self._sharing -= 1
            if not self._sharing:
                self._free.set()

    async def acquire(self) -> None:
        """Acquire the lock exclusively."""
        await self._alone.acquire()
        try:
            await self._free.wait()
        except asyncio.CancelledError:
            self._alone.release()
            raise

    def release(self) -> None:
        """Release the exclusive lock; a task other than the acquiring one may do so."""
        self._alone.release()

    async def __aenter__(self) -> None:
        await self.acquire()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


class LostClaims:
    """Gives back what a server holds for this client and nobody here knows.

    Args:
        client: The server.
        watcher: Its watcher.
        tasks: Owner of the search in the background.
        give_back: Aborts episodes; returns those that failed.
        search_again: See `SEARCH_AGAIN`.
        clock: The clocks of the process.

    Attributes:
        holdings: What this client holds.
        lock: Shared by the claims in flight, never held between two attempts; who holds it
            exclusively knows that no claim is in flight.
    """

    def __init__(
        self,
        client: SwarmWire,
        watcher: Watcher,
        tasks: Tasks,
        give_back: Callable[[Sequence[str]], Awaitable[list[str]]],
        search_again: float,
        clock: Clock,
    ) -> None:
        self.holdings = Holdings(clock, self.search_soon)
        self.lock = ReadWriteLock()
        self.search_again = search_again
        self._client = client
        self._watcher = watcher
        self._tasks = tasks
        self._give_back = give_back
        self._reconciling = asyncio.Lock()
        self._wanted = asyncio.Event()
        self._searching = False
        self._closing = False

    async def reconcile(self) -> list[str]:
        """Search once.

        Returns:
            The uuids that are given back; some may not be confirmed yet.

        Raises:
            SwarmError: the server did not send its records, or did not confirm an abort.
        """
        async with self._reconciling:
            async with self.lock:  # no claim of ours is in flight
                known = self.holdings.known()
                ours = await self.held_by_server()
                known |= self.holdings.known()
            lost = [uuid for uuid in ours if uuid not in known]
            if lost and await self._give_back(lost):
                raise SwarmError("an episode could not be given back", self._client.name)
            return lost

    async def held_by_server(self) -> list[str]:
        """Return the episodes that the server holds for this client.

        Raises:
            SwarmError: the server did not send its records.
        """
        records = await self._client.buffer(timeout=RECORDS_TIMEOUT)
        me = self._client.client_uuid
        return [
            record.episode_uuid for record in records if record.claimed and record.client_uuid == me
        ]

    def search_soon(self) -> None:
        """Search in the background, and again after `search_again` seconds; once `_tasks` is closed
        the next process has to do it."""
        self._wanted.set()
        if not (self._searching or self._tasks.closing):
            self._searching = True
            self._tasks.spawn(self._search(), "search for lost claims")

    def close(self) -> None:
        """Search at once instead of later."""
        self._closing = True
        self._wanted.set()

    async def _search(self) -> None:
        try:
            while self._wanted.is_set():
                self._wanted.clear()
                await self._reconcile_until_done()
                if self._closing and not self._wanted.is_set():
                    return
                try:
                    await asyncio.wait_for(self._wanted.wait(), self.search_again)
                except TimeoutError:
                    await self._reconcile_until_done()
        finally:
            self._searching = False

    async def _reconcile_until_done(self) -> None:
        while True:
            await self._watcher.wait_for(lambda seen: seen.reachable)
            try:
                await self.reconcile()
                return
            except SwarmError as error:
                log.warning("no search for lost claims yet: %s", error)
                await asyncio.sleep(1.0)
