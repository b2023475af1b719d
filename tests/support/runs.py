"""Events of engine runs, as a proxy would publish them."""

import random
from collections.abc import Iterator

import msgspec

from ajet_swarm.job.schema import EXPERIMENT, LEARNING_RATE
from ajet_swarm.job.tree import dump_job, put
from core.events import (
    EngineChanged,
    Event,
    GroupSealed,
    JobSent,
    LookEnded,
    PoolChanged,
    RewardPart,
    RewardsChanged,
    TrainingRunIdentified,
    UpdateDone,
    WorkChanged,
)
from core.jobs import default_job
from core.verdict.conclusion import judge
from tests.support.sample import NOW, group_events

DAY = 86_400.0


def job_text(model: str = "tiny", rate: float = 5e-4, experiment: str = "ajet-console") -> str:
    """YAML of a job."""
    job = default_job(model)
    put(job, EXPERIMENT, experiment)
    put(job, LEARNING_RATE, rate)
    return dump_job(job)


def run_events(
    number: int,
    *,
    server: str = "embedded",
    steps: int = 3,
    groups: int = 2,
    first_step: int = 1,
    gain: float = 0.3,
    at: float = NOW,
    rate: float = 5e-4,
    weight: float = 0.3,
    verdict: bool = False,
    ends: bool = True,
    experiment: str = "ajet-console",
) -> Iterator[Event]:
    """All events of one engine run.

    Args:
        number: Number of the run: its groups have ids of their own.
        steps: Policy updates, with `groups` groups each; the last group of a step is rated by hand.
        gain: How much the mean reward grows from the first to the last step.
        at: When it begins; a step takes a minute.
        rate: Learning rate of its job.
        weight: Weight of the part `length` of the reward.
        verdict: Whether a look follows the last step.
        ends: Whether it ends.
    """
    dice = random.Random(number)
    version = f"v{weight:g}"
    parts = (
        RewardPart(name="length", kind="length", weight=weight),
        RewardPart(name="format", kind="format", gate=True),
        RewardPart(name="relevance", kind="relevance", weight=1.0 - weight),
    )
    work = WorkChanged(server=server, work="Start", steps=(), at=at)
    yield RewardsChanged(source="rewards.yaml", ok=True, version=version, parts=parts, at=at)
    yield JobSent(server=server, yaml=job_text("tiny", rate, experiment), how="given", at=at)
    yield work
    yield EngineChanged(server=server, state="BOOTING", at=at + 1)
    yield EngineChanged(server=server, state="ROLLING", step=first_step, at=at + 20)
    yield msgspec.structs.replace(work, phase="done", at=at + 21)
    name = f"{experiment}.{number}"
    yield TrainingRunIdentified(server=server, number=number, name=name, at=at + 21)
    yield PoolChanged(server=server, model="tiny-0.9m", at=at + 22)
    for place in range(steps):
        now, step = at + 30 + 60 * place, first_step + place
        for group in range(groups):
            mean = 0.35 + gain * place / max(steps - 1, 1) + dice.gauss(0, 0.03)
            rewards = [round(min(1, max(0, mean + dice.gauss(0, 0.15))), 3) for _ in range(4)]
            ident = (number * 1_000 + place) * 100 + group
            for event in group_events(ident, rewards=rewards, at=now, step=step, server=server):
                if isinstance(event, GroupSealed):
                    rated = group == groups - 1 and place % 3 == 0
                    source = "human" if rated else "auto"
                    event = msgspec.structs.replace(event, version=version, source=source)
                yield event
        yield EngineChanged(server=server, state="WEIGHT_SYNCING", step=step, at=now + 40)
        yield UpdateDone(server=server, step=step, stats={"kl": 0.01}, at=now + 50)
        yield EngineChanged(server=server, state="ROLLING", step=step + 1, at=now + 55)
    last = at + 30 + 60 * steps
    if verdict:
        yield LookEnded(
            server=server,
            look_id=f"look-{number}",
            role="look",
            outcome="complete",
            step=first_step + steps,
            baseline_id="base",
            verdict=judge([[0.4] * 40] * 6, [[0.4 + gain] * 40] * 6, 1),
            at=last,
        )
    if ends:
        yield EngineChanged(server=server, state="OFFLINE", at=last + 5)
