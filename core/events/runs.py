"""Events of engine runs: what the operator writes about them."""

from core.events.base import Event


class RunNamed(Event, frozen=True, kw_only=True):
    """The operator named an engine run."""

    first_seq: int
    """Number of the run's first event, see `core.state.EngineRun`."""
    name: str
    """Empty removes the name."""


class RunNoted(Event, frozen=True, kw_only=True):
    """The operator wrote a note on an engine run."""

    first_seq: int
    note: str
    """Empty removes the note."""


class RunPinned(Event, frozen=True, kw_only=True):
    """The operator pinned an engine run, whose groups are then not pruned, or removed the pin."""

    first_seq: int
    pinned: bool
