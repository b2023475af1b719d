"""The reward model: its parts, and the arithmetic that weighs their values."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from core.events import Part
from core.scoring.advantage import REWARD_LIMIT, RewardError, usable
from proxy.rewards.part import PartValues
from proxy.rewards.source import Score

_LOWEST = -REWARD_LIMIT
RECENT = 50
"""Number of recent winners that parts which look back compare with."""


class PartSpec(msgspec.Struct, frozen=True):
    """One part, with its entry in the model."""

    name: str
    kind: str
    weight: float = 1.0
    share: float | None = None
    """For a part that applies to some answers only: where it applies, it takes this share of the
    reward, and the weights divide the rest."""
    gate: bool = False
    """A factor of the reward instead of a summand; its weight is ignored."""
    enabled: bool = True
    settings: Mapping[str, Any] = {}
    line: int = 0
    """1-based line of the part in the file; 0 without a file."""
    lines: Mapping[str, int] = {}
    """1-based line of each setting in the file."""

    @property
    def counts(self) -> bool:
        """Whether rewards can differ by this part alone."""
        return self.enabled and not self.gate and bool(self.weight or self.share)


class RewardModel(msgspec.Struct, frozen=True):
    """All parts, in display order."""

    parts: tuple[PartSpec, ...]
    recent: int = RECENT
    file: Path | None = None
    """File that the model was read from; None for the built-in model."""

    def named(self, name: str) -> PartSpec | None:
        """Return the part of that name, or None."""
        return next((part for part in self.parts if part.name == name), None)

    @property
    def active(self) -> tuple[PartSpec, ...]:
        """The parts that are enabled."""
        return tuple(part for part in self.parts if part.enabled)


class NothingApplies(Exception):
    """No part with a weight applies to an answer."""


class Weigher:
    """Turns the values of the parts into rewards: all of a model's arithmetic."""

    def __init__(self, specs: Sequence[PartSpec]) -> None:
        """Args:
        specs: The enabled parts, in order.
        """
        self._specs = tuple(specs)
        self._weights: dict[tuple[bool, ...], list[float]] = {}
        """Weight of each part, by the set of parts that apply."""

    def scores(self, indices: Sequence[int], columns: Sequence[PartValues]) -> tuple[Score, ...]:
        """Return the rewards of a group, with their parts.

        Args:
            indices: Candidate index of each answer.
            columns: Values of each part, in the order of the specs.

        Raises:
            NothingApplies: no part with a weight applies to an answer; names the answer.
            RewardError: a value or a result is not a usable number; names the part.
        """
        scores = []
        blank = [None] * len(indices)
        rows = zip(*[blank if column is None else column for column in columns], strict=True)
        for place, (index, row) in enumerate(zip(indices, rows, strict=True)):
            applies = tuple([value is not None for value in row])
            weights = self._weights.get(applies)
            if weights is None:
                self._weights[applies] = weights = self._weigh(applies, place)
            parts: list[Part] = []
            for spec, weight, given in zip(self._specs, weights, row, strict=True):
                if given is not None:
                    part = Part(spec.name, given.value, weight, spec.gate, given.reason)
                    parts += (part, *given.notes)
            reward = combine(parts)
            if 1.0 < reward < 1.000001:  # the rounding of weights that sum to one
                reward = 1.0
            scores.append(Score(index, reward, tuple(parts)))
        return tuple(scores)

    def _weigh(self, applies: Sequence[bool], place: int) -> list[float]:
        """Return the weight of each part, of which some apply to an answer.

        Shares are taken from the whole first. The positive weights that apply divide the rest, in
        proportion, in place of those that do not. Negative weights, which are penalties, only
        shrink with the rest.
        """
        summands = [
            spec
            for spec, applying in zip(self._specs, applies, strict=True)
            if applying and not spec.gate
        ]
        if not any(spec.counts for spec in summands):
            raise NothingApplies(f"no part with a weight applies to answer {place + 1}")
        whole, applying = positive_sum(self._specs), positive_sum(summands)
        rest, weights = 1.0, {}
        for spec in summands:
            if spec.share is not None:
                weights[spec.name] = rest * spec.share * (whole or 1.0)
                rest *= 1.0 - spec.share
        if not applying and rest < 1.0:  # the shares alone make the whole
            weights = {name: weight / (1.0 - rest) for name, weight in weights.items()}
        for spec in summands:
            if spec.share is None:
                scale = whole / applying if spec.weight > 0 else 1.0
                weights[spec.name] = rest * spec.weight * scale
        return [weights.get(spec.name, 1.0) for spec in self._specs]


def positive_sum(specs: Iterable[PartSpec]) -> float:
    """Return the sum of the positive weights; gates and shares have none."""
    weighted = (spec for spec in specs if spec.share is None and not spec.gate)
    return float(sum(spec.weight for spec in weighted if spec.weight > 0))


def combine(parts: Iterable[Part]) -> float:
    """Return the reward of one answer: its gates times the weighted sum of its other parts.

    Raises:
        RewardError: a part or the result is not a usable number; names the part.
    """
    gates, total = 1.0, 0.0
    for part in parts:
        value, weight = part.value, part.weight
        if not (_LOWEST <= value <= REWARD_LIMIT and _LOWEST <= weight <= REWARD_LIMIT):
            raise RewardError(
                f"part {part.name} is {part.value} with weight {part.weight}",
                todo=f"Parts are finite numbers of at most {REWARD_LIMIT:g}",
            )
        if part.gate:
            gates *= value
        else:
            total += weight * value
    reward = gates * total
    if not usable(reward):
        raise RewardError(f"the parts combine to {reward}")
    return reward
