"""Exported folders are loaded by transformers and PEFT, and give the logits of the policy."""

import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import peft
import pytest
import torch
import transformers

from ajet_swarm.common.errors import AjetError, UsageError
from engine.interface import Hyperparameters, SamplingParams, TrainSample
from engine.torch.base_files import form_text, locate
from engine.torch.checkpoints import TorchCheckpoints
from engine.torch.description import ModelDescription
from engine.torch.export import export_folder
from engine.torch.loading import TrainingForm
from engine.torch.loading import load as load_policy
from engine.torch.options import TorchOptions
from engine.torch.policy import TorchPolicy
from engine.torch.store import TorchState, TorchStore
from tests.torch import small_gguf
from tests.torch.models import make_model
from tests.torch.test_trl import TEMPLATE

VOCAB = 301
IDS = [[5, 17, 230, 42, 9, 3]]
SIZES = {
    "vocab_size": VOCAB,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "bos_token_id": None,
    "eos_token_id": 0,
    "pad_token_id": 0,
}


def make_base(folder: Path, family: str, tied: bool, width: int = 32) -> Path:
    """Write a random model with a character tokenizer; return its folder."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {chr(code): code for code in range(VOCAB - 1)} | {"[UNK]": VOCAB - 1}
    inner = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="[UNK]")
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")(
        **SIZES, hidden_size=width, tie_word_embeddings=tied
    )
    model = getattr(transformers, f"{family}ForCausalLM")(config)
    model.generation_config.temperature = 0.625
    model.generation_config.do_sample = True
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module", params=[("Llama", False), ("Qwen2", True)], ids=lambda p: p[0])
def base(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a base model."""
    family, tied = request.param
    return make_base(tmp_path_factory.mktemp(family), family, tied)


def load(place: Path, **more: Any) -> Any:
    """The model of a folder, in float32."""
    return transformers.AutoModelForCausalLM.from_pretrained(place, dtype=torch.float32, **more)


def logits(model: Any) -> Any:
    """The logits of all positions."""
    with torch.no_grad():
        return model.eval()(torch.tensor(IDS)).logits.float().numpy()


def with_lora(model: Any, rank: int = 4) -> Any:
    """The model with a random adapter that changes its answers."""
    config = peft.LoraConfig(
        r=rank,
        lora_alpha=2 * rank,
        target_modules="all-linear",
        lora_dropout=0.0,
        bias="none",
        task_type="CAUSAL_LM",
    )
    model = peft.get_peft_model(model, config, autocast_adapter_dtype=False)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                parameter.normal_(0.0, 0.2)
    return model


def save(home: Path, base_files: Path, model: Any, rank: int = 4, dtype: str = "float32") -> None:
    """Save the trained parameters of a model as a policy does."""
    trained = [
        (name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad
    ]
    description = ModelDescription(
        base=locate(str(base_files)).digest(form_text(rank, 2 * rank, ())),
        base_model=str(base_files),
        base_files=str(base_files),
        kind="lora" if rank else "full",
        rank=rank,
        alpha=2 * rank,
        targets=(),
        dtype=dtype,
        layout=tuple((name.replace(".default.", "."), tuple(one.shape)) for name, one in trained),
    )
    flat = torch.cat([one.detach().float().reshape(-1) for _, one in trained]).numpy()
    store = TorchStore(home)
    store.save(TorchState(flat, flat * 0, flat * 0, 3, 12), description)
    store.close()


def exported(home: Path, target: Path, **more: Any) -> Path:
    """The folder that a command line on this machine writes."""
    lines: list[str] = []
    checkpoints = TorchCheckpoints(home)
    fields = json.loads(json.dumps(checkpoints.model()))
    weights = checkpoints.export("latest", half=more.pop("half", False))
    options = {"merge": False, "progress": lines.append, **more}
    export_folder(msgspec.convert(fields, ModelDescription), weights, target, **options)
    return target


@pytest.fixture
def trained(base: Path, tmp_path: Path) -> tuple[Path, Any]:
    """A home with a saved adapter, and the logits of its policy."""
    model = with_lora(load(base))
    save(tmp_path / "home", base, model)
    return tmp_path / "home", logits(model)


def test_an_adapter_is_loaded_by_peft(
    base: Path, trained: tuple[Path, Any], tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    home, wanted = trained
    folders = (
        home / "adapters" / "step-000012",
        exported(home, tmp_path / "new"),
        exported(home, tmp_path / "half", half=True),
    )
    assert np.abs(logits(load(base)) - wanted).max() > 0.1
    for folder in folders:
        model = peft.PeftModel.from_pretrained(load(base), folder)
        tolerance = 2e-2 if folder.name == "half" else 1e-4
        np.testing.assert_allclose(logits(model), wanted, atol=tolerance)
        config = peft.PeftConfig.from_pretrained(folder)
        assert (config.r, config.lora_alpha, config.peft_type) == (4, 8, peft.PeftType.LORA)
        assert config.base_model_name_or_path == str(base)
    assert not [warning for warning in recwarn if "missing" in str(warning.message)]
    direct = transformers.AutoModelForCausalLM.from_pretrained(folders[1], dtype=torch.float32)
    np.testing.assert_allclose(logits(direct), wanted, atol=1e-4)


def test_a_merged_folder_is_a_model_of_transformers(
    base: Path, trained: tuple[Path, Any], tmp_path: Path
) -> None:
    home, wanted = trained
    folder = exported(home, tmp_path / "merged", merge=True)
    np.testing.assert_allclose(logits(load(folder)), wanted, atol=1e-4)
    names = {path.name for path in folder.iterdir()}
    assert {"config.json", "generation_config.json", "model.safetensors", "README.md"} <= names
    assert not {"adapter_config.json", "adapter_model.safetensors"} & names
    modes = {path.stat().st_mode & 0o777 for path in folder.iterdir()}
    assert modes == {(folder / "config.json").stat().st_mode & 0o777}  # another user's server too
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    assert tokenizer.chat_template == TEMPLATE
    assert tokenizer("abc").input_ids == [97, 98, 99]
    assert load(folder).generation_config.temperature == 0.625
    assert "merged into the base model" in (folder / "README.md").read_text()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    half = exported(home, tmp_path / "half", merge=True, dtype="float16")
    model = transformers.AutoModelForCausalLM.from_pretrained(half, dtype="auto")
    assert model.dtype == torch.float16
    np.testing.assert_allclose(logits(load(half)), wanted, atol=2e-2)


def test_full_weights_are_a_model_of_transformers(base: Path, tmp_path: Path) -> None:
    model = load(base)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.05)
    save(tmp_path / "home", base, model, rank=0)
    assert not (tmp_path / "home" / "adapters").exists()
    folder = exported(tmp_path / "home", tmp_path / "new")
    np.testing.assert_allclose(logits(load(folder)), logits(model), atol=1e-5)
    assert load(folder).config.tie_word_embeddings == load(base).config.tie_word_embeddings


def test_the_types_of_the_policy_are_those_of_the_folder(base: Path, tmp_path: Path) -> None:
    save(tmp_path / "home", base, with_lora(load(base)), dtype="bfloat16")
    folder = exported(tmp_path / "home", tmp_path / "new", merge=True)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype="auto")
    assert model.dtype == torch.bfloat16


