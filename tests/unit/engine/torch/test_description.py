"""The description of a model: its names, and its file."""

from pathlib import Path

import pytest

from engine.interface import NoCheckpointError, WeightsError
from engine.torch import description
from tests.support.engine.full_disk import full_disk
from tests.unit.engine.torch.descriptions import FULL, LORA, described


@pytest.mark.parametrize("one", [LORA, FULL])
def test_a_stored_description_is_read_back(
    tmp_path: Path, one: description.ModelDescription
) -> None:
    description.write(tmp_path, one)
    assert description.read(tmp_path) == one
    assert not list(tmp_path.glob("*.tmp"))


def test_a_failed_write_leaves_the_former_one(tmp_path: Path) -> None:
    description.write(tmp_path, LORA)
    with full_disk("fsync"), pytest.raises(OSError, match="No space"):
        description.write(tmp_path, FULL)
    assert description.read(tmp_path) == LORA
    assert not list(tmp_path.glob("*.tmp"))


def test_without_one_nothing_is_saved(tmp_path: Path) -> None:
    with pytest.raises(NoCheckpointError, match="No policy of the torch backend is saved here"):
        description.read(tmp_path)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"kind": "other"}', "\xff"])
def test_an_unreadable_one_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / description.NAME).write_text(text, "latin-1")
    with pytest.raises(WeightsError, match=r"model\.json: .*cannot be read"):
        description.read(tmp_path)


@pytest.mark.parametrize(
    ("name", "files", "hub"),
    [
        ("Qwen/Qwen3-0.6B", "/cache/models--Qwen--Qwen3-0.6B/snapshots/c1", "Qwen/Qwen3-0.6B"),
        ("gpt2", "/cache/models--gpt2/snapshots/c1", "gpt2"),
        ("models/mine", "/data/models/mine", ""),
        ("/data/models/mine", "/data/models/mine", ""),
        ("./mine", "/data/mine", ""),
        ("~/mine", "/home/me/mine", ""),
        ("mine.gguf", "/data/mine.gguf", ""),
    ],
)
def test_a_path_is_no_name_of_the_hub(name: str, files: str, hub: str) -> None:
    one = described(base_model=name, base_files=files)
    assert one.hub_name == hub
    assert one.base_name == (hub or files)


def test_the_modules_with_lora() -> None:
    assert LORA.modules == described(targets=("all-linear",)).modules == ("q_proj", "v_proj")
    assert described(targets=("k_proj", "a")).modules == ("a", "k_proj")
    assert (LORA.size, FULL.size) == (20, 15)
