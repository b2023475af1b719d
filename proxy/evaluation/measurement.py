"""A measurement: samples of every probe prompt by one set of weights, their scores, the verdict."""

import asyncio
import contextlib
import gzip
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path

import msgspec
from msgspec.structs import replace

from ajet_swarm.protocol.errors import SwarmError
from core.events import BestComparison, LookEnded, PartFigures, PromptFigures
from core.events.progress import RIGHT_ANSWERS
from core.state.common import record_of
from core.verdict.betting import mean_interval, share
from core.verdict.conclusion import against_best, judge, judge_wins
from core.verdict.samples import UNIT, Bounds, SampleError
from core.whole_file import replace_file
from proxy.evaluation.probe_set import ProbeSet
from proxy.evaluation.sampling import PromptTooLong, Sampler
from proxy.evaluation.scoring import (
    NoVerdict,
    ProbeScorer,
    ScoredSample,
    answer_of,
    messages_of,
)
from proxy.rewards.parts.reference import is_right

log = logging.getLogger(__name__)

LENGTH, REPETITION = "length", "repetition"
"""Names of the figures beside the parts of the reward: characters, share of repeated trigrams."""
SHOWN = 600
"""Maximum characters of an answer in an event; the file has it whole."""
FOLDER = "looks"
"""Folder of the files in the home."""
MOST = 1_000
"""Number of files that are kept, the newest ones."""
LARGEST = 256 << 20
"""Maximum size in bytes of a file after decompression."""


class MeasuredPrompt(msgspec.Struct, kw_only=True):
    """The samples of one prompt."""

    id: str
    prompt: str
    reference: str = ""
    greedy: str | None = None
    """Answer of greatest probability; None if the server cannot sample it."""
    samples: tuple[ScoredSample, ...] = ()


class Measurement(msgspec.Struct, kw_only=True):
    """All samples of a measurement; a file of the archive has one as JSON."""

    look_id: str
    server: str
    step: int | None
    at: float
    """Unix seconds when it ended."""
    reward: str
    """Version of the reward that scored it."""
    probe_set: str
    """Version of the probe set."""
    prompts: tuple[MeasuredPrompt, ...]


@dataclass(frozen=True, slots=True)
class Baseline:
    """The measurement that others are compared with."""

    samples: Measurement
    looks: int
    """Number of complete measurements against it so far."""
    best: LookEnded | None = None
    """The best verified one against it; None without one."""


@dataclass(slots=True)
class Attempt:
    """A measurement in progress."""

    ended: LookEnded
    """The event of its end, as far as it is known."""
    probe_set: ProbeSet
    bounds: Bounds
    """Lowest and highest possible reward."""
    samples: int = 0
    """Answers for each prompt."""

    def note(self, **fields: object) -> None:
        """Set fields of the event."""
        self.ended = replace(self.ended, **fields)


# --- samples -------------------------------------------------------------------------------------


async def take_samples(
    attempt: Attempt,
    sampler: Sampler,
    scorer: ProbeScorer,
    on_progress: Callable[[int], None],
    clock: Callable[[], float],
) -> Measurement:
    """Sample and score every prompt of a probe set that fits into the window of the model.

    Args:
        attempt: What to measure.
        sampler: Source of the answers.
        scorer: Source of their scores.
        on_progress: Called with the number of answers so far, after each prompt.
        clock: Returns Unix seconds.

    Raises:
        MeasurementCut: The weights were replaced before all answers were sampled.
        NoVerdict: The server fails to answer a prompt, each is too long, or the reward abstains.
    """
    ended, prompts = attempt.ended, list[MeasuredPrompt]()
    for number, prompt in enumerate(attempt.probe_set.prompts, 1):
        try:
            samples, likeliest = await sampler.sample(messages_of(prompt), attempt.samples)
        except PromptTooLong:
            continue
        except SwarmError as error:
            raise NoVerdict(f"prompt {prompt.id}: {error}", ended.server) from error
        prompts.append(
            MeasuredPrompt(
                id=prompt.id,
                prompt=prompt.prompt,
                reference=prompt.reference,
                greedy=None if likeliest is None else likeliest.text,
                samples=tuple(await scorer.score(prompt, samples)),
            )
        )
        on_progress(number * attempt.samples)
    if not prompts:
        raise NoVerdict("all prompts are longer than the window of the model", ended.server)
    facts = {"step": sampler.step, "at": clock(), "reward": scorer.version}
    return record_of(Measurement, ended, prompts=tuple(prompts), **facts)


