"""A tutorial as a program: ask held-out questions, train, ask them again."""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean

from ajet_swarm import SwarmClient
from ajet_swarm.common.errors import AjetError
from core.state import Server
from examples import picture
from examples.stage import Stage, error_text, say
from examples.swarming import OWN_PATIENCE, REAL, add_patience, job_of, until

LEG = 5
"""Updates between two evaluations of the held-out questions."""
TRIES = 3
"""Number of answers to each held-out question."""
SHOWN = 6
MINUTES = 6.0
"""Time limit of a whole lesson on its own engine, in seconds."""
BATCH, REPEATS = 8, 4


@dataclass(frozen=True, slots=True)
class Row:
    """One held-out question."""

    query: str
    reference: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """Subject and configuration of a lesson."""

    name: str
    measure: str
    """Name of the measure, with its range."""
    score: Callable[[Row, str], float]
    """Measure of one answer, 0 to 1."""
    held_out: Path
    dataset: Path
    proxy: tuple[str, ...]
    """Flags of `ajet-console proxy`: the rewards."""
    also: Mapping[str, Callable[[Row, str], float]] = field(default_factory=dict)
    """Further questions whose answers are shown before and after."""
    target: tuple[str, ...] = ()
    """Flags of `ajet-console mock`: the user's target."""
    application: Callable[[Stage, str], None] | None = None
    """Starts the application between user and fake vLLM, given the latter's address."""
    updates: int = 25
    seed: int = 7


@dataclass(slots=True)
class Course:
    """Progress of a lesson."""

    curve: dict[int, float] = field(default_factory=dict)
    """Number of updates -> held-out measure."""
    rewards: dict[int, float] = field(default_factory=dict)
    """Mean reward sent, by update."""
    first: int | None = None
    """The engine's step before the first update."""
    done: int = 0
    """Updates done."""
    reported: int = 0
    """Number of the last update that was printed."""
    patience: float = OWN_PATIENCE
    """Seconds that a start, an answer or an update may take."""
    named: bool = False
    """Whether the server is not our own; it may report only the step of its updates."""
    began: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        """Return the seconds since the beginning."""
        return time.monotonic() - self.began


def read_rows(path: Path) -> list[Row]:
    """Return the questions with their references."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [Row(row["query"], row["answer"]) for row in map(json.loads, lines)]


def main(lesson: Lesson, argv: Sequence[str] | None = None) -> int:
    """Run an example's command line; return the exit code."""
    parser = argparse.ArgumentParser(prog=f"python -m examples.{lesson.name}")
    parser.add_argument("--updates", type=int, default=lesson.updates, metavar="N")
    parser.add_argument("--held-out", type=int, default=64, metavar="N", help="questions to ask")
    parser.add_argument(
        "--out", type=Path, default=Path("build/examples"), metavar="DIR", help="for plot and table"
    )
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the processes' folder here")
    add_patience(parser)
    args = parser.parse_args(argv)
    if args.updates < 1 or args.held_out < 1:
        parser.error("give at least 1")
    try:
        with Stage(args.keep) as stage:
            _run(lesson, stage, args)
    except KeyboardInterrupt:
        sys.stderr.write("\ninterrupted; all processes are ended\n")
        return 130
    except (AjetError, ExceptionGroup, OSError, subprocess.SubprocessError) as error:
        sys.stderr.write(f"{lesson.name}: {error_text(error)}\n")
        return 1
    return 0


def _run(lesson: Lesson, stage: Stage, args: argparse.Namespace) -> None:
    url = os.environ.get("AJET_SWARM_URL", "")
    course = Course(named=bool(url))
    course.patience = args.patience or (REAL.patience if url else OWN_PATIENCE)
    updates: int = args.updates
    if url:
        with SwarmClient(url, name=lesson.name) as client:
            job = job_of(BATCH, REPEATS, lesson.name)
            client.auto_sync_train_config_and_start_engine(job, timeout=course.patience)
    engine = url or stage.serve("engine")
    name = "swarm" if url else "embedded"
    proxy = stage.serve("proxy", "--swarm-url", f"{name}={engine}", *lesson.proxy)
    say(f"{lesson.name}: engine {engine}, fake vLLM {proxy}")
    say(f"look on while it runs: ajet-console --home {stage.home.root}")
    if lesson.application is not None:
        lesson.application(stage, f"{proxy}/v1")
    if url:

        def rolls() -> bool:
            return asyncio.run(stage.server(proxy)).state == "ROLLING"

        until("the fake vLLM sees the engine roll", course.patience, rolls)
    else:
        stage.console("engine-start", "--set", f"batch={BATCH}")
    rows = read_rows(lesson.held_out)[: args.held_out]
    _report_updates(asyncio.run(stage.server(proxy)), course)
    before = after = _measure(lesson, stage, proxy, rows, course)
    while course.done < updates:
        _train(lesson, stage, proxy, min(LEG, updates - course.done), course)
        after = _measure(lesson, stage, proxy, rows, course)
    _report(lesson, course, rows, before, after, args.out)


