"""One of many independent clients; each takes tasks that the batch still needs.

    AJET_SWARM_URL=http://gpu-box:10086 python -m examples.distributed.client --diary diary.jsonl

Who does what is agreed by the server alone: all clients see the same tasks for a step, and from
the batch's own report how many episodes of each are finished or running, whosever they are.
"""

import argparse
import json
import os
import random
import sys
import threading
import time
from collections import Counter
from typing import Any, Final

from ajet_swarm import SwarmClient, SwarmError, SwarmThrottlePolicy, WorkflowOutput
from ajet_swarm.protocol.errors import EngineOff, GaveUp, Unreachable
from examples.ask import Asker, last_number
from examples.clients import Diary, client_flags, run_client
from examples.swarming import SUMS

NOTHING: Final = 0.1
"""Seconds between two checks of a batch that needs nothing more."""
AGAIN: Final = 20.0
"""Maximum seconds of a claim before the batch is checked again."""


class Worker:
    """One client process with its threads."""

    def __init__(self, client: SwarmClient, asker: Asker, args: argparse.Namespace) -> None:
        self._client, self._asker, self._args = client, asker, args
        self._rows = [json.loads(line) for line in SUMS.read_text("utf-8").splitlines()]
        self._lock = threading.Lock()
        self._chosen: Counter[str] = Counter()
        """Our own episodes that the server does not report yet."""
        self._diary = Diary(args.diary)
        self._diary.note("hello", who=args.name, client=client.client_uuid)

    def work(self) -> None:
        """Run the tasks that the batch needs until the last step is complete.

        Raises:
            SwarmError: there is no server, or its engine is OFFLINE.
        """
        while self._client.get_global_step() <= self._args.until:
            try:
                self._work_once()
            except (EngineOff, Unreachable):
                raise
            except SwarmError as error:  # the episode is lost; another will do
                sys.stderr.write(f"{error}\n")

    def _work_once(self) -> None:
        chosen = self._choose()
        if chosen is None or chosen[0] > self._args.until:
            self._client.wait_until_rolling()  # says so when nobody starts it, or nobody is there
            time.sleep(NOTHING)
            return
        step, task, row = chosen
        policy = SwarmThrottlePolicy(  # names the task to the others; its ratio never binds
            expected_batch_size=self._args.batch,
            expected_num_repeat=self._args.repeats,
            current_task_id=task,
        )
        try:
            uuid, api = self._client.begin_episode(
                self._args.idle, throttle_policy=policy, timeout=AGAIN
            )
        except GaveUp:  # an update came between: what is needed is another by now
            return
        finally:
            with self._lock:  # the server reports it, or it was given up
                self._chosen[task] -= 1
        try:
            if self._client.get_global_step() != step:  # the batch is another by now
                return
            reward = float(last_number(self._asker.ask(api, row["question"])) == int(row["answer"]))
            facts = {"who": self._args.name, "step": step, "task": task, "episode": uuid}
            self._diary.note("ending", **facts)
            if self._client.end_episode(task, uuid, WorkflowOutput(reward=reward)).ended:
                self._diary.note("ended", **facts, reward=reward)
        finally:
            self._client.abort_episode(uuid)  # does nothing when it was ended

    def _choose(self) -> tuple[int, str, dict[str, Any]] | None:
        """Return a task that lacks an episode, with its step; None when none does."""
        with self._lock:
            pool = self._client.get_rollout_stat()
            if pool.is_default or not pool.global_step or not pool.state.rolling:
                return None
            there = Counter({t: len(d) for t, d in (pool.completed_tasks_details or {}).items()})
            for episode in (pool.running_episode_details or {}).values():
                there[episode.optional_task_id or ""] += 1
            rows = random.Random(pool.global_step).sample(self._rows, self._args.batch)
            tasks = {f"{pool.global_step}/{row['id']}": row for row in rows}  # in every client
            lacking = [
                task
                for task in tasks
                for _ in range(self._args.repeats - there[task] - self._chosen[task])
            ]
            if not lacking:
                return None
            task = random.choice(lacking)
            self._chosen[task] += 1
            return pool.global_step, task, tasks[task]


def main() -> int:
    """Run one client; return the exit code."""
    parser = client_flags("distributed", 5)
    parser.set_defaults(batch=8)
    parser.add_argument("--name", default=f"client-{os.getpid()}")
    parser.add_argument("--threads", type=int, default=4)
    args = parser.parse_args()
    return run_client(args, args.name, lambda client, asker: Worker(client, asker, args).work)


if __name__ == "__main__":
    sys.exit(main())
