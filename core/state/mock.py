"""State of the mock user's newest run."""

import msgspec


class MockRow(msgspec.Struct, kw_only=True):
    """One row sent by the mock user."""

    row_id: str
    query: str
    ok: bool
    seconds: float
    error: str = ""
    at: float = 0.0
    group_id: str = ""
    """Group of its request; empty if unknown to the mock user."""
    turns: int = 1


class Mock(msgspec.Struct, kw_only=True):
    """The newest run of the mock user."""

    mock_id: str
    dataset: str
    target: str
    total: int
    phase: str = "running"
    """running, paused, stopping, finished, stopped or failed."""
    cause: str = ""
    concurrency: int = 1
    pace: float = 0.0
    done: int = 0
    already: int = 0
    """Rows done by an earlier start."""
    rate: float = 0.0
    """Questions per second in an open loop; 0 in a closed loop."""
    passes: int = 1
    seed: int | None = None
    split: str = ""
    held_out: float = 0.0
    columns: str = ""
    lost: int = 0
    """Rows in flight when an earlier start was killed; included in `already`."""
    failed: int = 0
    retries: int = 0
    """Requests that were sent again because the target was busy; a row that fails in the end counts
    as failed, too."""
    waiting: str = ""
    """Why no answers arrive at the moment; empty if they do."""
    skipped: int = 0
    started_at: float = 0.0
    ended_at: float | None = None
    rows: list[MockRow] = msgspec.field(default_factory=list)
    problems: list[str] = msgspec.field(default_factory=list)
