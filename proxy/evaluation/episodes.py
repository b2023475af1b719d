"""Eval episodes of a measurement: claimed one by one beside the queue of users, always given back.

Each episode has a task that owns it from its claim to its return. The task outlasts a caller that
is cancelled, so a claim that is granted late is given back as well.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ajet_swarm.api.outcomes import Claimed, ClaimRefused, RefusedKind
from ajet_swarm.episodes.holdings import Holding
from ajet_swarm.protocol.errors import SwarmError
from proxy.context import ServerHandle

CLOSE_LIMIT = 5.0
"""Seconds for which `close` waits; a frozen server answers a claim after up to 19 s."""


class NotGranted(SwarmError):
    """A claim was refused.

    Attributes:
        kind: Kind of the refusal.
    """

    def __init__(self, refused: ClaimRefused, where: str) -> None:
        super().__init__(f"no episode was granted: {refused.text or refused.kind.value}", where)
        self.kind = refused.kind


class EvalEpisodes:
    """The eval episodes that one measurement holds.

    A claim is sent once and never queues: no user waits behind it, and a refusal does not count as
    a group that waits for episodes.

    Args:
        server: The server.
        idle: Seconds after which the server takes back an idle episode of a killed proxy.
        cause: Reason of the returns, for the log.
    """

    def __init__(self, server: ServerHandle, idle: float, cause: str) -> None:
        self._server = server
        self._ends = server.claimer.ends
        self._idle = idle
        self._cause = cause
        self._owners: dict[asyncio.Task[None], asyncio.Event] = {}
        """Task of each episode and of each claim in flight, and the event that ends it."""
        self._closed = False

    @asynccontextmanager
    async def hold(self) -> AsyncIterator[Claimed]:
        """Context with an episode, which is given back at its end.

        When cancelled during the claim, it ends at once; the episode is given back later if the
        claim is granted.

        Raises:
            NotGranted: No episode is free, or the server refuses it for another reason.
        """
        if self._closed:
            raise SwarmError("the measurement has ended", self._server.name)
        leave = asyncio.Event()
        answer: asyncio.Future[Claimed | ClaimRefused]
        answer = asyncio.get_running_loop().create_future()
        owner = self._ends.tasks.spawn(self._own(answer, leave), self._cause)
        self._owners[owner] = leave
        owner.add_done_callback(self._owners.pop)
        try:
            await asyncio.wait({answer, owner}, return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                raise SwarmError("the claim was given up", self._server.name)
            granted = answer.result()
            if not isinstance(granted, Claimed):
                raise NotGranted(granted, self._server.name)
            yield granted
        finally:
            leave.set()
            if answer.done():
                await asyncio.shield(owner)

    async def close(self) -> None:
        """Give back every episode, those of claims in flight included; wait up to `CLOSE_LIMIT`.

        What is left then is given back without the caller.
        """
        self._closed = True
        for leave in self._owners.values():
            leave.set()
        if self._owners:
            await asyncio.wait(tuple(self._owners), timeout=CLOSE_LIMIT)

    async def _own(
        self, answer: "asyncio.Future[Claimed | ClaimRefused]", leave: asyncio.Event
    ) -> None:
        """Claim an episode, and give it back when `leave` is set."""
        granted, holding = await self._claim()
        answer.set_result(granted)
        if holding is None:
            return
        try:
            await leave.wait()
        finally:
            await self._ends.abort([holding], self._cause)

    async def _claim(self) -> tuple[Claimed | ClaimRefused, Holding | None]:
        ends = self._ends
        async with ends.lock.shared():  # a search must not find it before it is recorded
            answer = await self._server.client.claim("eval", self._idle, timeout=ends.timeout)
            if isinstance(answer, Claimed):
                return answer, ends.holdings.granted(answer)
            if answer.kind is RefusedKind.UNKNOWN:  # it may have been granted
                ends.lost.search_soon()
        return answer, None
