"""`AsyncSwarm`, the asyncio client of one swarm server; `SwarmClient` runs it on a thread."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TypeVar

from ajet_swarm.api.outcomes import Claimed, ClaimRefused, EndOutcome, RefusedKind
from ajet_swarm.client.engine_control import EngineOrders
from ajet_swarm.client.episode import LATE, LOST, AsyncEpisode, check_claim, wire_output
from ajet_swarm.client.throttle import BatchPlace
from ajet_swarm.episodes.claim import EpisodeClaimer
from ajet_swarm.episodes.ends import EpisodeEnds
from ajet_swarm.episodes.holdings import Holding
from ajet_swarm.protocol.claim_models import SwarmThrottlePolicy
from ajet_swarm.protocol.errors import EpisodeLost, GaveUp, SwarmError
from ajet_swarm.protocol.schemas import PoolInfo
from ajet_swarm.protocol.task import OpenaiBaseUrlAndApiKey, Task, WorkflowOutput

log = logging.getLogger(__name__)

T = TypeVar("T")

NONE_FREE = (0.1, 0.5)
"""Seconds between two claims while no episode is free, drawn at random each time."""
OTHERWISE = (0.25, 1.0)
"""Seconds before the next claim after a refusal of an unknown kind."""
THROTTLED = (0.3, 0.6)
"""Seconds before a throttled task checks the batch again."""
POOL_FRESH = 0.1
"""Seconds for which one reading of the batch is used for all throttled tasks."""


class AsyncSwarm(EngineOrders):
    """Asyncio client of one swarm server; arguments as of `SwarmBase`."""

    # -- begin ----------------------------------------------------------------------------------

    async def begin_episode(
        self,
        discard_episode_timeout: float = 240,
        episode_type: str = "train",
        throttle_policy: SwarmThrottlePolicy | None = None,
        *,
        timeout: float | None = None,
        lifetime: float | None = None,
    ) -> tuple[str, OpenaiBaseUrlAndApiKey]:
        """Claim an episode; wait for the engine to roll and for an episode to be free.

        Args:
            discard_episode_timeout: Seconds without a call after which the server takes the episode
                back.
            episode_type: `train`, or `eval` for an episode that is not trained on.
            throttle_policy: This client's share of the batch.
            timeout: Seconds before giving up; None waits with the client's patience.
            lifetime: Seconds after which an end becomes an abort; default the client's `lifetime`
                times `discard_episode_timeout`.

        Returns:
            The episode's uuid, and the address and key of its model.

        Raises:
            GaveUp: no episode was free within `timeout` seconds; none is held.
            TrainingFinished: the engine is OFFLINE because training is complete.
            EngineOff: the engine stayed OFFLINE beyond the client's patience.
            Unreachable: the server was never reached.
        """
        uuid, api, _ = await self._claim_episode(
            discard_episode_timeout, episode_type, throttle_policy, timeout, lifetime
        )
        return uuid, api

    async def _claim_episode(
        self,
        discard_episode_timeout: float,
        episode_type: str,
        throttle_policy: SwarmThrottlePolicy | None,
        timeout: float | None,
        lifetime: float | None,
    ) -> tuple[str, OpenaiBaseUrlAndApiKey, Holding]:
        """Claim an episode, see `begin_episode`; return the holding, too."""
        check_claim(discard_episode_timeout, episode_type, throttle_policy, timeout, lifetime)
        await self.start()
        last: list[ClaimRefused] = []
        try:
            async with asyncio.timeout(timeout):
                idle = float(discard_episode_timeout)
                claimed, holding = await self._begin(
                    idle, episode_type, throttle_policy, lifetime, last
                )
        except TimeoutError:
            raise self._no_episode(timeout, last) from None
        uuid = claimed.episode_uuid
        return uuid, OpenaiBaseUrlAndApiKey(claimed.base_url, claimed.api_key, uuid), holding

    async def _begin(
        self,
        idle: float,
        kind: str,
        policy: SwarmThrottlePolicy | None,
        lifetime: float | None,
        last: list[ClaimRefused],
    ) -> tuple[Claimed, Holding]:
        since = self._clock.wall()
        seconds = idle * self.lifetime if lifetime is None else lifetime
        limit = policy if kind == "train" else None

        holding: Holding | None = None

        def granted(uuid: str) -> None:
            nonlocal holding
            holding = self._ends.holdings.by_uuid[uuid]
            holding.lifetime = seconds
            self._ends.holdings.forget_expired()

        while True:
            seen = await self._until_rolling(since)
            place: BatchPlace | None = None
            if limit is not None and (place := await self._place(limit, last)) is None:
                await asyncio.sleep(self._chance.uniform(*THROTTLED))
                continue
            wire = policy.wire if policy is not None else None
            try:
                async with self._claims.queue.entry() as entry:
                    if not self.watcher.current.is_in({seen.state}):
                        continue
                    answer = await self._claims.claim_one(kind, idle, wire, granted)
                    if isinstance(answer, Claimed):
                        entry.claimed()
                        if place is not None:
                            place.claimed()
                        assert holding is not None  # `granted` was called
                        return answer, holding
                    last[:] = [answer]
                    entry.refused(answer.kind is RefusedKind.NONE_AVAILABLE)
                    await self._wait_after(answer)
            finally:
                if place is not None:
                    place.release()
            since = max(since, self.watcher.current.seen_at)

    async def _wait_after(self, refused: ClaimRefused) -> None:
        """Wait as long as a refusal requires, before the next caller claims.

        Other callers are thereby held back, so that only a few repeat their claims.
        """
        if refused.kind is RefusedKind.NONE_AVAILABLE:
            with self.watcher.eager():
                await asyncio.sleep(self._chance.uniform(*NONE_FREE))
        elif refused.kind is RefusedKind.OTHER:
            log.warning("%s refused a claim: %s", self.name, refused.text)
            await asyncio.sleep(self._chance.uniform(*OTHERWISE))
        else:  # the last known status is older than this refusal
            await self.watcher.refresh()

    async def _place(
        self, policy: SwarmThrottlePolicy, last: list[ClaimRefused]
    ) -> BatchPlace | None:
        """Return a place in the batch; None, with the reason in `last`, if the task has to wait."""
        if self._throttling is None:
            raise SwarmError("this client was not started", self.name)
        async with self._throttling:
            read_at, pool = await self._fresh_pool()
            known = not pool.is_default  # a default means that the reading failed
            place = self._throttle.admit(policy, pool, read_at) if known else None
        if place is None:
            why = (
                "throttled by its policy" if known else "the server reports nothing about its batch"
            )
            last[:] = [ClaimRefused(RefusedKind.OTHER, why)]
        return place

    async def _fresh_pool(self) -> tuple[float, PoolInfo]:
        """Return a recent reading of the batch, and the time at which it was requested."""
        now = self._clock.monotonic()
        if self._pool is None or now - self._pool[0] > POOL_FRESH:
            self._pool = (now, await self.get_rollout_stat())
        return self._pool

    def _no_episode(self, timeout: float | None, last: list[ClaimRefused]) -> GaveUp:
        refusal = f"; last refusal: {last[0].text or last[0].kind.value}" if last else ""
        error = self._gave_up("an episode", timeout)
        return GaveUp(f"{error.what}{refusal}", self.name)

    # -- end ------------------------------------------------------------------------------------

    async def end_episode(
        self,
        task: Task | str,
        episode_uuid: str,
        workflow_output: WorkflowOutput,
        declare_client_active: bool = True,
    ) -> EndOutcome:
        """Send an episode's reward; send it again only if the same claim still holds the episode.

        An episode whose lifetime has passed is given back instead. The end of an eval episode is
        never sent again after it may have arrived.

        Args:
            task: The task, or its id, which names the GRPO group.
            episode_uuid: The episode.
            workflow_output: Its reward, one finite number.
            declare_client_active: Count this client among those that agree on updates.

        Returns:
            The outcome. Only `ENDED` means that the reward counts. With `strict` the only other
            outcome is `UNKNOWN_OUTCOME`: no response, but the end was most likely accepted.

        Raises:
            EpisodeLost: the server no longer holds the episode, or refused its end; the episode is
                not claimed any more.
            WrongUse: the reward or the task cannot be sent; the episode was given back.
        """
        await self.start()
        holding = self._holding(episode_uuid)
        return await self._end_claim(task, holding, workflow_output, declare_client_active)

    def _holding(self, uuid: str) -> Holding:
        """Return the holding of an episode; for an unknown one, one whose time is over."""
        return self._ends.holdings.by_uuid.get(uuid) or Holding(uuid, idle=0.0, lifetime=0.0)

    async def _end_claim(
        self, task: Task | str, holding: Holding, output: WorkflowOutput, active: bool = True
    ) -> EndOutcome:
        """End the episode of one claim, see `EpisodeEnds.end`."""
        await self.start()
        uuid = holding.uuid
        if holding.left_by and self._ends.holdings.by_uuid.get(uuid) is holding:
            raise SwarmError("this episode is already being ended", uuid)
        try:
            task_id, wire = wire_output(task, uuid, output)
            outcome = await self._ends.end(holding, task_id, wire, active=active)
        except Exception as error:  # give the episode back after any error
            await self._ends.abort([holding], "it could not be ended")
            if isinstance(error, SwarmError):
                raise
            text = f"it could not be ended: {type(error).__name__}: {error}"
            raise SwarmError(text, f"episode {uuid}", "It was given back") from error
        if outcome.kind in LOST or (self.strict and outcome.kind in LATE):
            raise EpisodeLost(outcome.kind.value, outcome.text, uuid)
        if not outcome.ended:
            log.warning("episode %s: %s: %s", uuid, outcome.kind.value, outcome.text)
        return outcome

    async def abort_episode(self, episode_uuid: str, declare_client_active: bool = False) -> bool:
        """Give an episode back without a reward; never raises for a fault of the server.

        Returns:
            False when this client no longer holds the episode, or is already ending it.
        """
        await self.start()
        return await self._abort_claim(self._holding(episode_uuid), declare_client_active)

    async def _abort_claim(self, holding: Holding, active: bool = False) -> bool:
        """Give back the episode of one claim, see `EpisodeEnds.abort`."""
        await self.start()
        return bool(await self._ends.abort([holding], "aborted", active=active))

    async def can_continue_episode(self, episode_uuid: str) -> bool:
        """Return whether the client holds the episode and the engine rolls; False if unknown."""
        await self.start()
        if self._ends.holdings.is_expired(self._holding(episode_uuid)):
            return False
        return bool(await self.wire.can_continue(episode_uuid))

    @asynccontextmanager
    async def episode(
        self,
        task: Task | str,
        discard_episode_timeout: float = 240,
        episode_type: str = "train",
        throttle_policy: SwarmThrottlePolicy | None = None,
        *,
        timeout: float | None = None,
        lifetime: float | None = None,
    ) -> AsyncIterator[AsyncEpisode]:
        """Context of one episode, which is aborted if the context is left without an end.

        Its end and its abort are refused here if the server took the episode back and granted the
        same uuid to another task of this client.

        Arguments and errors are those of `begin_episode`.
        """
        uuid, api, holding = await self._claim_episode(
            discard_episode_timeout, episode_type, throttle_policy, timeout, lifetime
        )
        episode = AsyncEpisode(
            task, uuid, api, lambda task, output: self._end_claim(task, holding, output)
        )
        try:
            yield episode
        finally:
            if episode.outcome is None and not self._closed:
                await self._abort_claim(holding)

    # -- inside ---------------------------------------------------------------------------------

    @property
    def _claims(self) -> EpisodeClaimer:
        if self._claimer is None:
            raise SwarmError("this client was not started", self.name)
        return self._claimer

    @property
    def _ends(self) -> EpisodeEnds:
        return self._claims.ends

    async def _remember(self, uuid: str, idle: float, kind: str) -> None:
        """Add an episode that was claimed for this client without `begin_episode`."""
        ends = self._ends
        lifetime = idle * self.lifetime
        ends.holdings.add(
            Holding(
                uuid,
                idle,
                lifetime,
                kind == "train",
                ends.holdings.monotonic(),
                ends.holdings.wall(),
            )
        )
