"""A planner and an executor, each on its own swarm server, with separate rewards.

    python -m examples.multi_model

The planner solves a sum in as few words as it can; the executor is told the plan and answers the
user with joy. Both are trained by the same episodes: claimed on both servers or on none, ended on
both or given back on both.
"""

import argparse
import json
import random
import sys
from collections.abc import Mapping
from pathlib import Path
from statistics import mean
from typing import Any

from ajet_swarm import Retry, SwarmClient, Task, run_episodes
from ajet_swarm.client.multi_server import JointSwarm
from ajet_swarm.common.errors import AjetError
from ajet_swarm.protocol.errors import EpisodeLost
from examples.ask import Asker, last_number
from examples.persona.measure import liveliness
from examples.stage import Stage, StageError, error_text, say
from examples.swarming import (
    Pace,
    flags,
    is_updating,
    job_of,
    left_claimed,
    named_servers,
    pace_of,
    until,
    updates,
)

SUMS = Path(__file__).resolve().parents[1] / "math" / "sums.jsonl"
ROLES = ("planner", "executor")
BATCH, REPEATS = 8, 4
THREADS = 8
IDLE = 20.0
"""Idle seconds after which our own engine takes an episode back."""
TERSE = 6
"""Number of words of a plan without a penalty."""


def planner_reward(plan: str, answer: int) -> float:
    """Return 1 for the right number in few words, less for more words; 0 for a wrong number."""
    return 0.0 if last_number(plan) != answer else min(1.0, TERSE / max(len(plan.split()), 1))


def executor_reward(plan: str, text: str) -> float:
    """Return half a point for the plan's number, right or wrong, and half for joy."""
    planned = last_number(plan)
    followed = planned is not None and last_number(text) == planned
    return 0.5 * followed + 0.5 * liveliness(text)


class Workflow:
    """Episode of both models."""

    def __init__(self, joint: JointSwarm, asker: Asker, pace: Pace) -> None:
        self._joint, self._asker, self._pace = joint, asker, pace

    def run(self, task: Task) -> dict[str, float]:
        """Plan, answer, and reward both."""
        own = self._pace
        with self._joint.episode(task, own.idle, timeout=own.patience) as episode:
            question = task.main_query
            plan = self._asker.ask(episode["planner"].api, question)
            system = {"role": "system", "content": plan}
            asked = {"role": "user", "content": question}
            text = self._asker.ask(episode["executor"].api, "", messages=[system, asked])
            rewards = {
                "planner": planner_reward(plan, int(task.metadata["answer"])),
                "executor": executor_reward(plan, text),
            }
            episode.end(rewards)
        return rewards


def main(argv: list[str] | None = None) -> int:
    """Run the example; return the exit code."""
    parser = flags("multi_model", 20)
    for role in ROLES:
        parser.add_argument(
            f"--{role}", default="", metavar="URL", help="its server; else embedded"
        )
    args = parser.parse_args(argv)
    keep = args.keep or None
    try:
        named = named_servers(args, ROLES)
        with Stage(keep / "planner" if keep else None) as planner:
            if named:
                return _run(named, args)
            with Stage(keep / "executor" if keep else None) as executor:
                urls = {"planner": planner.serve("engine"), "executor": executor.serve("engine")}
                return _run(urls, args)
    except KeyboardInterrupt:
        return 130
    except (AjetError, ExceptionGroup) as error:
        sys.stderr.write(f"multi_model: {error_text(error)}\n")
        return 1


def _run(urls: Mapping[str, str], args: argparse.Namespace) -> int:
    pace = pace_of(args, IDLE, args.planner)
    names = " ".join(f"--swarm-url {role}={url}" for role, url in urls.items())
    say(f"look on: ajet-console --watch-only {names}")
    clients = {role: SwarmClient(url, name=role) for role, url in urls.items()}
    try:
        SwarmClient.async_and_start_multi_engine(
            [(one, job_of(BATCH, REPEATS, role)) for role, one in clients.items()],
            timeout=pace.patience,
        )
        with Asker() as asker:
            _train(clients, Workflow(JointSwarm(clients), asker, pace), args.updates, pace)
        return _report(clients, urls, pace)
    finally:
        for one in clients.values():
            one.close()


def _train(clients: Mapping[str, SwarmClient], workflow: Workflow, wanted: int, pace: Pace) -> None:
    rows = [json.loads(line) for line in SUMS.read_text("utf-8").splitlines()]
    draw = random.Random(7)
    first = {role: one.get_global_step() for role, one in clients.items()}
    for batch in range(2 * wanted):
        tasks = [
            Task(main_query=row["question"], task_id=f"{batch}/{row['id']}", metadata=row)
            for row in draw.sample(rows, BATCH)
        ]
        repeated = [task for task in tasks for _ in range(REPEATS)]
        results = run_episodes(repeated, workflow.run, max_workers=THREADS, retry=Retry(tries=3))
        done = [one.value for one in results if one.value is not None]
        if not done:
            raise StageError("a batch without one episode", str(results[0].error))
        lost = [one for one in results if isinstance(one.error, EpisodeLost)]
        until(
            "both have trained", pace.patience, lambda: not any(map(is_updating, clients.values()))
        )
        steps = {role: one.get_global_step() for role, one in clients.items()}
        system = "  ".join(
            f"{role} step {steps[role]} reward {mean(one[role] for one in done):.2f}"
            for role in ROLES
        )
        say(f"{system}{f'  {len(lost)} lost' if lost else ''}")
        if min(steps[role] - first[role] for role in ROLES) >= wanted:
            return


def _report(clients: Mapping[str, SwarmClient], urls: Mapping[str, str], pace: Pace) -> int:
    """Print rewards before and after and samples of both; return the exit code."""
    say("\n| policy | updates | first two | last two | samples |\n|---|---|---|---|---|")
    samples: dict[str, int] = {}
    for role, url in urls.items():
        done: list[dict[str, Any]] = updates(url)
        if done:
            low, high = (mean(one["reward_mean"] for one in part) for part in (done[:2], done[-2:]))
            samples[role] = sum(one["calls"] for one in done)
            say(f"| {role} | {len(done)} | {low:.2f} | {high:.2f} | {samples[role]} |")
        seconds = pace.idle + 20
        until(f"{role}: nothing claimed", seconds, lambda r=role: not left_claimed(clients[r]))  # type: ignore[misc]  # bound at once
    say("claims left 0 on both")
    return 0


if __name__ == "__main__":
    sys.exit(main())
