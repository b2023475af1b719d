"""Delays of a batch and of its users, with and without the straggler rule.

    .venv/bin/python -m bench.held_batches [--before]

Eight users ask a scripted swarm server through the fake vLLM while one thing goes wrong. Every
limit of proxy, server and watcher is a tenth of the real one, so a second here stands for ten: all
figures below are printed in seconds of the real limits (measured seconds x 10). Latency of the
loopback and of the program itself is scaled with them, to our disadvantage.

silent runner         one chat call never answers; the batch ends meanwhile
silent group          all four calls of one request never answer
silent helper         the only call of a request that is not trained on never answers
dead foreign client   another client claims 3 episodes with a limit of 106 s and never calls
cut streams           a quarter of all streams ends after its 200 without a chunk
frozen server         takes everything and answers nothing for 20 s, in ROLLING_POST

A twentieth of the requests is not trained on and has one candidate.

`before` has the rule off (`straggler_after` and `straggler_limit` 0), as it was, and nobody acts on
an alert. `after` has the settings as shipped, and an operator aborts the episodes of the dead
client 10 s after the alert has named them. Two more rows of the dead client have no operator:
`unattended` has the settings as shipped, so the batch waits until the server takes the episodes
back, and all users wait alike: `beside` is judged, how much longer than the others that waited at
its end the unluckiest one waited. `aborted alone` has `proxy.abort_dead_clients` 15. The alert that
names the holders is raised in all: run `--before`, which judges nothing, on an earlier commit to
see how it was.
"""

import asyncio
import contextlib
import random
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ajet_swarm.api.watcher
import proxy.servers.watch
from bench.bars import Verdicts
from console.models.advice import advice_context
from console.text.alerts import alert_text
from core.events import AlertRaised
from core.settings import ProxySettings, Settings
from tests.support.faults.load import Load
from tests.support.proxy.front import Front, fronted
from tests.support.proxy.world import settings
from tests.support.scripted.swarm import Cut, ScriptedSwarm

SCALE = 10.0
"""Seconds of the real limits per second of the bench."""
USERS = 8
UNDISTURBED = 1.5
"""Seconds of load before a fault and after its end."""
LONGER = 30.0
"""Seconds that a user may wait longer than the others."""
FOREIGN_LIMIT = 106.0
DEAD_AFTER = 15.0
"""`proxy.abort_dead_clients` of the last row."""
FROZEN = 20.0
SWEEP = 10.0
"""Seconds between two sweeps of the server's janitor."""
_TIMES = ((proxy.servers.watch, "CHECK_EVERY", 1.0), (ajet_swarm.api.watcher, "POOL", 1.0))
_LIMITS = ((ajet_swarm.api.watcher, "GONE_FOR", 10.0), (ajet_swarm.api.watcher, "FROZEN_FOR", 25.0))


@dataclass
class Figures:
    """Result of one run, in seconds of the real limits."""

    post: float
    """Longest stay in ROLLING_POST."""
    longest: float
    """Percentile of the users' waits."""
    median: float
    beside: float
    """Difference between the longest and the typical wait of the users that waited at the end of
    the longest stay."""
    refused: int
    """Number of 5xx answers."""
    asked: int
    alerts: list[str] = field(default_factory=list)
    """Last text of each alert."""

    @property
    def longer(self) -> float:
        """Difference between the longest and the typical wait of a user."""
        return self.longest - self.median


class TimedSwarm(ScriptedSwarm):
    """A scripted server with a janitor, which records how long it stays in ROLLING_POST."""

    longest_post = 0.0
    post_ended = 0.0
    """End of the longest stay, on the loop's clock."""
    _post_since: float | None = None

    def set_state(self, state: str, step: int | None = None) -> None:
        now = asyncio.get_running_loop().time()
        if state == "ROLLING_POST":
            self._post_since = self._post_since or now
        elif self._post_since is not None:
            if now - self._post_since > self.longest_post:
                self.longest_post, self.post_ended = now - self._post_since, now
            self._post_since = None
        super().set_state(state, step)

    async def sweep(self) -> None:
        """Take back idle episodes from time to time."""
        while True:
            await asyncio.sleep(SWEEP / SCALE)
            self.expire()


@dataclass
class Scene:
    """Objects that a fault can use."""

    swarm: TimedSwarm
    front: Front
    acts: bool
    """Whether an operator responds to the alert."""


Fault = Callable[[Scene], Awaitable[None]]


