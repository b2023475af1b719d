"""How much longer users wait while looks at the probe set take eval episodes.

    .venv/bin/python -m bench.look_wait [--quick]

Eight users ask a scripted swarm server through the fake vLLM, each again 0.3 s after its answer.
The server answers a call after 0.4 s, syncs its weights for 1 s after every 200 groups, and has no
snapshots, as an AgentJet server. Rounds without and with looks alternate; in the latter the next
look begins as soon as one ends. `beside` is the difference of the median waits of the rounds.
"""

import asyncio
import json
import random
import statistics
import sys
import tempfile
from pathlib import Path

from bench.bars import Verdicts
from core.events import LookEnded
from proxy.evaluation.service import Evaluation, ProgressService
from proxy.rewards.model.file import parse
from proxy.rewards.model.source import ComposedSource
from tests.support.proxy.world import World, settings, world
from tests.support.scripted.swarm import ScriptedSwarm

USERS = 8
PAUSE = 0.3
"""Seconds between an answer and the next request of a user."""
ANSWER = 0.4
"""Seconds of one answer of the server."""
BATCH = 200
"""Groups of one policy update."""
ROUNDS, SECONDS = 4, 20.0
"""Rounds of each kind, and the duration of one."""
PROMPTS, SAMPLES = 16, 4
MOST_ADDED = 0.2
"""Seconds that the median user may wait longer."""


async def _user(w: World, number: int, waits: list[float], until: float) -> None:
    loop, rng = asyncio.get_running_loop(), random.Random(number)
    count = 0
    while loop.time() < until:
        await asyncio.sleep(PAUSE * rng.uniform(0.5, 1.5))
        count += 1
        began = loop.time()
        ticket = await w.ask(f"user {number} asks question {count}")
        await w.reply(ticket, 60.0)
        waits.append(loop.time() - began)


async def _round(w: World, seconds: float) -> list[float]:
    waits: list[float] = []
    until = asyncio.get_running_loop().time() + seconds
    async with asyncio.TaskGroup() as users:
        for number in range(USERS):
            users.create_task(_user(w, number, waits, until))
    await w.closed(60.0)
    return waits


async def measure(
    home: Path, rounds: int, seconds: float
) -> tuple[list[float], list[float], list[LookEnded]]:
    """Return the waits without and with looks, and the looks."""
    probe_set = home / "set.jsonl"
    rows = [{"prompt": f"What is {n} + {n}?", "reference": str(2 * n)} for n in range(PROMPTS)]
    probe_set.write_text("".join(json.dumps(row) + "\n" for row in rows))
    configured = settings(
        probe={"file": str(probe_set), "samples": SAMPLES, "share": 1.0},
        rating={"window": 0.0},
    )
    without: list[float] = []
    beside: list[float] = []
    async with (
        ScriptedSwarm(batch=BATCH, sync_seconds=1.0) as swarm,
        world(home, swarm, configured, watched=True) as w,
    ):
        swarm.delay = ANSWER
        w.context.rewards = ComposedSource(model=parse("parts:\n  size: {kind: length}\n", None))
        for _ in range(rounds):
            without += await _round(w, seconds)
            service = ProgressService(
                w.context,
                w.server,
                w.groups.server_facts["s"],
                home,
                shipped=False,
                user_waits=lambda: w.groups.waiting > 0,
            )
            evaluation = Evaluation({"s": service})
            await evaluation.start()
            async with asyncio.TaskGroup() as running:
                asking = running.create_task(_round(w, seconds))
                while not asking.done():
                    service.demand("look")
                    await asyncio.wait([asking], timeout=0.2)
            beside += asking.result()
            await evaluation.close()
        return without, beside, w.kinds(LookEnded)


def main() -> None:
    """Run the command line."""
    quick = "--quick" in sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        without, beside, looks = asyncio.run(
            measure(Path(folder), 1 if quick else ROUNDS, 5.0 if quick else SECONDS)
        )
    verdicts = Verdicts()
    added = statistics.median(beside) - statistics.median(without)
    verdicts.at_most("median wait beside looks, added", added, MOST_ADDED, "s")
    for name, waits in (("without looks", without), ("beside looks", beside)):
        cuts = statistics.quantiles(waits, n=20)
        verdicts.info(f"median wait {name}", statistics.median(waits), f"s of {len(waits)}")
        verdicts.info(f"p95 wait {name}", cuts[18], "s")
    done = [one for one in looks if one.outcome == "complete"]
    verdicts.at_least("complete looks", len(done), 1, f"of {len(looks)}")
    verdicts.info("median look", statistics.median([one.seconds for one in done] or [0.0]), "s")
    verdicts.close()


if __name__ == "__main__":
    main()
