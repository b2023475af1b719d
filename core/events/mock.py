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


class MockRowSkipped(Event, frozen=True, kw_only=True):
    """A row of the dataset cannot be used."""

    mock_id: str
    line: int
    cause: str


class MockFinished(Event, frozen=True, kw_only=True):
    """The mock user ended: finished, stopped or failed."""

    mock_id: str
    how: str
    cause: str = ""
