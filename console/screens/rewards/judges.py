"""Calls and cost of each judge (a language model that scores answers), as lines."""

from typing import Any

import msgspec

from ajet_swarm.common.text import one_line, plural
from console.screens.rewards.model import find_part
from console.text.format import UNKNOWN, duration, figure, percent
from console.text.lines import Line, flow, line_width
from console.text.wrap import wrapped_within
from console.ui.table import Cell, Column, Table
from core.events import JudgeSpent
from core.state import State

_TROUBLE_LINES = 2


def figures_of(judge: JudgeSpent) -> dict[str, float | None]:
    """Return the shares and means of a judge; retries and repairs do not count as questions.

    Returns:
        `calls_a_group`, None before the first group; `cached`, the share of its questions answered
        from the cache, 0 to 1; `failed`, the share of its groups that it abstained from; `latency`,
        seconds of a call, on average; `spent`, the share of its limit, None without one.
    """
    asked = max(0, judge.calls - judge.retries - judge.repairs)
    return {
        "calls_a_group": _share(judge.calls, judge.groups),
        "cached": _share(judge.hits, judge.hits + asked),
        "failed": _share(judge.failures, judge.groups),
        "latency": judge.latency,
        "spent": _share(judge.cost, judge.limit) if judge.priced else None,
    }


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


def judges_of(state: State) -> list[JudgeSpent]:
    """Return the judges in the order of the model, those removed from it last."""
    order = [part.name for part in state.rewards.parts]
    known = {name: place for place, name in enumerate(order)}
    return sorted(state.judges.values(), key=lambda judge: known.get(judge.judge, len(order)))


def in_use(state: State, judge: JudgeSpent) -> bool:
    """Return whether the active model uses the judge."""
    return any(part.name == judge.judge and part.enabled for part in state.rewards.parts)


def judge_lines(state: State, width: int) -> list[Line]:
    """Return a line for each judge, and below it its trouble or its settings.

    A judge that was removed from the model stays listed for its cost.
    """
    known = {part.name for part in state.rewards.parts}
    judges = [judge for judge in judges_of(state) if judge.judge in known or judge.calls]
    return [line for judge in judges for line in _judge(state, judge, width)]


def judge_head(width: int) -> Line:
    """Return the titles of the table."""
    return _TABLE.head(_room(width))


def _room(width: int) -> int:
    """Return the cells of the table; facts stand beside it."""
    return 86 if width >= 110 else 74


def _judge(state: State, judge: JudgeSpent, width: int) -> list[Line]:
    used, fault = in_use(state, judge), state.rewards.fault
    is_last_fault = fault is not None and fault.mended_at is None and fault.judge == judge.judge
    row = _TABLE.row(judge, _room(width))
    if not used:
        row = tuple((text, "$muted") for text, _ in row)
    if used and judge.trouble and not is_last_fault:
        rows = wrapped_within(one_line(judge.trouble, 1_000), width - 5, _TROUBLE_LINES)
        first: Line = (("   ✖ ", "bold $engine-lost"), (rows[0], "bold"))
        return [row, first, *(((f"     {text}", "bold"),) for text in rows[1:])]
    facts = _facts(judge, used, find_part(state, judge.judge) is not None)
    if is_last_fault:
        facts.insert(0, (("✖ ", "bold $engine-lost"), ("see its fault", "bold")))
    beside = (*row, ("   ", ""), *flow(facts, 10_000)[0])
    if line_width(beside) <= width:
        return [beside]
    return [row, *((("   ", ""), *line) for line in flow(facts, width - 3))]


def _cost(judge: JudgeSpent) -> Cell:
    if not judge.priced:
        return "no price", "$faint"
    spent = figures_of(judge)["spent"]
    return figure(judge.cost), "bold $warning" if spent is not None and spent >= 0.9 else ""


def _a_group(judge: JudgeSpent) -> str:
    calls = figures_of(judge)["calls_a_group"]
    return UNKNOWN if calls is None else f"{calls:.1f}"


def _failed(judge: JudgeSpent) -> Cell:
    failed = figures_of(judge)["failed"]
    return _percent(failed), "bold $warning" if failed is not None and failed > 0.1 else ""


def _facts(judge: JudgeSpent, used: bool, known: bool) -> list[Line]:
    """Return model, mode, and further facts."""
    model = one_line(judge.model, 40) or "model not known yet"
    result: list[Line] = [((f"{model} · {judge.mode or UNKNOWN}", "$muted"),)]
    if not used:
        result.append((("off" if known else "removed from the model", "$muted"),))
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


def _repairs(judge: JudgeSpent) -> Cell:
    return str(judge.repairs), "" if judge.repairs else "$faint"


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


_TABLE: Table[JudgeSpent] = Table(
    (
        Column("judge", 12, lambda judge: one_line(judge.judge, 60), "bold", most=24),
        Column("calls", 6, lambda judge: str(judge.calls), "bold", right=True),
        Column("/group", 7, _a_group, right=True),
        Column("tokens", 7, lambda judge: _count(judge.tokens), right=True),
        Column("cost", 8, _cost, right=True),
        Column("cached", 6, lambda judge: _percent(figures_of(judge)["cached"]), right=True),
        Column("failed", 6, _failed, right=True),
        Column("repairs", 7, _repairs, right=True),
        Column("took", 6, lambda judge: duration(judge.latency), right=True),
    ),
    start=" ",
)
