"""Estimates of the memory that a model needs, made before it is loaded; without torch.

The figures for activations were calibrated by `python -m bench.own_gpu memory`.
"""

from dataclasses import dataclass

from ajet_swarm.common.errors import AjetError
from engine.torch.options import DEFAULT_SLOTS

LOGIT_BYTES, LOGIT_BYTES_CPU = 1 << 30, 1 << 28
"""Memory for the logits of a part of the targets in an update."""
BYTES_PER_LOGIT = 16
"""Logit, log-prob, probability and their product, in float32."""
MOST_IDS, MOST_IDS_CPU = 65_536, 512
"""Maximum number of padded ids of a micro-batch of several samples; a processor is not faster with
more."""
_SPARE = 0.08
"""Share of the free memory left to fragmentation."""
RUNTIME = 600_000_000
"""Bytes of CUDA's context and libraries on a card."""
_GROWTH = 1.5
"""The block of keys and values grows by a copy: the old one has half the size of the new one."""
_FEWEST_SLOTS = 4
_MOST_SNAPSHOT_ROWS = 4
"""Rows at full length for the answers of a snapshot, where there is memory; those to a prompt of a
look are usually short, so that one row is enough for several."""


class OutOfSpaceError(AjetError):
    """The model does not fit into the memory."""


@dataclass(frozen=True, slots=True)
class ModelSizes:
    """Numbers of a model that its memory depends on."""

    params: int
    trained: int
    layers: int
    hidden: int
    inner: int
    """Width of the feed-forward layers."""
    groups: int
    """Heads of the keys and values."""
    head: int
    """Width of a head."""
    vocab: int
    context: int
    """Window in tokens."""
    width: int
    """Bytes of a number in the type that the model computes in."""
    full: bool
    """All weights are trained; the reference stands in the memory of the processor."""


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """How the memory is used; all sizes in bytes."""

    weights: int
    optimizer: int
    """Gradients, float32 parameters and Adam's means of what is trained, and with LoRA the weights
    of a snapshot."""
    cache: int
    """Keys and values of all slots at full length."""
    snapshots: int
    """Keys and values of the answers of a snapshot; 0 when none is taken."""
    snapshot_ids: int
    """Ids, of prompt and answer, of all answers of a snapshot that are sampled at the same time."""
    activations: int
    """Of one micro-batch, with the logits."""
    logits: int
    """Of the part of the targets that is scored at once."""
    slots: int
    """Answers sampled at the same time."""
    budget: int
    """Padded ids of a micro-batch; a longer sample is one by itself."""
    checkpointing: bool
    """An update computes activations again instead of storing them."""
    shared: bool
    """Sampling and updates use the same memory: the cache is freed before an update."""
    available: int

    @property
    def total(self) -> int:
        """Estimated peak."""
        cache = self.cache + self.snapshots
        work = max(cache, self.activations) if self.shared else cache + self.activations
        return self.weights + self.optimizer + work


def row_bytes(sizes: ModelSizes) -> int:
    """Return the bytes of the keys and values of one row at full length."""
    per_token = 2 * sizes.layers * sizes.groups * sizes.head * sizes.width
    return int(per_token * sizes.context * _GROWTH)


def id_bytes(sizes: ModelSizes, *, checkpointing: bool) -> int:
    """Return the bytes that an update needs for one id of a micro-batch.

    Args:
        sizes: Of the model.
        checkpointing: Store the input of each layer only.
    """
    hidden, inner = sizes.hidden, sizes.inner
    layer = 8 * hidden + 4 * inner + 5 * sizes.groups * sizes.head
    ends = 2 * hidden  # states before the targets, and the gradient by them
    layers = sizes.layers * hidden + layer if checkpointing else sizes.layers * layer
    return (layers + ends) * sizes.width


def plan(sizes: ModelSizes, free: int, most: int | None = None, *, card: bool = True) -> MemoryPlan:
    """Divide the memory.

    Args:
        sizes: Of the model.
        free: Free bytes of the device.
        most: Bytes to use at most.
        card: The device is a graphics card, not the processor.

    Raises:
        OutOfSpaceError: it does not fit; says by how much, and what would make it fit.
    """
    weights = sizes.params * sizes.width + RUNTIME
    optimizer = sizes.trained * (16 + (1 if sizes.full else 2) * sizes.width)
    limit = free if most is None else min(free, most)
    available = int(limit * (1 - _SPARE)) - weights - optimizer
    most_logits = LOGIT_BYTES if card else LOGIT_BYTES_CPU
    logits = min(most_logits, sizes.context * sizes.vocab * BYTES_PER_LOGIT)
    row = row_bytes(sizes)
    least = max(_FEWEST_SLOTS * row, sizes.context * id_bytes(sizes, checkpointing=True) + logits)
    if available < least:
        needed = (weights + optimizer + least) / (1 - _SPARE)
        raise OutOfSpaceError(
            f"The model needs {_gb(needed)} GB at least (weights "
            f"{_gb(weights)}, training {_gb(optimizer)}, a sample and {_FEWEST_SLOTS} answers of "
            f"{sizes.context} tokens {_gb(least)}), and {_gb(limit)} GB are there",
            todo=_advice(sizes, most is not None),
        )
    plain = id_bytes(sizes, checkpointing=False)
    rows = available // row
    copied = 0 if sizes.full else max(1, min(rows - DEFAULT_SLOTS, _MOST_SNAPSHOT_ROWS))
    slots = min(DEFAULT_SLOTS, rows - copied)
    cache, snapshots = slots * row, copied * row
    for shared in (False, True):
        room = available - logits - (0 if shared else cache + snapshots)
        checkpointing = room < 2 * sizes.context * plain
        each = id_bytes(sizes, checkpointing=checkpointing)
        if room >= (1 if shared else 4) * sizes.context * each:
            break
    budget = min(MOST_IDS if card else MOST_IDS_CPU, room // each)
    return MemoryPlan(
        weights=weights,
        optimizer=optimizer,
        cache=cache,
        snapshots=snapshots,
        snapshot_ids=copied * sizes.context,
        activations=max(budget, sizes.context) * each + logits,
        logits=logits,
        slots=slots,
        budget=budget,
        checkpointing=checkpointing,
        shared=shared,
        available=available,
    )


def _advice(sizes: ModelSizes, bounded: bool) -> str:
    ways = []
    if bounded:
        ways.append("a larger --max-memory")
    if sizes.context > 512:
        ways.append(f"--context {max(512, sizes.context // 4)}")
    if sizes.full:
        ways.append("LoRA instead of --full")
    if sizes.width == 4:
        ways.append("--dtype bfloat16")
    return f"Give {', '.join(ways)}, or use a smaller model" if ways else "Use a smaller model"


def _gb(size: float) -> str:
    return f"{size / 1e9:.1f}"
