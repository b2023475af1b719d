"""Token steps on an NVIDIA card as recorded CUDA graphs.

A token step of a model launches hundreds of small kernels; recorded once and replayed, their
launches cost a tenth. A graph needs fixed shapes and addresses, so that keys and values stand in
one block: all rows end at the same place, `end`, and begin at their own.

All graphs share one memory pool, and write their logits into one buffer outside of it. That is safe
because no graph reads what another one left in the pool.
"""

import logging
from collections.abc import Sequence
from typing import Any

import torch

from engine.torch.memory import WINDOW
from engine.torch.sampling.attention import NAME
from engine.torch.sampling.batch import prefill, with_cache

log = logging.getLogger(__name__)

_ROWS = (1, 4, 8, 16, 32, 64, 128, 256)
"""Numbers of rows for which graphs are recorded."""


def usable(model: Any) -> bool:
    """Return whether each layer of a model reads all earlier tokens through our attention."""
    config = model.config
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    return (
        kinds == {"full_attention"}
        and config._attn_implementation == NAME
        and not getattr(config, "sliding_window", None)
    )


class _Window:
    """The first places of the block as a cache of transformers, for one token of each row."""

    def __init__(self, block: Any, rows: int, width: int, place: Any) -> None:
        self._keys = block[:, 0, :rows, :, :width]
        self._values = block[:, 1, :rows, :, :width]
        self._place = place

    def update(self, keys: Any, values: Any, layer: int, *_: Any, **__: Any) -> tuple[Any, Any]:
        """Write the token's keys and values at the common place; return all of the layer."""
        self._keys[layer].index_copy_(2, self._place, keys)
        self._values[layer].index_copy_(2, self._place, values)
        return self._keys[layer], self._values[layer]

    def get_seq_length(self, *_: Any) -> int:
        """Return 0: positions and mask are given with each call."""
        return 0


