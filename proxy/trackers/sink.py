"""The interface of a tracker sink, and all kinds of sinks by name.

Another package provides one by the entry point group `ajet_console.tracker_sinks`: its name and a
`SinkKind`. `examples/plugin` is such a package.
"""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ajet_swarm.common.errors import UsageError
from ajet_swarm.common.text import did_you_mean
from core.plugins import TRACKER_SINKS, Plugins


@dataclass(frozen=True, slots=True)
class StepFigures:
    """Figures of one global step of one server, or of one look at its policy."""

    server: str
    run: str
    """Name of the training run; empty if unknown."""
    step: int
    """Global step under which the samples were collected, or that a look measured."""
    at: float
    """Unix seconds."""
    values: Mapping[str, float]
    """Name -> figure, such as `reward/mean`; docs/guide/telemetry.md lists them."""


class TrackerSink(Protocol):
    """Receives figures. All methods are called by one thread that the sink has for itself."""

    def log(self, figures: StepFigures) -> None:
        """Take the figures of a step; may block, and may raise to report a failure."""
        ...

    def close(self) -> None:
        """Write what is buffered and release files and connections."""
        ...


SinkFactory = Callable[[Mapping[str, Any], Path], TrackerSink]
"""(options of the settings, folder for files of the sink) -> sink; may block or raise."""


@dataclass(frozen=True, slots=True)
class SinkKind:
    """A kind of sink."""

    make: SinkFactory
    help: str
    """One line."""


BUILT_IN = ("tensorboard",)
"""Names of the built-in kinds; each is a module of this package with a `KIND`."""
PLUGINS = Plugins(TRACKER_SINKS, SinkKind, BUILT_IN)
"""The kinds of other packages."""


def sink_kind(name: str) -> SinkKind:
    """Return the kind of a name; import it if need be.

    Raises:
        UsageError: there is no such kind, or it does not load.
    """
    if name in BUILT_IN:
        kind = importlib.import_module(f"proxy.trackers.{name}").KIND
        assert isinstance(kind, SinkKind)
        return kind
    known = (*BUILT_IN, *PLUGINS.names())
    if name not in known:
        meant = did_you_mean(name, known) or f"Known: {', '.join(known)}"
        raise UsageError(f"there is no sink `{name}`", "telemetry.sinks", meant)
    return PLUGINS.load(name)
