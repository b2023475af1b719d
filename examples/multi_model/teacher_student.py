"""Teacher and student: one server's model gives the right answer, another's learns it.

    python -m examples.multi_model.teacher_student

The teacher is fixed: its episodes are eval ones, and nothing is trained on them. Its best guess is
asked for (temperature 0; AgentJet servers ignore that). The student alone is trained; its reward is
to agree with the teacher.
"""

import argparse
import sys
from contextlib import ExitStack
from functools import cache
from statistics import mean

from ajet_swarm import OpenaiBaseUrlAndApiKey, SwarmClient, Task, run_episodes
from ajet_swarm.runs.episodes import rollout
from examples.ask import Asker, last_number
from examples.multi_model.__main__ import BATCH, REPEATS, THREADS
from examples.stage import exit_code, say
from examples.swarming import (
    Pace,
    flags,
    is_updating,
    job_of,
    servers_of,
    sum_batches,
    until,
    values_of,
)

ROLES = ("teacher", "student")


def teach(
    teacher: SwarmClient, student: SwarmClient, asker: Asker, wanted: int, pace: Pace
) -> None:
    """Train the student for a number of updates.

    Raises:
        StageError: a whole batch failed.
    """

    @cache
    def lesson(question: str) -> int | None:
        with teacher.episode("lesson", pace.idle, "eval", timeout=pace.patience) as episode:
            return last_number(asker.ask(episode.api, question, temperature=0.0))

    def agent(task: Task, api: OpenaiBaseUrlAndApiKey) -> float:
        right = lesson(task.main_query)
        return float(right is not None and last_number(asker.ask(api, task.main_query)) == right)

    run = rollout(student, agent, discard_episode_timeout=pace.idle, timeout=pace.patience)
    first = student.get_global_step()
    for tasks in sum_batches(BATCH, 2 * wanted):
        repeated = [task for task in tasks for _ in range(REPEATS)]
        agreed = mean(values_of(run_episodes(repeated, run, max_workers=THREADS)))
        taught = mean(lesson(task.main_query) == int(task.metadata["answer"]) for task in tasks)
        until("the student has trained", pace.patience, lambda: not is_updating(student))
        step = student.get_global_step()
        say(f"student step {step}: agrees {agreed:.2f}; the teacher is right in {taught:.2f}")
        if step - first >= wanted:
            return


def main(argv: list[str] | None = None) -> int:
    """Run the example; return the exit code."""
    args = flags("multi_model.teacher_student", 12, roles=ROLES).parse_args(argv)
    return exit_code("teacher_student", lambda: _run(args))


def _run(args: argparse.Namespace) -> None:
    with ExitStack() as stack:
        urls, pace = servers_of(args, ROLES, stack)
        teacher, student = (
            stack.enter_context(SwarmClient(url, name=role)) for role, url in urls.items()
        )
        SwarmClient.async_and_start_multi_engine(
            [(client, job_of(BATCH, REPEATS, client.name)) for client in (teacher, student)],
            timeout=pace.patience,
        )
        asker = stack.enter_context(Asker())
        before = teacher.get_global_step()
        say("the student is trained; the teacher is fixed: it answers eval episodes alone")
        teach(teacher, student, asker, args.updates, pace)
        say(f"teacher step {before} at the start, {teacher.get_global_step()} at the end")


if __name__ == "__main__":
    sys.exit(main())
