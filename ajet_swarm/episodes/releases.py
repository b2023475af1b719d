"""Return of episodes to one server, including those that were claimed without this process knowing.

A claim whose answer was lost may have succeeded; `reconcile` finds it in the server's records.

The server does not check who aborts an episode, and an episode keeps its uuid when it returns to
the pool: a second abort may hit the client that has claimed it since. So each claim is given back
once: uuids whose abort is in flight are neither aborted again nor taken for lost claims. The server
may take minutes to acknowledge an abort; callers wait less, and the abort goes on without them.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from types import TracebackType

from ajet_swarm.api.interface import SwarmApi
from ajet_swarm.api.outcomes import AbortKind
from ajet_swarm.api.watcher import Watcher
from ajet_swarm.api.wire import GENERAL, RUNNER
from ajet_swarm.common.tasks import Tasks
from ajet_swarm.protocol.errors import SwarmError

log = logging.getLogger(__name__)

RECORDS_TIMEOUT = 3.0
"""Time limit in seconds of a request for the server's records, which delays claims."""
SECOND_LOOK = 5.0
"""Seconds until lost claims are searched for again: a frozen server may execute one late."""
BROKEN_EARLY = 5.0
"""Seconds within which a connection breaks because the server or a front in between restarts, or
because it was stale. One that breaks later has met the limit of a front, while the server goes on.
"""
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
        timeout: Seconds after which the outcome of a claim counts as unknown, and for which a
            caller waits for an abort.
        second_look: See `SECOND_LOOK`.

    Attributes:
        abort_timeout: Seconds after which a server has processed an end or an abort.
        lock: Shared by the claims in flight, never held between two attempts; who holds it
            exclusively knows that no claim is in flight.
        tasks: Work that continues when its caller is cancelled; `close` ends it.
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
        self.abort_timeout = RUNNER
        self.second_look = second_look
        self.lock = ReadWriteLock()
        self.tasks = Tasks(f"claims:{client.name}")
        self._client = client
        self._watcher = watcher
        self._known = known
        self._on_stray = on_stray
        self._reconciling = asyncio.Lock()
        """Held by `reconcile`: an abort sent twice may hit the client that claimed it since."""
        self._returning: dict[str, asyncio.Future[None]] = {}
        """Uuids whose abort is in flight, each with its own future that is done when it ends; one
        that is claimed again meanwhile leaves the dict."""
        self._spared: dict[str, asyncio.TimerHandle] = {}
        """Uuids that `reconcile` leaves alone, with the end of that."""
        self._unconfirmed: set[str] = set()
        """Uuids given back without confirmation by the server."""
        self._sweeping = False
        self._sweep_wanted = asyncio.Event()
        self._closing = False

    def claimed(self, uuid: str) -> None:
        """Record that the server granted a uuid, perhaps one that was given back before."""
        self._unconfirmed.discard(uuid)
        self._returning.pop(uuid, None)
        if (alarm := self._spared.pop(uuid, None)) is not None:
            alarm.cancel()

    def spare(self, uuid: str, seconds: float) -> None:
        """Let `reconcile` leave an episode alone for some seconds, and run it afterwards.

        For an episode that nobody owns any more, but whose end or abort the server may still
        process.
        """
        alarm = asyncio.get_running_loop().call_later(seconds, self._end_spare, uuid)
        if (before := self._spared.pop(uuid, None)) is not None:
            before.cancel()
        self._spared[uuid] = alarm

    def spare_cut_off(self, uuid: str, took: float) -> None:
        """Spare an episode whose end or abort got no answer, while the server may go on with it.

        Args:
            uuid: The episode.
            took: Seconds from the request to the end of its connection, or to a front's answer.
        """
        if BROKEN_EARLY < took < self.abort_timeout:
            self.spare(uuid, self.abort_timeout - took)

    def spares(self, uuid: str) -> bool:
        """Return whether an episode is spared: the server may still process its end or abort."""
        return uuid in self._spared

    def _end_spare(self, uuid: str) -> None:
        del self._spared[uuid]
        self.sweep_soon()

    async def give_back(
        self, uuids: Collection[str], cause: str = "", *, active: bool = False
    ) -> list[str]:
        """Abort episodes of ours concurrently; unconfirmed ones are swept later.

        Those that are being given back already are left out. When cancelled, or not confirmed
        within `timeout` seconds, the aborts go on in the background.

        Args:
            uuids: The episodes.
            cause: Reason for the log.
            active: Count this client among those that agree on updates.

        Returns:
            Those that the server has not confirmed yet.
        """
        fresh = [uuid for uuid in dict.fromkeys(uuids) if uuid not in self._returning]
        if fresh:
            work = self._return(fresh, cause, self._mark(fresh), active)
            if self.tasks.closing:
                await work
            else:
                await asyncio.shield(self.tasks.spawn(work, "give back"))
        return [uuid for uuid in uuids if uuid in self._returning or uuid in self._unconfirmed]

    async def returned(self, uuids: Collection[str]) -> None:
        """Wait until none of these episodes is being given back, at most `timeout` seconds."""
        ends = [self._returning[uuid] for uuid in uuids if uuid in self._returning]
        if ends:
            await asyncio.wait(ends, timeout=self.timeout)

    def return_soon(self, uuids: Sequence[str], cause: str) -> "asyncio.Task[None]":
        """Give episodes back in the background; see `give_back`.

        Returns:
            A task that ends when the server has confirmed it, or after `timeout` seconds.
        """
        return self.tasks.spawn(self._return(uuids, cause, self._mark(uuids)), "give back")

    async def reconcile(self) -> list[str]:
        """Give back the episodes that the server holds in our name and the caller does not know.

        Returns:
            The uuids given back; not those whose aborts take longer than `timeout` seconds.

        Raises:
            SwarmError: the server did not send its records, or did not confirm an abort.
        """
        async with self._reconciling:
            async with self.lock:  # no claim of ours is in flight
                # The records are as old as the request: what was given back since is not lost.
                before, unconfirmed = {*self._known(), *self._returning}, {*self._unconfirmed}
                records = await self._client.buffer(timeout=RECORDS_TIMEOUT)
                known = before.union(self._known())
                known = known - (unconfirmed & self._unconfirmed) | self._returning.keys()
                known |= self._spared.keys()
            me = self._client.client_uuid
            ours = [r.episode_uuid for r in records if r.claimed and r.client_uuid == me]
            self._unconfirmed.intersection_update(ours)
            strays = [uuid for uuid in ours if uuid not in known]
            if not strays:
                return []
            work = self.tasks.spawn(self._return_strays(strays, self._mark(strays)), "strays")
            await asyncio.wait({work}, timeout=self.timeout)
        if not work.done():
            work.add_done_callback(self._sweep_failed)
            return []
        returned: list[str] = work.result()
        if len(returned) < len(strays):
            raise SwarmError("an episode could not be given back", self._client.name)
        return returned

    async def _return_strays(
        self, strays: Sequence[str], ends: "Sequence[asyncio.Future[None]]"
    ) -> list[str]:
        failed = await self._abort(strays, ends)
        returned = [uuid for uuid in strays if uuid not in failed]
        self._unconfirmed.difference_update(returned)
        if returned and self._on_stray is not None:
            self._on_stray(returned)
        return returned

    def _sweep_failed(self, work: "asyncio.Task[list[str]]") -> None:
        """Sweep again after aborts for which `reconcile` did not wait."""
        if not work.cancelled():
            self.sweep_soon()

    def sweep_soon(self) -> None:
        """Start `reconcile` in the background, and again after `second_look` seconds; after `close`
        the next process has to do it."""
        self._sweep_wanted.set()
        if not (self._sweeping or self.tasks.closing):
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
        self._closing = True
        self._sweep_wanted.set()
        until = asyncio.get_running_loop().time() + seconds
        while (left := until - asyncio.get_running_loop().time()) > 0:
            if await self.tasks.drain(min(left, STEP)) or not self._watcher.current.reachable:
                break
        for alarm in self._spared.values():
            alarm.cancel()
        await self.tasks.close()

    def _mark(self, uuids: Sequence[str]) -> "list[asyncio.Future[None]]":
        """Record that these episodes are being given back; `_abort_one` ends that."""
        loop = asyncio.get_running_loop()
        ends: list[asyncio.Future[None]] = [loop.create_future() for _ in uuids]
        self._returning.update(zip(uuids, ends, strict=True))
        return ends

    async def _return(
        self,
        uuids: Sequence[str],
        cause: str,
        ends: "Sequence[asyncio.Future[None]]",
        active: bool = False,
    ) -> None:
        """Abort marked episodes; wait at most `timeout` seconds for the confirmation."""
        work = self._return_all(uuids, cause, ends, active)
        if self.tasks.closing:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.timeout):
                    await work
        else:
            await asyncio.wait({self.tasks.spawn(work, "abort")}, timeout=self.timeout)

    async def _return_all(
        self,
        uuids: Sequence[str],
        cause: str,
        ends: "Sequence[asyncio.Future[None]]",
        active: bool,
    ) -> None:
        if failed := await self._abort(uuids, ends, active):
            log.warning("%d episodes not given back (%s), will try again", len(failed), cause)
            self._unconfirmed.update(failed)
            self.sweep_soon()

    async def _abort(
        self, uuids: Sequence[str], ends: "Sequence[asyncio.Future[None]]", active: bool = False
    ) -> list[str]:
        """Abort marked episodes; return those without a confirmation, as of `_abort_one`."""
        pairs = zip(uuids, ends, strict=True)
        done = await asyncio.gather(*(self._abort_one(uuid, end, active) for uuid, end in pairs))
        return [uuid for uuid, ok in zip(uuids, done, strict=True) if not ok]

    async def _abort_one(self, uuid: str, end: "asyncio.Future[None]", active: bool) -> bool:
        """Abort a marked episode; return True if that is confirmed, or it was claimed again.

        See `spare_cut_off` for one that gets no answer.
        """
        clock = asyncio.get_running_loop().time
        began, mine = clock(), False
        try:
            outcome = await self._client.abort(
                uuid, declare_client_active=active, timeout=self.abort_timeout
            )
        finally:
            if mine := self._returning.get(uuid) is end:
                del self._returning[uuid]
            end.set_result(None)
        if outcome is AbortKind.CONFIRMED or not mine:
            return True
        if outcome is AbortKind.UNKNOWN_OUTCOME:
            self.spare_cut_off(uuid, clock() - began)
        return False

    async def _sweep(self) -> None:
        try:
            while self._sweep_wanted.is_set():
                self._sweep_wanted.clear()
                await self._reconcile_until_done()
                if self._closing and not self._sweep_wanted.is_set():
                    return
                try:
                    await asyncio.wait_for(self._sweep_wanted.wait(), self.second_look)
                except TimeoutError:
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
