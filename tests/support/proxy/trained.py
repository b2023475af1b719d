"""A scripted AgentJet server that was started with a job of ours, and its looks."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ajet_swarm.job.schema import EXPERIMENT, PROJECT
from ajet_swarm.job.tree import dump_job, put
from core.commands import validate
from core.control_payloads import RewindPlan
from core.events import LookEnded
from core.jobs import server_job
from proxy.control.api import ControlApi
from proxy.control.dispatch import CommandDispatcher
from proxy.control.progress_commands import rewind_plan
from proxy.evaluation.saved_weights import BASE_DIR, SAVE_FREQ
from proxy.evaluation.service import Evaluation, MeasurementService
from tests.support.proxy.measured import Policy, ended, measured
from tests.support.proxy.world import World
from tests.support.scripted.swarm import ScriptedSwarm
from tests.support.served import below, served


@dataclass
class Trained:
    """A server that was started with a job of ours, and its looks."""

    w: World
    service: MeasurementService
    policy: Policy
    dispatcher: CommandDispatcher
    ckpt: Path

    def folder(self, updates: int) -> Path:
        return self.ckpt / "p" / "chat" / f"global_step_{updates}"

    async def command(self, name: str, **args: Any) -> str:
        message, _ = await self.dispatcher.execute(name, validate(name, args))
        return message

    async def plan(self, path: str = "") -> RewindPlan:
        return await rewind_plan(self.w.context, self.w.server, path)

    async def look(self, step: int, share: float) -> LookEnded:
        """A look at `step` at which the policy answers that share correctly."""
        self.policy.share = share
        self.w.swarm.step = step
        await self.w.until(lambda: self.w.state.servers["s"].step == step)
        count = len(self.w.kinds(LookEnded))
        self.service.demand("look")
        return await ended(self.w, count + 1)

    @asynccontextmanager
    async def served(self, token: str) -> AsyncIterator[str]:
        """Serve the control API; give its URL."""
        control = ControlApi(self.w.context, self.dispatcher, token, frozenset())
        async with served(below("/control", control.app())) as url:
            yield url
            control.close()


def job_of(ckpt: Path, save_freq: int = 5) -> dict[str, Any]:
    job = server_job("/models/base")
    put(job, EXPERIMENT, "chat")
    put(job, PROJECT, "p")
    put(job, BASE_DIR, str(ckpt))
    put(job, SAVE_FREQ, save_freq)
    put(job, "ajet.teacher_model.api_key", "secret-1234")
    return job


@asynccontextmanager
async def trained(home: Path, *, save_freq: int = 5, **probe: Any) -> AsyncIterator[Trained]:
    """The baseline is taken at step 1; nothing is worse or better yet."""
    ckpt, policy = home / "ckpt", Policy(0.3)
    async with (
        ScriptedSwarm(state="OFFLINE") as swarm,
        measured(home, policy, swarm=swarm, **{"samples": 4, **probe}) as (w, service),
    ):
        evaluation = Evaluation({"s": service})
        dispatcher = CommandDispatcher(w.context, w.groups, evaluation=evaluation)
        made = Trained(w, service, policy, dispatcher, ckpt)
        text = dump_job(job_of(ckpt, save_freq))
        await made.command("engine.start", job=text)
        await ended(w, 1)
        yield made
