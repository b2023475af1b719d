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
import sys
import time
from pathlib import Path

from ajet_swarm import (
    OpenaiBaseUrlAndApiKey,
    Retry,
    SwarmClient,
    SwarmError,
    SwarmThrottlePolicy,
    Task,
    WorkflowOutput,
    run_episodes,
)
from ajet_swarm.protocol.errors import EngineOff, GaveUp, Unreachable
from examples.ask import Asker
from examples.clients import Diary, client_flags, run_client
from examples.cocktail.kinds import KINDS, Question

WAIT = 5.0
"""Seconds between two readings of the share while a task is throttled."""
TASKS = 2
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
        self._diary = Diary(args.diary)

    def share(self) -> float:
        """Return the present share of a batch from the file; 0 for no part."""
        shares = json.loads(Path(self._args.mix).read_text("utf-8"))
        return float(shares.get(self._args.kind, 0.0))

    def work(self) -> None:
        """Run one task after another until the last step is complete.

        Raises:
            SwarmError: there is no server, or its engine is OFFLINE.
        """
        again = Retry(tries=3, never=(Over, EngineOff, Unreachable))
        repeats = self._args.repeats
        with contextlib.suppress(Over):
            while True:
                question = self._kind.draw(self._draw)
                name = f"{self._args.kind}-{os.getpid()}-{next(self._numbers)}"
                task = Task(main_query=question.text, task_id=name)
                held = [self._begin(name)]
                run = functools.partial(self._episode, question, held)
                for done in run_episodes([task] * repeats, run, max_workers=repeats, retry=again):
                    if isinstance(done.error, again.never):
                        raise done.error
                    if done.error is not None:  # it is missing; the next task is another
                        sys.stderr.write(f"{done.error}\n")

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
                kind, name = self._args.kind, task.task_id
                self._diary.note(
                    "ended", kind=kind, step=step, task=name, episode=uuid, reward=reward
                )
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


def main() -> int:
    """Run one client; return the exit code."""
    parser = client_flags("cocktail", 8)
    parser.add_argument("--kind", choices=tuple(KINDS), required=True)
    parser.add_argument("--mix", required=True, help='shares as JSON: {"maths": 0.4, ...}')
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--no-throttle", dest="throttle", action="store_false")
    parser.set_defaults(threads=TASKS)
    args = parser.parse_args()
    return run_client(args, args.kind, lambda client, asker: Client(client, asker, args).work)


if __name__ == "__main__":
    sys.exit(main())
