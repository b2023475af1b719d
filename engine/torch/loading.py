"""Loads a model of transformers with its tokenizer, and adds the trained part."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from ajet_swarm.common.errors import AjetError
from engine.torch.base_files import BaseFiles, form_text, locate
from engine.torch.card import in_use
from engine.torch.description import ModelDescription
from engine.torch.files.check import ModelLoadError, check_config
from engine.torch.hardware.devices import (
    card_uuid,
    free_bytes,
    usable_device,
    usable_dtype,
)
from engine.torch.memory import MemoryPlan, ModelSizes, OutOfSpaceError, check_host, plan
from engine.torch.options import DEFAULT_CONTEXT, DEFAULT_RANK, TorchOptions
from engine.torch.packages import peft_before_renaming
from engine.torch.sampling.attention import NAME, register

_LOCAL = {"local_files_only": True, "trust_remote_code": False}
"""Nothing is downloaded, and no code of a model is run."""
_LAYERS = ({"full_attention"}, {"sliding_attention"}, set[str]())
"""Kinds of the layers of a model that can be sampled in rows of different lengths."""


_ERRORS = (
    OSError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    RuntimeError,
    ImportError,
    SafetensorError,
    StrictDataclassError,
)
"""Errors that transformers raises for files that it cannot load."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model ready to sample and train."""

    model: Any
    tokenizer: Any
    trained: Sequence[Any]
    """Trained parameters, in the order of the description's layout."""
    description: ModelDescription
    ends: frozenset[int]
    context: int
    device: str
    dtype: str
    memory: MemoryPlan


@dataclass(frozen=True, slots=True)
class TrainingForm:
    """What is trained: LoRA with its rank, or everything at rank 0."""

    rank: int = DEFAULT_RANK
    alpha: int = 2 * DEFAULT_RANK
    targets: tuple[str, ...] = ()
    """Empty for all linear layers."""


