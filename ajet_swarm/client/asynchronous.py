"""`AsyncSwarm`, the asyncio client of one swarm server; `SwarmClient` runs it on a thread."""

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from ajet_swarm.api.outcomes import Claimed, ClaimRefused, EndKind, EndOutcome, RefusedKind
from ajet_swarm.api.wire import RUNNER
from ajet_swarm.claims.deadlines import EpisodeDeadline
from ajet_swarm.claims.single import EpisodeClaimer
from ajet_swarm.client.engine_control import EngineOrders
from ajet_swarm.client.episode import LATE, LOST, AsyncEpisode, check_claim, wire_output
from ajet_swarm.client.throttle import BatchPlace
from ajet_swarm.protocol.claim_models import SwarmThrottlePolicy
from ajet_swarm.protocol.errors import EpisodeLost, GaveUp, SwarmError
from ajet_swarm.protocol.schemas import PoolInfo
from ajet_swarm.protocol.task import OpenaiBaseUrlAndApiKey, Task, WorkflowOutput

log = logging.getLogger(__name__)

T = TypeVar("T")

NONE_FREE = (0.05, 0.25)
"""Seconds between two claims while no episode is free, drawn at random each time."""
OTHERWISE = (0.25, 1.0)
"""Seconds before the next claim after a refusal of an unknown kind."""
THROTTLED = (0.3, 0.6)
"""Seconds before a throttled task checks the batch again."""
POOL_FRESH = 0.1
"""Seconds for which one reading of the batch is used for all throttled tasks."""
LOOK_AGAIN = (0.5, 2.0, 5.0, 10.0)
"""Seconds before each lookup of an episode whose end received no response."""
BACK = 60.0
"""Seconds to wait for the server in order to send an end that could not be sent."""


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
        check_claim(discard_episode_timeout, episode_type, throttle_policy, timeout, lifetime)
        await self.start()
        last: list[ClaimRefused] = []
        try:
            async with asyncio.timeout(timeout):
                idle = float(discard_episode_timeout)
                claimed = await self._begin(idle, episode_type, throttle_policy, lifetime, last)
        except TimeoutError:
            raise self._no_episode(timeout, last) from None
        uuid = claimed.episode_uuid
        return uuid, OpenaiBaseUrlAndApiKey(claimed.base_url, claimed.api_key, uuid)

    async def _begin(
        self,
        idle: float,
        kind: str,
        policy: SwarmThrottlePolicy | None,
        lifetime: float | None,
        last: list[ClaimRefused],
    ) -> Claimed:
        since = time.time()
        seconds = idle * self.lifetime if lifetime is None else lifetime
        limit = policy if kind == "train" else None

        times: EpisodeDeadline | None = None

        def remember(claimed: Claimed) -> None:
            nonlocal times
            counts = kind == "train"
            times = self._deadlines.add(claimed.episode_uuid, idle, seconds, counts=counts)

        def forget(claimed: Claimed) -> None:
            self._deadlines.drop(claimed.episode_uuid, times)

        while True:
            seen = await self._until_rolling(since)
            place: BatchPlace | None = None
            if limit is not None and (place := await self._place(limit, last)) is None:
                await asyncio.sleep(random.uniform(*THROTTLED))
                continue
            wire = policy.wire if policy is not None else None
            try:
                async with self._claims.concurrency:
                    if not self.watcher.current.is_in({seen.state}):
                        continue
                    answer = await self._claims.claim_one(kind, idle, wire, remember, forget)
                    if isinstance(answer, Claimed):
                        self._claims.concurrency.widen()
                        if place is not None:
                            place.claimed()
                        return answer
                    last[:] = [answer]
                    await self._wait_after(answer)
            finally:
                if place is not None:
                    place.release()
            since = max(since, self.watcher.current.seen_at)

    async def _wait_after(self, refused: ClaimRefused) -> None:
        """Wait as long as a refusal requires, while holding a place of the concurrency limit.

        Other callers are thereby held back, so that only a few repeat their claims.
        """
        if refused.kind is RefusedKind.NONE_AVAILABLE:
            self._claims.concurrency.narrow()
            with self.watcher.eager():
                await asyncio.sleep(random.uniform(*NONE_FREE))
        elif refused.kind is RefusedKind.OTHER:
            log.warning("%s refused a claim: %s", self.name, refused.text)
            await asyncio.sleep(random.uniform(*OTHERWISE))
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
        now = time.monotonic()
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
        times = self._deadlines.get(episode_uuid)
        if times is not None and times.ending:
            raise SwarmError("this episode is already being ended", episode_uuid)
        if times is None or self._deadlines.is_expired(times):
            work = self._expired(episode_uuid, times)
        else:
            work = self._end(task, episode_uuid, times, workflow_output, declare_client_active)
        if times is not None:
            times.ending = True
        return self._checked(episode_uuid, await self._run_shielded(work, "end"))

    async def _end(
        self,
        task: Task | str,
        uuid: str,
        times: EpisodeDeadline,
        output: WorkflowOutput,
        active: bool,
    ) -> EndOutcome:
        try:
            return await self._send_end(task, uuid, times, output, active)
        except Exception as error:  # give the episode back after any error
            await self._give_back(uuid, times, "it could not be ended")
            if isinstance(error, SwarmError):
                raise
            text = f"it could not be ended: {type(error).__name__}: {error}"
            raise SwarmError(text, f"episode {uuid}", "It was given back") from error
        finally:
            self._deadlines.drop(uuid, times)

    async def _send_end(
        self,
        task: Task | str,
        uuid: str,
        times: EpisodeDeadline,
        output: WorkflowOutput,
        active: bool,
    ) -> EndOutcome:
        task_id, wire = wire_output(task, uuid, output)
        outcome = await self._send_once(task_id, uuid, wire, active)
        if outcome.kind is EndKind.UNREACHABLE:
            outcome = await self._send_later(task_id, uuid, times, wire, active, outcome)
        if outcome.kind is EndKind.UNKNOWN_OUTCOME:
            outcome = await self._look_up(task_id, uuid, times, wire, active, outcome.timed_out)
        if outcome.kind is EndKind.ERROR:
            await self._give_back(uuid, times, "its end was refused")
        return outcome

    async def _send_once(self, task_id: str, uuid: str, wire: Any, active: bool) -> EndOutcome:
        """Send an end, and wait for as long as the server waits for its runner."""
        clock = asyncio.get_running_loop().time
        began = clock()
        outcome = await self.wire.end(uuid, task_id, wire, active, timeout=RUNNER)
        if outcome.kind is EndKind.UNKNOWN_OUTCOME:
            self._claims.releaser.spare_cut_off(uuid, clock() - began)
        return outcome

    async def _send_later(
        self,
        task_id: str,
        uuid: str,
        times: EpisodeDeadline,
        wire: Any,
        active: bool,
        outcome: EndOutcome,
    ) -> EndOutcome:
        """Wait for the server within the episode's lifetime, then send an end that was not sent.

        Nothing is sent if this client was granted the same uuid again meanwhile.
        """
        until = time.monotonic() + BACK
        while outcome.kind is EndKind.UNREACHABLE and not self._deadlines.is_expired(times):
            left = until - time.monotonic()
            if left <= 0:
                break
            try:
                await self.watcher.refresh(left)
                await self.watcher.wait_for(lambda seen: seen.reachable, left)
            except TimeoutError:
                break
            async with self._claims.releaser.lock:  # a claim in flight may get the same uuid
                last = self._deadlines.is_last(uuid, times)
            if not last:
                text = "the server took it back, and granted it to this client again"
                return EndOutcome(EndKind.NOT_CLAIMED, text)
            outcome = await self._send_once(task_id, uuid, wire, active)
        return outcome

    async def _look_up(
        self,
        task_id: str,
        uuid: str,
        times: EpisodeDeadline,
        wire: Any,
        active: bool,
        timed_out: bool,
    ) -> EndOutcome:
        """Look up an episode whose end got no response; repeat the end if it did not arrive.

        It did not arrive if the same claim still holds the episode after the last lookup, unless
        the server took longer than it ever should. An eval episode is given back instead: its
        reward counts nowhere, and its uuid returns to the pool, where the end could hit the next
        claim. It is not while the server may go on with an end that was cut off.
        """
        for pause in LOOK_AGAIN:
            await asyncio.sleep(pause)
            try:
                async with self._claims.releaser.lock:  # a claim in flight may get the same uuid
                    records = await self.wire.buffer()
            except SwarmError:
                continue
            held = [r for r in records if r.episode_uuid == uuid and r.claimed]
            if not held or held[0].client_uuid != self.client_uuid:
                return EndOutcome(
                    EndKind.UNKNOWN_OUTCOME, "no answer came; the server does not hold it any more"
                )
            if not self._deadlines.is_last(uuid, times):
                return EndOutcome(
                    EndKind.UNKNOWN_OUTCOME, "no answer came; the server has granted it again"
                )
            if pause != LOOK_AGAIN[-1]:
                continue
            if times.counts and not timed_out:
                return await self._send_once(task_id, uuid, wire, active)
            if self._claims.releaser.spares(uuid):
                return EndOutcome(
                    EndKind.UNKNOWN_OUTCOME, "no answer came; the server may still process it"
                )
            await self._claims.releaser.give_back([uuid], "its end got no answer")
            return EndOutcome(EndKind.UNKNOWN_OUTCOME, "no answer came; it was given back")
        return EndOutcome(
            EndKind.UNKNOWN_OUTCOME, "no answer came, and the server does not report it"
        )

    async def _expired(self, uuid: str, times: EpisodeDeadline | None) -> EndOutcome:
        """Give back an episode whose lifetime has passed, if this client still holds it."""
        try:
            held = await self._give_back(uuid, times, "its time was over")
        finally:
            self._deadlines.drop(uuid, times)
        if not held:
            return EndOutcome(EndKind.NOT_FOUND, "it is not ours any more")
        text = "longer than its lifetime; a larger discard_episode_timeout gives more"
        return EndOutcome(EndKind.EXPIRED, text)

    def _checked(self, uuid: str, outcome: EndOutcome) -> EndOutcome:
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
        times = self._deadlines.get(episode_uuid)
        if times is not None:
            if times.ending:
                return False
            times.ending = True
        work = self._abort(episode_uuid, times, declare_client_active)
        return await self._run_shielded(work, "abort")

    async def _abort(self, uuid: str, times: EpisodeDeadline | None, active: bool) -> bool:
        try:
            known = not self._deadlines.may_be_taken(times)
            return await self._give_back(uuid, times, "aborted", known=known, active=active)
        finally:
            self._deadlines.drop(uuid, times)

    async def _give_back(
        self,
        uuid: str,
        times: EpisodeDeadline | None,
        why: str,
        *,
        known: bool = False,
        active: bool = False,
    ) -> bool:
        """Abort an episode; unless it is `known` to be held, check that this claim still holds it.

        Returns:
            False when another claim or nobody holds it, or the server does not report it.
        """
        if not known:
            async with self._claims.releaser.lock:  # a claim in flight may get the same uuid
                mine = await self._mine()
            if mine is None:
                self._claims.releaser.sweep_soon()
            if mine is None or uuid not in mine or not self._deadlines.is_last(uuid, times):
                return False
        await self._claims.releaser.give_back([uuid], why, active=active)
        return True

    async def can_continue_episode(self, episode_uuid: str) -> bool:
        """Return whether the client holds the episode and the engine rolls; False if unknown."""
        await self.start()
        if self._deadlines.is_expired(self._deadlines.get(episode_uuid)):
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

        Arguments and errors are those of `begin_episode`.
        """
        uuid, api = await self.begin_episode(
            discard_episode_timeout,
            episode_type,
            throttle_policy,
            timeout=timeout,
            lifetime=lifetime,
        )
        episode = AsyncEpisode(self, task, uuid, api)
        try:
            yield episode
        finally:
            if episode.outcome is None:
                await self.abort_episode(uuid)

    # -- inside ---------------------------------------------------------------------------------

    @property
    def _claims(self) -> EpisodeClaimer:
        if self._claimer is None:
            raise SwarmError("this client was not started", self.name)
        return self._claimer

    async def _remember(self, uuid: str, idle: float, kind: str) -> None:
        """Add an episode that was claimed for this client without `begin_episode`."""
        self._deadlines.add(uuid, idle, idle * self.lifetime, counts=kind == "train")

    async def _run_shielded(self, work: Coroutine[Any, Any, T], name: str) -> T:
        """Run `work` to its end even if the caller is cancelled."""
        done = await asyncio.shield(self._work.spawn(_result_or_error(work), name))
        if isinstance(done, SwarmError):
            raise done
        result: T = done
        return result


async def _result_or_error(work: Coroutine[Any, Any, T]) -> T | SwarmError:
    """Return the result of `work`, or its error as a value, which a task would log otherwise."""
    try:
        return await work
    except SwarmError as error:
        return error
