"""A look: samples of every probe prompt by one set of weights, their scores, the verdict."""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

import msgspec

from ajet_swarm.common.errors import AjetError
from ajet_swarm.protocol.errors import SwarmError
from core.events import (
    BestComparison,
    LookEnded,
    PartFigures,
    PromptFigures,
)
from core.events.progress import RIGHT_ANSWERS, LookRole
from core.state import BestLook
from core.verdict.betting import mean_interval
from core.verdict.conclusion import Verdict, against_best, judge, judge_wins
from core.verdict.samples import UNIT, Bounds, SampleError
from core.verdict.shares import share
from proxy.evaluation.archive import StoredLook, StoredPrompt
from proxy.evaluation.probe_set import ProbeSet
from proxy.evaluation.sampling import PromptTooLong, Sampler
from proxy.evaluation.scoring import LookScorer, ScoredSample, ScoringError, answer_of, messages_of
from proxy.rewards.parts.reference import is_right

LENGTH, REPETITION = "length", "repetition"
"""Names of the figures beside the parts of the reward: characters, share of repeated trigrams."""
SHOWN = 600
"""Maximum characters of an answer in an event; the file of the look has it whole."""


class SampleFailed(AjetError):
    """The server does not answer a prompt of the probe set."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """The look that others are compared with."""

    look_id: str
    stored: StoredLook
    looks: int
    """Number of complete looks against it so far."""
    best: BestLook | None = None
    """The best verified look against it; None without one."""


@dataclass(frozen=True, slots=True)
class LookPlan:
    """What a look measures."""

    look_id: str
    server: str
    role: LookRole
    probe_set: ProbeSet
    samples: int
    """Answers for each prompt; 0 as many as are usual for the sampler."""
    bounds: Bounds
    """Lowest and highest possible reward."""

    def as_baseline(self, look_id: str = "") -> "LookPlan":
        """Return the plan of a baseline, under another id if one is given."""
        return replace(self, role="baseline", look_id=look_id or self.look_id)

    def sampling(self, samples: int) -> "LookPlan":
        """Return the plan with this number of answers for each prompt."""
        return replace(self, samples=samples)


async def take_samples(
    plan: LookPlan,
    sampler: Sampler,
    scorer: LookScorer,
    on_progress: Callable[[int], None],
    clock: Callable[[], float],
) -> StoredLook:
    """Sample and score every prompt of a probe set that fits into the window of the model.

    Args:
        plan: What to measure.
        sampler: Source of the answers.
        scorer: Source of their scores.
        on_progress: Called with the number of answers so far, after each prompt.
        clock: Returns Unix seconds.

    Raises:
        LookCut: The weights were replaced before all answers were sampled.
        SampleFailed: The server fails to answer a prompt, or each is too long; names it.
        ScoringError: The reward abstains.
    """
    prompts: list[StoredPrompt] = []
    for number, prompt in enumerate(plan.probe_set.prompts, 1):
        messages = messages_of(prompt)
        try:
            samples, likeliest = await sampler.sample(messages, plan.samples)
        except PromptTooLong as error:
            if number == len(plan.probe_set.prompts) and not prompts:
                raise SampleFailed(
                    "all prompts are longer than the window of the model", plan.server
                ) from error
            continue
        except SwarmError as error:
            raise SampleFailed(f"prompt {prompt.id}: {error}", plan.server) from error
        prompts.append(
            StoredPrompt(
                id=prompt.id,
                prompt=prompt.prompt,
                reference=prompt.reference,
                greedy=None if likeliest is None else likeliest.text,
                samples=tuple(await scorer.score(prompt, samples)),
            )
        )
        on_progress(number * plan.samples)
    return StoredLook(
        look_id=plan.look_id,
        server=plan.server,
        step=sampler.step,
        at=clock(),
        reward=scorer.version,
        probe_set=plan.probe_set.version,
        prompts=tuple(prompts),
    )


async def rescored(plan: LookPlan, stored: StoredLook, scorer: LookScorer) -> StoredLook:
    """Return the samples of a look, scored by another version of the reward.

    Raises:
        ScoringError: The reward abstains.
    """
    by_id = {prompt.id: prompt for prompt in plan.probe_set.prompts}
    prompts = []
    for one in stored.prompts:
        samples = [answer_of(sample) for sample in one.samples]
        scores = tuple(await scorer.score(by_id[one.id], samples))
        prompts.append(msgspec.structs.replace(one, samples=scores))
    return msgspec.structs.replace(
        stored, look_id=plan.look_id, reward=scorer.version, prompts=tuple(prompts)
    )


async def conclude(
    plan: LookPlan,
    stored: StoredLook,
    scorer: LookScorer,
    baseline: Baseline | None,
    *,
    file: str,
    restarted: str = "",
) -> LookEnded:
    """Return the event of a complete look, compared with the baseline and with the best look.

    Args:
        plan: What was measured.
        stored: The samples.
        scorer: The scores' source; compares answers where the reward only compares.
        baseline: What to compare with; None for a baseline.
        file: File with the samples.
        restarted: Why a new comparison begins with this look.

    Raises:
        ScoringError: The reward abstains, changes while answers are compared, or is outside the
            bounds.
    """
    number = 1 if baseline is None else baseline.looks + 1
    before = None if baseline is None else baseline.stored
    stored, before, left_out = _fitting(plan, stored, before)
    if scorer.mode == "absolute":
        stored, before, inapplicable = _applicable(stored, before)
        left_out += inapplicable
    if scorer.mode == "wins":
        rewards = await _wins(plan, stored, scorer, before)
        bounds = UNIT
    else:
        rewards = [_rewards(one.samples) for one in stored.prompts]
        bounds = plan.bounds
    best = baseline.best if baseline is not None and scorer.mode == "absolute" else None
    work = partial(_figures, stored, rewards, bounds, scorer, before, number)
    try:
        mean, low, high, verdict, parts = await asyncio.to_thread(work)
        compared = await asyncio.to_thread(_against_best, stored, rewards, bounds, best, number)
    except SampleError as error:
        raise ScoringError(
            f"{error}",
            f"{plan.server}, probe set",
            "Set `probe.reward_low` and `probe.reward_high`",
        ) from error
    return LookEnded(
        server=plan.server,
        look_id=plan.look_id,
        role=plan.role,
        outcome="complete",
        step=stored.step,
        probe_set=stored.probe_set,
        reward=scorer.version,
        mode=scorer.mode,
        left_out=(*scorer.left_out, *left_out),
        baseline_id="" if baseline is None else baseline.look_id,
        restarted=restarted,
        mean=mean,
        low=low,
        high=high,
        prompts=tuple(
            PromptFigures(
                id=one.id,
                rewards=tuple(row),
                answer=(one.greedy or "")[:SHOWN],
                example=one.samples[0].text[:SHOWN] if one.samples else "",
            )
            for one, row in zip(stored.prompts, rewards, strict=True)
        ),
        parts=parts,
        verdict=verdict,
        against_best=compared,
        file=file,
    )


def _fitting(
    plan: LookPlan, stored: StoredLook, before: StoredLook | None
) -> tuple[StoredLook, StoredLook | None, tuple[str, ...]]:
    """Return both looks without the prompts that one of them could not ask for their length.

    Raises:
        ScoringError: No prompt is in both.
    """
    names = {one.id for one in stored.prompts}
    if before is not None:
        names &= {one.id for one in before.prompts}
    missing = [one.id for one in plan.probe_set.prompts if one.id not in names]
    if not missing:
        return stored, before, ()
    if not names:
        raise ScoringError(
            "no prompt of the baseline fits into the window of the model",
            stored.server,
            "Shorten the prompts of the probe set",
        )
    count = f"{len(missing)} prompt{'' if len(missing) == 1 else 's'}"
    return (
        _only(stored, names),
        None if before is None else _only(before, names),
        (f"{count}: longer than the window of the model: {', '.join(missing)}",),
    )


def _applicable(
    stored: StoredLook, before: StoredLook | None
) -> tuple[StoredLook, StoredLook | None, tuple[str, ...]]:
    """Return both looks without the prompts to which no part of the reward applies.

    Raises:
        ScoringError: No prompt is left.
    """
    names = {one.id for one in stored.prompts if len(_rewards(one.samples)) == len(one.samples)}
    if before is not None:
        names &= {
            one.id for one in before.prompts if len(_rewards(one.samples)) == len(one.samples)
        }
    missing = len(stored.prompts) - len(names)
    if not missing:
        return stored, before, ()
    if not names:
        raise ScoringError(
            "no part of the reward applies to any prompt", stored.server, "Add references"
        )
    plural = "" if missing == 1 else "s"
    return (
        _only(stored, names),
        None if before is None else _only(before, names),
        (f"{missing} prompt{plural}: no part of the reward applies",),
    )


def _only(look: StoredLook, names: Collection[str]) -> StoredLook:
    prompts = tuple(one for one in look.prompts if one.id in names)
    return msgspec.structs.replace(look, prompts=prompts)


def _rewards(samples: Sequence[ScoredSample]) -> list[float]:
    return [one.reward for one in samples if one.reward is not None]


async def _wins(
    plan: LookPlan, stored: StoredLook, scorer: LookScorer, before: StoredLook | None
) -> list[list[float]]:
    """Return the comparisons with the baseline by prompt; ties in a baseline itself."""
    if before is None:
        return [[0.5 for _ in one.samples] for one in stored.prompts]
    texts = before.texts()
    by_id = {prompt.id: prompt for prompt in plan.probe_set.prompts}
    wins = []
    for one in stored.prompts:
        now = [answer_of(sample) for sample in one.samples]
        old = texts[one.id]
        count = min(len(now), len(old))
        wins.append(await scorer.compare(by_id[one.id], old[:count], now[:count]))
    return wins


_Figures = tuple[float, float, float, Verdict | None, tuple[PartFigures, ...]]


def _figures(
    stored: StoredLook,
    rewards: Sequence[Sequence[float]],
    bounds: Bounds,
    scorer: LookScorer,
    before: StoredLook | None,
    number: int,
) -> _Figures:
    """Return mean, its limits, the verdict, and the figures by part."""
    interval = mean_interval(rewards, share(number), bounds)
    verdict: Verdict | None = None
    if before is not None:
        if scorer.mode == "wins":
            verdict = judge_wins(rewards, number)
        else:
            old = [_rewards(one.samples) for one in before.prompts]
            verdict = judge(old, rewards, number, bounds)
    parts = (*_parts(stored, before, number, scorer.unweighted), *_traits(stored, before))
    return interval.estimate, interval.low, interval.high, verdict, parts


def _against_best(
    stored: StoredLook,
    rewards: Sequence[Sequence[float]],
    bounds: Bounds,
    best: BestLook | None,
    number: int,
) -> BestComparison | None:
    """Return a look against the best verified one, over the prompts that both have."""
    then = {one.id: one.rewards for one in best.prompts} if best is not None else {}
    rows = zip(stored.prompts, rewards, strict=True)
    now = {one.id: row for one, row in rows if one.id in then}
    if best is None or not now:
        return None
    interval = against_best([then[one] for one in now], list(now.values()), number, bounds)
    return BestComparison(
        look_id=best.look_id,
        step=best.step,
        run=best.run,
        effect=interval.estimate,
        low=interval.low,
        high=interval.high,
        alpha=interval.alpha,
    )


_Rows = Mapping[str, list[float]]
"""A value of each sample, by prompt."""


def _parts(
    stored: StoredLook, before: StoredLook | None, number: int, unweighted: Collection[str]
) -> tuple[PartFigures, ...]:
    """Return the figures of each part, over the prompts to which it applies, and right answers."""
    names = dict.fromkeys(
        chain.from_iterable(sample.parts for one in stored.prompts for sample in one.samples)
    )
    columns = {name: (_values(stored, name), _values(before, name)) for name in names}
    if right := _right(stored):
        columns.setdefault(RIGHT_ANSWERS, (right, _right(before)))
    uncounted = unweighted if RIGHT_ANSWERS in names else {*unweighted, RIGHT_ANSWERS}
    return tuple(
        _part(name, *rows, number if before is not None else None, name not in uncounted)
        for name, rows in columns.items()
    )


def _part(name: str, now: _Rows, old: _Rows, number: int | None, counts: bool) -> PartFigures:
    """Return the figures of a part; with a verdict if its values are from 0 to 1.

    Args:
        name: Its name.
        now: Its values in the look.
        old: Its values in the baseline.
        number: Number of the look; None for a baseline.
        counts: Whether the reward depends on it.
    """
    shared = [one for one in now if one in old]
    outcome = ""
    if number is not None and shared:
        now, old = {one: now[one] for one in shared}, {one: old[one] for one in shared}
        values = chain.from_iterable((*now.values(), *old.values()))
        if all(0.0 <= value <= 1.0 for value in values):
            outcome = judge(list(old.values()), list(now.values()), number).outcome
    before = _mean(old) if shared else None
    return PartFigures(part=name, mean=_mean(now), before=before, outcome=outcome, counts=counts)


def _values(look: StoredLook | None, part: str) -> _Rows:
    """Return the values of a part by prompt, for the prompts to whose samples it applies."""
    values: dict[str, list[float]] = {}
    for one in look.prompts if look is not None else ():
        row = [sample.parts[part] for sample in one.samples if part in sample.parts]
        if row and len(row) == len(one.samples):
            values[one.id] = row
    return values


def _right(look: StoredLook | None) -> _Rows:
    """Return 1 for each right and 0 for each wrong answer, for the prompts with a reference."""
    rows = {}
    for prompt in look.prompts if look is not None else ():
        if prompt.reference:
            right = [is_right(sample.text, prompt.reference) for sample in prompt.samples]
            if row := [float(value) for value in right if value is not None]:
                rows[prompt.id] = row
    return rows


def _traits(stored: StoredLook, before: StoredLook | None) -> tuple[PartFigures, ...]:
    """Return the mean length and repetition of the answers: figures without a verdict."""
    return tuple(
        PartFigures(
            part=name,
            mean=_mean(_trait(stored, name)),
            before=None if before is None else _mean(_trait(before, name)),
        )
        for name in (LENGTH, REPETITION)
    )


def _trait(look: StoredLook, name: str) -> Mapping[str, list[float]]:
    return {
        one.id: [float(getattr(sample, name)) for sample in one.samples] for one in look.prompts
    }


def _mean(rows: Mapping[str, Sequence[float]]) -> float:
    """Return the mean over prompts of the mean value."""
    means = [sum(row) / len(row) for row in rows.values() if row]
    return sum(means) / len(means) if means else 0.0
