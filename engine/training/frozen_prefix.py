"""Cache of the first trained block's input in a partly frozen network, from sampling to training.

The blocks before it never change: their output for a sampled token equals their output in the
update, so it is computed once.
"""

from collections import OrderedDict
from collections.abc import Sequence

import numpy as np

from engine.training.model import Array, Params, frozen_forward
from engine.training.packing import Sample, Shard

MAX_BYTES = 192 << 20
"""About 85,000 tokens of 576 numbers."""


class FrozenPrefixCache:
    """Rows of the newest sequences, by their ids; one thread writes, others read at other times.

    Args:
        max_bytes: Bound in bytes; the oldest sequences are evicted first.
    """

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes, self._bytes = max_bytes, 0
        self._rows: OrderedDict[tuple[int, ...], Array] = OrderedDict()

    def keep(self, ids: tuple[int, ...], rows: Array) -> None:
        """Store the input at each position of a sequence except the last."""
        self._evict(ids)
        self._rows[ids] = rows
        self._bytes += rows.nbytes
        while self._bytes > self._max_bytes:
            self._evict(next(iter(self._rows)))

    def rows(self, params: Params, shard: Shard, samples: Sequence[Sample]) -> Array:
        """Return the first trained block's input for a shard (rows * length, width).

        Missing sequences are computed; positions without a target may be zeros.
        """
        count, length = shard.tokens.shape
        result = np.zeros((count, length, params.config.width), params.flat.dtype)
        missing = []
        for row, item in enumerate(shard.samples):
            cached = self._rows.get(tuple(samples[item].ids))
            if cached is None:
                missing.append(row)
            else:
                result[row, : len(cached)] = cached
        if missing:
            result[missing] = frozen_forward(params, shard.tokens[missing]).reshape(
                len(missing), length, -1
            )
        return result.reshape(count * length, -1)

    def _evict(self, ids: tuple[int, ...]) -> None:
        rows = self._rows.pop(ids, None)
        if rows is not None:
            self._bytes -= rows.nbytes
