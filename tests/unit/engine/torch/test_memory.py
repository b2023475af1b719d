"""Estimates of a model's memory."""

from dataclasses import replace

import pytest

from engine.torch.memory import (
    GRAPHS,
    MOST_IDS,
    MOST_IDS_CPU,
    ModelSizes,
    OutOfSpaceError,
    check_host,
    host_bytes,
    id_bytes,
    plan,
    recording_bytes,
    row_bytes,
    step_bytes,
)

GB = 10**9
QWEN = ModelSizes(
    params=494_000_000,
    trained=8_800_000,
    layers=24,
    hidden=896,
    inner=4864,
    heads=14,
    groups=2,
    head=64,
    vocab=151_936,
    context=4096,
    width=2,
    full=False,
)
"""Qwen2.5-0.5B in bfloat16 with LoRA of rank 16."""


def test_a_large_card_has_all_slots_and_full_micro_batches() -> None:
    memory = plan(QWEN, 80 * GB)
    assert (memory.slots, memory.checkpointing, memory.shared) == (64, False, False)
    assert memory.budget > 4 * QWEN.context
    assert memory.total <= 80 * GB
    assert plan(QWEN, 10_000 * GB).budget == MOST_IDS


@pytest.mark.parametrize("free", [3.6, 4, 6, 8, 12, 16, 24])
def test_the_estimate_never_exceeds_what_is_free(free: float) -> None:
    memory = plan(QWEN, int(free * GB))
    assert memory.total <= free * GB
    assert memory.slots >= 4
    assert memory.activations >= QWEN.context * id_bytes(QWEN, checkpointing=memory.checkpointing)


def test_a_small_card_computes_activations_again_and_shares_its_memory() -> None:
    small = plan(QWEN, 36 * GB // 10)
    assert small.checkpointing
    assert small.shared
    cache = small.cache + small.snapshots
    assert small.total == small.weights + small.optimizer + max(cache, small.activations)


def test_the_answers_of_a_snapshot_have_memory_of_their_own() -> None:
    large, small = plan(QWEN, 80 * GB), plan(QWEN, 36 * GB // 10)
    assert large.snapshots == 4 * row_bytes(QWEN)
    assert large.snapshot_ids == 4 * QWEN.context
    assert small.snapshots == row_bytes(QWEN)
    assert small.snapshot_ids == QWEN.context, "any prompt can be answered"
    without = large.weights + large.optimizer + large.cache + large.recording + large.activations
    assert large.total == without + large.snapshots
    full = plan(replace(QWEN, trained=QWEN.params, full=True), 80 * GB)
    assert (full.snapshots, full.snapshot_ids) == (0, 0)


def test_the_bound_of_the_user_counts_as_the_memory() -> None:
    assert plan(QWEN, 80 * GB, 8 * GB) == plan(QWEN, 8 * GB)


def test_a_model_that_does_not_fit_is_refused_with_what_would_help() -> None:
    full = replace(QWEN, params=7_000_000_000, trained=7_000_000_000, width=4, full=True)
    with pytest.raises(OutOfSpaceError, match=r"needs \d+\.\d GB at least .* 8\.0 GB are") as error:
        plan(full, 24 * GB, 8 * GB)
    for way in ("--max-memory", "--context 1024", "LoRA", "--dtype bfloat16"):
        assert way in (error.value.todo or "")
    with pytest.raises(OutOfSpaceError) as error:
        plan(replace(QWEN, context=512), GB)
    assert error.value.todo == "Use a smaller model"


def test_a_processor_has_small_micro_batches_and_room_for_the_longest_sample() -> None:
    memory = plan(replace(QWEN, width=4), 32 * GB, device="cpu")
    assert memory.budget == MOST_IDS_CPU
    each = id_bytes(replace(QWEN, width=4), checkpointing=memory.checkpointing)
    assert memory.activations == QWEN.context * each + memory.logits
    assert memory.logits < plan(QWEN, 32 * GB).logits


def test_the_cache_of_a_row_grows_with_layers_heads_and_window() -> None:
    assert row_bytes(replace(QWEN, layers=48)) == 2 * row_bytes(QWEN)
    assert row_bytes(replace(QWEN, context=8192)) == 2 * row_bytes(QWEN)
    assert row_bytes(replace(QWEN, groups=4)) == 2 * row_bytes(QWEN)


def test_recorded_steps_have_a_pool_and_the_memory_of_the_driver() -> None:
    assert plan(QWEN, 80 * GB, device="mps").recording == 0
    memory = plan(QWEN, 80 * GB)
    assert memory.graphs == GRAPHS
    assert memory.recording == recording_bytes(QWEN, memory.slots, GRAPHS)
    cache = memory.cache + memory.snapshots
    working = memory.weights + memory.optimizer + cache + memory.activations
    assert memory.total == working + memory.recording
    both_logits = 2 * QWEN.vocab * QWEN.width + 4 * QWEN.vocab
    a_layer = 2 * QWEN.groups * QWEN.head * QWEN.width * QWEN.context
    assert step_bytes(QWEN) > both_logits + 2 * a_layer
    nodes = 100 * QWEN.layers * (GRAPHS + 1) << 16
    assert recording_bytes(QWEN, 0, GRAPHS) >= nodes


@pytest.mark.parametrize(
    ("free", "layers", "graphs"),
    [(3.6, 24, 1), (6, 24, 4), (12, 24, 8), (3.6, 200, 0), (5.2, 200, 1), (24, 200, 2)],
)
def test_fewer_steps_are_recorded_where_all_do_not_fit(
    free: float, layers: int, graphs: int
) -> None:
    sizes = replace(QWEN, layers=layers, context=512)
    memory = plan(sizes, int(free * GB))
    assert memory.total <= free * GB
    assert memory.slots >= 2
    assert memory.graphs == graphs
    assert bool(memory.recording) == bool(graphs)


def test_the_machine_keeps_the_reference_and_a_saved_state() -> None:
    full = replace(QWEN, trained=QWEN.params, full=True)
    assert host_bytes(full) == 20 * QWEN.params
    check_host(full, 20 * QWEN.params)
    with pytest.raises(OutOfSpaceError, match=r"--full needs 9\.9 GB .* 8\.0 GB are free.* LoRA"):
        check_host(full, 8 * GB)
    check_host(QWEN, 8 * GB)


@pytest.mark.parametrize("device", ["cpu", "mps"])
def test_where_the_device_shares_the_memory_of_the_machine_both_count(device: str) -> None:
    full = replace(QWEN, trained=QWEN.params, full=True)
    shared, card = plan(full, 64 * GB, device=device), plan(full, 64 * GB)
    assert shared.optimizer == card.optimizer + host_bytes(full)
    assert shared.total <= 64 * GB
