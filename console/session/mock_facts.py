"""Progress and pace of a run of the mock user, derived from its state."""

from core.state import Mock

RATE_ROWS = 40
"""The newest rows that the rate and the time left are computed from."""
RATE_LEAST_ROWS = 10
RATE_LEAST_SECONDS = 10.0
"""Fewest rows and shortest time for a meaningful rate."""


def rows_done(mock: Mock) -> int:
    """Return the number of finished rows, including earlier starts."""
    return mock.already + mock.done


def rate(mock: Mock, now: float) -> float | None:
    """Return rows per second over the newest ones; None while unknown."""
    rows = mock.rows[-RATE_ROWS:]
    if not rows:
        return None
    since = mock.rows[-RATE_ROWS - 1].at if len(mock.rows) > RATE_ROWS else mock.started_at
    until = mock.ended_at if mock.ended_at is not None else max(now, rows[-1].at)
    taken = (rows[-1].at if mock.phase == "paused" else until) - since
    if taken <= 0 or (len(rows) < RATE_LEAST_ROWS and taken < RATE_LEAST_SECONDS):
        return None
    return len(rows) / taken


def seconds_left(mock: Mock, now: float) -> float | None:
    """Return the seconds until the end of the dataset at the present rate; None when unknown."""
    speed = rate(mock, now)
    if mock.phase != "running" or not mock.total or not speed:
        return None
    return max(0, mock.total - rows_done(mock)) / speed


def share(mock: Mock) -> float | None:
    """Return the finished share of the dataset, 0 to 1."""
    return min(1.0, rows_done(mock) / mock.total) if mock.total else None
