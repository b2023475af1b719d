"""Scores of probe answers: each by itself, or against a baseline answer if rewards only compare."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from ajet_swarm.common.errors import AjetError
from ajet_swarm.common.tasks import run_all
from core.events import ProbePrompt
from core.verdict.pairs import result_of
from proxy.evaluation.sampling import Sample
from proxy.rewards.model.assembly import Assembly
from proxy.rewards.model.source import ComposedSource
from proxy.rewards.source import (
    Abstention,
    Answer,
    GroupContext,
    RewardSource,
    request_scores,
)
from proxy.rewards.text import read


class NoVerdict(AjetError):
    """A measurement fails: an answer or its score is missing; names the prompt and the reason."""


class ScoredSample(msgspec.Struct, frozen=True, kw_only=True):
    """One answer with its score."""

    text: str
    finish_reason: str = ""
    reward: float | None = None
    """None where the reward only compares, or no part of it applies."""
    parts: Mapping[str, float] = {}
    """Values of the parts of the reward that apply to the prompt, those of weight 0 included."""
    length: int = 0
    """Characters."""
    repetition: float = 0.0
    """Share of its word trigrams that it has more than once, 0 to 1."""


class ProbeScorer:
    """Scores the samples of a measurement with the reward as it is now.

    The parts of a reward that depend on more than query, answer and reference are left out. If none
    remains, or the reward is a folder of hooks, answers are compared with the baseline's. A judge
    that judges each answer by itself scores if `judges` allows it.

    Args:
        source: The source of rewards.
        limit: Time limit of the source for one group, in seconds.
        judges: Whether judges may be called, which costs at least a call for each answer.

    Attributes:
        mode: `absolute`, or `wins` for a reward that only compares.
        version: Version of the reward.
        left_out: Names of the parts that are left out, each with its reason.
        unweighted: Names of the parts of weight 0, which are scored in both modes.

    Raises:
        NoVerdict: No version of the reward scores now, or only a judge does without `judges`.
    """

    def __init__(self, source: RewardSource, limit: float, judges: bool = False) -> None:
        self._source = source
        self._limit = limit
        self._pointwise: Assembly | None = None
        self._beside: Assembly | None = None
        """The parts of weight 0, in mode `wins`."""
        self.left_out: tuple[str, ...] = ()
        self.unweighted: frozenset[str] = frozenset()
        if not source.version:
            error = source.health().error
            cause = error.cause if error is not None else "the rewards are still loading"
            raise NoVerdict(cause, source.name, "The look is taken once the rewards are loaded")
        if isinstance(source, ComposedSource):
            assert source.serving is not None
            active = source.serving.model.active
            self.unweighted = frozenset(
                part.name for part in active if not (part.counts or part.gate)
            )
            self._pointwise, left_out = source.serving.pointwise(judges)
            if self._pointwise is not None:
                self.left_out = tuple(f"{name}: {reason}" for name, reason in left_out)
            elif not judges and any(part.kind == "judge" for part in active):
                raise NoVerdict(
                    "only a judge scores, and a look would call it once for each answer",
                    source.name,
                    "Set `probe.judges: true` to allow that, or add another part",
                )
            else:
                self._beside = source.serving.unweighted()
        self.mode: Literal["absolute", "wins"] = "absolute" if self._pointwise else "wins"
        self.version = self._pointwise.version if self._pointwise else source.version
        if not self.version:
            raise NoVerdict(
                "a judge cannot score now", source.name, "The look is taken once it answers"
            )

    async def score(self, prompt: ProbePrompt, samples: Sequence[Sample]) -> list[ScoredSample]:
        """Return the samples of one prompt with their scores; without rewards in mode `wins`.

        Raises:
            NoVerdict: The reward abstains, or its version changed.
        """
        assembly = self._pointwise or self._beside
        if assembly is None:
            return [_scored(sample, None, {}) for sample in samples]
        return await run_all(*(self._scored(assembly, prompt, sample) for sample in samples))

    async def _scored(
        self, assembly: Assembly, prompt: ProbePrompt, sample: Sample
    ) -> ScoredSample:
        """Return a sample with its score as a group of one answer.

        Raises:
            NoVerdict: The reward abstains for another reason than that no part applies.
        """
        result, version = await assembly.score(assembly.part_input(_context(prompt, [sample])))
        if not isinstance(result, Abstention):
            (score,) = result
            parts = {
                part.name: part.value
                for part in score.parts
                if part.weight or part.name in self.unweighted
            }
            reward = score.reward if self._pointwise is not None else None
        elif result.inapplicable:
            reward, parts = None, {}
        else:
            raise NoVerdict(f"{result.part}: {result.cause}", f"prompt {prompt.id}")
        if self._pointwise is not None:
            self._check_version(version, prompt)
        return _scored(sample, reward, parts)

    def _check_version(self, version: str, prompt: ProbePrompt) -> None:
        if version != self.version:
            raise NoVerdict(
                "the reward changed during the look",
                f"prompt {prompt.id}",
                "The next look is scored by the new reward",
            )

    async def compare(
        self, prompt: ProbePrompt, pairs: Sequence[tuple[str, Sample]]
    ) -> list[float]:
        """Return the result of each current answer against one of the baseline.

        Args:
            prompt: The prompt.
            pairs: Text of the baseline's answer, and the current answer.

        Returns:
            1 if the current answer has the higher reward, 0 if the lower, 0.5 if they are equal.

        Raises:
            NoVerdict: The reward abstains, or its version changed.
        """
        wins = []
        for place, (text, now) in enumerate(pairs):
            first = place % 2  # which of both is first alternates: a judge may prefer a position
            before = Sample(message={"role": "assistant", "content": text}, finish_reason="stop")
            group = _context(prompt, [now, before] if first == 0 else [before, now])
            sheet = await request_scores(self._source, group, self._limit)
            self._check_version(self._source.version, prompt)
            if isinstance(sheet, Abstention):
                raise NoVerdict(f"{sheet.part}: {sheet.cause}", f"prompt {prompt.id}")
            rewards = {score.index: score.reward for score in sheet.scores}
            wins.append(result_of(rewards[1 - first], rewards[first]))
        return wins


def _context(prompt: ProbePrompt, samples: Sequence[Sample]) -> GroupContext:
    return GroupContext(
        group_id=f"probe-{prompt.id}",
        request_id=f"probe-{prompt.id}",
        task_id=f"probe-{prompt.id}",
        query=prompt.prompt,
        messages=messages_of(prompt),
        metadata={"probe": prompt.id},
        reference=prompt.reference or None,
        answers=tuple(
            Answer(
                index=index,
                message=sample.message,
                finish_reason=sample.finish_reason,
                episode_uuid="",
                seconds=sample.seconds,
                completion={},
            )
            for index, sample in enumerate(samples)
        ),
    )


def answer_of(scored: ScoredSample) -> Sample:
    """Return a stored answer as a sample, to score it again."""
    message = {"role": "assistant", "content": scored.text}
    return Sample(message=message, finish_reason=scored.finish_reason)


def messages_of(prompt: ProbePrompt) -> list[dict[str, Any]]:
    """Return the messages that put a probe prompt to the policy."""
    return [*prompt.before, {"role": "user", "content": prompt.prompt}]


def _scored(sample: Sample, reward: float | None, parts: Mapping[str, float]) -> ScoredSample:
    reading = read(_context(ProbePrompt(id="", prompt=""), [sample]).answers[0])
    trigrams = max(0, len(reading.words) - 2)
    repeated = 1.0 - len(reading.grams) / trigrams if trigrams > 0 else 0.0
    return ScoredSample(
        text=sample.text,
        finish_reason=sample.finish_reason,
        reward=reward,
        parts=parts,
        length=len(sample.text),
        repetition=max(0.0, repeated),
    )
