"""One of many independent clients; each takes tasks that the batch still needs.

    AJET_SWARM_URL=http://gpu-box:10086 python -m examples.distributed.client --diary diary.jsonl

Who does what is agreed by the server alone: all clients see the same tasks for a step, and from
the batch's own report how many episodes of each are finished or running, whosever they are.
"""

import argparse
import json
import os
import random
import signal
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

from ajet_swarm import SwarmClient, SwarmError, SwarmThrottlePolicy, WorkflowOutput
from ajet_swarm.client.waits import join
from ajet_swarm.protocol.errors import EngineOff, GaveUp, Unreachable
from examples.ask import Asker, last_number
from examples.swarming import REAL, seconds

SUMS: Final = Path(__file__).resolve().parents[1] / "math" / "sums.jsonl"
NOTHING: Final = 0.1
"""Seconds between two checks of a batch that needs nothing more."""
AGAIN: Final = 20.0
"""Maximum seconds of a claim before the batch is checked again."""


class Board:
    """Missing episodes of a step's batch.

    Args:
        client: Whose server.
        batch: Tasks of a batch.
        repeats: Episodes of a task.
    """

    def __init__(self, client: SwarmClient, batch: int, repeats: int) -> None:
        self._client, self._batch, self._repeats = client, batch, repeats
        self._rows = [json.loads(line) for line in SUMS.read_text("utf-8").splitlines()]
        self._lock = threading.Lock()
        self._chosen: Counter[str] = Counter()
        """Our own episodes that the server does not report yet."""

    def tasks(self, step: int) -> dict[str, dict[str, Any]]:
        """Return the tasks of a step, equal in every client: id -> row."""
        rows = random.Random(step).sample(self._rows, self._batch)
        return {f"{step}/{row['id']}": row for row in rows}

    def choose(self) -> tuple[int, str, dict[str, Any]] | None:
        """Return a task that lacks an episode, with its step; None when none does."""
        with self._lock:
            pool = self._client.get_rollout_stat()
            if pool.is_default or not pool.global_step or not pool.state.rolling:
                return None
            there = Counter({t: len(d) for t, d in (pool.completed_tasks_details or {}).items()})
            for one in (pool.running_episode_details or {}).values():
                there[one.optional_task_id or ""] += 1
            tasks = self.tasks(pool.global_step)
            lacking = [
                task
                for task in tasks
                for _ in range(self._repeats - there[task] - self._chosen[task])
            ]
            if not lacking:
                return None
            task = random.choice(lacking)
            self._chosen[task] += 1
            return pool.global_step, task, tasks[task]

    def shown(self, task: str) -> None:
        """Forget an episode that the server's report contains, or that was given up."""
        with self._lock:
            self._chosen[task] -= 1


class Worker:
    """One client process with its threads."""

    def __init__(self, client: SwarmClient, asker: Asker, args: argparse.Namespace) -> None:
        self._client, self._asker, self._args = client, asker, args
        self._board = Board(client, args.batch, args.repeats)
        self._diary = os.open(args.diary, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self.over = threading.Event()
        self.error: SwarmError | None = None
        """Reason for the end; `TrainingFinished` after the last update."""
        self.note("hello", client=client.client_uuid)

    def note(self, what: str, **facts: Any) -> None:
        """Append one line to the shared diary, atomically even if this process is killed."""
        line = {"what": what, "at": time.time(), "who": self._args.name, **facts}
        os.write(self._diary, (json.dumps(line) + "\n").encode())

    def work(self) -> None:
        """Run the tasks that the batch needs until the last step is complete."""
        while not self.over.is_set():
            try:
                if not self._one():
                    self.over.wait(NOTHING)
            except (EngineOff, Unreachable) as error:
                self.error = error
                self.over.set()
            except SwarmError as error:  # the episode is lost; another will do
                sys.stderr.write(f"{error}\n")

    def _one(self) -> bool:
        if self._client.get_global_step() > self._args.until:
            self.over.set()
            return True
        chosen = self._board.choose()
        if chosen is None or chosen[0] > self._args.until:
            self._client.wait_until_rolling()  # says so when nobody starts it, or nobody is there
            return False
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
            return True
        finally:
            self._board.shown(task)
        try:
            if self._client.get_global_step() != step:  # the batch is another by now
                return True
            reward = float(last_number(self._asker.ask(api, row["question"])) == int(row["answer"]))
            self.note("ending", step=step, task=task, episode=uuid)
            ended = self._client.end_episode(task, uuid, WorkflowOutput(reward=reward))
            if ended.ended:
                self.note("ended", step=step, task=task, episode=uuid, reward=reward)
        finally:
            self._client.abort_episode(uuid)  # does nothing when it was ended
        return True


def parsed(argv: list[str] | None = None) -> argparse.Namespace:
    """Parse the flags of a client."""
    parser = argparse.ArgumentParser(prog="python -m examples.distributed.client")
    parser.add_argument("--swarm-url", default="", help="else AJET_SWARM_URL")
    parser.add_argument("--name", default=f"client-{os.getpid()}")
    parser.add_argument("--diary", required=True, help="file that all clients append to")
    parser.add_argument("--batch", type=int, default=8, help="tasks of a batch")
    parser.add_argument("--repeats", type=int, default=4, help="episodes of a task")
    parser.add_argument("--until", type=int, default=5, help="last step to work on")
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument(
        "--idle",
        type=seconds,
        default=REAL.idle,
        help="seconds without a call after which the server takes an episode back: what a death "
        "costs",
    )
    return parser.parse_args(argv)


def main() -> int:
    """Run one client; return the exit code."""
    args = parsed()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # like Ctrl-C: releases all episodes
    try:
        return _run(args)
    except KeyboardInterrupt:
        return 130


def _run(args: argparse.Namespace) -> int:
    with SwarmClient(args.swarm_url, name=args.name) as client, Asker() as asker:
        worker = Worker(client, asker, args)
        threads = [threading.Thread(target=worker.work, daemon=True) for _ in range(args.threads)]
        for one in threads:
            one.start()
        try:
            join(threads)
        finally:
            worker.over.set()
    if worker.error is not None:
        sys.stderr.write(f"{worker.error}\n")
        return worker.error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
