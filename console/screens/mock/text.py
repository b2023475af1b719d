"""The mock user as lines: progress, results, unusable rows."""

import math
from collections.abc import Sequence

from rich.cells import cell_len

from ajet_swarm.common.text import one_line, plural
from console.session.mock_facts import rate, rows_done, seconds_left, share
from console.text.format import UNKNOWN, clock, duration
from console.text.lines import EMPTY, Line, bar_pieces, fit, flow, line_width
from console.text.wrap import safe, wrapped
from core.events import MockRowDone
from core.state import Candidate, Group, Mock

ANSWER_FROM = 60
"""Cells from which an answer is shown beside its query."""
_PHASES = {
    "running": ("▶", "running", "bold $reward-up"),
    "paused": ("‖", "paused", "bold $warning"),
    "stopping": ("■", "stopping after the requests in flight", "$warning"),
    "finished": ("●", "finished", "$reward-up"),
    "stopped": ("■", "stopped", "$muted"),
    "failed": ("!", "failed", "bold $reward-down"),
}


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
    crashed = mock.ended_at is None and not alive  # it is gone without reporting its end
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
    lines = [first, *flow(_figures(mock, now, crashed), width)]
    if mock.ended_at is None and not crashed:
        lines += _waits(mock, stall, width)
    if mock.cause and mock.cause != "ordered":
        tone = "$reward-down" if mock.phase == "failed" else "$muted"
        lines.append(((fit(one_line(mock.cause, 400), width), tone),))
    return [*lines, *paused]


def _waits(mock: Mock, stall: str, width: int) -> list[Line]:
    """Return what requests wait for: `! 2 requests wait for your rating  3 opens Rate`, else what
    the target answers."""
    if stall:
        key = (("  3", "bold $accent"), (" opens Rate", ""))
        room = min(width - line_width(key), cell_len(stall) + 2)
        return [((fit(f"! {stall}", room), "bold $warning"), *key)]
    if not mock.waiting or mock.phase == "paused":
        return []
    return [((fit(f"! {one_line(mock.waiting, 300)}", width).rstrip(), "$warning"),)]


def _figures(mock: Mock, now: float, crashed: bool) -> list[Line]:
    at = mock.rows[-1].at if crashed and mock.rows else now
    speed, left = rate(mock, at), seconds_left(mock, at)
    ok = mock.done - mock.failed
    label = "rate "
    if mock.ended_at is not None and mock.ended_at > mock.started_at:
        label, speed = "on average ", mock.done / (mock.ended_at - mock.started_at)
    pace = UNKNOWN if speed is None else f"{speed * 60:.1f}/min"
    retries = f"  {plural(mock.retries, 'retry', 'retries')}" if mock.retries else ""
    cut = f", {mock.lost} cut off" if mock.lost else ""
    counts: Line = (
        (f"{ok} ok", "$reward-up" if ok else "$muted"),
        (f"  {mock.failed} failed", "$reward-down" if mock.failed else "$muted"),
        (retries, "$warning"),  # the target refused them as busy
        (f"  {mock.skipped} skipped", "$warning" if mock.skipped else "$muted"),
        (f"  {mock.already} done before{cut}" if mock.already else "", "$muted"),
    )
    pieces: list[Line] = [counts, ((label, "$muted"), (pace, ""))]
    if mock.phase == "running" and not crashed:
        pieces.append((("left ", "$muted"), (duration(left), "")))
    return [*pieces, *_settings(mock)]


def _settings(mock: Mock) -> list[Line]:
    """Return its settings: workers or rate, passes, order."""
    settings = (
        ("arrivals ", f"{mock.rate:g}/s" if mock.rate else ""),
        ("x", "" if mock.rate else str(mock.concurrency)),
        ("pace ", duration(mock.pace) if mock.pace else ""),
        ("passes ", str(mock.passes) if mock.passes > 1 else ""),
        ("seed ", "" if mock.seed is None else str(mock.seed)),
        ("", one_line(mock.split, 20)),
    )
    return [((label, "$muted"), (value, "")) for label, value in settings if value]


def progress_line(mock: Mock | None, width: int) -> Line:
    """Return the bar and `34/120 · 28%`; nothing before the first start."""
    if mock is None:
        return EMPTY
    done, part = rows_done(mock), share(mock)
    label = f" {done} sent"
    if part is not None:
        label = f" {done:,}/{mock.total:,} · {math.floor(100 * part)}%"
    tone = "$reward-up" if mock.phase in ("running", "finished") else "$muted"
    return (*bar_pieces(part, max(4, width - len(label)), tone), (label, "bold"))


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
    candidate = _answered(group)
    answer = safe(one_line(candidate.text, 300)) if candidate is not None else ""
    half, beside = 0, ("", "")
    if row.error:
        half, beside = max(8, room // 2), (f" {safe(one_line(row.error, 200))}", "$reward-down")
    elif answer and room >= ANSWER_FROM:
        half, beside = room // 2, (f"  → {answer}", "$muted")
    return (
        mark,
        (f" {clock(row.at)} ", "$muted"),
        (fit(duration(row.seconds), 6, right=True), "$muted"),
        (" ", ""),
        _reward(group, candidate),
        ("  ", ""),
        (fit(query, room - half), ""),
        (fit(beside[0], half), beside[1]),
    )


def _answered(group: Group | None) -> Candidate | None:
    """Return the candidate the user got."""
    candidates = group.candidates if group is not None and group.returned is not None else ()
    return next((answer for answer in candidates if group and answer.index == group.returned), None)


def _reward(group: Group | None, candidate: Candidate | None) -> tuple[str, str]:
    """Return the reward of the answer the user got, five cells; dots until it is fixed."""
    if group is None or candidate is None:
        return "     ", ""
    if candidate.reward is not None:
        tone = "$muted" if group.dead else "$reward-up"
        return fit(f"{candidate.reward:.2f}", 5, right=True), tone
    return ("    …" if group.open else "    ·"), "$muted"


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
