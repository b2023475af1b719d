"""Events of the mock user."""

from core.events.base import Event


class MockStarted(Event, frozen=True, kw_only=True):
    """The mock user started or resumed a dataset."""

    mock_id: str
    dataset: str
    target: str
    total: int
    """Total number of rows to send, over all passes; 0 if unknown."""
    concurrency: int = 1
    pace: float = 0.0
    """Seconds between two requests of one worker."""
    done: int = 0
    """Rows done in an earlier start."""
    skipped: int = 0
    """Rows that could not be read."""
    rate: float = 0.0
    """Questions per second in an open loop; 0 if each question waits for the previous answer."""
    passes: int = 1
    seed: int | None = None
    """Seed of each pass's shuffle; None keeps the dataset's order."""
    split: str = ""
    """`train` or `held-out`; empty for all rows."""
    held_out: float = 0.0
    """Share of rows that are held out; 0 without a split."""
    columns: str = ""
    """`PART=COLUMN,...`: columns of the dataset with other names than usual."""
    lost: int = 0
    """Rows in flight when an earlier start was killed; included in `done`."""


class MockCounted(Event, frozen=True, kw_only=True):
    """The number of rows to send became more exact."""

    mock_id: str
    total: int
    skipped: int = 0
    """Unreadable rows so far."""


class MockPaused(Event, frozen=True, kw_only=True):
    """The mock user was paused: it sends nothing until it is resumed."""

    mock_id: str


class MockResumed(Event, frozen=True, kw_only=True):
    """The mock user was resumed."""

    mock_id: str


class MockStopping(Event, frozen=True, kw_only=True):
    """The mock user was ordered to stop once the requests in flight are answered."""

    mock_id: str


class MockRowDone(Event, frozen=True, kw_only=True):
    """One row was sent and answered, or failed."""

    mock_id: str
    row_id: str
    query: str
    ok: bool
    seconds: float
    error: str = ""
    answer: str = ""
    group_id: str = ""
    """The group of its request, the last of several turns; empty if unknown."""
    turns: int = 1
    """Number of its questions that were sent."""


WAITS_FOR_VOTES = "waits for your votes"
"""`MockRetried.waiting` while the next row would wait for open groups to be rated."""


class MockRetried(Event, frozen=True, kw_only=True):
    """Requests were refused as busy and are sent again, or what the mock user waits for changed."""

    mock_id: str
    retries: int
    """Number of repeated requests since its start."""
    waiting: str = ""
    """Why no answers arrive at the moment; empty if they do."""


class MockRowSkipped(Event, frozen=True, kw_only=True):
    """A row of the dataset is unusable."""

    mock_id: str
    line: int
    cause: str
    place: str = "line"
    """Unit of `line`: line, row or element."""


class MockFinished(Event, frozen=True, kw_only=True):
    """The mock user ended: finished, stopped or failed."""

    mock_id: str
    how: str
    cause: str = ""
