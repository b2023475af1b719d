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
_HOST_BYTES = 20
"""Bytes of the machine's memory for each trained parameter: 4 for the reference, 12 for a state
that is saved or resumed, and 4 while one of its arrays is copied."""
GRAPHS = 8
"""Maximum number of recorded token steps that are kept."""
WINDOW = 256
"""A recorded step reads a multiple of this many places."""
_LAUNCHES = 100
"""Kernels of a layer in a recorded step, at most: Qwen3 with LoRA has 79 operations."""
_LAUNCH_BYTES = 1 << 16
"""Memory of the driver for one recorded kernel, as reported for CUDA 11; later ones need less."""
_WORKSPACES = 4 << 25
"""Those of cuBLAS and cuBLASLt for the two streams of a recording: 32 MiB each on an H100."""


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
    heads: int
    """Heads of the queries."""
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
    graphs: int
    """Recorded token steps that are kept; 0 records none."""
    recording: int
    """Their memory: see `recording_bytes`."""
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
    """Sampling and updates use the same memory: cache and graphs are freed before an update."""
    available: int

    @property
    def total(self) -> int:
        """Estimated peak."""
        sampling = self.cache + self.snapshots + self.recording
        work = max(sampling, self.activations) if self.shared else sampling + self.activations
        return self.weights + self.optimizer + work


def row_bytes(sizes: ModelSizes) -> int:
    """Return the bytes of the keys and values of one row at full length."""
    per_token = 2 * sizes.layers * sizes.groups * sizes.head * sizes.width
    return int(per_token * sizes.context * _GROWTH)


def step_bytes(sizes: ModelSizes) -> int:
    """Return the bytes that recorded token steps need for one row, at most; not verified on a card.

    All graphs share one pool, which the largest step makes, recorded first. A step needs the states
    of one layer; its attention, where no fused kernel takes the mask: a copy of the keys and values
    of the layer, scores and probabilities of each head in float32, and the mask; and the logits in
    the model's type. This counts twice, because a step runs outside of the pool before it is
    recorded. The logits in float32 that the sampler reads are one buffer of all graphs.
    """
    heads, groups, head = sizes.heads, sizes.groups, sizes.head
    layer = 8 * sizes.hidden + 4 * sizes.inner + (4 * heads + 5 * groups) * head
    place = (2 * groups * head + 1) * sizes.width + 8 * heads + 1
    step = (layer + sizes.vocab) * sizes.width + place * (sizes.context + WINDOW)
    return 2 * step + 4 * sizes.vocab


def recording_bytes(sizes: ModelSizes, slots: int, graphs: int) -> int:
    """Return the bytes that recorded token steps need, at most: see `step_bytes`, and what the
    driver and cuBLAS need for them; 0 without graphs.

    Args:
        sizes: Of the model.
        slots: Rows of the largest step.
        graphs: Steps that are kept; one more is there while it is recorded.
    """
    if not graphs:
        return 0
    launches = _LAUNCHES * sizes.layers * (graphs + 1)
    return slots * step_bytes(sizes) + launches * _LAUNCH_BYTES + _WORKSPACES


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


def plan(
    sizes: ModelSizes,
    free: int,
    most: int | None = None,
    *,
    device: str = "cuda",
) -> MemoryPlan:
    """Divide the memory.

    Fewer token steps are recorded, or none, where that lets the model fit.

    Args:
        sizes: Of the model.
        free: Free bytes of the device.
        most: Bytes to use at most.
        device: Name of torch. Only cards of NVIDIA record token steps, and have a memory of their
            own: see `check_host`.

    Raises:
        OutOfSpaceError: it does not fit; says by how much, and what would make it fit.
    """
    weights = sizes.params * sizes.width + RUNTIME
    cuda, card = device.startswith("cuda"), device != "cpu"
    trained = 16 + (1 if sizes.full else 2) * sizes.width
    optimizer = sizes.trained * trained + (0 if cuda else host_bytes(sizes))
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
    recorded = _recorded_graphs(sizes, available) if cuda else 0
    each_row = row + (step_bytes(sizes) if recorded else 0)
    copied = 0 if sizes.full else 1
    left = available - recording_bytes(sizes, 0, recorded) - copied * row
    slots = min(DEFAULT_SLOTS, left // each_row)
    if copied:
        copied += min(_MOST_SNAPSHOT_ROWS - 1, (left - slots * each_row) // row)
    cache, snapshots, recording = slots * row, copied * row, recording_bytes(sizes, slots, recorded)
    for shared in (False, True):
        room = available - logits - (0 if shared else cache + snapshots + recording)
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
        graphs=recorded,
        recording=recording,
        activations=max(budget, sizes.context) * each + logits,
        logits=logits,
        slots=slots,
        budget=budget,
        checkpointing=checkpointing,
        shared=shared,
        available=available,
    )


def host_bytes(sizes: ModelSizes) -> int:
    """Return the bytes of the machine's memory that training needs beside the device's."""
    return _HOST_BYTES * sizes.trained


def check_host(sizes: ModelSizes, free: int) -> None:
    """Check that the machine's memory has room for the reference and a saved state.

    Args:
        sizes: Of the model.
        free: Free bytes of the machine.

    Raises:
        OutOfSpaceError: it has not; says by how much.
    """
    if host_bytes(sizes) > free:
        form = "--full" if sizes.full else "LoRA of this rank"
        ways = "Use LoRA instead of --full, a smaller model" if sizes.full else "Use a smaller rank"
        raise OutOfSpaceError(
            f"{form} needs {_gb(host_bytes(sizes))} GB of the machine's memory beside that of the "
            f"card (reference weights, saved states), and {_gb(free)} GB are free",
            todo=f"{ways}, or free memory of the machine",
        )


def _recorded_graphs(sizes: ModelSizes, available: int) -> int:
    """Return how many recorded steps to keep; 0 if they fit with two answers at a time neither.

    Several have a quarter of the memory at most: more answers at a time are worth more.
    """
    copied = 0 if sizes.full else 1
    for slots in (_FEWEST_SLOTS, _FEWEST_SLOTS // 2):
        rows, recorded = (slots + copied) * row_bytes(sizes), GRAPHS
        while recorded:
            recording = recording_bytes(sizes, slots, recorded)
            share = available if recorded == 1 else available // 4
            if recording <= min(share, available - rows):
                return recorded
            recorded //= 2
    return 0


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
