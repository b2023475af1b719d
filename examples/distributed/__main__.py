"""Three clients share a batch; one is killed half-way, another one joins later.

    python -m examples.distributed

At the end it is counted: every step done, every sample once, no claim left.
"""

import argparse
import os
import signal
import sys
import time
from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import Popen
from typing import Any

from ajet_swarm import SwarmClient
from ajet_swarm.common.errors import AjetError
from examples.clients import read_diary, start_client
from examples.stage import Stage, StageError, on_stage, say
from examples.swarming import (
    Pace,
    engine_of,
    flags,
    left_claimed,
    pace_of,
    reach,
    started,
    until,
    updates,
)

BATCH, REPEATS = 8, 4
IDLE = 6.0
"""Idle seconds after which our own engine takes an episode back."""
SWEEP = 10.0
"""Seconds between two checks of a server for such episodes."""


@dataclass(slots=True)
class Run:
    """The running processes and their diary."""

    stage: Stage
    client: SwarmClient
    url: str
    pace: Pace
    last: int
    """Last step of the run."""
    diary: Path
    children: dict[str, Popen[bytes]] = field(default_factory=dict)
    killed: str = ""
    """Uuid of the killed client."""

    def begin(self, name: str) -> None:
        """Start a client process."""
        job = BATCH, REPEATS, self.last
        self.children[name] = start_client(
            self.stage, name, "distributed", self.url, job, self.pace, "--name", name
        )

    def lines(self, what: str) -> list[dict[str, Any]]:
        """Return the lines of the diary."""
        return [line for line in read_diary(self.diary) if line["what"] == what]

    def reach(self, step: int) -> None:
        """Wait for a step; print each completed one."""
        seconds = self.pace.patience + self.pace.idle  # a death may be in it
        reach(self.client, step, seconds, lambda done: say(f"step {done} is done"))


def main(argv: list[str] | None = None) -> int:
    """Run the example; return the exit code."""
    args = flags("distributed", 6, least=3).parse_args(argv)
    return on_stage("distributed", args.keep, lambda stage: _run(stage, args))


def _run(stage: Stage, args: argparse.Namespace) -> None:
    pace = pace_of(args, IDLE)
    url = engine_of(stage)
    with started(url, "distributed", BATCH, REPEATS, pace) as client:
        first = client.get_global_step()
        last = first + args.updates - 1
        (stage.folder / "diary.jsonl").unlink(missing_ok=True)  # of an earlier run
        run = Run(stage, client, url, pace, last, stage.folder / "diary.jsonl")
        try:
            for name in ("ann", "bob", "eve"):
                run.begin(name)
            run.reach(first + 1)
            _kill(run, "bob")
            run.begin("joe")  # it is there before this step ends: that waits for bob's episodes
            run.reach(last + 1)
            _report(run, first)
        except BaseException:
            _give_back(run)
            raise


def _kill(run: Run, name: str) -> None:
    """Kill a client during a batch, while it holds episodes.

    It is stopped first: the batch cannot end without the episodes of a stopped client, so the
    kill comes in the middle of it, however fast the others are.
    """
    uuid = next(line["client"] for line in run.lines("hello") if line["who"] == name)
    pid = run.children[name].pid

    def left_over() -> int:
        buffer = run.client.get_episode_buffer()
        return sum(record.claimed and record.client_uuid == uuid for record in buffer)

    def stopped() -> bool:
        if not (run.client.get_rollout_stat().state.rolling and left_over()):
            return False
        os.kill(pid, signal.SIGSTOP)
        time.sleep(0.1)  # what it had sent is answered
        if left_over() and run.client.get_rollout_stat().state.rolling:
            return True
        os.kill(pid, signal.SIGCONT)
        return False

    until(f"{name} in the middle of a batch", run.pace.patience, stopped)
    run.killed = uuid
    pool = run.client.get_rollout_stat
    third = BATCH * REPEATS // 3
    until("a third", run.pace.patience, lambda: (pool().completed_episodes or 0) >= third)
    os.kill(pid, signal.SIGKILL)
    run.children[name].wait()
    step = run.client.get_global_step()
    say(f"step {step}: {name} is killed, {left_over()} episodes still in its name")


def _give_back(run: Run) -> None:
    """Give back the killed client's episodes when the run ends early, for example by Ctrl-C.

    Looked for twice: a busy server may still have had a claim of it to answer.
    """
    if not run.killed:
        return
    with suppress(AjetError), SwarmClient(run.url, client_uuid=run.killed) as heir:
        for pause in (0.5, 0.0):
            for record in heir.get_episode_buffer():
                if record.claimed and record.client_uuid == run.killed:
                    with suppress(AjetError):  # the others go back all the same
                        heir.abort_episode(record.episode_uuid)
            time.sleep(pause)


def _report(run: Run, first: int) -> None:
    """Check and print the figures."""
    ended, ending = run.lines("ended"), run.lines("ending")
    done = {update["step"]: update for update in updates(run.url, first - 1)}
    per: dict[int, Counter[str]] = defaultdict(Counter)
    for line in ended:
        per[line["step"]][line["who"]] += 1
    began = Counter(line["step"] for line in ending)
    say("\n| step | ended by | trained | mean reward | s |\n|---|---|---|---|---|")
    wrong: list[str] = []
    for step in range(first, run.last + 1):
        who, figures = per[step], done.get(step)
        shares = ", ".join(f"{name} {count}" for name, count in sorted(who.items()))
        trained = figures["calls"] if figures else who.total()
        if not who.total() <= trained <= began[step]:
            wrong.append(f"step {step}: {trained} trained, {who.total()} ended")
        if len({r["task"] for r in ended if r["step"] == step}) < BATCH:
            wrong.append(f"step {step}: fewer than {BATCH} tasks")
        seconds = figures and figures["step_seconds"]  # from the update before: none of the first
        time_shown = f"{seconds:.1f}" if seconds else "-"
        reward = f"{figures['reward_mean']:.2f}" if figures else ""
        say(f"| {step} | {shares} | {trained} | {reward} | {time_shown} |")
    twice = [uuid for uuid, n in Counter(r["episode"] for r in ended).items() if n > 1]
    wrong += [f"{len(twice)} episodes ended twice"] if twice else []
    limit = run.pace.idle + 2 * SWEEP
    until("the last claims are given back", limit, lambda: not left_claimed(run.client))
    if all(line["who"] != "joe" for line in ended):
        wrong.append("joe was not used")
    steps = run.last - first + 1
    if wrong:
        raise StageError("; ".join(wrong))
    say(f"\nsteps {steps}, none lost; samples {len(ended)}, each once; claims left 0")
    if not done:
        say("by the clients' own count: this server does not tell what it trained on")


if __name__ == "__main__":
    sys.exit(main())
