"""Gives episodes back to one server, surely: also what nobody here knows that we hold."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from core.tasks import Tasks
from swarm.client import AsyncSwarmClient
from swarm.errors import SwarmError
from swarm.watcher import Watcher

log = logging.getLogger(__name__)

LOOK = 3.0
"""Seconds a look at the server's records may hold up claims."""
SECOND_LOOK = 5.0
"""Seconds after which lost claims are looked for again: a frozen server may run one late."""
STEP = 0.25
"""Seconds between two looks, at the end, whether the server is still in reach."""


class Hands(AbstractAsyncContextManager[None], Protocol):
    """A lock that may be released by somebody else than who took it."""

    async def acquire(self) -> object:
        """Wait for it and hold it."""
        ...

    def release(self) -> None:
        """Hold it no more."""
        ...


class Returns:
    """What the claim desk gives back.

    Args:
        client: The server.
        watcher: Its watcher; `run` must be running.
        known: The uuids the caller answers for.
        on_stray: Called with uuids that `reconcile` gave back.
        timeout: Seconds an abort may take.
        second_look: See `SECOND_LOOK`.
    """

    def __init__(
        self,
        client: AsyncSwarmClient,
        watcher: Watcher,
        *,
        known: Callable[[], Collection[str]],
        on_stray: Callable[[Sequence[str]], None] | None,
        timeout: float,
        second_look: float,
    ) -> None:
        self.client = client
        self.watcher = watcher
        self.known = known
        self.on_stray = on_stray
        self.timeout = timeout
        self.second_look = second_look
        self._hands: Hands = asyncio.Lock()
        """Held while claims are on their way, never while waiting."""
        self._sweeps = asyncio.Lock()
        """Held by who looks for strays: an abort sent twice may hit who claimed it since."""
        self._tasks = Tasks(f"claims:{client.name}")
        self._returning: set[str] = set()
        """On their way back; a uuid that is claimed again meanwhile leaves the set."""
        self._owed: set[str] = set()
        """Given back by us, but the server did not confirm."""
        self._sweeping = False
        self._doubt = False
        self._closing = asyncio.Event()

    def _in_hand(self) -> set[str]:
        """Episodes of a group that is not complete yet."""
        return set()

    async def give_back(self, uuids: Sequence[str], cause: str = "") -> None:
        """Abort episodes of ours, together; what the server does not confirm is swept later."""
        if not uuids:
            return
        self._returning.update(uuids)
        done = await self._abort(uuids)
        failed = [uuid for uuid, ok in zip(uuids, done, strict=True) if not ok]
        failed = [uuid for uuid in failed if uuid in self._returning]
        self._returning.difference_update(uuids)
        if failed:
            log.warning("%d episodes not given back (%s), will try again", len(failed), cause)
            self._owed.update(failed)
            self._sweep_soon()

    async def reconcile(self) -> list[str]:
        """Give back what the server holds in our name and the caller does not know of.

        Returns:
            The uuids given back.

        Raises:
            SwarmError: the server did not tell what it holds.
        """
        async with self._sweeps:
            async with self._hands:  # no claim of ours is on its way meanwhile
                before = set(self.known())
                records = await self.client.buffer(timeout=LOOK)
                known = (before | set(self.known()) | self._in_hand()) - self._owed
            me = self.client.client_uuid
            ours = [r.episode_uuid for r in records if r.claimed and r.client_uuid == me]
            self._owed.intersection_update(ours)
            strays = [uuid for uuid in ours if uuid not in known]
            done = await self._abort(strays)
        returned = [uuid for uuid, ok in zip(strays, done, strict=True) if ok]
        self._owed.difference_update(returned)
        if returned and self.on_stray is not None:
            self.on_stray(returned)
        if len(returned) < len(strays):
            raise SwarmError("an episode could not be given back", self.client.name)
        return returned

    async def settle(self, seconds: float) -> bool:
        """Wait until everything under way in the background is over; False when it is not."""
        return await self._tasks.drain(seconds)

    async def close(self, seconds: float = 5.0) -> None:
        """Wait up to `seconds` for episodes on their way back, then stop.

        A server that is out of reach is not waited for, nor is the time of a second look: that
        comes at once.
        """
        self._closing.set()
        until = asyncio.get_running_loop().time() + seconds
        while (left := until - asyncio.get_running_loop().time()) > 0:
            if await self._tasks.drain(min(left, STEP)) or not self.watcher.current.reachable:
                break
        await self._tasks.close()

    async def _abort(self, uuids: Sequence[str]) -> list[bool]:
        return await asyncio.gather(
            *(self.client.abort(uuid, timeout=self.timeout) for uuid in uuids)
        )

    def _sweep_soon(self) -> None:
        self._doubt = True
        if not self._sweeping:
            self._sweeping = True
            self._tasks.spawn(self._sweep(), "sweep")

    async def _sweep(self) -> None:
        try:
            while self._doubt:
                self._doubt = False
                await self._reconcile_surely()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self.second_look):
                        await self._closing.wait()
                await self._reconcile_surely()
        finally:
            self._sweeping = False

    async def _reconcile_surely(self) -> None:
        while True:
            await self.watcher.wait_for(lambda seen: seen.reachable)
            try:
                await self.reconcile()
                return
            except SwarmError as error:
                log.warning("lost claims not swept yet: %s", error)
                await asyncio.sleep(1.0)
