"""A tutorial as a program: ask held-out questions, train, ask them again."""

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean

from ajet_swarm import OpenaiBaseUrlAndApiKey
from core.state import Server
from examples import picture
from examples.ask import Asker
from examples.stage import Stage, on_stage, say
from examples.swarming import OWN_PATIENCE, REAL, Pace, at_least, flags, started, until

LEG = 5
"""Updates between two evaluations of the held-out questions."""
ASKED_AT_ONCE = 8
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
    """Flags of `ajet-console run proxy`: the rewards."""
    also: Mapping[str, Callable[[Row, str], float]] = field(default_factory=dict)
    """Further questions whose answers are shown before and after."""
    target: tuple[str, ...] = ()
    """Flags of `ajet-console run mock`: the user's target."""
    application: Callable[[Stage, str], None] | None = None
    """Starts the application between user and fake vLLM, given the latter's address."""


def read_rows(path: Path) -> list[Row]:
    """Return the questions with their references."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [Row(row["query"], row["answer"]) for row in map(json.loads, lines)]


def lesson_flags(name: str, updates: int, *, idle: bool = False) -> argparse.ArgumentParser:
    """Return a parser with the flags of a tutorial."""
    parser = flags(name, updates, idle=idle)
    folder, add = Path("build/examples"), parser.add_argument
    add("--held-out", type=at_least(1), default=64, metavar="N", help="questions to ask")
    add("--out", type=Path, default=folder, metavar="DIR", help="for plot and table")
    return parser


def main(lesson: Lesson, argv: Sequence[str] | None = None) -> int:
    """Run an example's command line; return the exit code."""
    args = lesson_flags(lesson.name, 25).parse_args(argv)
    return on_stage(lesson.name, args.keep, lambda stage: Course(lesson, stage, args).run())


class Course:
    """A lesson that is being taught."""

    def __init__(self, lesson: Lesson, stage: Stage, args: argparse.Namespace) -> None:
        self._lesson, self._stage, self._args = lesson, stage, args
        self._rows = read_rows(lesson.held_out)[: args.held_out]
        self._url = os.environ.get("AJET_SWARM_URL", "")
        """A server of others may report only the step of its updates."""
        self._patience: float = args.patience or (REAL.patience if self._url else OWN_PATIENCE)
        self._proxy = ""
        self._curve: dict[int, float] = {}
        """Number of updates -> held-out measure."""
        self._rewards: dict[int, float] = {}
        """Mean reward sent, by update."""
        self._first: int | None = None
        """The engine's step before the first update."""
        self._done = 0
        """Updates done."""
        self._began = time.monotonic()

    def run(self) -> None:
        """Start the processes, teach, and report."""
        lesson, stage = self._lesson, self._stage
        engine = self._url or stage.serve("engine")
        with started(engine, lesson.name, BATCH, REPEATS, Pace(REAL.idle, self._patience)):
            pass  # the proxy has a client of its own
        name = "swarm" if self._url else "embedded"
        self._proxy = stage.serve("proxy", "--swarm-url", f"{name}={engine}", *lesson.proxy)
        say(f"{lesson.name}: engine {engine}, fake vLLM {self._proxy}")
        say(f"look on while it runs: ajet-console --home {stage.home.root}")
        if lesson.application is not None:
            lesson.application(stage, f"{self._proxy}/v1")
        what = "the fake vLLM sees the engine roll"
        until(what, self._patience, lambda: self._server().state == "ROLLING")
        self._report_updates()
        before = after = self._measure()
        while self._done < self._args.updates:
            self._train(min(LEG, self._args.updates - self._done))
            after = self._measure()
        self._report(before, after)

    @property
    def _seconds(self) -> float:
        return time.monotonic() - self._began

    def _server(self) -> Server:
        return asyncio.run(self._stage.server(self._proxy))

    def _train(self, leg: int) -> None:
        """Run the mock user until `leg` more updates are done."""
        mock = [sys.executable, "-m", "console", "run", "mock", str(self._lesson.dataset)]
        mock += ["--updates", str(leg), "--seed", "7", "--passes", "1000"]
        mock += ["--timeout", f"{max(self._patience, 300.0):g}", "--concurrency", "8"]
        child = self._stage.start("mock", *mock, *self._lesson.target)
        left = leg * self._patience if self._url else MINUTES * 60 - self._seconds
        self._stage.until_ended("mock", child, max(left, 10.0), self._report_updates)

    def _report_updates(self) -> None:
        """Print one line for each new update."""
        server = self._server()
        step_now = server.step or 0
        if self._first is None:
            self._first = step_now
        self._done = step_now - self._first
        for step in server.steps:
            number = step.step - self._first + 1
            finished = step.update or (self._url and step.step < step_now)
            if finished and number > max(self._rewards, default=0):
                self._rewards[number] = step.auto_mean
                text = f"{step.groups} groups, {step.dead} no signal  {self._seconds:4.0f} s"
                say(picture.update_line(number, step.auto_mean, text))

    def _measure(self) -> list[list[str]]:
        """Ask the held-out questions, and return the answers to each; none is trained on.

        The seeds are fixed: answers of two calls differ only by what the policy has learnt.
        """
        api = OpenaiBaseUrlAndApiKey(f"{self._proxy}/v1", "any-key")

        def answer(number: int) -> str:
            return asker.ask(api, self._rows[number // TRIES].query, temperature=1.0, seed=number)

        with (
            Asker(self._patience, {"X-Ajet-Train": "no"}) as asker,
            ThreadPoolExecutor(ASKED_AT_ONCE) as pool,
        ):
            texts = list(pool.map(answer, range(TRIES * len(self._rows))))
        answers = [texts[at : at + TRIES] for at in range(0, len(texts), TRIES)]
        score = self._curve[self._done] = self._mean(self._lesson.score, answers)
        say(f"held out after {self._done:3} updates: {self._lesson.measure} {score:.2f}")
        return answers

    def _mean(self, score: Callable[[Row, str], float], answers: Sequence[Sequence[str]]) -> float:
        pairs = zip(self._rows, answers, strict=True)
        return mean(score(row, text) for row, texts in pairs for text in texts)

    def _report(self, before: Sequence[Sequence[str]], after: Sequence[Sequence[str]]) -> None:
        """Print answers before and after and the curve; write a plot and a table to files."""
        lesson = self._lesson
        say("")
        for row, first, last in list(zip(self._rows, before, after, strict=True))[:SHOWN]:
            say(f"> {row.query}\n  before: {first[0]}\n  after:  {last[0]}")
        scores = {lesson.measure: lesson.score, **lesson.also}
        rows = {
            name: [self._mean(score, before), self._mean(score, after)]
            for name, score in scores.items()
        }
        lines = [
            *picture.table(
                f"{lesson.name}, {len(self._rows)} held-out questions", ("before", "after"), rows
            ),
            "",
            *picture.table("updates", self._curve, {lesson.measure: list(self._curve.values())}),
        ]
        title = f"{lesson.name}: {lesson.measure}"
        picture.write(self._args.out, lesson.name, title, lines, self._curve, self._rewards)
        say(f"\n{self._args.out / lesson.name}.svg .md  {self._seconds:.0f} s")
