"""State of the mock user's newest run."""

import msgspec


class MockRow(msgspec.Struct, kw_only=True):
    """One row the mock user asked."""

    row_id: str
    query: str
    ok: bool
    seconds: float
    error: str = ""
    at: float = 0.0
    group_id: str = ""
    """The group it became; empty when the mock user did not learn of it."""
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
    """Rows that an earlier start had done."""
    rate: float = 0.0
    """Questions a second when they arrive by the clock; 0 in a closed loop."""
    passes: int = 1
    seed: int | None = None
    split: str = ""
    held_out: float = 0.0
    columns: str = ""
    lost: int = 0
    """Rows that were in flight when an earlier start was killed; part of `already`."""
    failed: int = 0
    skipped: int = 0
    started_at: float = 0.0
    ended_at: float | None = None
    rows: list[MockRow] = msgspec.field(default_factory=list)
    problems: list[str] = msgspec.field(default_factory=list)
