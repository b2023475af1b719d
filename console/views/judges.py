"""What each judge (a language model that scores answers) was asked, cost and said, in words."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from ajet_swarm.common.text import one_line
from console.text.format import UNKNOWN, duration, figure, percent, plural
from console.text.lines import EMPTY, Line, fit, flow, line_width
from console.text.wrap import wrapped
from core.state import JudgeSpend, State

_NAME = 12
_LONG_NAME = 24
_COLUMNS = (
    ("calls", 6),
    ("a group", 7),
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
    """What the counts of one judge come to."""

    calls_a_group: float | None
    """None before the first group."""
    cached: float | None
    """Share of its questions that the cache answered, 0 to 1."""
    failed: float | None
    """Share of its groups that it abstained from."""
    latency: float | None
    """Seconds of a call, on average."""
    spent: float | None
    """Share of its limit; None without one."""


def figures_of(judge: JudgeSpend) -> JudgeFigures:
    """Its shares and means; retries and repairs are no questions of their own."""
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
    """All of it, for programs; `cost` is null where no price is set."""
    found = []
    for judge in judges_of(state):
        told = msgspec.structs.asdict(judge)
        told |= {"tokens": judge.tokens, "cost": judge.cost if judge.priced else None}
        told |= {"limit": judge.limit or None, "in_use": in_use(state, judge)}
        found.append(told | {"figures": figures_of(judge)})
    return found


def judges_of(state: State) -> list[JudgeSpend]:
    """In the order of the model, those that are no more in it last."""
    order = [one.name for one in state.rewards.parts]
    known = {name: place for place, name in enumerate(order)}
    return sorted(state.judges.values(), key=lambda one: known.get(one.judge, len(order)))


def in_use(state: State, judge: JudgeSpend) -> bool:
    """Whether the model that serves asks it."""
    return any(one.name == judge.judge and one.enabled for one in state.rewards.parts)


def judge_lines(state: State, width: int) -> list[Line]:
    """A line a judge, and below it what is wrong with it or how it is asked."""
    judges = judges_of(state)
    name = _name_room(width)
    fault = state.rewards.fault
    told = fault.judge if fault is not None and fault.mended_at is None else ""
    lines: list[Line] = []
    for judge in judges:
        known = any(one.name == judge.judge for one in state.rewards.parts)
        if known or judge.calls:  # one that was taken out stays for what it cost
            used = in_use(state, judge)
            lines += _judge(judge, used, known, name, width, judge.judge == told)
    return lines


def judge_head(width: int) -> Line:
    """The titles of the table."""
    titles = "".join(f" {fit(title, room, right=True)}" for title, room in _COLUMNS)
    return ((f" {fit('judge', _name_room(width))}{titles}", "$muted"),)


def _name_room(width: int) -> int:
    return _LONG_NAME if width >= 110 else _NAME


def _judge(
    judge: JudgeSpend, used: bool, known: bool, name: int, width: int, told: bool
) -> list[Line]:
    """Its line, and further ones.

    Args:
        judge: Its counts.
        used: The model that serves asks it.
        known: The model that serves has it, be it switched off.
        name: Cells of the name.
        width: Of a line.
        told: Its trouble stands elsewhere as the last fault.
    """
    row = _row(judge, used, name)
    trouble = _trouble(judge, width) if used and not told else []
    more = _more(judge, used, known)
    if told:
        more.insert(0, (("✖ ", "bold $engine-lost"), ("see its fault", "bold")))
    beside = (*row, ("   ", ""), *_joined(more))
    if not trouble and line_width(beside) <= width:
        return [beside]
    told_more = trouble or [(("   ", ""), *line) for line in flow(more, width - 3)]
    return [row, *told_more]


def _row(judge: JudgeSpend, used: bool, name: int) -> Line:
    found = figures_of(judge)
    cost = figure(judge.cost) if judge.priced else "no price"
    near = found.spent is not None and found.spent >= 0.9
    failing = found.failed is not None and found.failed > 0.1
    cells = (
        (str(judge.calls), "bold"),
        (UNKNOWN if found.calls_a_group is None else f"{found.calls_a_group:.1f}", ""),
        (_count(judge.tokens), ""),
        (cost, "bold $warning" if near else "" if judge.priced else "$faint"),
        (_percent(found.cached), ""),
        (_percent(found.failed), "bold $warning" if failing else ""),
        (str(judge.repairs), "" if judge.repairs else "$faint"),
        (duration(found.latency), ""),
    )
    told = [(f" {fit(one_line(judge.judge, 60), name)}", "bold" if used else "$muted")]
    for (text, tone), (_, room) in zip(cells, _COLUMNS, strict=True):
        told.append((f" {fit(text, room, right=True)}", tone if used else "$muted"))
    return tuple(told)


def _trouble(judge: JudgeSpend, width: int) -> list[Line]:
    """Why it is not asked just now."""
    if not judge.trouble:
        return []
    told = wrapped(one_line(judge.trouble, 1_000), width - 5)
    if len(told) > _TROUBLE_LINES:
        rest = " ".join(told[_TROUBLE_LINES - 1 :])
        told = [*told[: _TROUBLE_LINES - 1], fit(rest, width - 5)]
    first: Line = (("   ✖ ", "bold $engine-lost"), (told[0], "bold"))
    return [first, *(((f"     {text}", "bold"),) for text in told[1:])]


def _more(judge: JudgeSpend, used: bool, known: bool) -> list[Line]:
    """Model, mode, and what else there is to know."""
    said = [one_line(judge.model, 40) or "model not known yet", judge.mode or UNKNOWN]
    told: list[Line] = [((" · ".join(said), "$muted"),)]
    if not used:
        told.append((("off", "$muted") if known else ("gone from the model", "$muted"),))
    if judge.limit:
        share = percent(round(1_000 * judge.cost), round(1_000 * judge.limit))
        told.append((("limit ", "$muted"), (f"{judge.limit:g}", ""), (f" ({share})", "$muted")))
    if judge.pairs:
        share = percent(judge.split, judge.pairs)
        tone = "bold $warning" if judge.split * 3 > judge.pairs else ""
        told.append((("order decided ", "$muted"), (share, tone), (" of pairs", "$muted")))
    if judge.retries:
        told.append((("retries ", "$muted"), (str(judge.retries), "")))
    if judge.untold:
        told.append(((f"{plural(judge.untold, 'call')} reported no tokens", "$muted"),))
    return told


def _joined(pieces: Sequence[Line]) -> Line:
    joined: Line = EMPTY
    for piece in pieces:
        joined = (*joined, ("   ", ""), *piece) if joined else piece
    return joined


def _percent(share: float | None) -> str:
    """At most `100%`; not 0% for what has happened."""
    if share is None:
        return UNKNOWN
    return "<1%" if 0 < share < 0.005 else f"{100 * share:.0f}%"


def _count(tokens: int) -> str:
    """In at most six characters: 812, 31.2k, 4.5M."""
    if tokens < 10_000:
        return str(tokens)
    for size, unit in ((1e3, "k"), (1e6, "M"), (1e9, "G")):
        if tokens < 999.5 * size:
            return f"{tokens / size:.1f}{unit}"
    return f"{tokens:.0e}"
