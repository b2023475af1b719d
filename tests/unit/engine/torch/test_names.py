"""Folder names of models are safe and never shared."""

import re
from pathlib import Path

import pytest

from ajet_swarm.common.errors import UsageError
from engine.torch.names import absolute_model, check_device, is_gguf, slug

MODELS = (
    "Qwen/Qwen3-0.6B",
    "qwen/qwen3-0.6b",
    "Qwen--Qwen3-0.6B",
    "/models/Qwen3",
    "/other/Qwen3",
    "/models/small.gguf",
    "/models/small",
    "..",
    ".",
    "/",
    "con:aux*?",
    "ünï/çødé",
    "a" * 500,
    "",
)


def test_names_are_safe_and_differ_on_any_file_system() -> None:
    slugs = [slug(model) for model in MODELS]
    assert len(set(slugs)) == len(MODELS)
    assert all(re.fullmatch(r"[a-z0-9][a-z0-9_.-]*-[0-9a-f]{12}", name) for name in slugs)
    assert max(map(len, slugs)) < 64


@pytest.mark.parametrize(
    ("model", "prefix"),
    [
        ("Qwen/Qwen3-0.6B", "qwen--qwen3-0.6b-"),
        ("/models/My Model.GGUF", "my-model-"),
        ("", "job-"),
    ],
)
def test_a_name_can_be_read(model: str, prefix: str) -> None:
    assert slug(model).startswith(prefix)


def test_a_model_on_disk_becomes_absolute_and_a_name_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model").mkdir()
    monkeypatch.chdir(tmp_path)
    assert absolute_model("model") == absolute_model("./model") == str(tmp_path / "model")
    assert absolute_model("Qwen/Qwen3-0.6B") == "Qwen/Qwen3-0.6B"
    assert absolute_model("") == ""


def test_gguf_is_recognised_by_its_suffix() -> None:
    assert is_gguf("/a/B.GGUF")
    assert not is_gguf("gguf/model")


@pytest.mark.parametrize("name", ["", "cpu", "mps", "cuda", "cuda:1"])
def test_devices(name: str) -> None:
    check_device(name)


@pytest.mark.parametrize("name", ["gpu", "cuda:", "cuda:x", "CUDA", "cpu:0"])
def test_other_devices_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match=f"--device {name}: there is no such device"):
        check_device(name)