def test_a_merge_needs_the_base_on_this_machine(
    base: Path, trained: tuple[Path, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, _ = trained
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    for files, name, todo in (
        ("/elsewhere/mine", "/elsewhere/mine", "Copy them"),
        ("/elsewhere/c1", "nobody/nothing", "hf download nobody/nothing"),
    ):
        path = home / "model.json"
        fields = {**json.loads(path.read_text()), "base_model": name, "base_files": files}
        path.write_text(json.dumps(fields))
        exported(home, tmp_path / name.replace("/", "-"))
        with pytest.raises(AjetError, match=f"are not on this machine.*{todo}"):
            exported(home, tmp_path / "new", merge=True)
        assert not (tmp_path / "new").exists()


def test_another_base_is_refused(trained: tuple[Path, Any], tmp_path: Path) -> None:
    home, _ = trained
    other = make_base(tmp_path / "other", "Llama", True, width=16)
    path = home / "model.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "base_files": str(other)}))
    with pytest.raises(AjetError, match="do not fit this base model: its files differ"):
        exported(home, tmp_path / "new", merge=True)


def test_a_folder_with_files_is_refused(trained: tuple[Path, Any], tmp_path: Path) -> None:
    home, _ = trained
    target = tmp_path / "mine"
    target.mkdir()
    exported(home, target)
    with pytest.raises(UsageError, match="exists already"):
        exported(home, target)


def test_a_gguf_base_is_merged(tmp_path: Path) -> None:
    more = {"tokenizer.chat_template": TEMPLATE}
    path = small_gguf.make(tmp_path / "small.gguf", **more).path
    base = load(path.parent, gguf_file=path.name)
    model = with_lora(base)
    save(tmp_path / "home", path, model)
    wanted = logits(model)
    folder = exported(tmp_path / "home", tmp_path / "new", merge=True)
    np.testing.assert_allclose(logits(load(folder)), wanted, atol=1e-3)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    assert tokenizer.decode(tokenizer("hello").input_ids).endswith("hello")
    assert tokenizer.chat_template == TEMPLATE


async def test_the_adapter_of_an_update_samples_as_the_policy(tmp_path: Path) -> None:
    folder = make_model(tmp_path / "model")
    options = TorchOptions(model=str(folder), device="cpu", dtype="float32")
    loaded = load_policy(options, TrainingForm(4, 8), None)
    policy = TorchPolicy(loaded, TorchStore(tmp_path / "home"), "random")
    prompt = policy.render([{"role": "user", "content": "abc"}], None, 16)
    drawn = [await policy.sample(prompt, SamplingParams(16, seed=seed)) for seed in (1, 2)]
    samples = [
        TrainSample("t", one.prompt_tokens, one.tokens, one.logprobs, float(i), episode=str(i))
        for i, one in enumerate(drawn)
    ]
    await policy.train(samples, Hyperparameters(lr=0.05, kl=0.01, adam_eps=1e-8))
    wanted = await policy.logprobs(drawn[0].prompt_tokens, drawn[0].tokens)
    await policy.close()
    ids = [*drawn[0].prompt_tokens, *drawn[0].tokens]
    start = len(drawn[0].prompt_tokens)
    adapter = tmp_path / "home" / "adapters" / "step-000001"
    merged = exported(tmp_path / "home", tmp_path / "merged", merge=True)
    for model in (peft.PeftModel.from_pretrained(load(folder), adapter), load(merged)):
        with torch.no_grad():
            scores = model.eval()(torch.tensor([ids])).logits[0].log_softmax(-1)
        values = [scores[i - 1, ids[i]].item() for i in range(start, len(ids))]
        assert values == pytest.approx(wanted, abs=1e-4)
    assert max(abs(a - b) for a, b in zip(wanted, drawn[0].logprobs, strict=True)) > 0.01
