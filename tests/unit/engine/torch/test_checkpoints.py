"""The checkpoint manager of a torch policy."""

import json
import logging
import os
from pathlib import Path

import msgspec
import pytest

from ajet_swarm.common.errors import AjetError
from engine.interface import CheckpointManager, NoCheckpointError, WeightsError
from engine.storage.safetensors import unpack
from engine.torch import description as descriptions
from engine.torch import store as stores
from engine.torch.adapters import KEPT, AdapterFolders
from engine.torch.checkpoints import TorchCheckpoints
from engine.torch.store import TorchStore
from tests.unit.engine.torch.descriptions import FULL, LORA, described
from tests.unit.engine.torch.test_store import state_of


@pytest.fixture
def checkpoints(tmp_path: Path) -> CheckpointManager:
    """The manager of a folder with five steps; 2 and 3 are named."""
    trained(tmp_path, range(1, 6), 2, 3)
    return TorchCheckpoints(tmp_path)


def loaded_step(tmp_path: Path) -> int | None:
    store = TorchStore(tmp_path)
    state = store.load(LORA)
    store.close()
    return None if state is None else state.step


def test_without_a_saved_policy_the_errors_say_so(tmp_path: Path) -> None:
    checkpoints = TorchCheckpoints(tmp_path)
    assert (checkpoints.list_all(), checkpoints.step()) == ([], 0)
    for work in (
        lambda: checkpoints.save("x"),
        lambda: checkpoints.restore("x"),
        lambda: checkpoints.export("latest"),
        lambda: checkpoints.import_weights("x", b""),
        checkpoints.model,
    ):
        with pytest.raises(NoCheckpointError, match="No policy of the torch backend is saved"):
            work()
    checkpoints.restore("base")
    assert checkpoints.prune(3) == []


def test_save_restore_and_reset(checkpoints: CheckpointManager, tmp_path: Path) -> None:
    checkpoints.save("five")
    checkpoints.restore("good-2")
    assert (checkpoints.step(), loaded_step(tmp_path)) == (2, 2)
    checkpoints.restore("five")
    assert checkpoints.step() == 5
    checkpoints.restore("base")
    assert (checkpoints.step(), loaded_step(tmp_path)) == (0, None)
    checkpoints.restore("before-reset")
    assert checkpoints.step() == 5


def aside(tmp_path: Path, name: str) -> list[str]:
    """Adapters that were set aside."""
    return sorted(path.name for path in (tmp_path / "adapters" / name).iterdir())


def test_adapters_of_abandoned_steps_are_set_aside(
    checkpoints: CheckpointManager, tmp_path: Path
) -> None:
    checkpoints.restore("good-2")
    assert steps(tmp_path) == [1, 2, 3], "step 3 has a checkpoint"
    assert aside(tmp_path, "before-restore") == ["step-000004", "step-000005"]
    with pytest.raises(NoCheckpointError):
        checkpoints.export("step-000004")
    trained(tmp_path, range(3, 5))
    checkpoints.restore("latest")
    assert steps(tmp_path) == [1, 2, 3, 4]
    checkpoints.restore("good-2")
    assert aside(tmp_path, "before-restore") == ["step-000004"]
    checkpoints.restore("base")
    assert steps(tmp_path) == [2, 3]
    assert aside(tmp_path, "before-reset") == ["step-000001"]


def test_a_reset_sets_the_adapters_aside(checkpoints: CheckpointManager, tmp_path: Path) -> None:
    store = TorchStore(tmp_path)
    store.reset()
    store.close()
    assert steps(tmp_path) == [2, 3]
    assert len(aside(tmp_path, "before-reset")) == 3


def test_prune_deletes_the_adapters_of_deleted_checkpoints(
    checkpoints: CheckpointManager, tmp_path: Path
) -> None:
    assert steps(tmp_path) == [1, 2, 3, 4, 5]
    assert checkpoints.prune(1) == ["good-2"]
    assert steps(tmp_path) == [1, 3, 4, 5]
    trained(tmp_path, range(6, 6 + KEPT))
    assert steps(tmp_path) == [3, *range(6, 6 + KEPT)]
    checkpoints.save("now")
    assert checkpoints.prune(0) == ["now", "good-3"]
    assert steps(tmp_path) == list(range(6, 6 + KEPT)), "the latest step has a checkpoint"


@pytest.mark.parametrize("half", [False, True])
def test_a_checkpoint_or_an_adapter_is_exported(
    checkpoints: CheckpointManager, tmp_path: Path, half: bool
) -> None:
    for name, step in (("latest", 5), ("previous", 4), ("good-2", 2), ("step-000001", 1)):
        tensors, metadata = unpack(checkpoints.export(name, half))
        assert (metadata["step"], metadata["base"]) == (str(step), LORA.base)
        assert {name: tensor.shape for name, tensor in tensors.items()} == dict(LORA.layout)
        assert {tensor.dtype for tensor in tensors.values()} == {"F16" if half else "F32"}
    for name in ("step-000009", "../x", "none"):
        names = "latest, previous, good-3, good-2; adapters after the updates 1, 2, 3, 4, 5"
        with pytest.raises(NoCheckpointError, match=f"There are: {names}"):
            checkpoints.export(name)
    with pytest.raises(NoCheckpointError, match=r"snapshots/c1: .*files of the model"):
        checkpoints.export("base")


