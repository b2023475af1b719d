"""The model of rewards: which parts there are and what each weighs where it applies."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from core.scoring.advantage import REWARD_LIMIT, RewardError, usable
from proxy.rewards.part import PartValue
from proxy.rewards.source import Part, Score

RECENT = 50
"""Winners that parts which look back compare with."""


class PartSpec(msgspec.Struct, frozen=True):
    """One part as the model has it."""

    name: str
    kind: str
    weight: float = 1.0
    share: float | None = None
    """Of a part that applies now and then: where it does, this share of the whole is its own, and
    the weights divide what is left."""
    gate: bool = False
    """A factor of the whole instead of a summand; its weight counts for nothing."""
    enabled: bool = True
    settings: Mapping[str, Any] = {}
    line: int = 0
    """Where the file has it, from 1; 0 for none."""
    lines: Mapping[str, int] = {}
    """Where the file has its settings."""

    @property
    def counts(self) -> bool:
        """Whether rewards can differ by it alone."""
        return self.enabled and not self.gate and bool(self.weight or self.share)


class Model(msgspec.Struct, frozen=True):
    """All parts, in the order in which they are shown."""

    parts: tuple[PartSpec, ...]
    recent: int = RECENT
    file: Path | None = None
    """Where it was read; None for the built-in one."""

    def named(self, name: str) -> PartSpec | None:
        """The part of that name."""
        return next((part for part in self.parts if part.name == name), None)

    @property
    def active(self) -> tuple[PartSpec, ...]:
        """The parts that are enabled."""
        return tuple(part for part in self.parts if part.enabled)


class NothingApplies(Exception):
    """No part with a weight applies to an answer."""


Head = tuple[str, float, bool]
"""Name, weight and gate of a part where it applies."""
Column = Sequence[PartValue | None] | None
"""What one part says of each answer; None when it does not apply to the group."""


class Weigher:
    """Makes rewards of what the parts say; all of the arithmetic that a model is."""

    def __init__(self, specs: Sequence[PartSpec]) -> None:
        """Args:
        specs: The parts that are enabled, in order.
        """
        self._specs = tuple(specs)
        self._heads: dict[tuple[bool, ...], tuple[Head, ...]] = {}

    def scores(self, indices: Sequence[int], columns: Sequence[Column]) -> tuple[Score, ...]:
        """The rewards of a group, with their parts.

        Args:
            indices: Of the candidates, in the order of the answers.
            columns: What each part says, in the order of the specs.

        Raises:
            NothingApplies: there is nothing to make the reward of an answer of; says which.
            RewardError: a value, or a result, is no usable number; names the part.
        """
        applies = tuple([column is not None for column in columns])
        there = [column for column in columns if column is not None]
        heads = self._of(applies, 0)
        scores = []
        for place, row in enumerate(zip(*there, strict=True)):
            parts = _parts(heads, row)
            if parts is None:
                parts = self._some(columns, place)
            reward = combine(parts)
            if 1.0 < reward < 1.000001:  # the rounding of weights that sum to one
                reward = 1.0
            scores.append(Score(indices[place], reward, tuple(parts)))
        return tuple(scores)

    def _some(self, columns: Sequence[Column], place: int) -> list[Part]:
        """The parts of an answer to which not all apply that apply to its group."""
        row = [column[place] if column is not None else None for column in columns]
        heads = self._of(tuple([one is not None for one in row]), place)
        parts = _parts(heads, [one for one in row if one is not None])
        assert parts is not None
        return parts

    def _of(self, applies: tuple[bool, ...], place: int) -> tuple[Head, ...]:
        heads = self._heads.get(applies)
        if heads is None:
            self._heads[applies] = heads = self._weigh(applies, place)
        return heads

    def _weigh(self, applies: tuple[bool, ...], place: int) -> tuple[Head, ...]:
        """The heads of the parts that apply.

        A positive weight that does not apply is shared by the others in proportion; a share is
        taken of the whole before; negative weights, which punish, stay what they are.
        """
        here = [spec for spec, good in zip(self._specs, applies, strict=True) if good]
        summands = [spec for spec in here if not spec.gate]
        if not any(spec.counts for spec in summands):
            raise NothingApplies(f"no part with a weight applies to answer {place + 1}")
        rest = 1.0
        taken: dict[str, float] = {}
        for spec in summands:
            if spec.share is not None:
                taken[spec.name] = rest * spec.share
                rest *= 1.0 - spec.share
        whole = _positive(spec for spec in self._specs if not spec.gate)
        found = _positive(summands)
        if not found and rest < 1.0:  # the shares alone make the whole
            taken = {name: share / (1.0 - rest) for name, share in taken.items()}
        weights = dict.fromkeys((spec.name for spec in here), 1.0)
        for spec in summands:
            if spec.share is not None:
                weights[spec.name] = taken[spec.name] * (whole or 1.0)
            elif spec.weight > 0:
                weights[spec.name] = rest * spec.weight * (whole / found)
            else:
                weights[spec.name] = rest * spec.weight
        return tuple((spec.name, weights[spec.name], spec.gate) for spec in here)


def _parts(heads: Sequence[Head], row: Sequence[PartValue | None]) -> list[Part] | None:
    """The parts of one answer; None when one of them does not apply to it."""
    parts = []
    for (name, weight, gate), one in zip(heads, row, strict=True):
        if one is None:
            return None
        parts.append(Part(name, one.value, weight, gate, one.reason))
        if one.notes:
            parts += one.notes
    return parts


def _positive(specs: Iterable[PartSpec]) -> float:
    return float(sum(spec.weight for spec in specs if spec.share is None and spec.weight > 0))


LEAST = -REWARD_LIMIT


def combine(parts: Iterable[Part]) -> float:
    """Reward of one answer: product of its gates times the weighted sum of its other parts.

    Raises:
        RewardError: a part, or the result, is not a usable number; names the part.
    """
    gates, total = 1.0, 0.0
    for part in parts:
        value, weight = part.value, part.weight
        if not (LEAST <= value <= REWARD_LIMIT and LEAST <= weight <= REWARD_LIMIT):
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
