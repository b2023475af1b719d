"""The mock user as lines: progress, results, unusable rows."""

import math
from collections.abc import Sequence

from rich.cells import cell_len

from ajet_swarm.common.text import one_line, plural
from console.text.format import UNKNOWN, clock, duration
from console.text.lines import EMPTY, Line, fit, flow, line_width
from console.text.wrap import safe, wrapped
from core.events import MockRowDone
from core.state import Candidate, Group, Mock

RATE_ROWS = 40
"""The newest rows that the rate and the time left are computed from."""
ANSWER_FROM = 60
"""Cells from which an answer is shown beside its query."""
RATE_LEAST_ROWS = 10
RATE_LEAST_SECONDS = 10.0
"""Fewest rows and shortest time for a meaningful rate."""

_PHASES = {
    "running": ("▶", "running", "bold $reward-up"),
    "paused": ("‖", "paused", "bold $warning"),
    "stopping": ("■", "stopping after the requests in flight", "$warning"),
    "finished": ("●", "finished", "$reward-up"),
    "stopped": ("■", "stopped", "$muted"),
    "failed": ("!", "failed", "bold $reward-down"),
}


def has_crashed(mock: Mock, alive: bool) -> bool:
    """Return whether the process is gone without reporting the end of the run."""
    return mock.ended_at is None and not alive


def rows_done(mock: Mock) -> int:
    """Return the number of finished rows, including earlier starts."""
    return mock.already + mock.done


def rate(mock: Mock, now: float) -> float | None:
    """Return rows per second over the newest ones; None while unknown."""
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
    """Return the seconds until the end of the dataset at the present rate; None when unknown."""
    speed = rate(mock, now)
    if mock.phase != "running" or not mock.total or not speed:
        return None
    return max(0, mock.total - rows_done(mock)) / speed


def share(mock: Mock) -> float | None:
    """Return the finished share of the dataset, 0 to 1."""
    return min(1.0, rows_done(mock) / mock.total) if mock.total else None


def summary_lines(
    mock: Mock | None,
    now: float,
    width: int,
    alive: bool = True,
    can_start: bool = True,
    stall: str = "",
    pause: str = "",
) -> list[Line]:
    """Return phase, figures, stall, the cause of its end, and the pause of training.

    Args:
        alive: Whether a process of the mock user runs.
        can_start: Whether it can be started from here.
        stall: How open ratings stall requests; empty when they do not.
        pause: Where training is paused, and how to resume it; empty when it is not.
    """
    paused = [((f"  {row}", "$warning"),) for row in wrapped(pause, width - 2)] if pause else []
    if mock is None:
        start: Line = (("  s", "bold"), (" starts it", "$muted")) if can_start else ()
        return [(("The mock user has not been started.", "$muted"), *start), *paused]
    sign, word, tone = _PHASES.get(mock.phase, ("?", one_line(mock.phase, 20), "$engine-unknown"))
    crashed = has_crashed(mock, alive)
    if crashed:
        sign, word, tone = "✖", "ended: no process", "bold $reward-down"
    name = one_line(mock.dataset, 300) or "shipped questions"
    if len(name) > 40:
        name = "…" + name[-39:]
    first: Line = (
        (f"{sign} {word}", tone),
        (f"  {name}", ""),
        (f"  → {one_line(mock.target, 60)}" if mock.target else "", "$muted"),
    )
    figures = flow(_figures(mock, now, crashed), width)
    waits = _waits(mock, stall, width) if mock.ended_at is None and not crashed else []
    return [first, *figures, *waits, *_cause(mock, width), *paused]


def _waits(mock: Mock, stall: str, width: int) -> list[Line]:
    """Return what requests wait for: open ratings, else what the target answers."""
    if stall or not mock.waiting or mock.phase == "paused":
        return _stall(stall, width)
    return [((fit(f"! {one_line(mock.waiting, 300)}", width).rstrip(), "$warning"),)]


def _stall(why: str, width: int) -> list[Line]:
    """Return `! 2 requests wait for your rating  3 opens Rate`."""
    if not why:
        return []
    key = (("  3", "bold $accent"), (" opens Rate", ""))
    room = width - line_width(key)
    return [((fit(f"! {why}", min(room, cell_len(why) + 2)), "bold $warning"), *key)]


