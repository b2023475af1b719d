"""Engine runs in words, two of them compared, and the way to the past of one."""

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ajet_swarm.common.errors import AjetError, UsageError
from ajet_swarm.common.text import one_line
from console.models.job_form import RunJob, change_words, difference, run_job
from console.models.reward_trend import FEWEST, NOTABLE, Trend, newest_level, reward_trend
from console.text.values import fields_of
from core.events import RewardPart
from core.journal.read_only import JournalFile
from core.state import EngineRun, EngineRuns, RunPoint
from core.verdict.conclusion import sentence

ENDINGS = {
    "stopped": "the engine stopped",
    "restarted": "the engine was started again",
    "job": "another job was applied",
    "unseen": "its end was not seen",
    "removed": "the proxy does not have this server any more",
}
"""Words for `EngineRun.ending`."""
_LONGEST = 60


def job_of(runs: EngineRuns, run: EngineRun) -> RunJob:
    """Return the job of a run; only the model is known if another client started the engine."""
    yaml = runs.job_of(run)
    job = run_job(yaml) if yaml else RunJob()
    return job if job.model else RunJob(model=one_line(run.model, _LONGEST))


def title(run: EngineRun) -> str:
    """Return `run 12` with the name of the run."""
    name = f" {one_line(run.name, _LONGEST)}" if run.name else ""
    return f"run {run.number}{name}"


def ending(run: EngineRun) -> str:
    """Return how a run ended, in words; empty while it runs."""
    return ENDINGS.get(run.ending, run.ending)


def verdict_word(run: EngineRun) -> str:
    """Return `better`, `worse`, `not known`, or a dash without a look."""
    if run.verdict is None:
        return "–"
    return {"unknown": "not known"}.get(run.verdict.outcome, run.verdict.outcome)


def verdict_sentence(run: EngineRun) -> str:
    """Return the newest verdict of a run in one sentence, with its step."""
    if run.verdict is None:
        return "no look at the probe set was completed during this run"
    step = "" if run.verdict_step is None else f", at step {run.verdict_step}"
    return sentence(run.verdict) + step


def duration_of(run: EngineRun, now: float) -> float:
    """Return the seconds that a run lasted, until `now` if it has not ended."""
    return max(0.0, (now if run.ended is None else run.ended) - run.began)


def run_trend(run: EngineRun) -> Trend | None:
    """Return the change of the mean reward over a run; None below 6 finished steps, and if the
    rewards changed: the curve does not say which version a step has."""
    return None if len(run.rewards) > 1 else reward_trend(run.finished_curve)


def since_start(run: EngineRun) -> list[RunPoint]:
    """Return the curve of a run with steps that count from its first one."""
    first = run.first_reward.step if run.first_reward is not None else 0
    return [
        RunPoint(max(0, point.step - first), point.mean, point.steps)
        for point in run.finished_curve
    ]


@dataclass(frozen=True, slots=True)
class RunChange:
    """One thing that differs between two runs."""

    what: str
    left: str
    right: str


@dataclass(frozen=True, slots=True)
class RunComparison:
    """What differs between two runs."""

    left: EngineRun
    right: EngineRun
    job: tuple[RunChange, ...]
    job_note: str
    """Why the jobs are not compared, or that they are equal; empty with differences."""
    rewards: tuple[RunChange, ...]
    rewards_note: str
    """The same for the rewards."""

    @property
    def conclusion(self) -> str:
        """Which run is better and by how much, or why that is not known."""
        runs, unknown = (self.left, self.right), "Which run is better is not known: "
        if without := _named(*((run, not run.rewards) for run in runs)):
            return f"{unknown}{without} scored no group"
        if self.left.rewards != self.right.rewards or len(self.left.rewards) > 1:
            return f"{unknown}their rewards differ, so only their own verdicts and trends say more"
        levels = [newest_level(run.finished_curve) for run in runs]
        if None in levels:
            short = _named(*zip(runs, (level is None for level in levels), strict=True))
            return f"{unknown}{short} has fewer than {FEWEST} finished steps"
        (before, error), (after, other_error) = (level for level in levels if level is not None)
        change, noise = after - before, 2.0 * math.hypot(error, other_error)
        means = f"mean reward {before:.2f} and {after:.2f} in the newest steps"
        if abs(change) <= max(noise, NOTABLE):
            return f"No run is better beyond noise ({change:+.2f} ± {noise:.2f}): {means}"
        better = self.right if change > 0 else self.left
        return f"Run {better.number} is better by {abs(change):.2f} ± {noise:.2f}: {means}"


def compare(runs: EngineRuns, left: EngineRun, right: EngineRun) -> RunComparison:
    """Return the differences of two runs: of their jobs and of their last rewards."""
    job, rewards = _job_changes(runs, left, right), _reward_changes(runs, left, right)
    return RunComparison(left, right, *job, *rewards)


