"""Saved states of a torch policy: resumed, described, damaged, of another model."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from engine.interface import CheckpointError, SaveError, WeightsError
from engine.storage.checkpoint_files import OtherBaseError, list_checkpoints
from engine.storage.safetensors import SafetensorsError, Tensor, pack, unpack
from engine.torch import description as descriptions
from engine.torch import store as stores
from engine.torch.description import ModelDescription
from engine.torch.store import TorchState, TorchStore
from tests.support.engine.full_disk import full_disk
from tests.unit.engine.torch.descriptions import FULL, LORA, PREFIX, described


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TorchStore]:
    """An open store."""
    store = TorchStore(tmp_path)
    yield store
    store.close()


def state_of(step: int, description: ModelDescription = LORA) -> TorchState:
    """A state whose numbers name its step."""
    flat = np.arange(description.size, dtype=np.float32) + step
    return TorchState(flat, -flat, 2 * flat, 3 * step, step)


@pytest.mark.parametrize("description", [LORA, FULL])
def test_a_saved_state_is_resumed_bit_for_bit(
    store: TorchStore, description: ModelDescription
) -> None:
    assert store.load(description) is None
    for step in (1, 2):
        store.save(state_of(step, description), description)
    result, wanted = store.load(description), state_of(2, description)
    assert result is not None
    assert (result.step, result.t) == (2, 6)
    for name in ("flat", "m", "v"):
        np.testing.assert_array_equal(getattr(result, name), getattr(wanted, name))
    result.flat += 1  # the loaded weights can be trained


def test_the_file_names_step_base_and_training_run(store: TorchStore) -> None:
    store.save(state_of(4), LORA)
    (entry,) = list_checkpoints(store.directory)
    assert (entry.name, entry.step, entry.base, entry.damaged) == ("latest", 4, LORA.base, False)
    _, metadata = unpack(stores.export(store.latest, LORA))
    assert metadata == {"format": "pt", "base": LORA.base, "step": "4", "run": store.run.id}


def test_an_opening_stores_the_description(store: TorchStore) -> None:
    store.load(LORA)
    assert descriptions.read(store.directory) == LORA
    moved = described(base_files="/elsewhere")
    store.save(state_of(1), moved)
    assert descriptions.read(store.directory) == moved


def test_a_single_damaged_state_is_an_error_that_names_the_last_good_one(store: TorchStore) -> None:
    store.save(state_of(1), LORA, "good")
    store.save(state_of(2), LORA)
    store.latest.write_bytes(b"x")
    with pytest.raises(WeightsError, match=r"damaged\.ckpt.*good \(global step 1.*--from good"):
        store.load(LORA)
    store.restore("good", LORA.base)
    result = store.load(LORA)
    assert result is not None
    assert result.step == 1


def test_another_model_is_refused_and_the_former_one_named(store: TorchStore) -> None:
    store.save(state_of(1), LORA)
    other = described(base="b" * 64, base_model="Qwen/Qwen3-4B", rank=8)
    with pytest.raises(OtherBaseError) as caught:
        store.load(other)
    assert "belongs to Qwen/Qwen3-0.6B (LoRA of rank 2)" in caught.value.todo
    assert "trains Qwen/Qwen3-4B (LoRA of rank 8)" in caught.value.todo
    assert "--reset" in caught.value.todo
    assert descriptions.read(store.directory) == LORA, "it describes what is saved"
    store.reset()
    assert store.load(other) is None
    assert descriptions.read(store.directory) == other


def test_a_state_of_another_size_is_refused(store: TorchStore) -> None:
    store.save(state_of(1), LORA)
    with pytest.raises(WeightsError, match="damaged"):
        store.load(described(layout=LORA.layout[:2]))
    with pytest.raises(ValueError, match="the layout has 20"):
        store.save(state_of(1, FULL), LORA)


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_full_disk_is_a_save_error(store: TorchStore, call: str) -> None:
    with full_disk(call), pytest.raises(SaveError, match=r"model\.json.*step 1 .*No space left"):
        store.save(state_of(1), LORA)
    store.save(state_of(1), LORA)
    with full_disk(call), pytest.raises(SaveError, match=r"latest\.ckpt.*step 2 .*No space left"):
        store.save(state_of(2), LORA)
    result = store.load(LORA)
    assert result is not None
    assert result.step == 1


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("description", [LORA, FULL])
def test_exported_weights_can_be_imported(
    store: TorchStore, description: ModelDescription, half: bool
) -> None:
    store.save(state_of(7, description), description, "seven")
    data = stores.export(store.path("seven"), description, half)
    tensors, _ = unpack(data)
    assert {name: tensor.shape for name, tensor in tensors.items()} == dict(description.layout)
    assert {tensor.dtype for tensor in tensors.values()} == {"F16" if half else "F32"}
    assert store.import_weights("back", data, description) == 7
    store.restore("back", description.base)
    result = store.load(description)
    assert result is not None
    np.testing.assert_array_equal(result.flat, state_of(7, description).flat)
    assert (result.t, result.m.any(), result.v.any()) == (0, False, False)


def test_a_number_beyond_float16_is_refused(store: TorchStore) -> None:
    state = state_of(1)
    state.flat[3] = 1e6
    store.save(state, LORA)
    with pytest.raises(CheckpointError, match=r"q_proj\.lora_A.*too large for float16.*--half"):
        stores.export(store.latest, LORA, half=True)


def test_weights_that_do_not_fit_are_refused_with_their_field(store: TorchStore) -> None:
    store.save(state_of(1), LORA)
    tensors, metadata = unpack(stores.export(store.latest, LORA))
    name = f"{PREFIX}q_proj.lora_A.weight"
    tensors[name] = Tensor("F32", (3, 2), tensors[name].data)
    for data, field in (
        (pack(tensors, metadata), f"{name}.shape"),
        (stores.export(store.latest, LORA).replace(b"a" * 64, b"b" * 64), "__metadata__.base"),
    ):
        with pytest.raises(SafetensorsError) as caught:
            store.import_weights("new", data, LORA)
        assert caught.value.where == field
    assert not store.path("new").exists()
