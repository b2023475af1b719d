"""Control of an engine: send a job, start, stop, agree to an update."""

import asyncio
import logging
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ajet_swarm.api import watcher
from ajet_swarm.api.watcher import (
    OFF,
    OFF_LIMIT,
    ServerStatus,
    answers_as_embedded,
    wait_stable_offline,
)
from ajet_swarm.api.wire import MORE_STEPS, already_trained
from ajet_swarm.client.link import ROLLING, Link
from ajet_swarm.job.agentjet import AgentJetJob
from ajet_swarm.job.schema import BATCH, MODEL, REPEAT, STOP_RULE
from ajet_swarm.job.server import likely_causes
from ajet_swarm.job.tree import Job, check_job, dump_job, get, load_job
from ajet_swarm.protocol.errors import (
    EngineOff,
    ServerRefusal,
    SwarmError,
    TrainingFinished,
    TransportError,
)
from ajet_swarm.protocol.schemas import EngineState

log = logging.getLogger(__name__)

OFFLINE_AFTER_START = 10.0
"""Seconds for which a started engine may still report OFFLINE."""
AGREE_AGAIN = 0.5
"""Seconds between two attempts to agree."""

AnyJob = AgentJetJob | Mapping[str, Any] | str
"""A job as an object, as a nested mapping, or as YAML."""