def configured(rule: bool, answer: str, dead_after: float) -> Settings:
    """Return the default limits divided by ten; without the straggler rule if not requested."""
    shipped = ProxySettings()
    proxy: dict[str, Any] = {
        "answer": answer,
        "answer_budget": shipped.answer_budget / SCALE,
        "answer_limit": shipped.answer_limit / SCALE,
        "stream_budget": shipped.stream_budget / SCALE,
        "keepalive": shipped.keepalive / SCALE,
        "session_cap": 0,
        "session_calls": 0,
    }
    if dead_after:
        proxy["abort_dead_clients"] = dead_after / SCALE
    for name in ("straggler_after", "straggler_limit"):
        if hasattr(shipped, name):
            proxy[name] = getattr(shipped, name) / SCALE if rule else 0.0
    return settings(proxy=proxy, rating={"window": 0.0, "discard_timeout": 240.0 / SCALE})


@contextlib.contextmanager
def scaled() -> Iterator[None]:
    """Divide all times that are not settings by ten."""
    patched = [one for one in (*_TIMES, *_LIMITS) if hasattr(one[0], one[1])]
    with contextlib.suppress(ImportError):
        import proxy.servers.held_batch as held  # the commit to compare with has none

        names = ("HELD_AFTER", "SILENT_AFTER", "UNANSWERED_AFTER", "NAME_ALL_AFTER", "UPDATE_EVERY")
        patched += [(held, name, getattr(held, name)) for name in names]
    for module, name, seconds in patched:
        setattr(module, name, seconds / SCALE)
    try:
        yield
    finally:
        for module, name, seconds in patched:
            setattr(module, name, seconds)


