"""Client process of one kind of tasks, which fills its share of every batch.

    AJET_SWARM_URL=http://gpu-box:10086 python -m examples.cocktail.client --kind code \\
        --mix mix.json --diary diary.jsonl

The shares stand in a file, read again before each task: write it anew to change them.
"""

import argparse
import contextlib
import functools
import itertools
import json
import os
import random
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ajet_swarm import (
    OpenaiBaseUrlAndApiKey,
    Retry,
    SwarmClient,
    SwarmError,
    SwarmThrottlePolicy,
    Task,
    TrainingFinished,
    WorkflowOutput,
    run_episodes,
)
from ajet_swarm.client.waits import result
from ajet_swarm.protocol.errors import EngineOff, GaveUp, Unreachable
from examples.ask import Asker
from examples.cocktail.kinds import KINDS, Question
from examples.swarming import REAL, seconds

WAIT = 5.0
"""Seconds between two readings of the share while a task is throttled."""
LANES = 2
"""Number of concurrent tasks of a kind."""

Claim = tuple[str, OpenaiBaseUrlAndApiKey]


class Over(SwarmError):
    """The last step is complete."""


class Client:
    """Tasks of one kind: two at a time, with concurrent repeats.

    With one, nothing would run between two tasks, and once that lasts a throttle policy lets
    anybody through. More than its share of a batch would be taken over into the next one.
    """

    def __init__(self, client: SwarmClient, asker: Asker, args: argparse.Namespace) -> None:
        self._client, self._asker, self._args = client, asker, args
        self._kind = KINDS[args.kind]
        self._draw = random.Random(f"{args.kind} {args.seed}")
        self._numbers = itertools.count(1)
        self._diary = os.open(args.diary, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def share(self) -> float:
        """Return the present share of a batch from the file; 0 for no part."""
        shares = json.loads(Path(self._args.mix).read_text("utf-8"))
        return float(shares.get(self._args.kind, 0.0))

    def work(self) -> None:
        """Work until the last step is complete.

        Raises:
            SwarmError: there is no server, or its engine is OFFLINE.
        """
        with ThreadPoolExecutor(LANES) as lanes:
            try:
                for lane in [lanes.submit(self._lane) for _ in range(LANES)]:
                    result(lane)
            except KeyboardInterrupt:
                self._client.close()  # gives all back, and ends the lanes
                raise

    def _lane(self) -> None:
        again = Retry(tries=3, never=(Over, EngineOff, Unreachable))
        repeats = self._args.repeats
        with contextlib.suppress(Over):
            while True:
                question = self._kind.draw(self._draw)
                name = f"{self._args.kind}-{os.getpid()}-{next(self._numbers)}"
                task = Task(main_query=question.text, task_id=name)
                held = [self._begin(name)]
                run = functools.partial(self._episode, question, held)
                for one in run_episodes([task] * repeats, run, max_workers=repeats, retry=again):
                    if isinstance(one.error, again.never):
                        raise one.error
                    if one.error is not None:  # this one is missing; the next task is another
                        sys.stderr.write(f"{one.error}\n")

    def _episode(self, question: Question, held: list[Claim], task: Task) -> None:
        try:
            uuid, api = held.pop()
        except IndexError:
            uuid, api = self._begin(task.task_id)
        try:
            messages = [
                {"role": "system", "content": question.instruction},
                {"role": "user", "content": question.text},
            ]
            answer = self._asker.ask(api, "", messages=messages)
            reward = self._kind.reward(question, answer)
            step = self._client.get_global_step()
            if self._client.end_episode(task, uuid, WorkflowOutput(reward=reward)).ended:
                self._note(step, task.task_id, uuid, reward)
        finally:
            self._client.abort_episode(uuid)  # does nothing when it was ended

    def _begin(self, task: str) -> Claim:
        """Claim an episode of the task as soon as its share allows it.

        Raises:
            Over: the last step is done.
            SwarmError: there is no server, or its engine is OFFLINE.
        """
        while self._client.get_global_step() <= self._args.until:
            self._client.wait_until_rolling()
            share = self.share()
            if share <= 0:
                time.sleep(0.2)
                continue
            policy = SwarmThrottlePolicy(
                ratio=share if self._args.throttle else 10.0,
                expected_batch_size=self._args.batch,
                expected_num_repeat=self._args.repeats,
                current_task_id=task,
            )
            with contextlib.suppress(GaveUp):
                idle = self._args.idle
                return self._client.begin_episode(idle, throttle_policy=policy, timeout=WAIT)
        raise Over("the last step is done", task)

    def _note(self, step: int, task: str, episode: str, reward: float) -> None:
        line = {
            "what": "ended",
            "at": time.time(),
            "kind": self._args.kind,
            "step": step,
            "task": task,
            "episode": episode,
            "reward": reward,
        }
        os.write(self._diary, (json.dumps(line) + "\n").encode())


def main() -> int:
    """Run one client; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m examples.cocktail.client")
    parser.add_argument("--swarm-url", default="", help="else AJET_SWARM_URL")
    parser.add_argument("--kind", choices=tuple(KINDS), required=True)
    parser.add_argument("--mix", required=True, help='shares as JSON: {"maths": 0.4, ...}')
    parser.add_argument("--diary", required=True, help="file that all clients append to")
    parser.add_argument("--batch", type=int, default=10, help="tasks of a batch")
    parser.add_argument("--repeats", type=int, default=4, help="episodes of a task")
    parser.add_argument("--until", type=int, default=8, help="last step to work on")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument(
        "--idle",
        type=seconds,
        default=REAL.idle,
        help="seconds without a call after which the server takes an episode back",
    )
    parser.add_argument("--no-throttle", dest="throttle", action="store_false")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # like Ctrl-C: releases all episodes
    try:
        with SwarmClient(args.swarm_url, name=args.kind) as swarm, Asker() as asker:
            Client(swarm, asker, args).work()
    except TrainingFinished as finished:
        sys.stdout.write(f"{finished}\n")
    except SwarmError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
