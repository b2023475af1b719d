"""What the first trained block of a partly frozen network reads, kept from sampling for training.

The blocks before it never change, so that what they came to when a token was drawn is what they
would come to in the update: they are not gone through a second time.
"""

from collections import OrderedDict
from collections.abc import Sequence

import numpy as np

from engine.training.model import Array, Params, frozen_forward
from engine.training.packing import Sample, Shard

MAX_BYTES = 192 << 20
"""About 85,000 tokens of 576 numbers."""


class FrozenPrefixCache:
    """Rows of the newest sequences, by their ids; one thread writes, others read in between.

    Args:
        most: Bytes to keep; the sequences that were kept first go first.
    """

    def __init__(self, most: int = MAX_BYTES) -> None:
        self._most, self._bytes = most, 0
        self._kept: OrderedDict[tuple[int, ...], Array] = OrderedDict()

    def keep(self, ids: tuple[int, ...], rows: Array) -> None:
        """Keep what was read at each position of a sequence but the last."""
        self._forget(ids)
        self._kept[ids] = rows
        self._bytes += rows.nbytes
        while self._bytes > self._most:
            self._forget(next(iter(self._kept)))

    def rows(self, params: Params, shard: Shard, samples: Sequence[Sample]) -> Array:
        """What the first trained block reads of a shard (rows * length, width).

        Where it is not known it is computed; where nothing is predicted it may be zeros.
        """
        count, length = shard.tokens.shape
        made = np.zeros((count, length, params.config.width), params.flat.dtype)
        missing = []
        for row, item in enumerate(shard.samples):
            known = self._kept.get(tuple(samples[item].ids))
            if known is None:
                missing.append(row)
            else:
                made[row, : len(known)] = known
        if missing:
            made[missing] = frozen_forward(params, shard.tokens[missing]).reshape(
                len(missing), length, -1
            )
        return made.reshape(count * length, -1)

    def _forget(self, ids: tuple[int, ...]) -> None:
        rows = self._kept.pop(ids, None)
        if rows is not None:
            self._bytes -= rows.nbytes
