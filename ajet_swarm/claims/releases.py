"""Return of episodes to one server, including those that were claimed without this process knowing.

A claim whose answer was lost may have succeeded; `reconcile` finds it in the server's records.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from types import TracebackType

from ajet_swarm.api.interface import SwarmApi
from ajet_swarm.api.outcomes import ClaimRefused
from ajet_swarm.api.watcher import Watcher
from ajet_swarm.api.wire import GENERAL
from ajet_swarm.claims.request import ClaimRequest
from ajet_swarm.common.tasks import Tasks
from ajet_swarm.protocol.errors import SwarmError

log = logging.getLogger(__name__)

RECORDS_TIMEOUT = 3.0
"""Time limit in seconds of a request for the server's records, which delays claims."""
SECOND_LOOK = 5.0
"""Seconds until lost claims are searched for again: a frozen server may execute one late."""
STEP = 0.25
"""Seconds between two checks in `close` that the server is still reachable."""


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


class EpisodeReleaser:
    """Gives episodes back to one server and finds those whose claims were lost.

    Args:
        client: The server.
        watcher: Its watcher; `run` must be running.
        known: Returns the uuids for which the caller is responsible.
        on_stray: Called with the uuids that `reconcile` gave back.
        timeout: Seconds after which the outcome of a claim or an abort counts as unknown.
        second_look: See `SECOND_LOOK`.

    Attributes:
        lock: Held while claims are in flight, never between two attempts: exclusively by a group,
            shared by claims of single episodes.
        tasks: Work that continues when its caller is cancelled; `close` ends it.
        gathering: The request that holds a part of its group; `reconcile` spares its episodes.
    """

    def __init__(
        self,
        client: SwarmApi,
        watcher: Watcher,
        *,
        known: Callable[[], Collection[str]],
        on_stray: Callable[[Sequence[str]], None] | None = None,
        timeout: float = GENERAL,
        second_look: float = SECOND_LOOK,
    ) -> None:
        self.timeout = timeout
        self.second_look = second_look
        self.lock = ReadWriteLock()
        self.tasks = Tasks(f"claims:{client.name}")
        self.gathering: ClaimRequest | None = None
        self._client = client
        self._watcher = watcher
        self._known = known
        self._on_stray = on_stray
        self._reconciling = asyncio.Lock()
        """Held by `reconcile`: an abort sent twice may hit the client that claimed it since."""
        self._returning: set[str] = set()
        """Uuids being given back; one that is claimed again meanwhile leaves the set."""
        self._unconfirmed: set[str] = set()
        """Uuids given back without confirmation by the server."""
        self._sweeping = False
        self._sweep_again = False
        self._closing = asyncio.Event()

    def claimed(self, uuid: str) -> None:
        """Record that the server granted a uuid, perhaps one that was given back before."""
        self._unconfirmed.discard(uuid)
        self._returning.discard(uuid)

    async def give_back(self, uuids: Sequence[str], cause: str = "") -> None:
        """Abort episodes of ours concurrently; unconfirmed ones are swept later.

        Args:
            uuids: The episodes.
            cause: Reason for the log.
        """
        if not uuids:
            return
        self._returning.update(uuids)
        done = await self._abort(uuids)
        failed = [uuid for uuid, ok in zip(uuids, done, strict=True) if not ok]
        failed = [uuid for uuid in failed if uuid in self._returning]
        self._returning.difference_update(uuids)
        if failed:
            log.warning("%d episodes not given back (%s), will try again", len(failed), cause)
            self._unconfirmed.update(failed)
            self.sweep_soon()

    async def give_back_rest(self, uuids: Collection[str], cause: str) -> None:
        """Give back those episodes that are not being given back already."""
        await self.give_back(sorted(set(uuids) - self._returning), cause)

    async def return_held(self, request: ClaimRequest) -> None:
        """Give back what a stopped request holds, and report it to the request."""
        uuids = [claimed.episode_uuid for claimed in request.take_held()]
        cause = request.stop.text or request.stop.kind.value if request.stop else ""
        await self.give_back(uuids, cause)
        if uuids and request.on_returned is not None:
            request.on_returned(uuids, cause)

    def stop_request(self, request: ClaimRequest, why: ClaimRefused) -> None:
        """Stop the attempt of a request; a background task gives back what the request holds."""
        request.stop = request.stop or why
        if request.held:
            request.releases.append(self.tasks.spawn(self.return_held(request), "give back"))

    async def reconcile(self) -> list[str]:
        """Give back the episodes that the server holds in our name and the caller does not know.

        Returns:
            The uuids given back.

        Raises:
            SwarmError: the server did not send its records, or did not confirm an abort.
        """
        async with self._reconciling:
            async with self.lock:  # no claim of ours is in flight
                before = set(self._known())
                records = await self._client.buffer(timeout=RECORDS_TIMEOUT)
                known = before.union(self._known(), self._gathered()) - self._unconfirmed
            me = self._client.client_uuid
            ours = [r.episode_uuid for r in records if r.claimed and r.client_uuid == me]
            self._unconfirmed.intersection_update(ours)
            strays = [uuid for uuid in ours if uuid not in known]
            done = await self._abort(strays)
        returned = [uuid for uuid, ok in zip(strays, done, strict=True) if ok]
        self._unconfirmed.difference_update(returned)
        if returned and self._on_stray is not None:
            self._on_stray(returned)
        if len(returned) < len(strays):
            raise SwarmError("an episode could not be given back", self._client.name)
        return returned

    def sweep_soon(self) -> None:
        """Start `reconcile` in the background, and again after `second_look` seconds."""
        self._sweep_again = True
        if not self._sweeping:
            self._sweeping = True
            self.tasks.spawn(self._sweep(), "sweep")

    async def settle(self, seconds: float) -> bool:
        """Wait for the background work; return False when some still runs after `seconds`."""
        return await self.tasks.drain(seconds)

    async def close(self, seconds: float = 5.0) -> None:
        """Wait up to `seconds` for episodes being given back, then stop.

        It does not wait for an unreachable server. A second search for lost claims that is due
        later is done at once.
        """
        self._closing.set()
        until = asyncio.get_running_loop().time() + seconds
        while (left := until - asyncio.get_running_loop().time()) > 0:
            if await self.tasks.drain(min(left, STEP)) or not self._watcher.current.reachable:
                break
        await self.tasks.close()

    def _gathered(self) -> list[str]:
        held = self.gathering.held if self.gathering is not None else ()
        return [claimed.episode_uuid for claimed in held]

    async def _abort(self, uuids: Sequence[str]) -> list[bool]:
        return await asyncio.gather(
            *(self._client.abort(uuid, timeout=self.timeout) for uuid in uuids)
        )

    async def _sweep(self) -> None:
        try:
            while self._sweep_again:
                self._sweep_again = False
                await self._reconcile_until_done()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self.second_look):
                        await self._closing.wait()
                await self._reconcile_until_done()
        finally:
            self._sweeping = False

    async def _reconcile_until_done(self) -> None:
        while True:
            await self._watcher.wait_for(lambda seen: seen.reachable)
            try:
                await self.reconcile()
                return
            except SwarmError as error:
                log.warning("lost claims not swept yet: %s", error)
                await asyncio.sleep(1.0)
