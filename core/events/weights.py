"""Events of the weights of a swarm server: their training run."""

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