class GraphBatch:
    """`RowBatch` in one block of memory.

    Args:
        model: In evaluation mode; see `usable`.
        slots: Maximum number of rows.
        context: Maximum number of tokens of a row.
        graphs: Recorded graphs that are kept; 0 runs each step anew, for other devices.
    """

    def __init__(self, model: Any, slots: int, context: int, graphs: int) -> None:
        self._model, self._slots, self._context, self._most = model, slots, context, graphs
        self._device = next(model.parameters()).device
        self._dtype = next(model.parameters()).dtype
        self._block: Any = None
        """(layers, keys or values, slots, groups, places, size)."""
        self._starts: list[int] = []
        self._end = 0
        self._logits: Any = None
        self._out: Any = None
        """Logits of the last step, (slots, vocab)."""
        self._place = torch.zeros(1, dtype=torch.long, device=self._device)
        self._tokens = torch.zeros(slots, dtype=torch.long, device=self._device)
        self._begins = torch.zeros(slots, dtype=torch.long, device=self._device)
        self._graphs: dict[tuple[int, int], Any] = {}
        """Recorded steps by rows and places, the last used one at the end."""
        self._pool: Any = None

    @property
    def logits(self) -> Any:
        """Logits of each row's next token."""
        return self._logits

    def join(self, prompt: Sequence[int], count: int) -> None:
        """Add rows at the common end."""
        cache, logits = prefill(self._model, prompt, self._device)
        length, rows = len(prompt), len(self._starts)
        self._make_room_before(length)
        if self._out is None:
            self._out = logits.new_zeros((self._slots, logits.shape[1]))
        for number, layer in enumerate(cache.layers):
            target = self._block[number, :, rows : rows + count, :, self._end - length : self._end]
            target[0].copy_(layer.keys.expand(count, -1, -1, -1))
            target[1].copy_(layer.values.expand(count, -1, -1, -1))
        self._starts += [self._end - length] * count
        logits = logits.repeat(count, 1)
        self._logits = logits if self._logits is None else torch.cat([self._logits, logits])

    def keep(self, index: Sequence[int]) -> None:
        """Keep rows: a row moves only into the place of one that left."""
        for place, row in enumerate(index):
            if place != row:
                start = self._starts[row]
                self._block[:, :, place, :, start : self._end].copy_(
                    self._block[:, :, row, :, start : self._end]
                )
        self._starts = [self._starts[row] for row in index]
        self._logits = self._logits[torch.tensor(index, device=self._device)]

    def decode(self, tokens: Sequence[int]) -> None:
        """Compute the logits after one more token of each row."""
        self._make_room_after()
        rows = len(tokens)
        width = min(self._block.shape[4], -(-(self._end + 1) // WINDOW) * WINDOW)
        spare = self._slots - rows
        # A row without an answer reads its own new token only.
        begins = [*self._starts, *[self._end] * spare]
        self._tokens[: self._slots].copy_(torch.tensor([*tokens, *[0] * spare]), non_blocking=True)
        self._begins[: self._slots].copy_(torch.tensor(begins), non_blocking=True)
        self._place.fill_(self._end)
        self._run(self._padded(rows), width)
        self._logits = self._out[:rows]
        self._end += 1

    def clear(self) -> None:
        """Drop all rows; the block and the graphs stay."""
        self._starts, self._end, self._logits = [], 0, None

    def release(self) -> None:
        """Free the block and the graphs."""
        self.clear()
        self._graphs.clear()
        self._block = self._out = None
        if self._most:
            torch.cuda.empty_cache()

    def resize(self, slots: int) -> None:
        """Free the block and the graphs; the next block has `slots` rows."""
        self.release()
        self._slots = slots

    def _used(self) -> tuple[int, int, int]:
        """Return the first used place, the number of used ones, and that of all."""
        first = min(self._starts, default=self._end)
        return first, self._end - first, 0 if self._block is None else self._block.shape[4]

    def _make_room_before(self, length: int) -> None:
        """Make places for a prompt before the end."""
        first, used, places = self._used()
        if length <= self._end:
            return
        if length > places:
            self._grow(length)
        self._move(first, used, length - used)

    def _make_room_after(self) -> None:
        """Make a place for a token after the end."""
        first, used, places = self._used()
        if self._end < places:
            return
        if used + 1 > places:
            self._grow(used + 1)
        self._move(first, used, 0)

    def _move(self, first: int, used: int, target: int) -> None:
        """Move what is written to another place."""
        if used and target != first:
            part = self._block[:, :, : len(self._starts), :, first : first + used].clone()
            self._block[:, :, : len(self._starts), :, target : target + used] = part
        self._starts = [start + target - first for start in self._starts]
        self._end = target + used

    def _grow(self, needed: int) -> None:
        config = self._model.config
        heads = config.num_attention_heads
        size = getattr(config, "head_dim", None) or config.hidden_size // heads
        groups = getattr(config, "num_key_value_heads", None) or heads
        before = self._block
        places = 0 if before is None else before.shape[4]
        most = -(-(self._context + 1) // WINDOW) * WINDOW
        length = min(most, max(-(-(needed + 1) // WINDOW) * WINDOW, 2 * places))
        self._graphs.clear()  # they hold the old addresses
        shape = (config.num_hidden_layers, 2, self._slots, groups, length, size)
        block = torch.zeros(shape, dtype=self._dtype, device=self._device)
        if before is not None:
            block[:, :, :, :, : before.shape[4]] = before
        self._block = block

    def _padded(self, rows: int) -> int:
        """Return the number of rows of the step that computes `rows`."""
        return min(self._slots, next(size for size in _ROWS if size >= rows))

    def _run(self, rows: int, width: int) -> None:
        """Compute the logits of a step into the buffer."""
        if self._most:
            self._graph(rows, width).replay()
        else:
            self._step(rows, width)

    def _graph(self, rows: int, width: int) -> Any:
        """Return a recorded step, which may replace the one that was not used for longest."""
        if not self._graphs:  # a pool without graphs cannot be used again
            self._pool = torch.cuda.graph_pool_handle()
            largest = self._padded(self._slots), self._block.shape[4]
            self._graphs[largest] = self._recorded(*largest)  # its memory has room for all others
        graph = self._graphs.pop((rows, width), None) or self._recorded(rows, width)
        self._graphs[rows, width] = graph
        if len(self._graphs) > self._most:
            del self._graphs[next(iter(self._graphs))]
        return graph

    def _recorded(self, rows: int, width: int) -> Any:
        """Record a step. It writes the same keys each time it runs, so repetitions do no harm."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(2):
                self._step(rows, width)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            self._step(rows, width)
        return graph

    def _step(self, rows: int, width: int) -> None:
        begins = self._begins[:rows, None]
        places = torch.arange(width, device=self._device)
        mask = (places >= begins) & (places <= self._place)
        result = self._model(
            input_ids=self._tokens[:rows, None],
            attention_mask=mask[:, None, None],
            position_ids=self._place - begins,
            **with_cache(self._model, _Window(self._block, rows, width, self._place)),
        )
        self._out[:rows].copy_(result.logits[:, -1])
