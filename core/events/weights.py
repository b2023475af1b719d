"""Events of the weights of a swarm server: their training run, and what a weight sync changed."""

from typing import Literal

from core.events.base import Event


class TrainingRunIdentified(Event, frozen=True, kw_only=True):
    """The engine collects samples, and the training run of its weights is known.

    Published at each start of an engine, and when the server reports another run. Events of groups
    refer to the run by its number.
    """

    number: int
    """From 1 on each server; a run that continues after a stop keeps its number."""
    name: str
    """Id of the run at a server that reports one. Otherwise the experiment and the number of
    observed starts, as `math.3`."""
    start: str = ""
    """Checkpoint or model that its first weights came from, as the server reports it."""


class WeightSyncChecked(Event, frozen=True, kw_only=True):
    """Log-probs of fixed prompts before and after a weight sync were compared, or could not be."""

    step: int
    """Global step whose update was synced."""
    outcome: Literal["changed", "unchanged", "unknown"]
    cause: str = ""
    """Why the outcome is unknown."""
    change: float = 0.0
    noise: float = 0.0
    """Change of the log-probs across the sync, and between two readings before it, in nats."""