def _train(lesson: Lesson, stage: Stage, proxy: str, leg: int, course: Course) -> None:
    """Run the mock user until `leg` more updates are done."""
    flags = ["--updates", str(leg), "--seed", str(lesson.seed), "--passes", "1000"]
    flags += ["--timeout", f"{max(course.patience, 300.0):g}"]
    mock = [sys.executable, "-m", "console", "mock", str(lesson.dataset), *flags]
    child = stage.start("mock", *mock, "--concurrency", "8", *lesson.target)

    def on_poll() -> None:
        _report_updates(asyncio.run(stage.server(proxy)), course)

    left = leg * course.patience if course.named else MINUTES * 60 - course.seconds
    stage.until_ended("mock", child, max(left, 10.0), on_poll)


def _report_updates(server: Server, course: Course) -> None:
    """Print one line for each new update."""
    step_now = server.step or 0
    if course.first is None:
        course.first = step_now
    course.done = step_now - course.first
    for step in server.steps:
        number = step.step - course.first + 1
        finished = step.update or (course.named and step.step < step_now)
        if not finished or number <= course.reported:
            continue
        course.reported = number
        course.rewards[number] = step.auto_mean
        bar = "#" * round(20 * min(max(step.auto_mean, 0.0), 1.0))
        say(
            f"update {number:3}  mean reward {step.auto_mean:5.2f} {bar:20}"
            f"  {step.groups} groups, {step.dead} no signal  {course.seconds:4.0f} s",
        )


def _measure(
    lesson: Lesson,
    stage: Stage,
    proxy: str,
    rows: Sequence[Row],
    course: Course,
) -> list[list[str]]:
    """Ask the held-out questions."""
    questions = [row.query for row in rows]
    answers = asyncio.run(stage.answers(proxy, questions, TRIES, course.patience))
    mean = course.curve[course.done] = _mean(lesson.score, rows, answers)
    say(f"held out after {course.done:3} updates: {lesson.measure} {mean:.2f}")
    return answers


def _mean(
    score: Callable[[Row, str], float], rows: Sequence[Row], answers: Sequence[Sequence[str]]
) -> float:
    return mean(
        score(row, text) for row, texts in zip(rows, answers, strict=True) for text in texts
    )


def _report(
    lesson: Lesson,
    course: Course,
    rows: Sequence[Row],
    before: Sequence[Sequence[str]],
    after: Sequence[Sequence[str]],
    out: Path,
) -> None:
    """Print answers before and after and the curve; write a plot and a table to files."""
    say("")
    for row, first, last in list(zip(rows, before, after, strict=True))[:SHOWN]:
        say(f"> {row.query}\n  before: {first[0]}\n  after:  {last[0]}")
    lines = [
        f"| {lesson.name}, {len(rows)} held-out questions | before | after |",
        "|---|---|---|",
    ]
    for name, score in {lesson.measure: lesson.score, **lesson.also}.items():
        low, high = _mean(score, rows, before), _mean(score, rows, after)
        lines.append(f"| {name} | {low:.2f} | {high:.2f} |")
    steps = list(course.curve)
    lines += [
        "",
        "| updates | " + " | ".join(map(str, steps)) + " |",
        "|---" * (len(steps) + 1) + "|",
        f"| {lesson.measure} | " + " | ".join(f"{course.curve[n]:.2f}" for n in steps) + " |",
    ]
    say("\n" + "\n".join(lines) + "\n")
    say("\n".join(picture.text(course.curve)))
    out.mkdir(parents=True, exist_ok=True)
    plot, table = out / f"{lesson.name}.svg", out / f"{lesson.name}.md"
    title = f"{lesson.name}: {lesson.measure}"
    plot.write_text(picture.svg(title, course.curve, course.rewards), encoding="utf-8")
    table.write_text("\n".join(lines) + "\n", encoding="utf-8")
    say(f"\n{plot} {table}  {course.seconds:.0f} s")
