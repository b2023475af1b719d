"""Claiming episodes of one server: a whole group or nothing, one turn at a time.

A group that holds some episodes while it waits for the rest deadlocks the server's batch (it waits
for every claimed episode), and many groups that do it deadlock each other. So a group that cannot
have all its episodes gives back what it got, at once, and waits without any. Only when that fails
for a while, because other clients take each episode the moment it is free, may the one group that
has its turn gather: keep what it gets, in short windows and in ROLLING alone.

While all is granted, one turn claims for several groups, see `ajet_swarm.claims.shared_batch`: else
each of them would wait for the round trips of all that came before it.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Collection, Sequence

from ajet_swarm.api.interface import SwarmApi
from ajet_swarm.api.outcomes import Claimed, ClaimRefused, RefusedKind
from ajet_swarm.api.watcher import Watcher
from ajet_swarm.api.wire import GENERAL
from ajet_swarm.claims.attempts import ClaimAttempts
from ajet_swarm.claims.lane_queue import Lane
from ajet_swarm.claims.queue import TurnQueue
from ajet_swarm.claims.releases import SECOND_LOOK, EpisodeReleaser
from ajet_swarm.claims.request import ClaimRequest, GatherBackoff, OnClaimed, OnReturned
from ajet_swarm.common.tasks import Deadline, DeadlineTimeout
from ajet_swarm.protocol.errors import ClaimTimedOut
from ajet_swarm.protocol.schemas import EngineState
from ajet_swarm.runtime import SYSTEM, Runtime

BACK_OFF, OTHER_BACK_OFF = (0.05, 0.25), (0.25, 1.0)
"""Seconds between attempts, drawn at random: no episode is free; a refusal of an unknown kind."""
NO_ANSWER = "no answer to the claim"
"""Reason of a timeout when no other is known."""

_ROLLING = frozenset({EngineState.ROLLING})


class GroupClaimer:
    """Claims groups of episodes of one server; one per server and process.

    Args:
        client: The server.
        watcher: Its watcher; `run` must be running.
        known: Returns the uuids for which the caller is responsible: from `on_claimed` until they
            are ended or returned. `reconcile` gives back all others that the server holds in our
            name.
        on_stray: Called with the uuids that `reconcile` gave back.
        timeout: Seconds after which the outcome of a claim or an abort counts as unknown; more than
            the 19 s for which a server is frozen while it stops an engine.
        second_look: Seconds until lost claims are searched for a second time: a frozen server may
            execute one late.
        runtime: Source of the back-off.

    Attributes:
        releaser: Gives episodes back.
        starved: Whether a group waits because no episode is free.
        on_starved: Called when a group begins to wait because no episode is free.
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
        runtime: Runtime = SYSTEM,
    ) -> None:
        self.client = client
        self.watcher = watcher
        self.starved = False
        self.on_starved: Callable[[], None] | None = None
        self.releaser = EpisodeReleaser(
            client,
            watcher,
            known=known,
            on_stray=on_stray,
            timeout=timeout,
            second_look=second_look,
        )
        self._chance = runtime.chance
        self._queue = TurnQueue()
        self._attempts = ClaimAttempts(
            client,
            watcher,
            self.releaser,
            self._queue,
            end_turn=self._end_turn,
            chance=self._chance,
        )

    @property
    def waiting(self) -> bool:
        """True while a group has its turn, or queues for it."""
        return self._queue.busy

    def claim_at_once(
        self, n: int, *, episode_type: str = "train", discard_timeout: float = 240.0
    ) -> list[Claimed] | None:
        """Claim `n` episodes without a request to the server, and so without a wait.

        Args:
            n: Number of episodes of the group.
            episode_type: `train` or `eval`.
            discard_timeout: Idle seconds after which the server takes an episode back.

        Returns:
            Exactly `n` episodes; None, with nothing claimed, if `claim_group` has to do it. A swarm
            server has to be asked: only a subclass whose server simulates episodes returns any.
        """
        return None

    async def claim_group(
        self,
        n: int,
        *,
        episode_type: str = "train",
        discard_timeout: float = 240.0,
        deadline: Deadline | None = None,
        lane: Lane = (),
        newcomer: bool = False,
        arrived: float = math.inf,
        on_intent: Callable[[], Awaitable[None]] | None = None,
        on_claimed: OnClaimed | None = None,
        on_returned: OnReturned | None = None,
    ) -> list[Claimed]:
        """Claim `n` episodes together, waiting for the engine and for free episodes.

        When cancelled, everything claimed so far, and every claim in flight, is given back in the
        background (see `close`), with `on_returned`.

        Args:
            n: Number of episodes of the group.
            episode_type: `train` or `eval`.
            discard_timeout: Idle seconds after which the server takes an episode back.
            deadline: Time on the event loop's clock (`loop.time()`); None waits without end. A
                function is called again at the time it returned, and may postpone it.
            lane: Sender of the request: key, address and session, or fewer names. All lanes of a
                claimer have the same number of names; the queue takes turns between lanes.
            newcomer: Whether the request may overtake others of its key and address in every second
                turn, so that a single request does not wait for an earlier burst.
            arrived: Time at which the request arrived, on any clock that is the same for all; of
                newcomers, the newest overtakes. Infinity counts as the latest.
            on_intent: Awaited once, before the first claim, for example to make the intent durable.
            on_claimed: Called for each episode as soon as it is granted, even when it is given back
                directly afterwards.
            on_returned: Called with episodes of a failed attempt as soon as they are given back,
                before the server confirms it and before any error is raised here.

        Returns:
            Exactly `n` episodes.

        Raises:
            ClaimTimedOut: the deadline passed; everything is given back as on cancellation.
            Exception: the error of `on_intent` or `on_claimed`; nothing is held.
        """
        request = ClaimRequest(
            n, episode_type, discard_timeout, on_claimed, on_returned, lane, newcomer, arrived
        )
        try:
            with DeadlineTimeout(deadline, self._attempts.loop):
                if on_intent is not None:
                    await on_intent()
                while not await self._claim_in_turn(request):
                    pass
                return request.take_held()
        except TimeoutError:
            cause = self._why_late(request)
            raise ClaimTimedOut(n, request.best, cause, self.client.name) from None

    async def refill(
        self,
        *,
        episode_type: str = "train",
        discard_timeout: float = 240.0,
        deadline: float | None = None,
        on_claimed: OnClaimed | None = None,
        on_returned: OnReturned | None = None,
    ) -> Claimed | None:
        """Claim one more episode for a group that already holds some, ahead of waiting groups.

        Give up as soon as the engine does not roll: a group that holds episodes must not wait for a
        batch boundary that waits for those episodes.

        Args:
            episode_type: See `claim_group`.
            discard_timeout: Idle seconds after which the server takes the episode back.
            deadline: Time on the event loop's clock; None for no deadline.
            on_claimed: See `claim_group`.
            on_returned: See `claim_group`.

        Returns:
            The episode; None when the engine does not roll or none was free before the deadline.
        """
        request = ClaimRequest(1, episode_type, discard_timeout, on_claimed, on_returned)
        try:
            async with asyncio.timeout_at(deadline):
                while self.watcher.current.is_in(_ROLLING):
                    request.stop = None
                    if (refused := await self._attempts.run(request)) is None:
                        return request.take_held()[0]
                    if refused.kind is not RefusedKind.NONE_AVAILABLE:
                        self.watcher.nudge()
                        return None
                    with self.watcher.eager():
                        await asyncio.sleep(self._chance.uniform(*BACK_OFF))
        except TimeoutError:
            pass
        return None

    async def give_back(self, uuids: Sequence[str], cause: str = "") -> None:
        """See `EpisodeReleaser.give_back`."""
        await self.releaser.give_back(uuids, cause)

    async def reconcile(self) -> list[str]:
        """See `EpisodeReleaser.reconcile`."""
        return await self.releaser.reconcile()

    async def settle(self, seconds: float) -> bool:
        """See `EpisodeReleaser.settle`."""
        return await self.releaser.settle(seconds)

    async def close(self, seconds: float = 5.0) -> None:
        """See `EpisodeReleaser.close`."""
        await self.releaser.close(seconds)

    async def _claim_in_turn(self, request: ClaimRequest) -> bool:
        """Try until all episodes are held; return False when the request must queue again, for
        example because a smaller group goes first."""
        if not await self._wait_for_turn(request):
            if request.error is not None:
                raise request.error
            return request.complete  # it was served in a shared turn
        request.in_turn = True
        clock = self._attempts.loop.time
        began = clock()
        backoff: GatherBackoff | None = None
        """None until an attempt failed, since a group does not gather at first."""
        try:
            while True:
                await self.watcher.wait_for(_ROLLING)
                request.begin_attempt()
                window = backoff.window(clock()) if backoff is not None and request.n > 1 else 0.0
                if window and self._queue.must_not_gather(request):
                    window = 0.0
                probe = request.refused_before
                refused = await self._attempts.run(request, probe=probe, window=window)
                if refused is None:
                    return True
                request.end_attempt()
                backoff = backoff or GatherBackoff(self._chance, began)
                self._starve(none_free := refused.kind is RefusedKind.NONE_AVAILABLE)
                if window or not none_free:
                    backoff.close(clock(), none_free)
                await self._wait_after(refused)
                if none_free and self._queue.yields_to_smaller(request, clock() - began):
                    return False
        finally:
            self._end_turn(request)

    async def _wait_for_turn(self, request: ClaimRequest) -> bool:
        """Wait for the turn; return False when the request was served or must queue again."""
        try:
            return await self._queue.take(request)
        except asyncio.CancelledError:
            if request.shared:
                request.cut = not request.complete
                self.releaser.stop_request(request, ClaimRefused(RefusedKind.OTHER, "cancelled"))
            raise

    def _end_turn(self, request: ClaimRequest) -> None:
        """End the turn of a request, if it has it."""
        if request.in_turn:
            request.in_turn = False
            self._starve(False)
            self._queue.release()

    def _starve(self, starved: bool) -> None:
        begins = starved and not self.starved
        self.starved = starved
        if begins and self.on_starved is not None:
            self.on_starved()

    async def _wait_after(self, refused: ClaimRefused) -> None:
        with self.watcher.eager():
            if refused.kind is RefusedKind.NONE_AVAILABLE:
                await asyncio.sleep(self._chance.uniform(*BACK_OFF))
            elif refused.kind is RefusedKind.OTHER:
                await asyncio.sleep(self._chance.uniform(*OTHER_BACK_OFF))
            else:  # NOT_ROLLING, SYNCING and others: the watcher's status is older than this answer
                await self.watcher.refresh()

    def _why_late(self, request: ClaimRequest) -> str:
        seen = self.watcher.current
        if not request.cut:
            return request.stop.kind.value if request.stop else seen.display_state.value
        if not seen.is_in(_ROLLING):
            return seen.display_state.value
        return request.last.kind.value if request.last else NO_ANSWER