class EngineOrders:
    """The methods of a client that control its engine."""

    def __init__(self, link: Link) -> None:
        self._link = link

    async def sync_train_config(self, agentjet_job: AnyJob) -> None:
        """Send the job that the next start runs.

        Raises:
            SwarmError: the engine is not OFFLINE, or the server refuses the job.
            JobError: `agentjet_job` is not a valid job.
        """
        await self._send(job_text(agentjet_job))

    async def _send(self, text: str) -> None:
        """Send a checked job."""
        state, _ = await self._link.get_engine_status()
        if state == EngineState.CANNOT_CONNECT.wire:
            raise SwarmError("the server does not answer", self._link.wire.url, "Is it running?")
        if state != EngineState.OFFLINE.wire:
            raise SwarmError(
                f"a job is only accepted while the engine is OFFLINE; it is {state}",
                self._link.name,
                "Stop it first, or use force_restart=True",
            )
        await self._link.wire.sync_train_config(text)
        self._link.completion.sent(text)

    async def start_engine(self, *, timeout: float | None = None) -> None:
        """Start the engine and wait until it rolls.

        If its trainer has just ended, the start is sent after the engine has been OFFLINE for 8 s;
        the embedded engine has no separate trainer.

        Raises:
            SwarmError: refused, with the server's text.
            TrainingFinished: all steps of the job are trained already.
            EngineOff: the engine went OFFLINE again while booting.
            GaveUp: the engine did not roll within `timeout` seconds.
        """
        async with self._link.within(timeout, "ROLLING"):
            await self._settled()
            await self._start_settled()

    async def _start_settled(self) -> None:
        try:
            await self._link.wire.start_engine()
        except TransportError as error:
            if not error.sent:
                raise
            log.warning("no response to the start, waiting for the engine's state: %s", error)
        except ServerRefusal as error:
            if complete := already_trained(error.text):
                raise TrainingFinished(complete, self._link.name, MORE_STEPS) from error
            state, _ = await self._link.get_engine_status()
            hint = "Only a stop helps now" if state == EngineState.BOOTING.wire else ""
            raise SwarmError(error.what, self._link.name, hint) from error
        await self._rolls("the engine was started")

    async def stop_engine(self, *, timeout: float | None = OFF_LIMIT) -> None:
        """Stop the engine for all its clients; do nothing if it is OFFLINE.

        Raises:
            SwarmError: refused, or no response.
            GaveUp: the engine was not OFFLINE within `timeout` seconds.
        """
        if (await self._link.get_engine_status())[0] == EngineState.OFFLINE.wire:
            return
        await self._link.wire.stop_engine()
        self._link.watcher.off_at = asyncio.get_running_loop().time()
        self._link.watcher.nudge()
        async with self._link.within(timeout, "OFFLINE"):
            await self._link.watcher.wait_for(OFF)

    async def auto_sync_train_config_and_start_engine(
        self, agentjet_job: AnyJob, force_restart: bool = False, *, timeout: float | None = None
    ) -> None:
        """Make the engine roll: start it with the job if it is OFFLINE, wait if it is booting.

        Args:
            agentjet_job: The job.
            force_restart: Stop a running engine first, also when other clients use it.
            timeout: Seconds in total; None waits without limit.

        Raises:
            SwarmError: the start failed; the text gives the reason.
            TrainingFinished: all steps of the job are trained already. Nothing was stopped.
            GaveUp: the engine did not roll within `timeout` seconds.
        """
        text = job_text(agentjet_job)
        async with self._link.within(timeout, "ROLLING"):
            await self._started(text, force_restart)

    async def _started(self, text: str, force_restart: bool) -> None:
        seen = await self._link.reached()
        if force_restart or seen.is_in(OFF):
            # a refused job must not stop a running engine
            text = await self._link.wire.prepared(text)
        if force_restart and not seen.is_in(OFF):
            await self.stop_engine()
            seen = self._link.watcher.current
        if seen.is_in(OFF):
            seen = await self._settled()
            if seen.state is EngineState.OFFLINE:
                await self._send(text)
                await self.start_engine()
                return
        if not seen.state.rolling:
            await self._rolls(f"it was {seen.state.value}")
        await self._compare(load_job(text))

    async def _settled(self) -> ServerStatus:
        """Wait if the trainer has just ended, since a late OFFLINE of it would end a new start.

        Returns:
            The status; it is not OFFLINE if another client starts the engine meanwhile.

        Raises:
            Unreachable: the server is gone.
        """
        seen = await self._link.watcher.refresh()
        left = self._link.watcher.off_at + watcher.QUIET - asyncio.get_running_loop().time()
        if left <= 0 or not seen.is_in(OFF) or await answers_as_embedded(self._link.wire):
            return seen
        log.info("%s: its trainer has just ended, waiting for a stable OFFLINE", self._link.name)
        return await wait_stable_offline(self._link.watcher, left)

    async def _compare(self, job: Job) -> None:
        """Log a warning for each setting in which the running engine differs from the job."""
        pool = await self._link.get_rollout_stat()
        if pool.is_default:
            return
        running = {
            BATCH: pool.completed_task_target,
            REPEAT: pool.repeat,
            STOP_RULE: pool.sample_collection_method,
        }
        model = pool.training_model_path
        if model and model != get(job, MODEL) and not await answers_as_embedded(self._link.wire):
            running[MODEL] = model  # the embedded engine ignores the model of a job
        for path, value in running.items():
            expected = get(job, path)
            if value and expected and value != expected:
                log.warning(
                    "%s already runs with %s = %s, not %s: force_restart=True applies the job",
                    self._link.name,
                    path,
                    value,
                    expected,
                )

    async def agree_sync_weight(self, *, timeout: float | None = None) -> bool:
        """Agree to end the batch, under an agreement rule, and wait until it ends.

        The request is repeated while the server does not count this client as active.

        Returns:
            True once this client has agreed and the batch has ended; False if the batch ended
            without its agreement.

        Raises:
            EngineOff: the engine is OFFLINE, so there is no batch.
            SwarmError: the engine ends its batches by another rule.
            GaveUp: the batch did not end within `timeout` seconds. The agreement may be in effect.
        """
        seen = await self._link.reached()
        if seen.is_in(OFF):
            raise self._link.off("the engine is OFFLINE: there is no batch to end")
        pool = await self._link.get_rollout_stat()
        if not (pool.is_default or pool.stale or pool.agree_to_sync):
            raise SwarmError(
                f"the engine ends its batches by {pool.sample_collection_method}, not by agreement",
                self._link.name,
            )
        async with self._link.within(timeout, "the end of the batch"):
            return await self._agreed(seen.step)

    async def _agreed(self, step: int | None) -> bool:
        def finished(seen: ServerStatus) -> bool:
            return seen.reachable and (seen.state is not EngineState.ROLLING or seen.step != step)

        while not finished(self._link.watcher.current):
            try:
                if await self._link.wire.agree_sync_weight():
                    await self._link.watcher.wait_for(finished)
                    return True
            except SwarmError as error:
                log.warning("agreeing to the update failed, will try again: %s", error)
            await asyncio.sleep(AGREE_AGAIN)
            await self._link.watcher.refresh()
        return False

    async def wait_until_rolling(self, *, timeout: float | None = None) -> int:
        """Wait until the engine rolls; return its global step.

        Raises:
            GaveUp: the engine did not roll within `timeout` seconds.
            TrainingFinished: the engine is OFFLINE because training is complete.
            EngineOff: the engine was OFFLINE beyond this client's patience.
        """
        async with self._link.within(timeout, "ROLLING"):
            await self._link.watcher.refresh()  # an update may have begun since the last poll
            return (await self._link.until_rolling(self._link.clock.wall())).step or 0

    async def _wait_until_status_change_to(
        self,
        desired_status: str | None = None,
        desired_status_list: Sequence[str] | None = None,
        verbose: bool = True,
        timeout: float | None = None,
    ) -> None:
        """Wait for a state by its name, as the second clients of AgentJet's tutorials do.

        Raises:
            SwarmError: there is no such state.
            EngineOff: the engine was up and went OFFLINE, which is not one of the given states.
            GaveUp: the state did not occur within `timeout` seconds.
        """
        names = desired_status_list or [desired_status or EngineState.ROLLING.wire]
        expected = {_state(name) for name in names}
        states = " or ".join(sorted(expected))
        async with self._link.within(timeout, states):
            seen = await self._comes(expected)
        if not seen.is_in(expected):
            raise self._link.off(
                f"the engine went OFFLINE during the wait for {states}",
                "Start it, as with auto_sync_train_config_and_start_engine(job)",
            )

    # -- inside ---------------------------------------------------------------------------------

    async def _comes(
        self, expected: Collection[EngineState], offline_for: float = math.inf
    ) -> ServerStatus:
        """Wait for a state, or for an engine that was up and goes OFFLINE.

        Args:
            expected: The states.
            offline_for: Seconds after which also one that never was up has failed.
        """
        clock = self._link.clock.monotonic
        was_up, began = False, clock()

        def finished(seen: ServerStatus) -> bool:
            nonlocal was_up
            was_up = was_up or (seen.reachable and seen.state is not EngineState.OFFLINE)
            failed = seen.is_in(OFF) and (was_up or clock() - began > offline_for)
            return seen.is_in(expected) or failed

        return await self._link.watcher.wait_for(finished)

    async def _rolls(self, why: str) -> None:
        """Wait for ROLLING; an engine that goes OFFLINE meanwhile has failed."""
        await self._link.watcher.refresh()
        seen = await self._comes(ROLLING, OFFLINE_AFTER_START)
        if not seen.is_in(ROLLING):
            if complete := already_trained(seen.detail):
                raise TrainingFinished(complete, self._link.name, MORE_STEPS)
            raise EngineOff(
                f"{why}, and went OFFLINE instead of ROLLING: {seen.detail or 'no reason given'}",
                self._link.name,
                "The server's log says why"
                if seen.detail
                else likely_causes(self._link.completion.job),
            )


def _state(name: Any) -> EngineState:
    """Return the state of a name, with or without `ENGINE.`.

    Raises:
        SwarmError: there is no such state.
    """
    state = EngineState.parse(name) if isinstance(name, str) else EngineState.UNKNOWN
    if state is EngineState.UNKNOWN:
        known = ", ".join(state.wire for state in EngineState if state is not EngineState.UNKNOWN)
        raise SwarmError(f"{name!r:.80} is not a state of an engine", "engine", f"One of: {known}")
    return state


def job_text(job: AnyJob) -> str:
    """Return a job as the YAML to send, and log its notices.

    Raises:
        JobError: `job` is not a valid job.
    """
    if isinstance(job, AgentJetJob):
        text = job.to_yaml()
        job.log_notices(check_job(text).notices, "job")
        return text
    text = job if isinstance(job, str) else dump_job(job)
    for notice in check_job(text).notices:
        log.warning("job: %s", notice.text)
    return text
