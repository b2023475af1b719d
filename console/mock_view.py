"""The mock user in words and figures: plain functions of the state."""

import math
from collections.abc import Sequence

from console.views import EMPTY, Line, fit
from console.widgets.words import UNKNOWN, clock, duration, plural
from console.wrap import safe
from core.state import Mock, MockRow
from core.text import one_line

RATE_ROWS = 40
"""The newest rows that the rate and the time left are taken from."""
RATE_LEAST_ROWS = 10
RATE_LEAST_SECONDS = 10.0
"""A rate from fewer rows and a shorter time says nothing."""

_LOOKS = {
    "running": ("▶", "running", "bold $reward-up"),
    "paused": ("‖", "paused", "bold $warning"),
    "stopping": ("■", "stopping after what is in flight", "$warning"),
    "finished": ("●", "finished", "$reward-up"),
    "stopped": ("■", "stopped", "$muted"),
    "failed": ("!", "failed", "bold $reward-down"),
}


def cut_off(mock: Mock, lives: bool) -> bool:
    """Whether the run has not told its end, and no process is left that could."""
    return mock.ended_at is None and not lives


def asked(mock: Mock) -> int:
    """Rows that are behind it, those of earlier starts included."""
    return mock.already + mock.done


def rate(mock: Mock, now: float) -> float | None:
    """Rows a second over the newest ones; None while that is not known."""
    rows = mock.rows[-RATE_ROWS:]
    if not rows:
        return None
    if len(mock.rows) > RATE_ROWS:
        since, count = mock.rows[-RATE_ROWS - 1].at, len(rows)
    else:
        since, count = mock.started_at, len(rows)
    until = mock.ended_at if mock.ended_at is not None else max(now, rows[-1].at)
    if mock.phase == "paused":
        until = rows[-1].at
    taken = until - since
    if taken <= 0 or (count < RATE_LEAST_ROWS and taken < RATE_LEAST_SECONDS):
        return None
    return count / taken


def seconds_left(mock: Mock, now: float) -> float | None:
    """Until the dataset is through at the present rate; None when it is not known."""
    speed = rate(mock, now)
    if mock.phase != "running" or not mock.total or not speed:
        return None
    return max(0, mock.total - asked(mock)) / speed


def share(mock: Mock) -> float | None:
    """How much of the dataset is through, 0 to 1."""
    return min(1.0, asked(mock) / mock.total) if mock.total else None


def summary_lines(mock: Mock | None, now: float, width: int, lives: bool = True) -> list[Line]:
    """Phase and figures, two lines; three when there is a cause.

    Args:
        lives: Whether a process of the mock user runs.
    """
    if mock is None:
        return [
            (
                ("The mock user has not been started.  ", "$muted"),
                ("s", "bold"),
                (" starts it", "$muted"),
            )
        ]
    sign, word, tone = _LOOKS.get(mock.phase, ("?", one_line(mock.phase, 20), "$engine-unknown"))
    over = cut_off(mock, lives)
    if over:
        sign, word, tone = "✖", "ended: no process", "bold $reward-down"
    name = one_line(mock.dataset, 300) or "shipped questions"
    if len(name) > 40:
        name = "…" + name[-39:]
    first: Line = (
        (f"{sign} {word}", tone),
        (f"  {name}", ""),
        (f"  → {one_line(mock.target, 60)}" if mock.target else "", "$muted"),
    )
    return [first, _figures(mock, now, over), *_cause(mock, width)]


def _figures(mock: Mock, now: float, over: bool) -> Line:
    at = mock.rows[-1].at if over and mock.rows else now
    speed, left = rate(mock, at), seconds_left(mock, at)
    ok = mock.done - mock.failed
    pace = UNKNOWN if speed is None else f"{speed * 60:.1f}/min"
    pieces: list[tuple[str, str]] = [
        (f"{ok} ok", "$reward-up" if ok else "$muted"),
        (f"  {mock.failed} failed", "$reward-down" if mock.failed else "$muted"),
        (f"  {mock.skipped} skipped", "$warning" if mock.skipped else "$muted"),
    ]
    if mock.already:
        pieces.append((f"  {mock.already} done before", "$muted"))
    pieces += [("   rate ", "$muted"), (pace, "")]
    if mock.phase == "running" and not over:
        pieces += [("   left ", "$muted"), (duration(left), "")]
    pieces += [("   x", "$muted"), (str(mock.concurrency), "")]
    if mock.pace:
        pieces += [("   pace ", "$muted"), (duration(mock.pace), "")]
    return tuple(pieces)


def _cause(mock: Mock, width: int) -> list[Line]:
    return [((fit(one_line(mock.cause, 400), width), "$reward-down"),)] if mock.cause else []


def progress_text(mock: Mock) -> str:
    """`34/120 · 28%`."""
    done = asked(mock)
    part = share(mock)
    if part is None:
        return f"{done} asked"
    return f"{done}/{mock.total} · {math.floor(100 * part)}%"


def result_lines(mock: Mock | None, width: int) -> list[Line]:
    """Rows that were asked, newest first."""
    if mock is None:
        return []
    return [result_line(row, width) for row in reversed(mock.rows)]


def result_line(row: MockRow, width: int) -> Line:
    """`✓ 12:03:14   1.3s  What is the capital of France?`."""
    mark = ("✓", "$reward-up") if row.ok else ("✗", "bold $reward-down")
    room = max(8, width - 20)
    query = safe(one_line(row.query, 300)) or "(no text)"
    error = safe(one_line(row.error, 200))
    if not error:
        said: Line = ((fit(query, room), ""),)
    else:
        half = max(8, room // 2)
        said = ((fit(query, room - half), ""), (fit(f" {error}", half), "$reward-down"))
    return (
        mark,
        (f" {clock(row.at)} ", "$muted"),
        (fit(duration(row.seconds), 6, right=True), "$muted"),
        ("  ", ""),
        *said,
    )


def problem_lines(problems: Sequence[str], width: int) -> list[Line]:
    """Rows of the dataset that cannot be used, newest last."""
    if not problems:
        return []
    title = (f"{plural(len(problems), 'row')} cannot be used", "bold $warning")
    return [
        (title,),
        *(((fit(safe(one_line(text, 400)), width), "$muted"),) for text in problems),
        EMPTY,
    ]
