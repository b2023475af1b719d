"""Checks that the packages of the torch backend are installed, without importing them."""

import contextlib
import os
import re
import shlex
import sys
import warnings
from collections.abc import Iterator
from importlib import metadata, util
from pathlib import Path

from ajet_swarm.common.errors import AjetError

TORCH_PAGE = "pytorch.org"
"""Site that prints the command which installs torch for a card."""
EXTRA = "ajet-console[torch]"
_GGUF = "gguf"

_BOUNDS = {
    "torch": ((">=", "2.11"),),
    "gguf": ((">=", "0.19"),),
    "peft": ((">=", "0.21"),),
    "safetensors": ((">=", "0.8"),),
    "transformers": ((">=", "5.17"), ("<", "6")),
}
"""Package -> bounds of its version: those of the extra `torch`."""


def require(*, gguf: bool = False) -> None:
    """Check the packages that the torch backend needs.

    Args:
        gguf: Whether the model is a GGUF file, which needs one more package.

    Raises:
        AjetError: one is missing, or its version does not fit; says how to install it.
    """
    problems = missing(gguf=gguf)
    if problems:
        raise AjetError(
            f"the torch backend needs other packages: {', '.join(problems)}", todo=todo()
        )


def missing(*, gguf: bool = False) -> list[str]:
    """Return what is missing or has another version, torch first; empty when all is there."""
    problems = []
    for name, bounds in _BOUNDS.items():
        if name == _GGUF and not gguf:
            continue
        installed = _version(name)
        if installed is None:
            problems.append(f"{name} is missing")
            continue
        for sign, bound in bounds:
            if (_numbers(installed) < _numbers(bound)) == (sign == ">="):
                problems.append(f"{name} {installed} is not {sign} {bound}")
    return problems


def quiet() -> None:
    """Keep progress bars and announcements of later releases of these packages out of the log.

    Call it before transformers is imported. The log of the engine has one line for each message,
    and its reader can do nothing about either.
    """
    os.environ["TQDM_DISABLE"] = "1"
    os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
    for kind in (FutureWarning, DeprecationWarning):
        warnings.filterwarnings("ignore", category=kind, module=r"(torch|transformers|peft)\.")


@contextlib.contextmanager
def peft_before_renaming() -> Iterator[None]:
    """Hide the warning that PEFT causes: it reads an attribute that transformers 5.23 renames."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "`is_gradient_checkpointing`", FutureWarning)
        yield


def todo() -> str:
    """Return how to install the packages into the environment of this program, as one sentence."""
    pip = f"{_python()} -m pip install"
    return (
        f"First install torch with the command for your card ({TORCH_PAGE}, 'Get started'; "
        f"`{pip}` in place of its `pip install`), then `{pip} '{EXTRA}'`"
    )


def _python() -> str:
    """Return the interpreter as typed in a shell: relative below the current folder."""
    path = Path(sys.executable)
    with contextlib.suppress(ValueError, OSError):
        path = path.relative_to(Path.cwd())
    return shlex.quote(str(path))


def _version(name: str) -> str | None:
    """Return the version of an installed package; None when it cannot be imported."""
    try:
        if util.find_spec(name) is None:
            return None
        return metadata.version(name)
    except (metadata.PackageNotFoundError, ValueError):
        return None


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(digits) for digits in re.findall(r"\d+", text)[:3])
