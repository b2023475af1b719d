"""A tracker sink for Weights & Biases: offline runs, which `wandb sync` uploads."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from proxy.trackers.sink import SinkKind, StepFigures


class WandbSink:
    """Logs the figures of each step to one offline run."""

    def __init__(self, options: Mapping[str, Any], folder: Path) -> None:
        import wandb  # it takes seconds, so only where the sink is used

        folder.mkdir(parents=True, exist_ok=True)
        project = options.get("project", "ajet-console")
        self._run = wandb.init(project=project, dir=str(folder), mode="offline")

    def log(self, figures: StepFigures) -> None:
        """Log one step; the names begin with the server's."""
        values = {"step": figures.step, **figures.values}
        self._run.log({f"{figures.server}/{name}": value for name, value in values.items()})

    def close(self) -> None:
        """End the run."""
        self._run.finish()


KIND = SinkKind(WandbSink, "offline runs for Weights & Biases")
