"""Loads a model of transformers with its tokenizer, and adds the trained part."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from ajet_swarm.common.errors import AjetError
from engine.torch.attention import NAME, register
from engine.torch.base_files import ModelLoadError, form_text, locate
from engine.torch.description import ModelDescription
from engine.torch.memory import MemoryPlan, ModelSizes, plan
from engine.torch.options import DEFAULT_CONTEXT, DEFAULT_RANK, TorchOptions


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


def load(options: TorchOptions, form: TrainingForm, context: int | None) -> Loaded:
    """Load a model.

    Args:
        options: Names the model, the device and the type.
        form: What is trained.
        context: Window in tokens that the job asks for.

    Raises:
        ModelLoadError: the model, its tokenizer or its template cannot be loaded, or the LoRA
            targets do not exist.
    """
    device = _device(options.device)
    dtype = _dtype(options.dtype, device)
    files = locate(options.model)
    register()
    try:
        config = AutoConfig.from_pretrained(files.place, **files.model_arguments())
        tokenizer = AutoTokenizer.from_pretrained(files.place, **files.tokenizer_arguments())
        window = _window(config, options.context or context)
        memory = plan(
            _sizes(config, form, window, dtype),
            free_bytes(device),
            None if options.max_memory is None else int(options.max_memory * 1e9),
            card=device != "cpu",
        )
        model = AutoModelForCausalLM.from_pretrained(
            files.place, dtype=dtype, attn_implementation=NAME, **files.model_arguments()
        )
    except AjetError:
        raise
    except Exception as error:
        raise ModelLoadError(
            f"The model cannot be loaded: {str(error).splitlines()[0] if str(error) else error!r}",
            options.model,
            "Give a folder with config.json, the weights and the tokenizer, or a GGUF file.",
        ) from error
    if not tokenizer.chat_template:
        raise ModelLoadError(
            "The model has no chat template", options.model, "Use an instruct model."
        )
    model.requires_grad_(form.rank == 0)
    if form.rank:
        model = _with_lora(model, form)
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    model.to(device)
    model.eval()
    names = [(name, one) for name, one in model.named_parameters() if one.requires_grad]
    layout = tuple((name.replace(".default.", "."), tuple(one.shape)) for name, one in names)
    return Loaded(
        model=model,
        tokenizer=tokenizer,
        trained=[one for _, one in names],
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


def _window(config: Any, wanted: int | None) -> int:
    longest = int(getattr(config, "max_position_embeddings", DEFAULT_CONTEXT))
    return min(longest, wanted or DEFAULT_CONTEXT)


def _sizes(config: Any, form: TrainingForm, context: int, dtype: Any) -> ModelSizes:
    """Return the sizes of a model that is not loaded."""
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
        model.requires_grad_(form.rank == 0)
        if form.rank:
            model = _with_lora(model, form)
    heads = config.num_attention_heads
    count = [one.numel() for one in model.parameters() if one.requires_grad]
    return ModelSizes(
        params=sum(one.numel() for one in model.parameters()),
        trained=sum(count),
        layers=config.num_hidden_layers,
        hidden=config.hidden_size,
        inner=getattr(config, "intermediate_size", 0) or 4 * config.hidden_size,
        groups=getattr(config, "num_key_value_heads", None) or heads,
        head=getattr(config, "head_dim", None) or config.hidden_size // heads,
        vocab=config.vocab_size,
        context=context,
        width=dtype.itemsize,
        full=form.rank == 0,
    )


def free_bytes(device: str) -> int:
    """Return the free memory of a device."""
    if device.startswith("cuda"):
        free: int = torch.cuda.mem_get_info(device)[0]
        return free
    import psutil

    return int(psutil.virtual_memory().available)


def _with_lora(model: Any, form: TrainingForm) -> Any:
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(
        r=form.rank,
        lora_alpha=form.alpha,
        target_modules=list(form.targets) or "all-linear",
        lora_dropout=0.0,
        bias="none",
        task_type="CAUSAL_LM",
    )
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)  # a reset leads to the same adapter again
            return get_peft_model(model, config, autocast_adapter_dtype=False)
    except ValueError as error:
        raise ModelLoadError(
            f"LoRA cannot be added: {error}", "ajet.lora.target_modules", "Use all-linear."
        ) from error


def _ends(model: Any, tokenizer: Any) -> frozenset[int]:
    """Return the ids that end an answer."""
    ids = model.generation_config.eos_token_id
    ends = ids if isinstance(ids, list) else [ids]
    return frozenset(one for one in (*ends, tokenizer.eos_token_id) if one is not None)


def _device(name: str) -> str:
    """Return the device to use; the fastest one for an empty name."""
    if not name:
        if torch.cuda.is_available():
            return "cuda"
        return "mps" if torch.backends.mps.is_available() else "cpu"
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise ModelLoadError(
            "torch finds no NVIDIA card", f"--device {name}", "Run `ajet-console doctor`."
        )
    if name.startswith("mps") and not torch.backends.mps.is_available():
        raise ModelLoadError("torch finds no Apple GPU", f"--device {name}", "Use --device cpu.")
    return name


def _dtype(name: str, device: str) -> Any:
    if name:
        kind = getattr(torch, name)
        on_card = kind is torch.bfloat16 and device.startswith("cuda")
        if on_card and not torch.cuda.is_bf16_supported():
            raise ModelLoadError(
                "The card has no bfloat16", f"--dtype {name}", "Use --dtype float32."
            )
        return kind
    if device.startswith("cuda") and torch.cuda.is_bf16_supported():
        return torch.bfloat16
    return torch.float32
