"""The built-in sink `tensorboard`: event files for TensorBoard.

Each server and training run has a folder of its own, so that TensorBoard draws one curve per run.
Option `folder`: where the folders are made; by default `tensorboard` in the home.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ajet_swarm.common.errors import UsageError
from proxy.trackers.sink import SinkKind, StepFigures

if TYPE_CHECKING:
    from tensorboardX import SummaryWriter

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
        self._opened = 0
        """Number of writers made so far."""
        self._writers: dict[str, tuple[str, SummaryWriter]] = {}
        """Run and writer of each server: a writer has two threads and three open files."""

    def log(self, figures: StepFigures) -> None:
        """Write each figure as a scalar and flush; another run closes the file of the last one."""
        run, writer = self._writers.get(figures.server, ("", None))
        if writer is None or run != figures.run:
            writer = self._open(figures)
        for tag, value in figures.values.items():
            writer.add_scalar(tag, value, figures.step, figures.at)
        writer.flush()

    def _open(self, figures: StepFigures) -> "SummaryWriter":
        if (last := self._writers.pop(figures.server, None)) is not None:
            last[1].close()
        path = self._folder.joinpath(
            *(_name(part) for part in (figures.server, figures.run) if part)
        )
        path.mkdir(parents=True, exist_ok=True)
        # Without a suffix, a file of the same run and second would be overwritten.
        suffix = f".{self._opened}" if self._opened else ""
        writer = self._writer_class(str(path), filename_suffix=suffix)
        self._opened += 1
        self._writers[figures.server] = figures.run, writer
        return writer

    def close(self) -> None:
        """Close all files."""
        for _, writer in self._writers.values():
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
