"""A proxy whose looks are taken on command, at a scripted server with a scripted policy."""

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from core.commands import validate
from core.events import LookEnded
from core.state import Progress
from proxy.control.dispatch import CommandDispatcher
from proxy.evaluation.service import Evaluation, MeasurementService
from proxy.rewards.model.file import parse
from proxy.rewards.model.source import ComposedSource
from tests.support.proxy.world import World, settings, world
from tests.support.scripted.swarm import ScriptedSwarm

PROMPTS = 16
SAMPLES = 2
"""Of each prompt; more only where a verdict needs them."""
EXACT = "parts:\n  right: {kind: exact}\n"


def write_probe_set(file: Path, prompts: int = PROMPTS, first: int = 1) -> None:
    rows = [
        {"id": f"p{n}", "prompt": f"What is {n} + {n}?", "reference": str(2 * n)}
        for n in range(first, first + prompts)
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


class Policy:
    """A scripted policy that answers a share of the sums correctly."""

    def __init__(self, share: float = 0.0) -> None:
        self.share = share
        self.calls = 0

    async def __call__(self, name: str, body: dict[str, Any], index: int) -> str:
        self.calls += 1
        number = int(re.findall(r"\d+", body["messages"][-1]["content"])[0])
        return str(2 * number) if self.calls % 10 < 10 * self.share else "no idea"


@asynccontextmanager
async def measured(
    home: Path,
    policy: Policy,
    *,
    rewards: str = EXACT,
    swarm: ScriptedSwarm | None = None,
    score_high: float = 1.0,
    **probe: Any,
) -> AsyncIterator[tuple[World, MeasurementService]]:
    """A proxy whose looks are taken on command alone, at a scripted server."""
    file = home / "set.jsonl"
    if not file.exists():
        write_probe_set(file)
    values = {"file": str(file), "samples": SAMPLES, "every": 1_000, "share": 1.0, **probe}
    configured = settings(probe=values, rating={"score_high": score_high})
    async with world(home, swarm, configured, watched=True) as w:
        w.swarm.answer = policy
        w.context.rewards = ComposedSource(model=parse(rewards, None)) if rewards else w.source
        service = MeasurementService(
            w.context,
            w.server,
            w.groups.server_facts["s"],
            home,
            shipped=False,
            user_waits=lambda: w.groups.waiting > 0,
        )
        evaluation = Evaluation({"s": service})
        await evaluation.start()
        try:
            yield w, service
        finally:
            await evaluation.close()
            assert not w.server.claimer.ends.holdings.by_uuid


@dataclass
class Measured(World):
    """Such a proxy, with its looks and its policy."""

    service: MeasurementService = field(kw_only=True)
    policy: Policy = field(kw_only=True)

    async def look(
        self, share: float | None = None, demand: Literal["look", "baseline"] = "look"
    ) -> LookEnded:
        """Demand a look at which the policy answers that share correctly; wait for its end."""
        if share is not None:
            self.policy.share = share
        count = len(self.kinds(LookEnded))
        self.service.demand(demand)
        return await ended(self, count + 1)

    async def command(self, name: str, **args: Any) -> str:
        """Carry out a command as the control API does, with these looks; give its message."""
        evaluation = Evaluation({"s": self.service})
        dispatcher = CommandDispatcher(self.context, self.groups, evaluation=evaluation)
        return (await dispatcher.execute(name, validate(name, args)))[0]


async def ended(w: World, count: int, seconds: float = 30.0) -> LookEnded:
    """Wait for the end of look number `count`; return it."""
    await w.until(lambda: len(w.kinds(LookEnded)) >= count, seconds)
    look: LookEnded = w.kinds(LookEnded)[count - 1]
    return look


def progress(w: World) -> Progress:
    result: Progress = w.state.progress["s"]
    return result
