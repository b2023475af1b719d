"""Packing of sequences of different lengths into shards of similar lengths, for training and
scoring."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from engine.tokenizer import END
from engine.training.model import Array

MAX_TOKENS = 512
MAX_SCORES = 270_000
"""Bound of rows x length x length, the attention memory of a shard."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One sequence and which of its ids are predicted."""

    ids: Sequence[int]
    learn: Sequence[bool]


@dataclass(frozen=True, slots=True)
class Shard:
    """Right-padded rows that pass through the network together."""

    tokens: Array
    """(rows, length) ids."""
    where: Array
    """Flat positions whose next id is predicted."""
    targets: Array
    """The predicted ids."""
    index: Array
    """Position of each target in the batch: in the order of samples, then of their targets."""

    @property
    def cost(self) -> float:
        """Relative compute time."""
        rows, length = self.tokens.shape
        return float(rows * length * (1.0 + length / 700) + 0.5 * len(self.targets))


def pack(samples: Sequence[Sample], limit: int = MAX_TOKENS) -> tuple[list[Shard], int]:
    """Sort samples by length and cut them into shards.

    Args:
        samples: In any order.
        limit: Maximum ids of a shard, padding included; a longer sample is a shard of its own.

    Returns:
        The shards and the total number of targets.
    """
    targets = [np.flatnonzero(np.asarray(sample.learn[1:], bool)) for sample in samples]
    starts = np.concatenate([[0], np.cumsum([len(positions) for positions in targets])]).astype(
        np.int64
    )
    shards: list[Shard] = []
    group: list[int] = []
    for item in sorted(range(len(samples)), key=lambda i: (-len(samples[i].ids), i)):
        if not len(targets[item]):
            continue
        if group and not _fits(len(group) + 1, len(samples[group[0]].ids), limit):
            shards.append(_shard(samples, targets, starts, group))
            group = []
        group.append(item)
    if group:
        shards.append(_shard(samples, targets, starts, group))
    return shards, int(starts[-1])


def _fits(rows: int, length: int, limit: int) -> bool:
    return rows * length <= limit and rows * length * length <= MAX_SCORES


def _shard(
    samples: Sequence[Sample], targets: Sequence[Array], starts: Array, group: Sequence[int]
) -> Shard:
    length = len(samples[group[0]].ids)
    tokens = np.full((len(group), length), END, np.int64)
    where, expected, index = [], [], []
    for row, item in enumerate(group):
        ids = np.asarray(samples[item].ids, np.int64)
        tokens[row, : len(ids)] = ids
        positions = targets[item]
        where.append(positions + row * length)
        expected.append(ids[positions + 1])
        index.append(starts[item] + np.arange(len(positions)))
    return Shard(tokens, np.concatenate(where), np.concatenate(expected), np.concatenate(index))
