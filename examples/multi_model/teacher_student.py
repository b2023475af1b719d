"""Teacher and student: one server's model gives the right answer, another's learns it.

    python -m examples.multi_model.teacher_student

The teacher is fixed: its episodes are eval ones, and nothing is trained on them. Its best guess is
asked for (temperature 0; AgentJet servers ignore that). The student alone is trained; its reward is
to agree with the teacher.
"""

import argparse
import json
import random
import signal
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from functools import cache
from statistics import mean

from ajet_swarm import OpenaiBaseUrlAndApiKey, SwarmClient, Task, run_episodes
from ajet_swarm.common.errors import AjetError
from ajet_swarm.runs.episodes import rollout
from examples.ask import Asker, last_number
from examples.multi_model.__main__ import BATCH, REPEATS, SUMS, THREADS
from examples.stage import Stage, StageError, error_text, say
from examples.swarming import Pace, flags, is_updating, job_of, named_servers, pace_of, until

ROLES = ("teacher", "student")
IDLE = 60.0
"""Idle seconds after which our own engine takes an episode back."""


def teach(
    teacher: SwarmClient, student: SwarmClient, asker: Asker, wanted: int, pace: Pace
) -> None:
    """Train the student for a number of updates.

    Raises:
        StageError: a whole batch failed.
    """
    idle, patience = pace.idle, pace.patience

    @cache
    def lesson(question: str) -> int | None:
        with teacher.episode("lesson", idle, "eval", timeout=patience) as episode:
            return last_number(asker.ask(episode.api, question, temperature=0.0))

    def agent(task: Task, api: OpenaiBaseUrlAndApiKey) -> float:
        right = lesson(task.main_query)
        return float(right is not None and last_number(asker.ask(api, task.main_query)) == right)

    rows = [json.loads(line) for line in SUMS.read_text("utf-8").splitlines()]
    draw = random.Random(7)
    run = rollout(student, agent, discard_episode_timeout=idle, timeout=patience)
    first = student.get_global_step()
    for batch in range(2 * wanted):
        tasks = [
            Task(main_query=row["question"], task_id=f"{batch}/{row['id']}", metadata=row)
            for row in draw.sample(rows, BATCH)
        ]
        results = run_episodes(
            [task for task in tasks for _ in range(REPEATS)], run, max_workers=THREADS
        )
        done = [one.value for one in results if one.value is not None]
        if not done:
            raise StageError("a batch without one episode", str(results[0].error))
        agreed = mean(done)
        taught = mean(lesson(one.main_query) == int(one.metadata["answer"]) for one in tasks)
        until("the student has trained", patience, lambda: not is_updating(student))
        step = student.get_global_step()
        say(f"student step {step}: agrees {agreed:.2f}; the teacher is right in {taught:.2f}")
        if step - first >= wanted:
            return


def main(argv: list[str] | None = None) -> int:
    """Run the example; return the exit code."""
    parser = flags("multi_model.teacher_student", 12)
    for role in ROLES:
        parser.add_argument(
            f"--{role}", default="", metavar="URL", help="its server; else embedded"
        )
    args = parser.parse_args(argv)
    try:
        named = named_servers(args, ROLES)
        with ExitStack() as stack:
            teacher, student = [
                stack.enter_context(SwarmClient(_server(stack, role, args, named), name=role))
                for role in ROLES
            ]
            pace = pace_of(args, IDLE, *named.values())
            SwarmClient.async_and_start_multi_engine(
                [(client, job_of(BATCH, REPEATS, client.name)) for client in (teacher, student)],
                timeout=pace.patience,
            )
            asker = stack.enter_context(Asker())
            before = teacher.get_global_step()
            say("the student is trained; the teacher is fixed: it answers eval episodes alone")
            teach(teacher, student, asker, args.updates, pace)
            say(f"teacher step {before} at the start, {teacher.get_global_step()} at the end")
    except KeyboardInterrupt:
        return 130
    except (AjetError, ExceptionGroup) as error:
        sys.stderr.write(f"teacher_student: {error_text(error)}\n")
        return 1
    return 0


def _server(stack: ExitStack, role: str, args: argparse.Namespace, named: Mapping[str, str]) -> str:
    """Return the named server, else an embedded one."""
    keep = args.keep / role if args.keep else None
    url = named.get(role) or stack.enter_context(Stage(keep)).serve("engine")
    say(f"look on: ajet-console --watch-only --swarm-url {role}={url}")
    return str(url)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # like Ctrl-C: gives all back
    sys.exit(main())
