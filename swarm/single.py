"""Claiming episodes one by one, from many threads at once.

Claims go side by side. While none is free one of them asks, for all who wait, and the others stand
in line: a full server is asked a few times a second, however many wait.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any

from swarm.answers import Claimed, Refused, RefusedKind
from swarm.claims import ClaimDesk
from swarm.client import AsyncSwarmClient
from swarm.watcher import Watcher

WIDEST = 64
"""Claims on their way at once, at most."""
START = 8
"""At first, and again when the engine begins to roll."""


class Turnstile:
    """How many claims are on their way at once: one more after each that gave an episode."""

    def __init__(self) -> None:
        self._width = START
        self._inside = 0
        self._line: deque[asyncio.Future[None]] = deque()

    async def __aenter__(self) -> None:
        if not self._line and self._inside < self._width:
            self._inside += 1
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._line.append(place)
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():  # let in, and gone: the next may
                self._inside -= 1
                self._let_in()
            else:
                self._line.remove(place)
            raise

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._inside -= 1
        self._let_in()

    def fed(self) -> None:
        """An episode was free."""
        self._width = min(self._width + 1, WIDEST)

    def starved(self) -> None:
        """None was free: one asks for all."""
        self._width = 1

    def open(self) -> None:
        """The engine begins to roll: many are free."""
        self._width = max(self._width, START)
        self._let_in()

    def _let_in(self) -> None:
        while self._line and self._inside < self._width:
            place = self._line.popleft()
            if not place.done():
                self._inside += 1
                place.set_result(None)


class SharedLock:
    """Many share it, or one holds it alone; that one goes before those that come later."""

    def __init__(self) -> None:
        self._alone = asyncio.Lock()
        self._sharing = 0
        self._free = asyncio.Event()
        self._free.set()

    @asynccontextmanager
    async def shared(self) -> AsyncIterator[None]:
        """With others that share it."""
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
        """Hold it alone."""
        await self._alone.acquire()
        try:
            await self._free.wait()
        except asyncio.CancelledError:
            self._alone.release()
            raise

    def release(self) -> None:
        """It is held no more; who holds it alone need not be who took it."""
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


class SingleDesk(ClaimDesk):
    """A claim desk that also claims one by one, side by side.

    Args:
        client: The server.
        watcher: Its watcher; `run` must be running.
        known: As of `ClaimDesk`.
        on_dropped: Called with the uuid of a claim that was given back: nobody waited for it.
    """

    def __init__(
        self,
        client: AsyncSwarmClient,
        watcher: Watcher,
        *,
        known: Callable[[], set[str]],
        on_dropped: Callable[[str], None],
    ) -> None:
        super().__init__(client, watcher, known=known)
        self._on_dropped = on_dropped
        self._shared = SharedLock()
        self._hands = self._shared
        self.turnstile = Turnstile()

    async def claim_one(
        self,
        episode_type: str,
        discard_timeout: float,
        policy: Mapping[str, Any] | None,
        on_claimed: Callable[[Claimed], None],
    ) -> Claimed | Refused:
        """Claim one episode, once; cancelled, it gives back what was on its way.

        Args:
            episode_type: `train` or `eval`.
            discard_timeout: Idle seconds after which the server takes it back.
            policy: What the claim says of its task.
            on_claimed: Called at the moment it is ours.
        """
        work = self._tasks.spawn(
            self._claim_shared(episode_type, discard_timeout, policy, on_claimed), "claim one"
        )
        try:
            answer: Claimed | Refused = await asyncio.shield(work)
        except asyncio.CancelledError:
            self._tasks.spawn(self._unwanted(work), "unwanted claim")
            raise
        return answer

    async def give_back_rest(self, uuids: Collection[str], cause: str) -> None:
        """Give back those that are not on their way back already."""
        await self.give_back(sorted(set(uuids) - self._returning), cause)

    def sweep(self) -> None:
        """Give back, once the server tells, what it holds in our name and nobody knows of."""
        self._sweep_soon()

    async def _claim_shared(
        self,
        episode_type: str,
        discard_timeout: float,
        policy: Mapping[str, Any] | None,
        on_claimed: Callable[[Claimed], None],
    ) -> Claimed | Refused:
        async with self._shared.shared():
            answer = await self.client.claim(
                episode_type, discard_timeout, timeout=self.timeout, throttle_policy=policy
            )
            if isinstance(answer, Claimed):
                self._owed.discard(answer.episode_uuid)
                self._returning.discard(answer.episode_uuid)
                on_claimed(answer)
            elif answer.kind is RefusedKind.UNKNOWN:
                self._sweep_soon()
        return answer

    async def _unwanted(self, work: Awaitable[Claimed | Refused]) -> None:
        answer = await work
        if isinstance(answer, Claimed):
            await self.give_back([answer.episode_uuid], "nobody waits for it any more")
            self._on_dropped(answer.episode_uuid)
