"""The built-in sink `tensorboard`: event files for TensorBoard.

Each server and training run has a folder of its own, so that TensorBoard draws one curve per run.
Option `folder`: where the folders are made; by default `tensorboard` in the home.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ajet_swarm.common.errors import UsageError
from proxy.trackers.sink import SinkKind, StepFigures

_UNSAFE = re.compile(r"[^\w.+=-]+")


class TensorBoardSink:
    """Writes event files below `folder`."""

    def __init__(self, folder: Path) -> None:
        try:
            from tensorboardX import SummaryWriter
        except ImportError as error:
            raise UsageError(
                f"tensorboardX is not installed ({error})",
                "telemetry.sinks.tensorboard",
                "Install it with: pip install 'ajet-console[tensorboard]'",
            ) from error
        self._writer_class = SummaryWriter
        self._folder = folder
        self._writers: dict[str, SummaryWriter] = {}

    def log(self, figures: StepFigures) -> None:
        """Write each figure as a scalar and flush."""
        name = "/".join(_name(one) for one in (figures.server, figures.run) if one)
        writer = self._writers.get(name)
        if writer is None:
            path = self._folder / name
            path.mkdir(parents=True, exist_ok=True)
            self._writers[name] = writer = self._writer_class(str(path))
        for tag, value in figures.values.items():
            writer.add_scalar(tag, value, figures.step, figures.at)
        writer.flush()

    def close(self) -> None:
        """Close all files."""
        for writer in self._writers.values():
            writer.close()


def _name(text: str) -> str:
    """Return a name that is safe as a folder."""
    return _UNSAFE.sub("_", text).strip(".") or "_"


def _make(options: Mapping[str, Any], folder: Path) -> TensorBoardSink:
    if unknown := set(options) - {"folder"}:
        raise UsageError(
            f"there is no option `{min(unknown)}`",
            "telemetry.sinks.tensorboard",
            "It has: folder",
        )
    named = options.get("folder")
    return TensorBoardSink(Path(str(named)).expanduser() if named else folder)


KIND = SinkKind(_make, "event files for TensorBoard")
