"""The order `mock.start` as a command line of the mock user."""

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
}
"""Argument of `mock.start` -> flag of `ajet-console mock`."""


def mock_args(args: Mapping[str, Any]) -> list[str]:
    """Arguments of `mock.start` as the command line takes them."""
    given = [str(args["dataset"])] if args.get("dataset") else []
    for name, flag in FLAGS.items():
        value = args.get(name)
        if value is True:
            given.append(f"--{flag}")
        elif value not in (None, "", False):
            own = "base-url" if name == "target" and _is_address(str(value)) else flag
            given += [f"--{own}", str(value)]
    return given


def check_target(target: str) -> None:
    """Look at a target before the mock user is started with it.

    Args:
        target: An address, the name of a target, its file, or nothing.

    Raises:
        TargetFileError: it is a file that cannot be used.
    """
    if target and not _is_address(target):
        module = import_module("mock.targets.spec")
        module.read_target(module.find_target(target))


def _is_address(target: str) -> bool:
    return target.startswith(("http://", "https://"))
