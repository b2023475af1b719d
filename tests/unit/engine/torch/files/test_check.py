"""Checks of a model's files: what is missing, broken, or of a kind that cannot be trained."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.torch.files.check import ModelLoadError, check_folder, check_gguf, missing_file
from tests.unit.engine.torch.files.model_folders import make_folder


def test_a_whole_model_passes(tmp_path: Path) -> None:
    check_folder(make_folder(tmp_path))
    assert missing_file(tmp_path) == ""


def test_a_template_of_its_own_file_passes(tmp_path: Path) -> None:
    (make_folder(tmp_path) / "tokenizer_config.json").write_text("{}")
    (tmp_path / "chat_template.jinja").write_text("{{ messages }}")
    check_folder(tmp_path)


def remove(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).unlink()


def write(name: str, text: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_text(text)


def adapter(folder: Path) -> None:
    (folder / "config.json").rename(folder / "adapter_config.json")


def gguf_alone(folder: Path) -> None:
    (folder / "config.json").rename(folder / "model-q4.gguf")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (remove("config.json"), "The folder has no config.json. Give the folder of a Hugging Face"),
        (adapter, "This is an adapter, not a model. Give the model it was trained on"),
        (gguf_alone, "model-q4.gguf"),
        (write("config.json", "{"), "config.json cannot be read"),
        (write("config.json", "[]"), "config.json is no object"),
        (remove("model.safetensors"), "The folder has no weights"),
        (remove("tokenizer.json"), "The folder has no tokenizer"),
        (write("tokenizer_config.json", "{}"), "no chat template. Use an instruct model"),
        (remove("tokenizer_config.json"), "no chat template"),
        (write("model.safetensors", "version https://git-lfs.github.com/spec/v1"), "git lfs pull"),
    ],
)
def test_a_missing_or_broken_file(
    tmp_path: Path, change: Callable[[Path], object], text: str
) -> None:
    change(make_folder(tmp_path))
    with pytest.raises(ModelLoadError) as refused:
        check_folder(tmp_path)
    assert text in str(refused.value)
    assert refused.value.exit_code == 2


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"architectures": ["BertForMaskedLM"]}, "BertForMaskedLM is no causal language model"),
        ({"architectures": ["Qwen2VLForConditionalGeneration"]}, "Models that read images"),
        ({"architectures": None, "is_encoder_decoder": True}, "encoder with a decoder"),
        (
            {"quantization_config": {"quant_method": "gptq"}},
            "quantized (gptq). Use the unquantized",
        ),
        (
            {"final_logit_softcapping": 30.0},
            "final_logit_softcapping: The model changes its logits",
        ),
        ({"logits_scaling": 8.0}, "logits_scaling"),
        ({"logit_scale": 0.0625}, "logit_scale"),
        ({"text_config": {"lm_head_multiplier": 0.5}}, "lm_head_multiplier"),
    ],
)
def test_a_kind_of_model_that_cannot_be_trained(
    tmp_path: Path, fields: dict[str, Any], text: str
) -> None:
    with pytest.raises(ModelLoadError) as refused:
        check_folder(make_folder(tmp_path, **fields))
    assert text in str(refused.value)


def test_fields_without_effect_on_the_logits_pass(tmp_path: Path) -> None:
    plain = {"final_logit_softcapping": None, "logits_scaling": 1.0, "logit_scale": 1}
    check_folder(make_folder(tmp_path, **plain))


@pytest.mark.parametrize(
    ("files", "missing"),
    [
        (["model-00001-of-00002.safetensors"], "model-00002-of-00002.safetensors"),
        (["model-00001-of-00001.safetensors"], "model.safetensors.index.json"),
        (["pytorch_model.bin"], ""),
        (["pytorch_model-00002-of-00002.bin"], "pytorch_model-00001-of-00002.bin"),
        ([], "weights (*.safetensors)"),
    ],
)
def test_each_file_of_split_weights_is_needed(
    tmp_path: Path, files: list[str], missing: str
) -> None:
    (make_folder(tmp_path) / "model.safetensors").unlink()
    for name in files:
        (tmp_path / name).write_bytes(b"weights")
    assert missing_file(tmp_path) == missing


def test_the_index_names_the_files_that_are_needed(tmp_path: Path) -> None:
    (make_folder(tmp_path) / "model.safetensors").rename(tmp_path / "model-1.safetensors")
    named = {"a": "model-1.safetensors", "b": "model-2.safetensors"}
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": named}))
    assert missing_file(tmp_path) == "model-2.safetensors"
    (tmp_path / "model-2.safetensors").write_bytes(b"weights")
    assert missing_file(tmp_path) == ""
    index.write_text("{}")
    with pytest.raises(ModelLoadError, match="index of the weights"):
        check_folder(tmp_path)


@pytest.mark.parametrize(
    ("content", "text"),
    [(b"GGML", "no GGUF file"), (b"version https://git-lfs.", "git lfs pull"), (b"", "no GGUF")],
)
def test_a_file_that_is_no_gguf(tmp_path: Path, content: bytes, text: str) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelLoadError, match=text):
        check_gguf(path)
    path.write_bytes(b"GGUF and more")
    check_gguf(path)