def _figures(mock: Mock, now: float, crashed: bool) -> list[Line]:
    at = mock.rows[-1].at if crashed and mock.rows else now
    speed, left = rate(mock, at), seconds_left(mock, at)
    ok = mock.done - mock.failed
    label = "rate "
    if mock.ended_at is not None and mock.ended_at > mock.started_at:
        label, speed = "on average ", mock.done / (mock.ended_at - mock.started_at)
    pace = UNKNOWN if speed is None else f"{speed * 60:.1f}/min"
    counts: list[tuple[str, str]] = [
        (f"{ok} ok", "$reward-up" if ok else "$muted"),
        (f"  {mock.failed} failed", "$reward-down" if mock.failed else "$muted"),
        *_retries(mock),
        (f"  {mock.skipped} skipped", "$warning" if mock.skipped else "$muted"),
    ]
    if mock.already:
        cut = f", {mock.lost} cut off" if mock.lost else ""
        counts.append((f"  {mock.already} done before{cut}", "$muted"))
    pieces: list[Line] = [tuple(counts), ((label, "$muted"), (pace, ""))]
    if mock.phase == "running" and not crashed:
        pieces.append((("left ", "$muted"), (duration(left), "")))
    return [*pieces, *_settings(mock)]


def _retries(mock: Mock) -> list[tuple[str, str]]:
    """Return the number of requests that the target refused as busy and that were sent again."""
    if not mock.retries:
        return []
    return [(f"  {plural(mock.retries, 'retry', 'retries')}", "$warning")]


def _settings(mock: Mock) -> list[Line]:
    """Return its settings: workers or rate, passes, order."""
    if mock.rate:
        pieces: list[Line] = [(("arrivals ", "$muted"), (f"{mock.rate:g}/s", ""))]
    else:
        pieces = [(("x", "$muted"), (str(mock.concurrency), ""))]
    if mock.pace:
        pieces.append((("pace ", "$muted"), (duration(mock.pace), "")))
    if mock.passes > 1:
        pieces.append((("passes ", "$muted"), (str(mock.passes), "")))
    if mock.seed is not None:
        pieces.append((("seed ", "$muted"), (str(mock.seed), "")))
    if mock.split:
        pieces.append(((one_line(mock.split, 20), ""),))
    return pieces


def _cause(mock: Mock, width: int) -> list[Line]:
    if not mock.cause or mock.cause == "ordered":
        return []
    tone = "$reward-down" if mock.phase == "failed" else "$muted"
    return [((fit(one_line(mock.cause, 400), width), tone),)]


def progress_text(mock: Mock) -> str:
    """Return `34/120 · 28%`."""
    done = rows_done(mock)
    part = share(mock)
    if part is None:
        return f"{done} sent"
    return f"{done:,}/{mock.total:,} · {math.floor(100 * part)}%"


def result_line(row: MockRowDone, width: int, group: Group | None = None) -> Line:
    """Return `✓ 12:03:14   1.3s  0.83  What is the capital of France?  → Paris`.

    Args:
        width: Cells; the answer only has room on wide screens.
        group: The group of the row, if known.
    """
    mark = ("✓", "$reward-up") if row.ok else ("✗", "bold $reward-down")
    room = max(8, width - 26)
    turns = f"{row.turns} turns: " if row.turns > 1 else ""
    query = turns + (safe(one_line(row.query, 300)) or "(no text)")
    error = safe(one_line(row.error, 200))
    answer = _returned(group)
    if error:
        half = max(8, room // 2)
        result: Line = ((fit(query, room - half), ""), (fit(f" {error}", half), "$reward-down"))
    elif answer and room >= ANSWER_FROM:
        half = room // 2
        result = ((fit(query, room - half), ""), (fit(f"  → {answer}", half), "$muted"))
    else:
        result = ((fit(query, room), ""),)
    return (
        mark,
        (f" {clock(row.at)} ", "$muted"),
        (fit(duration(row.seconds), 6, right=True), "$muted"),
        (" ", ""),
        _reward(group),
        ("  ", ""),
        *result,
    )


def _answered(group: Group | None) -> Candidate | None:
    """Return the candidate the user got."""
    if group is None or group.returned is None:
        return None
    return next(
        (candidate for candidate in group.candidates if candidate.index == group.returned), None
    )


def _returned(group: Group | None) -> str:
    candidate = _answered(group)
    return safe(one_line(candidate.text, 300)) if candidate is not None else ""


def _reward(group: Group | None) -> tuple[str, str]:
    """Return the reward of the answer the user got, five cells; dots until it is fixed."""
    candidate = _answered(group)
    if group is None or candidate is None:
        return ("     ", "")
    if candidate.reward is not None:
        return (
            fit(f"{candidate.reward:.2f}", 5, right=True),
            "$muted" if group.dead else "$reward-up",
        )
    return ("    …", "$muted") if group.open else ("    ·", "$muted")


def problem_lines(problems: Sequence[str], width: int) -> list[Line]:
    """Return the unusable rows of the dataset, newest last."""
    if not problems:
        return []
    title = (f"{plural(len(problems), 'row')} cannot be used", "bold $warning")
    return [
        (title,),
        *(((fit(safe(one_line(text, 400)), width), "$muted"),) for text in problems),
        EMPTY,
    ]
