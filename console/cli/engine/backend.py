"""The options that choose the embedded engine's backend and model, for `engine` and the console."""

from collections.abc import Sequence
from typing import Any

from ajet_swarm.common.errors import AjetError, UsageError
from console.cli.options import Args, flag, option
from core.runtime.home import Home
from core.settings import SHIPPED_MODEL, SMOLLM2, EngineSettings

TORCH = (
    option("--device", "NAME", "torch: cuda, cuda:1, mps or cpu; else the fastest"),
    option("--dtype", None, "torch: number format of the weights", choices=("bfloat16", "float32")),
    option("--lora", "RANK", "torch: rank of LoRA; else the job's, else 16", type=int),
    flag("--full", "torch: train all weights instead of LoRA"),
    option("--context", "N", "torch: window in tokens; else the job's, else 4096", type=int),
    option(
        "--max-memory", "GB", "torch: device memory to use at most; else what is free", type=float
    ),
)
"""Options of the torch backend, for `engine` alone."""


def engine_flags(args: Args) -> dict[str, Any]:
    """Return the settings that the options of `engine` set; None where one is absent.

    Raises:
        UsageError: `--full` with `--lora`, or a number that is not positive.
    """
    if args.full and args.lora is not None:
        raise UsageError(
            "--full and --lora exclude each other",
            todo="LoRA trains an addition to the weights, --full all weights: give one",
        )
    for name in ("lora", "context", "max_memory"):
        value = getattr(args, name)
        if value is not None and not value > 0:
            raise UsageError(
                "must be above 0", f"--{name.replace('_', '-')} {value}", "Give a number above 0"
            )
    return model_flags(args.backend, args.model)


def model_flags(backend: str | None, model: str | None) -> dict[str, Any]:
    """Return the settings that `--backend` and `--model` set.

    The path of a model on disk becomes absolute, for a child process in another folder.

    Args:
        backend: Value of `--backend`.
        model: Value of `--model`.
    """
    from engine.torch.names import absolute_model

    if model is not None and model not in (SHIPPED_MODEL, SMOLLM2):
        model = absolute_model(model)
    return {"engine__backend": backend, "engine__model": model}


def check_backend(
    engine: EngineSettings, *, model: str | None, device: str = "", only_torch: Sequence[str] = ()
) -> None:
    """Check the options against the backend that is used.

    Args:
        engine: The merged settings.
        model: Value of `--model`; None when it was not given.
        device: Value of `--device`.
        only_torch: Options of the torch backend that are given.

    Raises:
        UsageError: an option of torch without torch, `--model tiny` with it, or no such device.
        AjetError: a package of the torch backend is missing; says how to install it.
    """
    if engine.backend != "torch":
        if only_torch:
            raise UsageError(
                f"{', '.join(only_torch)}: only the torch backend has this",
                todo="Add --backend torch",
            )
        return
    if model == SHIPPED_MODEL:
        raise UsageError(
            "`tiny` is a policy of the numpy backend",
            "--model tiny",
            "Leave out --backend torch, or name a Hugging Face folder, a .gguf file or a model",
        )
    from engine.torch.names import check_device, is_gguf
    from engine.torch.packages import require

    check_device(device)
    require(gguf=engine.model == SMOLLM2 or is_gguf(engine.model))


def torch_model(home: Home, engine: EngineSettings) -> str:
    """Return the exact model of the torch backend: a path, or a name; empty for the job's."""
    from engine.torch.files.smollm2 import SmolFiles
    from engine.torch.names import absolute_model

    if engine.model == SMOLLM2:
        return str(SmolFiles(home).model)
    return absolute_model(engine.torch_model)


def check_device_present(engine: EngineSettings, device: str) -> None:
    """Check that torch can use the device that is named, before the engine listens.

    Nothing is imported for an empty name, `cpu`, or another backend.

    Raises:
        AjetError: it cannot, or torch cannot be imported.
    """
    if engine.backend != "torch" or device in ("", "cpu"):
        return
    try:
        from engine.torch.hardware.devices import usable_device
    except (ImportError, OSError) as error:
        raise AjetError(
            f"torch cannot be imported: {error}", todo="Run `ajet-console doctor`"
        ) from error
    usable_device(device)
