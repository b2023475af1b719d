"""Events of the mock user."""

from core.events.base import Event


class MockStarted(Event, frozen=True, kw_only=True):
    """The mock user began, or went on with, a dataset."""

    mock_id: str
    dataset: str
    target: str
    total: int
    """Rows it will ask in all, over all passes; 0 when not known."""
    concurrency: int = 1
    pace: float = 0.0
    """Seconds between two requests of one worker."""
    done: int = 0
    """Rows that were already done in an earlier start."""
    skipped: int = 0
    """Rows that could not be read."""
    rate: float = 0.0
    """Questions a second when they arrive by the clock; 0 when each waits for the one before."""
    passes: int = 1
    seed: int | None = None
    """What each pass is shuffled by; None keeps the dataset's order."""
    split: str = ""
    """`train` or `held-out`; empty for all rows."""
    held_out: float = 0.0
    """Share of the rows that is held out; 0 without a split."""
    columns: str = ""
    """`PART=COLUMN,...`: what the dataset's columns are called where not as usual."""
    lost: int = 0
    """Rows an earlier start had in flight when it was killed; part of `done`."""


class MockCounted(Event, frozen=True, kw_only=True):
    """How many rows there are to ask is known better."""

    mock_id: str
    total: int
    skipped: int = 0
    """Rows that could not be read so far."""


class MockPaused(Event, frozen=True, kw_only=True):
    """The mock user was told to send nothing more until it is resumed."""

    mock_id: str


class MockResumed(Event, frozen=True, kw_only=True):
    """The mock user goes on."""

    mock_id: str


class MockStopping(Event, frozen=True, kw_only=True):
    """The mock user was told to end after what is in flight."""

    mock_id: str


class MockRowDone(Event, frozen=True, kw_only=True):
    """One row was asked and answered, or failed."""

    mock_id: str
    row_id: str
    query: str
    ok: bool
    seconds: float
    error: str = ""
    answer: str = ""
    group_id: str = ""
    """The group it became, the last one of several turns; empty when that is not known."""
    turns: int = 1
    """Questions of it that were asked."""


class MockRowSkipped(Event, frozen=True, kw_only=True):
    """A row of the dataset cannot be used."""

    mock_id: str
    line: int
    cause: str
    place: str = "line"
    """What `line` counts: line, row or element."""


class MockFinished(Event, frozen=True, kw_only=True):
    """The mock user ended: finished, stopped or failed."""

    mock_id: str
    how: str
    cause: str = ""
