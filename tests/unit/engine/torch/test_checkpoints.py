"""The checkpoint manager of a torch policy."""

from pathlib import Path

import msgspec
import pytest

from ajet_swarm.common.errors import AjetError
from engine.interface import CheckpointManager, NoCheckpointError, WeightsError
from engine.storage.safetensors import unpack
from engine.torch import description as descriptions
from engine.torch.adapters import KEPT
from engine.torch.checkpoints import TorchCheckpoints
from engine.torch.store import TorchStore
from tests.unit.engine.torch.descriptions import FULL, LORA, described
from tests.unit.engine.torch.test_adapters import steps, trained
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
