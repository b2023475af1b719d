"""A planner and an executor, each on its own swarm server, with separate rewards.

    python -m examples.multi_model

The planner solves a sum in as few words as it can; the executor is told the plan and answers the
user with joy. Both are trained by the same episodes: claimed on both servers or on none, ended on
both or given back on both.
"""

import argparse
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from statistics import mean
from typing import Any

from ajet_swarm import Retry, SwarmClient, Task, run_episodes
from ajet_swarm.client.multi_server import JointSwarm
from ajet_swarm.protocol.errors import EpisodeLost
from examples.ask import Asker, last_number
from examples.persona.measure import liveliness
from examples.stage import exit_code, say
from examples.swarming import (
    Pace,
    flags,
    is_updating,
    job_of,
    left_claimed,
    servers_of,
    sum_batches,
    until,
    updates,
    values_of,
)

Run = Callable[[Task], dict[str, float]]
"""Runs an episode of both models; returns the reward of each."""
ROLES = ("planner", "executor")
BATCH, REPEATS = 8, 4
THREADS = 8
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


def main(argv: list[str] | None = None) -> int:
    """Run the example; return the exit code."""
    args = flags("multi_model", 20, roles=ROLES).parse_args(argv)
    return exit_code("multi_model", lambda: _run(args))


def _run(args: argparse.Namespace) -> None:
    with ExitStack() as stack:
        urls, pace = servers_of(args, ROLES, stack)
        clients = {
            role: stack.enter_context(SwarmClient(url, name=role)) for role, url in urls.items()
        }
        SwarmClient.async_and_start_multi_engine(
            [(client, job_of(BATCH, REPEATS, role)) for role, client in clients.items()],
            timeout=pace.patience,
        )
        asker, joint = stack.enter_context(Asker()), JointSwarm(clients)

        def run(task: Task) -> dict[str, float]:
            with joint.episode(task, pace.idle, timeout=pace.patience) as episode:
                plan = asker.ask(episode["planner"].api, task.main_query)
                system = {"role": "system", "content": plan}
                asked = {"role": "user", "content": task.main_query}
                text = asker.ask(episode["executor"].api, "", messages=[system, asked])
                rewards = {
                    "planner": planner_reward(plan, int(task.metadata["answer"])),
                    "executor": executor_reward(plan, text),
                }
                episode.end(rewards)
            return rewards

        _train(clients, run, args.updates, pace.patience)
        _report(clients, urls, pace)


def _train(clients: Mapping[str, SwarmClient], run: Run, wanted: int, patience: float) -> None:
    first = {role: client.get_global_step() for role, client in clients.items()}
    for tasks in sum_batches(BATCH, 2 * wanted):
        repeated = [task for task in tasks for _ in range(REPEATS)]
        results = run_episodes(repeated, run, max_workers=THREADS, retry=Retry(tries=3))
        done = values_of(results)
        lost = sum(isinstance(result.error, EpisodeLost) for result in results)
        until("both have trained", patience, lambda: not any(map(is_updating, clients.values())))
        steps = {role: client.get_global_step() for role, client in clients.items()}
        system = "  ".join(
            f"{role} step {steps[role]} reward {mean(rewards[role] for rewards in done):.2f}"
            for role in ROLES
        )
        say(f"{system}{f'  {lost} lost' if lost else ''}")
        if min(steps[role] - first[role] for role in ROLES) >= wanted:
            return


def _report(clients: Mapping[str, SwarmClient], urls: Mapping[str, str], pace: Pace) -> None:
    """Print rewards before and after and samples of both."""
    say("\n| policy | updates | first two | last two | samples |\n|---|---|---|---|---|")
    for role, url in urls.items():
        done: list[dict[str, Any]] = updates(url)
        if done:
            low, high = (
                mean(update["reward_mean"] for update in part) for part in (done[:2], done[-2:])
            )
            samples = sum(update["calls"] for update in done)
            say(f"| {role} | {len(done)} | {low:.2f} | {high:.2f} | {samples} |")
    until("nothing claimed", pace.idle + 20, lambda: not any(map(left_claimed, clients.values())))
    say("claims left 0 on both")


if __name__ == "__main__":
    sys.exit(main())