async def rescored(attempt: Attempt, measured: Measurement, scorer: ProbeScorer) -> Measurement:
    """Return the samples of a measurement, scored by another version of the reward.

    Raises:
        NoVerdict: The reward abstains.
    """
    by_id, prompts = {prompt.id: prompt for prompt in attempt.probe_set.prompts}, []
    for prompt in measured.prompts:
        answers = [answer_of(sample) for sample in prompt.samples]
        samples = await scorer.score(by_id[prompt.id], answers)
        prompts.append(replace(prompt, samples=tuple(samples)))
    look_id = attempt.ended.look_id
    return replace(measured, look_id=look_id, reward=scorer.version, prompts=tuple(prompts))


class SampleArchive:
    """The files with all samples below a home: one gzipped JSON file for each measurement.

    Args:
        home: The home folder.
        most: Maximum number of files.
    """

    def __init__(self, home: Path, most: int = MOST) -> None:
        self._home = home
        self._most = most

    def write(self, measured: Measurement, baseline: str = "") -> str:
        """Write a measurement, atomically, and delete the oldest files beyond the limit.

        Args:
            measured: The measurement.
            baseline: File of the baseline in use, which is never deleted.

        Returns:
            Its path relative to the home, empty if it cannot be written.
        """
        file = f"{FOLDER}/{measured.look_id}.json.gz"
        try:
            (self._home / FOLDER).mkdir(mode=0o700, exist_ok=True)
            data = gzip.compress(msgspec.json.encode(measured), mtime=0)
            replace_file(self._home / file, data, 0o600)
        except OSError as error:
            log.warning("the samples of look %s are not stored: %s", measured.look_id, error)
            return ""
        files = sorted((self._home / FOLDER).glob("*.json.gz"), key=_modified)
        for old in files[: -self._most]:
            if str(old.relative_to(self._home)) not in (file, baseline):
                with contextlib.suppress(OSError):
                    old.unlink()
        return file

    def read(self, file: str) -> Measurement | None:
        """Return the measurement in a file that `write` returned; None if it cannot be read."""
        if not file:
            return None
        try:
            with gzip.open(self._home / file) as stream:
                data = stream.read(LARGEST + 1)
            if len(data) > LARGEST:
                raise ValueError(f"over {LARGEST >> 20} MiB")
            return msgspec.json.decode(data, type=Measurement)
        except (OSError, EOFError, ValueError, msgspec.MsgspecError) as error:
            log.warning("the samples in %s cannot be read: %s", file, error)
            return None