def _job_changes(
    runs: EngineRuns, left: EngineRun, right: EngineRun
) -> tuple[tuple[RunChange, ...], str]:
    before, after = runs.job_of(left), runs.job_of(right)
    if not (before and after):
        unknown = _named((left, not before), (right, not after))
        return (), f"the job of {unknown} is unknown: another program started the engine"
    if left.job == right.job:
        return (), "the same job"
    try:
        changes = difference(before, after, True)
    except UsageError as error:
        return (), f"the jobs cannot be compared: {one_line(error.what, 100)}"
    differences = tuple(
        RunChange(*(one_line(word, 60) for word in change_words(change))) for change in changes
    )
    return differences, "" if differences else "the same settings, written differently"


def _named(*runs: tuple[EngineRun, bool]) -> str:
    """Return `run 1 and run 2`: those that are meant."""
    return " and ".join(f"run {run.number}" for run, is_meant in runs if is_meant)


def _reward_changes(
    runs: EngineRuns, left: EngineRun, right: EngineRun
) -> tuple[tuple[RunChange, ...], str]:
    if not (left.rewards and right.rewards):
        return (), f"{_named((left, not left.rewards), (right, not right.rewards))} scored no group"
    before, after = left.rewards[-1], right.rewards[-1]
    if before == after:
        return (), f"the same rewards: version {one_line(before, 20)}"
    parts = runs.rewards.get(before), runs.rewards.get(after)
    if parts[0] is None or parts[1] is None:
        return (), "other versions of the rewards; their parts are not in the journal"
    differences = _part_changes(parts[0], parts[1])
    same = "other versions of the rewards with equal parts: their code differs"
    return differences, "" if differences else same


def _part_changes(left: Sequence[RewardPart], right: Sequence[RewardPart]) -> tuple[RunChange, ...]:
    before, after = ({part.name: part_words(part) for part in parts} for parts in (left, right))
    return tuple(
        RunChange(one_line(name, 40), before.get(name, "–"), after.get(name, "–"))
        for name in dict.fromkeys([*before, *after])
        if before.get(name) != after.get(name)
    )


def part_words(part: RewardPart) -> str:
    """Return kind and weight of a reward part: `length 0.3`, `gate`, `off`."""
    if not part.enabled:
        return "off"
    kind = "" if part.kind == part.name else f"{one_line(part.kind, 20)} "
    return f"{kind}gate" if part.gate else f"{kind}{part.weight:g}"


def run_data(known: EngineRuns, run: EngineRun, now: float) -> dict[str, Any]:
    """Return a run as data, for programs."""
    job = job_of(known, run)
    first, last, trend = run.first_reward, run.last_reward, run_trend(run)
    return {
        **fields_of(run, "number server engine_run began ended running first_seq weights"),
        **fields_of(run, "first_step last_step updates groups dead rated rewards verdict_step"),
        **fields_of(run, "name note pinned"),
        "seconds": duration_of(run, now),
        "ending": run.ending or None,
        "last_seq": run.last_seq or None,
        "model": job.model or None,
        "algorithm": job.algorithm or None,
        "experiment": job.experiment or None,
        "job": dict(job.fields),
        "first_reward": first.mean if first is not None else None,
        "last_reward": last.mean if last is not None else None,
        "gain": trend.change if trend is not None else None,
        "gain_error": trend.error if trend is not None else None,
        "curve": [fields_of(point, "step mean steps") for point in run.finished_curve],
        "verdict": run.verdict.outcome if run.verdict is not None else None,
        "sentence": verdict_sentence(run),
    }


# --- the past of a run -------------------------------------------------------------------------


class PastError(AjetError):
    """The screens as of the time of a run cannot be shown."""


def past_command(journal: Path | None, run: EngineRun, screen: str, theme: str) -> list[str]:
    """Return the command that shows a run on all screens; blocking, for a thread.

    Args:
        journal: Journal of the proxy; None if it is on another machine.
        run: The run.
        screen: Name of the first screen.
        theme: The theme.

    Raises:
        PastError: The journal is not here, or the events of the run were pruned.
    """
    if journal is None or not journal.exists():
        todo = "Open it there: `ajet-console journal replay --history N`"
        raise PastError("the journal is in the home of the proxy, not in this one", todo=todo)
    file = JournalFile(journal)
    base, newest = file.base(), file.last_seq()
    if base is not None and run.last_seq and base.seq >= run.last_seq:
        todo = "Its summary stays, and its requests if it is pinned: see Requests"
        raise PastError(f"the events of run {run.number} were pruned", todo=todo)
    last = run.last_seq - 1 if run.last_seq else newest
    command = [sys.executable, "-m", "console", "journal", "replay", str(journal)]
    command += ["--home", str(journal.parent), "--history", str(run.number), "--screen", screen]
    command += ["--span", f"{run.first_seq}-{max(last, run.first_seq)}"]
    return [*command, "--theme", theme] if theme in ("dark", "light", "ansi") else command