def test_an_adapter_of_another_model_is_not_exported(
    checkpoints: CheckpointManager, tmp_path: Path
) -> None:
    descriptions.write(tmp_path, described(base="b" * 64))
    with pytest.raises(WeightsError, match="another model"):
        checkpoints.export("step-000001")
    with pytest.raises(WeightsError, match="other base weights"):
        checkpoints.export("latest")


def test_the_model_is_described_as_json(checkpoints: CheckpointManager, tmp_path: Path) -> None:
    fields = checkpoints.model()
    assert fields is not None
    assert msgspec.convert(fields, descriptions.ModelDescription) == LORA


def test_another_engine_holds_the_folder(checkpoints: CheckpointManager, tmp_path: Path) -> None:
    store = TorchStore(tmp_path)
    store.save(state_of(1, FULL), FULL)
    with pytest.raises(AjetError, match="Another engine"):
        checkpoints.restore("base")
    store.close()


def trained(tmp_path: Path, steps: range, *named: int) -> None:
    """Save the states of these steps; checkpoints of `named`."""
    store = TorchStore(tmp_path)
    for step in steps:
        if step in named:
            store.save(state_of(step), LORA, f"good-{step}")
        store.save(state_of(step), LORA)
        written = AdapterFolders(tmp_path).path(step)
        os.utime(written, (1000 + step, 1000 + step))
    store.close()


def steps(tmp_path: Path) -> list[int]:
    """The steps that have an adapter."""
    return sorted(int(path.name[5:]) for path in (tmp_path / "adapters").glob("step-*"))


def test_an_update_writes_its_adapter(tmp_path: Path) -> None:
    store = TorchStore(tmp_path)
    store.save(state_of(12), LORA)
    run = store.run.id
    store.close()
    folder = tmp_path / "adapters" / "step-000012"
    assert {path.name for path in folder.iterdir()} == {
        "adapter_config.json", "adapter_model.safetensors", "README.md",
    }  # fmt: skip
    weights = (folder / "adapter_model.safetensors").read_bytes()
    assert weights == stores.export(tmp_path / "latest.ckpt", LORA)
    assert {tensor.dtype for tensor in unpack(weights)[0].values()} == {"F32"}
    config = json.loads((folder / "adapter_config.json").read_text())
    assert (config["peft_type"], config["task_type"]) == ("LORA", "CAUSAL_LM")
    assert (config["r"], config["lora_alpha"], config["bias"]) == (2, 4, "none")
    assert config["target_modules"] == ["q_proj", "v_proj"]
    assert config["base_model_name_or_path"] == LORA.base_model
    assert config["inference_mode"]
    card = (folder / "README.md").read_text()
    assert card.startswith('---\nbase_model: "Qwen/Qwen3-0.6B"\nlibrary_name: peft\n')
    for words in ("global step 12", run, "PeftModel", "--max-lora-rank 8", "license"):
        assert words in card


def test_a_named_checkpoint_and_full_training_write_none(tmp_path: Path) -> None:
    store = TorchStore(tmp_path)
    store.save(state_of(1), LORA, "mine")
    store.save(state_of(1, FULL), FULL)
    store.close()
    assert not (tmp_path / "adapters").exists()


def test_the_newest_stay_and_those_of_named_checkpoints(tmp_path: Path) -> None:
    trained(tmp_path, range(1, KEPT + 6), 2, 4)
    assert steps(tmp_path) == [2, 4, *range(6, KEPT + 6)]


def test_the_newest_are_those_written_last(tmp_path: Path) -> None:
    trained(tmp_path, range(100, 100 + KEPT))
    (tmp_path / "adapters" / ".step-000007.1.tmp").mkdir()
    store = TorchStore(tmp_path)
    store.save(state_of(5), LORA)  # after an older checkpoint was restored
    store.close()
    assert steps(tmp_path) == [5, *range(101, 100 + KEPT)]


def test_a_failure_is_a_warning_because_the_checkpoint_is_saved(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "adapters").write_text("no folder")
    store = TorchStore(tmp_path)
    with caplog.at_level(logging.WARNING):
        store.save(state_of(3), LORA)
    assert "step-000003: the adapter was not written" in caplog.text
    state = store.load(LORA)
    assert state is not None
    assert state.step == 3
    store.close()


@pytest.mark.parametrize(
    ("rank", "wanted"), [(1, "8"), (16, "16"), (17, "32"), (512, "512"), (600, "600")]
)
def test_the_card_names_a_rank_that_vllm_accepts(tmp_path: Path, rank: int, wanted: str) -> None:
    AdapterFolders(tmp_path).write(b"", described(rank=rank), 1, "")
    card = (AdapterFolders(tmp_path).path(1) / "README.md").read_text()
    assert f'vllm serve "Qwen/Qwen3-0.6B" --enable-lora --max-lora-rank {wanted} ' in card


def test_the_card_of_a_gguf_file_names_what_is_known_to_work(tmp_path: Path) -> None:
    description = described(base_model="/m/x.gguf", base_files="/m/x.gguf")
    AdapterFolders(tmp_path).write(b"", description, 1, "")
    card = (AdapterFolders(tmp_path).path(1) / "README.md").read_text()
    assert "vllm serve" not in card
    assert "checkpoints export NAME FOLDER --merge" in card
    assert 'from_pretrained("/m", gguf_file="x.gguf", dtype="auto")' in card
    assert "base_model:" not in card
    assert "training run unknown" in card
