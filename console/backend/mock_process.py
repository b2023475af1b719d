"""The mock user's process: its command line, its crash, and PyPI's package of that name."""

import asyncio
import importlib.util
import logging
from collections.abc import Mapping
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

from ajet_swarm.common.errors import AjetError
from console.session.app_state import ChildProcess, Session
from console.text.causes import exit_text
from core.events import MockFinished
from core.runtime.home import Home
from core.state import Mock

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


log = logging.getLogger(__name__)


class CrashedMockReporter:
    """Posts `MockFinished` for a mock user of this home whose process is gone.

    Args:
        home: Contains the results of its mock users. A mock user without results here belongs to
            another home and is ignored.
    """

    def __init__(self, home: Home) -> None:
        self._home = home
        self._reported = ""
        self._suspect = ""

    async def check(
        self, session: Session, before: Mock | None, child: ChildProcess | None
    ) -> None:
        """Report the mock user's end when two checks in a row find its process gone.

        Args:
            before: The mock user known before the processes were polled: another may have
                started since.
            child: The mock user's process as just polled; None when there is none.
        """
        dead = child is None or child.pid is None
        if before is None or before.ended_at is not None or not dead or session.read_only:
            self._suspect = ""
            return
        name = before.mock_id
        if name == self._reported or session.link is None or not session.seen:
            return
        if self._suspect != name:  # its own report may still be on its way
            self._suspect = name
            return
        if not await asyncio.to_thread((self._home.root / "mock" / f"{name}.jsonl").exists):
            return
        code = child.exit_code if child is not None else None
        cause = exit_text(code) if code is not None else "its process is gone"
        try:
            known = (await session.link.snapshot()).mock
            if known is not None and known.mock_id == name and known.ended_at is None:
                end = MockFinished(mock_id=name, how="failed", cause=cause)
                await session.link.post_fact(f"{name}:end", end)
        except AjetError as error:
            log.debug("the end of the mock user is not reported yet: %s", error)
            return
        self._reported = name


REMEDY = "Install ajet-console in its own environment: with pipx, uvx or `make run`"
"""What the operator can do about a collision."""
_OURS = Path(__file__).resolve().parents[2] / "mock" / "__init__.py"


def mock_collision() -> str:
    """Describe what is wrong with this environment's package `mock`; empty when it is ours.

    The package is not imported.
    """
    try:
        installed = metadata.version("mock")
    except metadata.PackageNotFoundError:
        installed = ""
    if installed:
        return (
            f"PyPI's package `mock` {installed} is in this environment and overwrites or hides the "
            "mock user's package of the same name"
        )
    spec = importlib.util.find_spec("mock")
    if spec is None or spec.origin is None:
        return "the mock user's package `mock` cannot be imported"
    if Path(spec.origin).resolve() != _OURS:
        return f"another package `mock` hides the mock user's: {spec.origin}"
    return ""
