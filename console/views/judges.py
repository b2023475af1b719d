"""Calls and cost of each judge (a language model that scores answers), as lines."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from ajet_swarm.common.text import one_line, plural
from console.text.format import UNKNOWN, duration, figure, percent
from console.text.lines import EMPTY, Line, fit, flow, line_width
from console.text.wrap import wrapped
from core.state import JudgeSpend, State

_NAME = 12
_LONG_NAME = 24
_COLUMNS = (
    ("calls", 6),
    ("/group", 7),
    ("tokens", 7),
    ("cost", 8),
    ("cached", 6),
    ("failed", 6),
    ("repairs", 7),
    ("took", 6),
)
_TROUBLE_LINES = 2


@dataclass(frozen=True, slots=True)
class JudgeFigures:
    """Figures computed from the counts of one judge."""

    calls_a_group: float | None
    """None before the first group."""
    cached: float | None
    """Share of its questions answered from the cache, 0 to 1."""
    failed: float | None
    """Share of its groups that it abstained from."""
    latency: float | None
    """Seconds of a call, on average."""
    spent: float | None
    """Share of its limit; None without one."""


def figures_of(judge: JudgeSpend) -> JudgeFigures:
    """Return its shares and means; retries and repairs do not count as questions."""
    asked = max(0, judge.calls - judge.retries - judge.repairs)
    return JudgeFigures(
        calls_a_group=_share(judge.calls, judge.groups),
        cached=_share(judge.hits, judge.hits + asked),
        failed=_share(judge.failures, judge.groups),
        latency=judge.latency,
        spent=_share(judge.cost, judge.limit) if judge.priced else None,
    )


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def judges_data(state: State) -> list[dict[str, Any]]:
    """Return all figures as data; `cost` is null where no price is set."""
    rows = []
    for judge in judges_of(state):
        row = msgspec.structs.asdict(judge)
        row |= {"tokens": judge.tokens, "cost": judge.cost if judge.priced else None}
        row |= {"limit": judge.limit or None, "in_use": in_use(state, judge)}
        rows.append(row | {"figures": figures_of(judge)})
    return rows


def judges_of(state: State) -> list[JudgeSpend]:
    """Return the judges in the order of the model, those removed from it last."""
    order = [one.name for one in state.rewards.parts]
    known = {name: place for place, name in enumerate(order)}
    return sorted(state.judges.values(), key=lambda one: known.get(one.judge, len(order)))


def in_use(state: State, judge: JudgeSpend) -> bool:
    """Return whether the active model uses the judge."""
    return any(one.name == judge.judge and one.enabled for one in state.rewards.parts)


def judge_lines(state: State, width: int) -> list[Line]:
    """Return a line for each judge, and below it its trouble or its settings."""
    judges = judges_of(state)
    name = _name_room(width)
    fault = state.rewards.fault
    trouble = fault.judge if fault is not None and fault.mended_at is None else ""
    lines: list[Line] = []
    for judge in judges:
        known = any(one.name == judge.judge for one in state.rewards.parts)
        if known or judge.calls:  # a removed judge stays listed for its cost
            used = in_use(state, judge)
            lines += _judge(judge, used, known, name, width, judge.judge == trouble)
    return lines


def judge_head(width: int) -> Line:
    """Return the titles of the table."""
    titles = "".join(f" {fit(title, room, right=True)}" for title, room in _COLUMNS)
    return ((f" {fit('judge', _name_room(width))}{titles}", "$muted"),)


def _name_room(width: int) -> int:
    return _LONG_NAME if width >= 110 else _NAME


def _judge(
    judge: JudgeSpend, used: bool, known: bool, name: int, width: int, has_fault: bool
) -> list[Line]:
    """Return the lines of one judge.

    Args:
        judge: Its counts.
        used: Whether the active model uses it.
        known: Whether the active model contains it, even if switched off.
        name: Cells of the name.
        width: Of a line.
        has_fault: Whether its trouble is shown elsewhere as the last fault.
    """
    row = _row(judge, used, name)
    trouble = _trouble(judge, width) if used and not has_fault else []
    more = _more(judge, used, known)
    if has_fault:
        more.insert(0, (("✖ ", "bold $engine-lost"), ("see its fault", "bold")))
    beside = (*row, ("   ", ""), *_joined(more))
    if not trouble and line_width(beside) <= width:
        return [beside]
    below = trouble or [(("   ", ""), *line) for line in flow(more, width - 3)]
    return [row, *below]


def _row(judge: JudgeSpend, used: bool, name: int) -> Line:
    totals = figures_of(judge)
    cost = figure(judge.cost) if judge.priced else "no price"
    near = totals.spent is not None and totals.spent >= 0.9
    failing = totals.failed is not None and totals.failed > 0.1
    cells = (
        (str(judge.calls), "bold"),
        (UNKNOWN if totals.calls_a_group is None else f"{totals.calls_a_group:.1f}", ""),
        (_count(judge.tokens), ""),
        (cost, "bold $warning" if near else "" if judge.priced else "$faint"),
        (_percent(totals.cached), ""),
        (_percent(totals.failed), "bold $warning" if failing else ""),
        (str(judge.repairs), "" if judge.repairs else "$faint"),
        (duration(totals.latency), ""),
    )
    pieces = [(f" {fit(one_line(judge.judge, 60), name)}", "bold" if used else "$muted")]
    for (text, tone), (_, room) in zip(cells, _COLUMNS, strict=True):
        pieces.append((f" {fit(text, room, right=True)}", tone if used else "$muted"))
    return tuple(pieces)


def _trouble(judge: JudgeSpend, width: int) -> list[Line]:
    """Return why it cannot be used at the moment."""
    if not judge.trouble:
        return []
    rows = wrapped(one_line(judge.trouble, 1_000), width - 5)
    if len(rows) > _TROUBLE_LINES:
        rest = " ".join(rows[_TROUBLE_LINES - 1 :])
        rows = [*rows[: _TROUBLE_LINES - 1], fit(rest, width - 5)]
    first: Line = (("   ✖ ", "bold $engine-lost"), (rows[0], "bold"))
    return [first, *(((f"     {text}", "bold"),) for text in rows[1:])]


def _more(judge: JudgeSpend, used: bool, known: bool) -> list[Line]:
    """Return model, mode, and further facts."""
    facts = [one_line(judge.model, 40) or "model not known yet", judge.mode or UNKNOWN]
    result: list[Line] = [((" · ".join(facts), "$muted"),)]
    if not used:
        result.append((("off", "$muted") if known else ("removed from the model", "$muted"),))
    if judge.limit:
        share = percent(round(1_000 * judge.cost), round(1_000 * judge.limit))
        result.append((("limit ", "$muted"), (f"{judge.limit:g}", ""), (f" ({share})", "$muted")))
    if judge.pairs:
        share = percent(judge.split, judge.pairs)
        tone = "bold $warning" if judge.split * 3 > judge.pairs else ""
        result.append((("order decided ", "$muted"), (share, tone), (" of pairs", "$muted")))
    if judge.retries:
        result.append((("retries ", "$muted"), (str(judge.retries), "")))
    if judge.untold:
        result.append(((f"{plural(judge.untold, 'call')} reported no tokens", "$muted"),))
    return result


def _joined(pieces: Sequence[Line]) -> Line:
    joined: Line = EMPTY
    for piece in pieces:
        joined = (*joined, ("   ", ""), *piece) if joined else piece
    return joined


def _percent(share: float | None) -> str:
    """Return at most `100%`; a small share is `<1%`, not `0%`."""
    if share is None:
        return UNKNOWN
    return "<1%" if 0 < share < 0.005 else f"{100 * share:.0f}%"


def _count(tokens: int) -> str:
    """Return a number in at most six characters: 812, 31.2k, 4.5M."""
    if tokens < 10_000:
        return str(tokens)
    for size, unit in ((1e3, "k"), (1e6, "M"), (1e9, "G")):
        if tokens < 999.5 * size:
            return f"{tokens / size:.1f}{unit}"
    return f"{tokens:.0e}"
