"""Timeline of an engine's states: labelled blocks."""

from collections.abc import Sequence
from dataclasses import dataclass

from textual.content import Content

from console.text.format import duration, state_style
from core.state import Server, Span

CELLS_A_SPAN = 8
"""Average cells of a span; it determines how far back the line goes."""
WORD_CELLS = 6
"""Cells of a state's short word; fewer if the line is too short for all."""
STOPPED = ("OFFLINE", "BOOTING")
"""States between two engine runs."""


@dataclass(frozen=True, slots=True)
class StateSpan:
    """A span of time in one state."""

    state: str
    seconds: float
    step: int | None


def stays(spans: Sequence[Span], now: float) -> list[StateSpan]:
    """Return spans with their lengths; the last one lasts until now."""
    if not spans:
        return []
    ends = [span.since for span in spans[1:]] + [now]
    return [
        StateSpan(span.state, max(0.0, end - span.since), span.step)
        for span, end in zip(spans, ends, strict=True)
    ]


def step_seconds(spans: Sequence[Span]) -> dict[int, float]:
    """Return the seconds from each step's first ROLLING to that of the next, in one engine run."""
    seconds: dict[int, float] = {}
    step, began = None, 0.0
    for span in spans:
        if span.state in STOPPED:
            step = None
        elif span.state == "ROLLING" and span.step is not None and span.step != step:
            _forget_from(seconds, span.step)
            if step is not None and span.step == step + 1:
                seconds[step] = span.since - began
            step, began = span.step, span.since
    return seconds


def sync_seconds(spans: Sequence[Span], now: float) -> dict[int, float]:
    """Return the seconds spent in WEIGHT_SYNCING after each global step."""
    seconds: dict[int, float] = {}
    step: int | None = None
    for stay in stays(spans, now):
        if stay.state == "ROLLING" and stay.step is not None:
            if stay.step != step:
                _forget_from(seconds, stay.step)
            step = stay.step
        if stay.state in STOPPED:
            step = None
        if stay.state == "WEIGHT_SYNCING" and step is not None:
            seconds[step] = seconds.get(step, 0.0) + stay.seconds
    return seconds


def _forget_from(seconds: dict[int, float], step: int) -> None:
    """Drop `step` and later ones: an engine run repeats them."""
    for second in [second for second in seconds if second >= step]:
        del seconds[second]


def shares(spans: Sequence[StateSpan]) -> list[tuple[str, float]]:
    """Return the share of time of each state, the longest first."""
    total = sum(stay.seconds for stay in spans) or 1.0
    sums: dict[str, float] = {}
    for stay in spans:
        sums[stay.state] = sums.get(stay.state, 0.0) + stay.seconds
    return sorted(
        ((state, seconds / total) for state, seconds in sums.items()), key=lambda share: -share[1]
    )


def cells(seconds: Sequence[float], width: int, least: int = 1) -> list[int]:
    """Distribute `width` cells in proportion, at least `least` each.

    Args:
        seconds: At most `width // least` lengths.
    """
    spare = width - least * len(seconds)
    total = sum(seconds) or 1.0
    exact = [second / total * spare for second in seconds]
    counts = [int(count) for count in exact]
    by_rest = sorted(range(len(exact)), key=lambda at: counts[at] - exact[at])
    for at in by_rest[: spare - sum(counts)]:
        counts[at] += 1
    return [least + count for count in counts]


def newest(server: Server, now: float, width: int) -> list[StateSpan]:
    """Return the spans that a line of `width` cells shows."""
    return stays(server.spans, now)[-max(1, width // CELLS_A_SPAN) :]


def timeline(spans: Sequence[StateSpan], width: int) -> Content:
    """Return the blocks, oldest left; each with the longest label that fits it."""
    if not spans or width < 1:
        return Content("")
    pieces: list[tuple[str, str]] = []
    least = max(1, min(WORD_CELLS, width // len(spans)))
    for stay, room in zip(
        spans, cells([span.seconds for span in spans], width, least), strict=True
    ):
        shape = state_style(stay.state)
        step = f"{shape.short} {stay.step}" if stay.state == "ROLLING" and stay.step else ""
        label = _fit(
            room,
            f" {step} · {duration(stay.seconds)}" if step else "",
            f" {shape.short} {duration(stay.seconds)}",
            f" {step}" if step else "",
            f" {shape.short}",
            f" {shape.short[:4]}",
            f" {stay.step}" if step else "",
            shape.short[0],
        )
        pieces.append((label.ljust(room), f"$pill-text on {shape.color}"))
    return Content.assemble(*pieces)


def _fit(room: int, *labels: str) -> str:
    for label in labels:
        spare = 1 if len(label) > 2 else 0
        if label and len(label) + spare <= room:
            return label
    return ""
