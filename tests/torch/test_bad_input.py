"""Models, devices and options that cannot be used: each ends with one sentence and a way out."""

import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from ajet_swarm.common.errors import AjetError
from engine.torch import card, loading
from engine.torch.card import Driver, GpuProcess
from engine.torch.hardware import devices
from engine.torch.hardware.devices import usable_device, usable_dtype
from engine.torch.loading import Loaded, TrainingForm, load
from engine.torch.memory import OutOfSpaceError
from engine.torch.options import TorchOptions
from tests.torch.models import make_model

LORA = TrainingForm(4, 8)
SIZES: dict[str, Any] = {
    "vocab_size": 201,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "eos_token_id": 0,
    "pad_token_id": 0,
    "bos_token_id": None,
}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that can be used."""
    return make_model(tmp_path_factory.mktemp("base"))


@pytest.fixture
def folder(base: Path, tmp_path: Path) -> Path:
    """A copy of the model, to be spoiled."""
    return Path(shutil.copytree(base, tmp_path / "model"))


def opened(folder: Path, form: TrainingForm = LORA, **fields: Any) -> Loaded:
    return load(TorchOptions(model=str(folder), device="cpu", **fields), form, None)


def set_config(**fields: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))

    return change


def halve(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def replace_model(kind: str, **fields: Any) -> Callable[[Path], None]:
    """Write another model into the folder, with the tokenizer that is there."""

    def change(folder: Path) -> None:
        config = getattr(transformers, f"{kind}Config")(**{**SIZES, **fields})
        for path in folder.glob("*.safetensors"):
            path.unlink()
        getattr(transformers, f"{kind}ForCausalLM")(config).save_pretrained(folder)

    return change


CUSTOM = {"AutoConfig": "configuration_x.C", "AutoModelForCausalLM": "modeling_x.M"}


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (halve, "The model cannot be loaded: Error while deserializing"),
        (set_config(hidden_size=64), "other shapes than config.json says"),
        (set_config(num_hidden_layers=3, layer_types=None), "The files lack 12 tensors"),
        (set_config(model_type="none"), "model type `none` but Transformers does not recognize"),
        (set_config(model_type="x", auto_map=CUSTOM), "needs code of its own, which is not run"),
        (replace_model("Gemma2", head_dim=8, final_logit_softcapping=30.0), "final_logit_softcap"),
        (replace_model("Granite", logits_scaling=8.0), "logits_scaling: The model changes its log"),
        (replace_model("Cohere", logit_scale=0.0625), "logit_scale: The model changes its logits"),
        (replace_model("Mamba", state_size=4), "layers of this model are of another kind"),
        (
            set_config(
                use_sliding_window=True,
                sliding_window=16,
                layer_types=["full_attention", "sliding_attention"],
            ),
            "full_attention and sliding_attention",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_model_that_cannot_be_trained(
    folder: Path, change: Callable[[Path], None], text: str
) -> None:
    change(folder)
    with pytest.raises(AjetError) as refused:
        opened(folder)
    assert text in str(refused.value)
    assert refused.value.todo
    assert refused.value.exit_code == 2


def test_logits_that_the_last_layer_does_not_make_are_found_by_computing_them(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace_model("Granite", logits_scaling=8.0)(folder)
    monkeypatch.setattr(loading, "check_config", lambda config, where: None)
    monkeypatch.setattr("engine.torch.base_files.check_folder", lambda folder: None)
    with pytest.raises(AjetError, match="changes its logits after the last layer"):
        opened(folder)


def test_logits_that_are_not_finite(folder: Path) -> None:
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    with torch.no_grad():
        model.model.norm.weight.fill_(float("nan"))
    model.save_pretrained(folder)
    with pytest.raises(AjetError, match=r"not finite in float32.*\. The files .*: download the"):
        opened(folder, dtype="float32")


def test_code_of_a_model_that_transformers_has_itself_is_not_needed(folder: Path) -> None:
    set_config(auto_map={"AutoModelForCausalLM": "modeling_x.M"})(folder)
    assert opened(folder).context == 128


def test_a_sliding_window_is_the_window(folder: Path) -> None:
    replace_model("Mistral", sliding_window=90)(folder)
    loaded = opened(folder)
    assert loaded.context == 90
    assert loaded.model.config.sliding_window is None


def test_a_gguf_file_of_an_unknown_architecture(tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf")
    writer = gguf.GGUFWriter(tmp_path / "model.gguf", "nonsense")
    writer.add_block_count(1)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with pytest.raises(AjetError, match=r"nonsense.* not supported.*newer version"):
        opened(tmp_path / "model.gguf")


@pytest.mark.parametrize(
    ("form", "text"),
    [
        (TrainingForm(4, 8, ("nope",)), "no linear layer nope. Use all-linear, or some of down_pr"),
        (TrainingForm(4, 8, ("q_proj", "nope")), "no linear layer nope"),
        (TrainingForm(4, 8, ("embed_tokens",)), "no linear layer embed_tokens"),
        (TrainingForm(-1, 8), "rank -1 is out of range"),
        (TrainingForm(33, 66), "rank 33 is out of range: the layers have a width of 32"),
    ],
)
def test_lora_that_cannot_be_added(base: Path, form: TrainingForm, text: str) -> None:
    with pytest.raises(AjetError) as refused:
        opened(base, form)
    assert text in str(refused.value)


def test_too_little_memory_says_what_would_help(base: Path) -> None:
    with pytest.raises(OutOfSpaceError, match=r"0\.1 GB are there\. Give a larger --max-memory"):
        opened(base, max_memory=0.1)


def test_other_processes_on_the_card_are_named(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    others = (GpuProcess(pid=7, used=9_000_000_000, name="python"),)
    monkeypatch.setattr(card, "read_driver", lambda: Driver(version="1", processes=others))
    monkeypatch.setattr(loading, "usable_device", lambda name: "cuda")
    monkeypatch.setattr(loading, "usable_dtype", lambda name, device: torch.bfloat16)
    monkeypatch.setattr(loading, "free_bytes", lambda device: 1000)
    with pytest.raises(OutOfSpaceError, match=r"use the card: pid 7 python 9000 MB\. End them\. "):
        opened(base)


def test_full_training_needs_memory_of_the_machine_too(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "usable_device", lambda name: "cuda")
    monkeypatch.setattr(loading, "usable_dtype", lambda name, device: torch.bfloat16)
    free = {"cuda": 80 * 10**9, "cpu": 1000}
    monkeypatch.setattr(loading, "free_bytes", free.__getitem__)
    with pytest.raises(OutOfSpaceError, match=r"--full needs .* machine's memory.* Use LoRA inst"):
        opened(base, TrainingForm(0, 0))


def no_cuda(monkeypatch: pytest.MonkeyPatch, driver: str, built: str | None) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", built)
    monkeypatch.setattr(devices, "read_driver", lambda: Driver(version=driver))


@pytest.mark.parametrize(
    ("driver", "built", "text"),
    [
        ("", None, "torch finds no NVIDIA card"),
        ("470.1", None, "this torch is built without CUDA, beside an NVIDIA driver 470.1"),
        ("470.1", "13.0", "torch for CUDA 13.0 cannot use the NVIDIA driver 470.1"),
    ],
)
def test_a_card_that_torch_cannot_use(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    driver: str,
    built: str | None,
    text: str,
) -> None:
    no_cuda(monkeypatch, driver, built)
    with pytest.raises(AjetError, match="doctor") as refused:
        usable_device("cuda")
    assert text in str(refused.value)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with caplog.at_level(logging.WARNING):
        assert usable_device("") == "cpu"
    assert (text in caplog.text) == bool(driver)


def test_a_device_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(AjetError, match="no such device"):
        usable_device("tpu")
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(AjetError, match="no Apple GPU"):
        usable_device("mps")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert usable_device("cuda:1") == "cuda:1"
    with pytest.raises(AjetError, match=r"torch finds 2 cards\. Use cuda:0 to cuda:1"):
        usable_device("cuda:2")


@pytest.mark.parametrize("device", ["mps", "cpu"])
def test_other_devices_compute_in_float32_unless_a_type_is_named(device: str) -> None:
    assert usable_dtype("", device) == torch.float32
    assert usable_dtype("bfloat16", device) == torch.bfloat16


def test_a_card_without_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    monkeypatch.setattr(torch.version, "hip", None)
    assert usable_dtype("", "cuda") == torch.float32
    with pytest.raises(AjetError, match=r"no bfloat16\. Use --dtype float32"):
        usable_dtype("bfloat16", "cuda")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    assert usable_dtype("", "cuda") == torch.bfloat16