async def measure(
    fault: Fault, *, rule: bool, acts: bool, answer: str = "best", dead_after: float = 0.0
) -> Figures:
    """Run once  load, the fault, load until the batch continues."""
    rng = random.Random(3)

    async def says(name: str, body: dict[str, Any], index: int) -> str:
        await asyncio.sleep(rng.uniform(0.05, 0.15))
        return f"answer {index} of {name[:6]}"

    swarm = TimedSwarm(batch=8, slots=4 * USERS + 8, answer=says, sync_seconds=0.2)
    with tempfile.TemporaryDirectory() as home:
        async with (
            swarm,
            fronted(Path(home), swarm, configured(rule, answer, dead_after), watched=True) as front,
        ):
            front.world.server.watcher.poll_timeout = 3.0 / SCALE
            janitor = front.world.context.tasks.spawn(swarm.sweep(), "janitor")
            load = Load(front.url, rng, budget=120.0, leave=0.0)
            async with load.running(USERS):
                await asyncio.sleep(UNDISTURBED)
                await fault(Scene(swarm, front, acts))
                await asyncio.sleep(UNDISTURBED)
            swarm.set_state("ROLLING_POST")  # what is silent in ROLLING yet is given back
            await front.world.closed(60.0)
            janitor.cancel()
            alerts = {
                one.key: alert_text(one, advice_context()).cause
                for one in front.world.kinds(AlertRaised)
                if one.key.startswith(("held:", "hold:", "lost:"))
            }
    waits = sorted(one.ended - one.began for one in load.requests)
    end = swarm.post_ended
    beside = sorted(one.ended - one.began for one in load.requests if one.began <= end <= one.ended)
    return Figures(
        post=SCALE * swarm.longest_post,
        longest=SCALE * waits[-1],
        median=SCALE * waits[len(waits) // 2],
        beside=SCALE * (beside[-1] - beside[len(beside) // 2]) if beside else 0.0,
        refused=sum(one.status >= 500 for one in load.requests),
        asked=len(waits),
        alerts=list(alerts.values()),
    )


# --- what goes wrong -----------------------------------------------------------------------------


async def _next_batch(swarm: TimedSwarm, since: int) -> None:
    await swarm.until(lambda: (swarm.step or 0) > since, 90)


async def silent_runner(scene: Scene) -> None:
    """One call never answers; the batch ends by itself in the meantime."""
    await _silent(scene, 1)


async def silent_group(scene: Scene) -> None:
    """No call of one request answers."""
    await _silent(scene, 4)


async def silent_helper(scene: Scene) -> None:
    """The only call of an untrained request does not answer."""
    await _silent(scene, 1, "eval")


async def _silent(scene: Scene, calls: int, episode_type: str = "train") -> None:
    """The first calls with one question are never answered."""
    swarm, usual = scene.swarm, scene.swarm.answer
    question, left = "", calls

    async def says(name: str, body: dict[str, Any], index: int) -> Any:
        nonlocal question, left
        messages = str(body["messages"])
        if not question and swarm.episodes[name].type == episode_type:
            question = messages
        if left and messages == question:
            left -= 1
            await asyncio.sleep(600)
        return await usual(name, body, index)

    await swarm.until(lambda: swarm.state == "ROLLING" and len(swarm.unclaimed) >= 4, 30)
    step, swarm.answer = swarm.step or 0, says
    async with asyncio.timeout(90):
        while left:
            await asyncio.sleep(0.05)
    await _next_batch(swarm, step)


async def dead_client(scene: Scene) -> None:
    """Another client claims an episode and disappears."""
    swarm = scene.swarm
    await swarm.until(lambda: swarm.state == "ROLLING" and len(swarm.unclaimed) >= 3, 30)
    body = {"episode_type": "train", "discard_episode_timeout": FOREIGN_LIMIT / SCALE}
    taken = [swarm.claim({**body, "client_uuid": "dead"})["episode_uuid"] for _ in range(3)]
    step = swarm.step or 0
    if scene.acts:
        alerts = scene.front.world.state.alerts
        await swarm.until(lambda: "held:s" in alerts, 60)
        await asyncio.sleep(10.0 / SCALE)
        for uuid in taken:
            await scene.front.world.server.client.abort(uuid)
    await _next_batch(swarm, step)


async def cut_streams(scene: Scene) -> None:
    """A quarter of the streams ends before its first chunk."""
    rng, broken = random.Random(5), set[str]()

    async def on_token(name: str, index: int) -> None:
        if index == 0 and rng.random() < 0.25:
            broken.add(name)
            raise Cut

    scene.swarm.on_token = on_token
    await scene.swarm.until(lambda: len(broken) >= 10, 60)


async def frozen_server(scene: Scene) -> None:
    """No call is answered for a while, beginning in ROLLING_POST."""
    swarm = scene.swarm
    await swarm.until(lambda: swarm.state == "ROLLING", 30)
    step = swarm.step or 0
    await swarm.until(lambda: swarm.state == "ROLLING_POST" or (swarm.step or 0) > step, 60)
    swarm.freeze(FROZEN / SCALE)
    await asyncio.sleep(FROZEN / SCALE)
    await _next_batch(swarm, step)


SCENES: dict[str, tuple[Fault, str]] = {
    "silent runner": (silent_runner, "best"),
    "silent group": (silent_group, "best"),
    "silent helper": (silent_helper, "best"),
    "dead foreign client": (dead_client, "best"),
    "cut streams": (cut_streams, "live"),
    "frozen server": (frozen_server, "best"),
}


def row_of(name: str, which: str, figures: Figures) -> str:
    """One row of the table."""
    return (
        f"{name:20} {which:18} {figures.post:9.0f} {figures.longest:9.0f} {figures.longer:9.0f} "
        f"{figures.beside:9.0f} {figures.refused:4} {figures.asked:6}  {len(figures.alerts)}"
    )


def judge_unattended(name: str, verdicts: Verdicts) -> None:
    """The rows of the dead client, without an operator."""
    alone = asyncio.run(measure(dead_client, rule=True, acts=False))
    print(row_of(name, "unattended", alone), flush=True)
    verdicts.at_most("unattended_beside", alone.beside, LONGER, "s")
    verdicts.at_most("unattended_5xx", alone.refused, 0, "answers")
    set_to_abort = asyncio.run(measure(dead_client, rule=True, acts=False, dead_after=DEAD_AFTER))
    print(row_of(name, "aborted alone", set_to_abort), flush=True)
    verdicts.at_most("aborted_alone_longer_wait", set_to_abort.longer, LONGER, "s")
    verdicts.at_most("aborted_alone_5xx", set_to_abort.refused, 0, "answers")


def main() -> None:
    """Run every scene with and without the rule."""
    columns = "post s", "longest s", "longer s", "beside s", "5xx"
    print(
        f"{'':20} {'':18} {columns[0]:>9} {columns[1]:>9} {columns[2]:>9} {columns[3]:>9} "
        f"{columns[4]:>4}  asked  alerts"
    )
    verdicts = Verdicts()
    with scaled():
        for name, (fault, answer) in SCENES.items():
            before = asyncio.run(measure(fault, rule=False, acts=False, answer=answer))
            print(row_of(name, "before", before), flush=True)
            if "--before" in sys.argv:
                continue
            after = asyncio.run(measure(fault, rule=True, acts=True, answer=answer))
            print(row_of(name, "after", after), flush=True)
            if fault is dead_client:
                judge_unattended(name, verdicts)
            for cause in after.alerts[:3]:
                print(f"    {cause}")
            label = name.replace(" ", "_")
            verdicts.at_most(f"{label}_longer_wait", after.longer, LONGER, "s")
            verdicts.at_most(f"{label}_5xx", after.refused, 0, "answers")
            verdicts.info(f"{label}_post_before", before.post, "s")
            verdicts.info(f"{label}_post_after", after.post, "s")
            if fault in (silent_runner, silent_group, dead_client):
                held = sum("ROLLING_POST for" in cause for cause in after.alerts)
                verdicts.at_least(f"{label}_alerts", held, 1, "alerts")
    if "--before" not in sys.argv:
        verdicts.close()


if __name__ == "__main__":
    main()