def load(
    options: TorchOptions,
    form: TrainingForm,
    context: int | None,
    report: Callable[[str], object] = lambda step: None,
) -> Loaded:
    """Load a model.

    Args:
        options: Names the model, the device and the type.
        form: What is trained.
        context: Window in tokens that the job asks for.
        report: Called with each step.

    Raises:
        ModelLoadError: the model, its tokenizer or its template cannot be loaded, it is of a kind
            that cannot be trained, or the LoRA targets do not exist.
        OutOfSpaceError: it does not fit into the memory.
    """
    device = usable_device(options.device)
    dtype = usable_dtype(options.dtype, device)
    report(f"reads the tokenizer of {options.model} and plans the memory of {device}")
    files = locate(options.model)
    register()
    config, tokenizer = _read(files, options.model)
    window = _window(config, options.context or context)
    memory = _planned(config, form, window, dtype, device, options)
    changed = _without_sliding(config)
    report(f"reads the weights, {memory.weights / 1e9:.1f} GB")
    model = _weights(files, dtype, options.model, {"config": config} if changed else {})
    model.requires_grad_(form.rank == 0)
    if form.rank:
        model = _with_lora(model, form)
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    report(f"moves them to {device} and checks the logits")
    try:
        model.to(device)
    except torch.OutOfMemoryError as error:
        raise _no_space(str(error).split(". ")[0], "", device) from error
    model.eval()
    _check_logits(model, options.model, dtype)
    names = [
        (name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad
    ]
    layout = tuple(
        (name.replace(".default.", "."), tuple(parameter.shape)) for name, parameter in names
    )
    return Loaded(
        model=model,
        tokenizer=tokenizer,
        trained=[parameter for _, parameter in names],
        description=ModelDescription(
            base=files.digest(form_text(form.rank, form.alpha, form.targets)),
            base_model=options.model,
            base_files=str(files.path),
            kind="lora" if form.rank else "full",
            rank=form.rank,
            alpha=form.alpha,
            targets=tuple(form.targets),
            dtype=str(dtype).removeprefix("torch."),
            layout=layout,
        ),
        ends=_ends(model, tokenizer),
        context=window,
        memory=memory,
        device=device,
        dtype=str(dtype).removeprefix("torch."),
    )


def _read(files: BaseFiles, name: str) -> tuple[Any, Any]:
    """Return the configuration and the tokenizer of a model that can be trained.

    Raises:
        ModelLoadError: it cannot; says why.
    """
    with reported(name):
        config = AutoConfig.from_pretrained(files.place, **_LOCAL, **files.model_arguments())
        check_config(config.to_dict(), name)
        model_class = AutoModelForCausalLM._model_mapping.get(type(config), None)
        if model_class is None:
            raise ModelLoadError(
                f"{config.model_type} is no causal language model", name, "Use a model of text"
            )
        kinds = set(getattr(config, "layer_types", None) or ())
        if not model_class._supports_sdpa or kinds not in _LAYERS:
            other = " and ".join(sorted(kinds)) or config.model_type
            raise ModelLoadError(
                f"The layers of this model are of another kind than this backend samples ({other})",
                name,
                "Use a model with the same attention in each layer, such as Qwen3 or Llama",
            )
        tokenizer = AutoTokenizer.from_pretrained(
            files.place, **_LOCAL, **files.tokenizer_arguments()
        )
    if not tokenizer.is_fast:
        raise ModelLoadError(
            "The model has no fast tokenizer", name, "Use a model with a tokenizer.json"
        )
    if not tokenizer.chat_template:
        raise ModelLoadError("The model has no chat template", name, "Use an instruct model")
    return config, tokenizer


def _weights(files: BaseFiles, dtype: Any, name: str, further: Mapping[str, Any]) -> Any:
    """Return the model with its weights, all of them from the files."""
    with reported(name):
        model, report = AutoModelForCausalLM.from_pretrained(
            files.place,
            dtype=dtype,
            attn_implementation=NAME,
            output_loading_info=True,
            **_LOCAL,
            **files.model_arguments(),
            **further,
        )
        if missing := sorted(report["missing_keys"]):
            raise ModelLoadError(
                f"The files lack {len(missing)} tensors of this model, for example {missing[0]}",
                name,
                "config.json and the weights belong to different models: download it again",
            )
    return model


@contextmanager
def reported(name: str) -> Iterator[None]:
    """Convert errors of transformers to ours."""
    try:
        yield
    except AjetError:
        raise
    except _ERRORS as error:
        text = str(error).strip("'\"\n ")
        todo = "Give a folder with config.json, the weights and the tokenizer, or a GGUF file"
        if "custom code" in text or "trust_remote_code" in text:
            text = "it needs code of its own, which is not run here"
            todo = "Use a model whose architecture transformers has"
        elif "does not recognize this architecture" in text or "is not supported yet" in text:
            text = text.split(" This could be")[0].split(" and architecture")[0]
            todo = "A newer version of transformers may have it; else use another model"
        elif "ignore_mismatched_sizes" in text:
            text = "its tensors have other shapes than config.json says"
            todo = "config.json and the weights belong to different models: download it again"
        first = (text.splitlines() or [type(error).__name__])[0].rstrip(". ")
        raise ModelLoadError(f"The model cannot be loaded: {first}", name, todo) from error


def _check_logits(model: Any, name: str, dtype: Any) -> None:
    """Check that the logits are finite and that the last layer alone makes them, as an update
    computes them.

    Raises:
        ModelLoadError: they are not, or the model has another structure.
    """
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    ids = torch.tensor([[1, 2, 3]], device=next(model.parameters()).device)
    try:
        with torch.no_grad():
            own = model(input_ids=ids, use_cache=False).logits.float()
            body = getattr(inner, inner.base_model_prefix)
            hidden = body(input_ids=ids, use_cache=False).last_hidden_state
            ours = inner.get_output_embeddings()(hidden).float()
    except (AttributeError, TypeError) as error:
        raise ModelLoadError(
            f"The model has another structure than this backend trains: {error}",
            name,
            "Use another model",
        ) from error
    if not bool(own.isfinite().all()):
        kind = str(dtype).removeprefix("torch.")
        raise ModelLoadError(
            f"The logits of this model are not finite in {kind}",
            name,
            "The files contain numbers that are not finite: download the model again",
        )
    largest = float(own.abs().max())
    if own.shape != ours.shape or not torch.allclose(own, ours, rtol=0.02, atol=0.02 * largest):
        raise ModelLoadError(
            "The model changes its logits after the last layer, which an update would not "
            "reproduce",
            name,
            "Use another model",
        )


def _window(config: Any, requested: int | None) -> int:
    longest = int(getattr(config, "max_position_embeddings", None) or DEFAULT_CONTEXT)
    sliding = int(getattr(config, "sliding_window", None) or longest)
    return min(longest, sliding, requested or DEFAULT_CONTEXT)


def _without_sliding(config: Any) -> bool:
    """Let each layer read all earlier tokens, which is the same in a window of `_window`; return
    whether this changed the configuration."""
    if not getattr(config, "sliding_window", None):
        return False
    config.sliding_window = None
    if layers := getattr(config, "layer_types", None):
        config.layer_types = ["full_attention"] * len(layers)
    return True


def _planned(
    config: Any, form: TrainingForm, window: int, dtype: Any, device: str, options: TorchOptions
) -> MemoryPlan:
    """Return the plan of the memory.

    Raises:
        OutOfSpaceError: it does not fit; names what else uses the card. Or the machine's own memory
            is too small for what is kept there.
    """
    with reported(options.model):
        sizes = _sizes(config, form, window, dtype)
    try:
        most = None if options.max_memory is None else int(options.max_memory * 1e9)
        memory = plan(sizes, free_bytes(device), most, device=device)
    except OutOfSpaceError as error:
        raise _no_space(error.what, error.todo, device) from error
    if device.startswith("cuda"):
        check_host(sizes, free_bytes("cpu"))
    return memory


def _no_space(what: str, todo: str, device: str) -> OutOfSpaceError:
    """Return the error with the other processes on the card."""
    others = in_use(device, card_uuid(device))
    if others:
        what = f"{what}. Other processes use the card: {others}"
        todo = f"End them. {todo}" if todo else "End them"
    return OutOfSpaceError(what, todo=todo)


def _sizes(config: Any, form: TrainingForm, context: int, dtype: Any) -> ModelSizes:
    """Return the sizes of a model that is not loaded."""
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
        model.requires_grad_(form.rank == 0)
        if form.rank:
            model = _with_lora(model, form)
    heads = config.num_attention_heads
    count = [parameter.numel() for parameter in model.parameters() if parameter.requires_grad]
    return ModelSizes(
        params=sum(parameter.numel() for parameter in model.parameters()),
        trained=sum(count),
        layers=config.num_hidden_layers,
        hidden=config.hidden_size,
        inner=getattr(config, "intermediate_size", 0) or 4 * config.hidden_size,
        heads=heads,
        groups=getattr(config, "num_key_value_heads", None) or heads,
        head=getattr(config, "head_dim", None) or config.hidden_size // heads,
        vocab=config.vocab_size,
        context=context,
        width=dtype.itemsize,
        full=form.rank == 0,
    )


def _with_lora(model: Any, form: TrainingForm) -> Any:
    from peft import LoraConfig, get_peft_model

    _check_lora(model, form)
    config = LoraConfig(
        r=form.rank,
        lora_alpha=form.alpha,
        target_modules=list(form.targets) or "all-linear",
        lora_dropout=0.0,
        bias="none",
        task_type="CAUSAL_LM",
    )
    try:
        with torch.random.fork_rng(devices=[]), peft_before_renaming():
            torch.manual_seed(0)  # a reset leads to the same adapter again
            return get_peft_model(model, config, autocast_adapter_dtype=False)
    except ValueError as error:
        raise ModelLoadError(
            f"LoRA cannot be added: {str(error).rstrip('. ')}",
            "ajet.lora.target_modules",
            "Use all-linear",
        ) from error


def _check_lora(model: Any, form: TrainingForm) -> None:
    """Check that the rank is one, and that each target exists.

    Raises:
        ModelLoadError: says which one does not, and which there are.
    """
    if not 1 <= form.rank <= model.config.hidden_size:
        raise ModelLoadError(
            f"LoRA of rank {form.rank} is out of range: the layers have a width of "
            f"{model.config.hidden_size}",
            "ajet.lora.lora_rank",
            "Give a rank from 8 to 64, or train all weights with --full",
        )
    linear = {
        name
        for name, module in model.named_modules()
        if type(module).__name__ in ("Linear", "Conv1D")
    }
    wrong = [
        target
        for target in form.targets
        if not any(name == target or name.endswith(f".{target}") for name in linear)
    ]
    if wrong:
        there = sorted({name.rpartition(".")[2] for name in linear} - {"lm_head"})
        raise ModelLoadError(
            f"LoRA cannot be added: the model has no linear layer {', '.join(wrong)}",
            "ajet.lora.target_modules",
            f"Use all-linear, or some of {', '.join(there)}",
        )


def _ends(model: Any, tokenizer: Any) -> frozenset[int]:
    """Return the ids that end an answer."""
    ids = model.generation_config.eos_token_id
    ends = ids if isinstance(ids, list) else [ids]
    return frozenset(end for end in (*ends, tokenizer.eos_token_id) if end is not None)
