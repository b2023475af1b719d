"""`AsyncSwarm`, the asyncio client of one swarm server; `SwarmClient` runs it on a thread."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from ajet_swarm.client.base import ROLLING
from ajet_swarm.client.engine_control import EngineOrders
from ajet_swarm.client.episode import ACCEPTED, LATE, AsyncEpisode, check_claim, wire_output
from ajet_swarm.episodes.ends import Holding
from ajet_swarm.episodes.queue import QueueEntry
from ajet_swarm.protocol.errors import EpisodeLost, SwarmError
from ajet_swarm.protocol.models import (
    OpenaiBaseUrlAndApiKey,
    SwarmThrottlePolicy,
    Task,
    WorkflowOutput,
)
from ajet_swarm.protocol.schemas import Claimed, EndOutcome, RefusedKind

log = logging.getLogger(__name__)

NONE_FREE = (0.1, 0.5)
"""Seconds between two claims while no episode is free, drawn at random each time."""
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
        api, _ = await self._claim_episode(
            discard_episode_timeout, episode_type, throttle_policy, timeout, lifetime
        )
        return api.episode_uuid, api

    async def _claim_episode(
        self,
        idle: float,
        kind: str,
        policy: SwarmThrottlePolicy | None,
        timeout: float | None,
        lifetime: float | None,
    ) -> tuple[OpenaiBaseUrlAndApiKey, Holding]:
        """Claim an episode, see `begin_episode`; return its holding, too."""
        check_claim(idle, kind, policy, timeout, lifetime)
        await self.start()
        since = self._clock.wall()
        wish = _Wish(kind, float(idle), policy)
        try:
            async with asyncio.timeout(timeout):
                while (claimed := await self._attempt(wish, since)) is None:
                    since = max(since, self.watcher.current.seen_at)
        except TimeoutError:
            refusal = f"; last refusal: {wish.refusal}" if wish.refusal else ""
            raise self._gave_up("an episode", timeout, refusal) from None
        uuid, holdings = claimed.episode_uuid, self._ends.holdings
        if (holding := holdings.by_uuid.get(uuid)) is None:  # given back by `close`
            raise SwarmError("this client was closed meanwhile", self.name)
        holding.lifetime = idle * self.lifetime if lifetime is None else lifetime
        holdings.forget_expired()
        return OpenaiBaseUrlAndApiKey(claimed.base_url, claimed.api_key, uuid), holding

    async def _attempt(self, wish: "_Wish", since: float) -> Claimed | None:
        """Wait for ROLLING, the share and the turn, and claim once."""
        await self._until_rolling(since)
        limit = wish.policy if wish.kind == "train" else None
        if limit is not None and (why := await self._why_throttled(limit)):
            wish.refusal = why
            await asyncio.sleep(self._chance.uniform(*THROTTLED))
            return None
        claimed = None
        try:
            async with QueueEntry(self._claimer.queue) as entry:
                if not self.watcher.current.is_in(ROLLING):
                    return None
                policy = wish.policy.wire if wish.policy is not None else None
                answer = await self._claimer.claim_one(wish.kind, wish.idle, policy)
                if isinstance(answer, Claimed):
                    claimed = answer
                    entry.claimed()
                    return claimed
                wish.refusal = answer.text or answer.kind.value
                entry.refused(answer.kind is RefusedKind.NONE_AVAILABLE)
                if answer.kind is RefusedKind.OTHER:
                    log.warning("%s refused a claim: %s", self.name, answer.text)
                # within the entry: other callers are held back, so that only a few claim again
                await self._claimer.pause(answer, NONE_FREE)
                return None
        finally:
            if limit is not None:
                self._throttle.end(limit, claimed=claimed is not None)

    async def _why_throttled(self, policy: SwarmThrottlePolicy) -> str:
        """Return why a task has to wait; empty if its claim is admitted to the batch."""
        async with self._throttling:
            now = self._clock.monotonic()
            if self._pool is None or now - self._pool[0] > POOL_FRESH:
                self._pool = (now, await self.get_rollout_stat())
            read_at, pool = self._pool
            if pool.is_default:  # the reading failed
                return "the server reports nothing about its batch"
            admitted = self._throttle.admit(policy, pool, read_at)
            return "" if admitted else "throttled by its policy"

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
        late = outcome.kind in LATE and not self.strict
        if outcome.kind not in ACCEPTED and not late:
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
        api, holding = await self._claim_episode(
            discard_episode_timeout, episode_type, throttle_policy, timeout, lifetime
        )
        episode = AsyncEpisode(
            task, api.episode_uuid, api, lambda task, output: self._end_claim(task, holding, output)
        )
        try:
            yield episode
        finally:
            if episode.outcome is None and not self._closed:
                await self._abort_claim(holding)

    async def _remember(self, uuid: str, idle: float, kind: str) -> None:
        """Add an episode that was claimed for this client without `begin_episode`."""
        claimed = Claimed(uuid, "", "", kind, self._clock.wall(), idle)
        self._ends.holdings.granted(claimed).lifetime = idle * self.lifetime


@dataclass(slots=True)
class _Wish:
    """An episode that is to be claimed."""

    kind: str
    idle: float
    policy: SwarmThrottlePolicy | None
    refusal: str = ""
    """Why the last attempt gave none."""
