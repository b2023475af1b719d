"""Translates the command `mock.start` into a command line of the mock user."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

FLAGS: Mapping[str, str] = {
    "columns": "columns",
    "target": "target",
    "concurrency": "concurrency",
    "pace": "pace",
    "rate": "rate",
    "passes": "passes",
    "seed": "seed",
    "split": "split",
    "held_out": "held-out",
    "updates": "updates",
    "results": "results",
    "pause_sync": "pause-sync",
    "restart": "restart",
    "override": "yes",
}
"""Argument of `mock.start` -> flag of `ajet-console run mock`."""


def mock_args(args: Mapping[str, Any]) -> list[str]:
    """Return the arguments of `mock.start` as command-line words."""
    dataset = str(args.get("dataset") or "")
    if dataset.startswith("-"):
        dataset = f"./{dataset}"  # a name, never a flag: some flags run code
    words = [dataset] if dataset else []
    for name, flag in FLAGS.items():
        value = args.get(name)
        if value is True:
            words.append(f"--{flag}")
        elif value is not None and value is not False and value != "":  # 0 is a value
            actual = "base-url" if name == "target" and _is_url(str(value)) else flag
            words += [f"--{actual}", str(value)]
    return words


def check_target(target: str) -> None:
    """Check a target before the mock user is started with it.

    Args:
        target: A URL, the name of a target, the path of a target file, or nothing.

    Raises:
        TargetFileError: the target file cannot be used.
    """
    if target and not _is_url(target):
        module = import_module("mock.targets.spec")
        module.read_target(module.find_target(target))


def _is_url(target: str) -> bool:
    return target.startswith(("http://", "https://"))