def _modified(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except OSError:  # deleted meanwhile
        return 0.0


# --- figures -------------------------------------------------------------------------------------

Rows = Mapping[str, Sequence[float]]
"""A value of each sample, by prompt."""
Value = Callable[[MeasuredPrompt, ScoredSample], float | None]


async def conclude(
    attempt: Attempt, measured: Measurement, scorer: ProbeScorer, baseline: Baseline | None
) -> None:
    """Complete the event of a measurement: figures, the verdict, the comparison with the best one.

    Args:
        attempt: What was measured.
        measured: The samples.
        scorer: The scores' source; compares answers where the reward only compares.
        baseline: What to compare with; None for a baseline.

    Raises:
        NoVerdict: The reward abstains, changes while answers are compared, or is outside the
            bounds.
    """
    now, before, left_out = _comparable(attempt, measured, baseline, scorer)
    if scorer.mode == "wins":
        rewards, bounds = await _wins(attempt.probe_set, now, before, scorer), UNIT
    else:
        rewards, bounds = _rows(now, _reward), attempt.bounds
    ended = replace(
        attempt.ended,
        outcome="complete",
        step=measured.step,
        reward=scorer.version,
        mode=scorer.mode,
        left_out=(*scorer.left_out, *left_out),
        baseline_id="" if baseline is None else baseline.samples.look_id,
        prompts=tuple(
            PromptFigures(
                id=prompt.id,
                rewards=tuple(rewards[prompt.id]),
                answer=(prompt.greedy or "")[:SHOWN],
                example=prompt.samples[0].text[:SHOWN] if prompt.samples else "",
            )
            for prompt in now.prompts
        ),
    )
    figures = partial(_with_figures, ended, now, before, rewards, bounds, baseline)
    try:
        attempt.ended = await asyncio.to_thread(figures, scorer.unweighted)
    except SampleError as error:
        todo = "Set `rating.score_low` and `rating.score_high`"
        raise NoVerdict(f"{error}", f"{ended.server}, probe set", todo) from error


def _comparable(
    attempt: Attempt, measured: Measurement, baseline: Baseline | None, scorer: ProbeScorer
) -> tuple[Measurement, Measurement | None, tuple[str, ...]]:
    """Return both measurements without the prompts that one of them did not ask for their length,
    and those to which no part of the reward applies; and which these are.

    Raises:
        NoVerdict: No prompt is left.
    """
    before = baseline.samples if baseline is not None else None
    both = [measured] if before is None else [measured, before]
    asked = set.intersection(*({prompt.id for prompt in taken.prompts} for taken in both))
    long = [prompt.id for prompt in attempt.probe_set.prompts if prompt.id not in asked]
    if not asked:
        cause = "no prompt of the baseline fits into the window of the model"
        raise NoVerdict(cause, attempt.ended.server, "Shorten the prompts of the probe set")
    kept = asked
    if scorer.mode == "absolute":
        kept = asked.intersection(*(_rows(taken, _reward) for taken in both))
        if not kept:
            cause = "no part of the reward applies to any prompt"
            raise NoVerdict(cause, attempt.ended.server, "Add references")
    reasons = {
        f"longer than the window of the model: {', '.join(long)}": len(long),
        "no part of the reward applies": len(asked - kept),
    }
    left_out = tuple(
        f"{count} prompt{'' if count == 1 else 's'}: {reason}"
        for reason, count in reasons.items()
        if count
    )
    now, *rest = [
        replace(taken, prompts=tuple(prompt for prompt in taken.prompts if prompt.id in kept))
        for taken in both
    ]
    return now, rest[0] if rest else None, left_out


async def _wins(
    probe_set: ProbeSet, now: Measurement, before: Measurement | None, scorer: ProbeScorer
) -> dict[str, list[float]]:
    """Return the comparisons with the baseline by prompt; ties in a baseline itself."""
    if before is None:
        return {prompt.id: [0.5] * len(prompt.samples) for prompt in now.prompts}
    old = {prompt.id: [sample.text for sample in prompt.samples] for prompt in before.prompts}
    by_id = {prompt.id: prompt for prompt in probe_set.prompts}
    wins = {}
    for prompt in now.prompts:
        new = [answer_of(sample) for sample in prompt.samples]
        pairs = list(zip(old[prompt.id], new, strict=False))
        wins[prompt.id] = await scorer.compare(by_id[prompt.id], pairs)
    return wins


def _with_figures(
    ended: LookEnded,
    now: Measurement,
    before: Measurement | None,
    rewards: Rows,
    bounds: Bounds,
    baseline: Baseline | None,
    unweighted: Collection[str],
) -> LookEnded:
    """Return an event with mean and limits, verdict, figures by part, and against the best one."""
    number = 1 if baseline is None else baseline.looks + 1
    rows = list(rewards.values())
    mean = mean_interval(rows, share(number), bounds)
    ended = replace(
        ended,
        mean=mean.estimate,
        low=mean.low,
        high=mean.high,
        parts=_parts(now, before, number, unweighted),
    )
    if baseline is None or before is None:
        return ended
    if ended.mode == "wins":
        return replace(ended, verdict=judge_wins(rows, number))
    old = _rows(before, _reward)
    return replace(
        ended,
        verdict=judge([old[name] for name in rewards], rows, number, bounds),
        against_best=_against_best(rewards, bounds, baseline.best, number),
    )


def _against_best(
    rewards: Rows, bounds: Bounds, best: LookEnded | None, number: int
) -> BestComparison | None:
    """Return the comparison with the best verified measurement, over the prompts that both have."""
    then = {prompt.id: prompt.rewards for prompt in best.prompts} if best is not None else {}
    shared = [name for name in rewards if name in then]
    if best is None or not shared:
        return None
    rows = ([then[name] for name in shared], [rewards[name] for name in shared])
    interval = against_best(*rows, number, bounds)
    limits = {"low": interval.low, "high": interval.high, "alpha": interval.alpha}
    return record_of(BestComparison, best, effect=interval.estimate, **limits)


def _parts(
    now: Measurement, before: Measurement | None, number: int, unweighted: Collection[str]
) -> tuple[PartFigures, ...]:
    """Return the figures of each part over the prompts to which it applies, of right answers, and
    of length and repetition, which have no verdict."""
    every = chain.from_iterable(prompt.samples for prompt in now.prompts)
    names = dict.fromkeys(chain.from_iterable(sample.parts for sample in every))
    values: dict[str, Value] = {name: partial(_part_value, name) for name in names}
    if RIGHT_ANSWERS not in values and _rows(now, _right):
        values[RIGHT_ANSWERS] = _right
        unweighted = {*unweighted, RIGHT_ANSWERS}
    figures: list[tuple[str, Value, int | None]] = [
        *((name, value, number) for name, value in values.items()),
        (LENGTH, lambda _, sample: float(sample.length), None),
        (REPETITION, lambda _, sample: sample.repetition, None),
    ]
    result = []
    for name, value, judged in figures:
        counts = judged is None or name not in unweighted
        result.append(_part(name, _rows(now, value), _rows(before, value), judged, counts))
    return tuple(result)


def _part(name: str, now: Rows, old: Rows, number: int | None, counts: bool) -> PartFigures:
    """Return the figures of a part; with a verdict if its values are from 0 to 1.

    Args:
        name: Its name.
        now: Its values.
        old: Its values in the baseline; empty for a baseline.
        number: Number of the measurement; None for a figure without a verdict.
        counts: Whether the reward depends on it.
    """
    outcome = ""
    shared = [prompt for prompt in now if prompt in old]
    if shared:
        now, old = ({prompt: rows[prompt] for prompt in shared} for rows in (now, old))
        values = chain.from_iterable((*now.values(), *old.values()))
        if number is not None and all(0.0 <= value <= 1.0 for value in values):
            outcome = judge(list(old.values()), list(now.values()), number).outcome
    before = _mean(old) if shared else None
    return PartFigures(part=name, mean=_mean(now), before=before, outcome=outcome, counts=counts)


def _rows(measured: Measurement | None, value: Value) -> dict[str, list[float]]:
    """Return a value of each sample, for the prompts whose samples all have one."""
    rows = {}
    for prompt in measured.prompts if measured is not None else ():
        values = [value(prompt, sample) for sample in prompt.samples]
        known = [number for number in values if number is not None]
        if len(known) == len(values):
            rows[prompt.id] = known
    return rows


def _reward(prompt: MeasuredPrompt, sample: ScoredSample) -> float | None:
    return sample.reward


def _part_value(name: str, prompt: MeasuredPrompt, sample: ScoredSample) -> float | None:
    return sample.parts.get(name)


def _right(prompt: MeasuredPrompt, sample: ScoredSample) -> float | None:
    """Return 1 for a right and 0 for a wrong answer; None without a reference that decides it."""
    return is_right(sample.text, prompt.reference) if prompt.reference else None


def _mean(rows: Rows) -> float:
    """Return the mean over prompts of the mean value."""
    means = [sum(row) / len(row) for row in rows.values() if row]
    return sum(means) / len(means) if means else 0.0
