"""The rewards as lines: source, figures, the table of parts, the last fault, values of a part."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from ajet_swarm.common.text import ago, one_line, plural
from console.screens.rewards import model
from console.session.group_facts import best_of, known_rewards
from console.text.format import UNKNOWN, clock, elapsed, figure, number, percent
from console.text.lines import EMPTY, Line, fit, flow, line_width
from console.text.wrap import wrapped
from console.ui.plot import sparkline
from console.ui.table import Cell, Column, Table
from core.events import RewardPart, TrialGroup, TrialSummary, WatchFigure
from core.state import Candidate, State

WIDE = 100
"""Cells from which there is room for secondary content."""
_FEWEST = 30
"""Fewest answers for a figure of the reward monitor."""


# --- source and figures ----------------------------------------------------------------------


def head_lines(
    state: State, totals: model.RewardFigures, now: float, width: int, seen: bool
) -> list[Line]:
    """Return the source with version and age, what decides, and the figures of the last groups."""
    if not seen or not state.rewards.source:
        title: Line = (("REWARDS", "bold $heading"), ("  the rewards are not known yet", "$muted"))
        return [title]
    fault = model.last_fault(state)
    unscored = totals.abstentions
    if fault is not None and [cause for cause, _ in unscored] == [fault.cause]:
        unscored = ()  # the fault below shows it
    lines = flow(_source(state, now, width), width, "  ")
    if sentence := deciding(totals):
        lines.append(((fit(sentence, width).rstrip(), "bold $winner"),))
    pieces = [
        *_totals(totals, width),
        *_share("○", "dead", totals.dead, totals.sent, totals.causes),
        *_share("×", "lost", totals.lost, totals.settled, totals.losses),
        *_share("?", "not scored", totals.abstained, totals.groups, unscored),
    ]
    return [*lines, *flow(pieces, width, "  ")]


def deciding(totals: model.RewardFigures) -> str:
    """Return which parts decide, in one sentence; empty for a single part, and before a group."""
    parts = sorted(totals.parts, key=lambda part: -part.decided)
    if len(parts) < 2 or not parts[0].decided:
        return ""
    first, second = parts[:2]
    name = one_line(first.name, 40)
    text = f"{name} decides {percent(first.decided, first.decidable)} of winners"
    if second.decided:
        share = percent(second.decided, second.decidable)
        text += f", {one_line(second.name, 40)} {share}"
    return text


def _source(state: State, now: float, width: int) -> list[Line]:
    rewards = state.rewards
    kind = model.source_kind(rewards.source)
    where = f"  {_where(rewards.source, width)}" if kind in ("hooks", "file") else ""
    pieces: list[Line] = [(("REWARDS  ", "bold $heading"), (kind, "bold"), (where, ""))]
    if rewards.version:
        shown = one_line(rewards.version, 40)[: 12 if width >= WIDE else 8]
        pieces.append((("version ", "$muted"), (shown, "bold")))
        if rewards.since:
            age = elapsed(now - rewards.since)
            pieces.append(((f"since {clock(rewards.since)} ({age})", "$muted"),))
    return [*pieces, (_status(state),)]


def _status(state: State) -> tuple[str, str]:
    rewards, fault = state.rewards, state.rewards.fault
    waits = one_line(rewards.waits, 30)
    if state.watch_only:
        return "scores nothing: watch-only", "$muted"
    if rewards.ok:
        active = ("● active", "$engine-rolling")
        return active if rewards.version else ("◌ loading", "$engine-booting")
    if waits and rewards.version:
        return f"◌ the newest waits for {waits}, this version stays active", "$engine-booting"
    if waits:
        return f"◌ waits for {waits}", "$engine-booting"
    if rewards.version and fault is not None and fault.judge:
        trouble = "was not reached yet" if fault.level == "warning" else "is in trouble"
        return f"! a judge {trouble}", "bold $warning"
    if rewards.version:
        return "! newest save broken, this version stays active", "bold $warning"
    fate = "groups wait for you" if state.consoles else "no console is attached, groups are aborted"
    return f"✖ no version is active: {fate}", "bold $engine-lost"


def _where(source: str, width: int) -> str:
    """Return the hook folder: its whole path where there is room, else its name."""
    text = one_line(source, 400)
    most = max(16, width - 110)
    if len(text) <= most:
        return text
    name = text.rstrip("/").rpartition("/")[2]
    return name if len(name) <= most else f"…{name[len(name) - most + 1 :]}"


def _totals(totals: model.RewardFigures, width: int) -> list[Line]:
    if not totals.groups:
        return [(("No group is scored yet", "$muted"),)]
    pieces: list[Line] = [(("last ", "$muted"), (plural(totals.groups, "group"), "bold"))]
    if (reward := totals.reward) is not None:
        mean, std = number(reward.mean), f" ±{number(reward.std)}"
        pieces.append((("reward ", "$muted"), (mean, "bold $curve"), (std, "$curve")))
    if totals.scored and totals.present < totals.scored:
        pieces.append((("this version ", "$muted"), (f"{totals.present}/{totals.scored}", "")))
    if totals.by_hand:
        rated: Line = (("human-rated ", "$muted"), (str(totals.by_hand), ""))
        if totals.hand is not None:
            rated += ((", winner ", "$muted"), (number(totals.hand), ""))
        pieces.append(rated)
    known = totals.correlation
    value = UNKNOWN if known is None else f"{known:+.2f}"
    tone = "bold $warning" if known is not None and abs(known) >= 0.5 else "bold"
    basis = f"n {totals.paired}"
    if width >= WIDE:
        basis = f"{plural(totals.paired, 'answer')}, {totals.unit}"
    pieces.append((("length ", "$muted"), (f"r {value}", tone), (f" ({basis})", "$muted")))
    return pieces


def _share(
    sign: str, word: str, count: int, whole: int, causes: Sequence[tuple[str, int]]
) -> list[Line]:
    """Return `○ dead 11% (11 of 96)`, `9 equal rewards`, `2 few rewards`; empty for none."""
    if not whole or (not count and word != "dead"):
        return []
    tone = "$warning" if count * 3 > whole else "$foreground"
    share = (percent(count, whole), f"bold {tone}")
    head: Line = ((f"{sign} {word} ", "$muted"), share, (f" ({count} of {whole})", "$muted"))
    shown: list[Line] = [
        ((f"{times} ", "bold"), (one_line(cause, 70), "$dead")) for cause, times in causes[:3]
    ]
    if rest := sum(times for _, times in causes[3:]):
        shown.append(((f"{rest} for other causes", "$muted"),))
    return [head, *shown]


def watch_lines(state: State, width: int) -> list[Line]:
    """Return `rewards follow  length +0.12  ! punctuation +0.71`; empty before there is enough."""
    watch = state.reward_watch
    figures = [figure for figure in watch.figures if figure.r is not None and figure.n >= _FEWEST]
    if not figures:
        return []
    lines = flow(
        [(("rewards follow", "$muted"),), *(_trait(figure, width) for figure in figures)], width
    )
    if watch.outliers:
        group, index, reward, z = watch.outliers[-1]
        where = f"candidate {index + 1} in {one_line(group, 20)}"
        text = f"newest outlier: {reward:.3g}, {abs(z):.0f} deviations off, {where}"
        lines.append(((text, "$muted"),))
    return lines


def _trait(figure: WatchFigure, width: int) -> Line:
    value, name = f"{figure.r:+.2f}", one_line(figure.trait, 30)
    if not figure.alert:
        return ((f"{name} ", "$muted"), (value, ""))
    sure = f" ({figure.low:+.2f} to {figure.high:+.2f}, n {figure.n})" if width >= WIDE else ""
    return ((f"! {name} {value}", "bold $warning"), (sure, "$muted"))


# --- the table of parts ----------------------------------------------------------------------


def _part_name(row: model.PartRow) -> Cell:
    figures, part = row.figures, row.part
    counts = figures.kind != "noted" if figures is not None else part is not None and part.enabled
    return one_line(row.name, 60), "bold" if counts else "$muted" if figures is None else ""


def _kind(row: model.PartRow) -> Cell:
    figures, part = row.figures, row.part
    if figures is not None:
        return figures.kind, "$winner" if figures.kind == "gate" else "$muted"
    assert part is not None
    return model.OFF if not part.enabled else "gate" if part.gate else "weighted", "$muted"


def _weight(row: model.PartRow) -> Cell:
    figures, part = row.figures, row.part
    if figures is not None:
        return weight_text(figures), "" if figures.kind == "weighted" else "$faint"
    assert part is not None
    return UNKNOWN if part.gate else number(part.weight), "$muted"


def _column(
    title: str,
    width: int,
    read: Callable[[model.PartFigures], str | Cell],
    tone: str = "$muted",
    rank: int = 0,
) -> Column[model.PartRow]:
    """Return a column of figures, which is empty before the first group."""

    def text(row: model.PartRow) -> str | Cell:
        figures = row.figures
        return "" if figures is None else read(figures)

    return Column(title, width, text, tone, rank, right=True)


def _trace(row: model.PartRow) -> str:
    return "" if row.figures is None else f" {trace_text(row.figures, row.trace)}"


PARTS: Table[model.PartRow] = Table(
    (
        Column("part", 12, _part_name, most=24),
        Column("kind", 8, _kind),
        Column("weight", 9, _weight, right=True),
        _column("mean", 6, lambda part: brief(part.spread.mean), "bold"),
        _column("±std", 6, lambda part: brief(part.spread.std), rank=1),
        _column("min", 6, lambda part: brief(part.spread.low), rank=2),
        _column("25%", 6, lambda part: brief(part.spread.first), rank=4),
        _column("median", 6, lambda part: brief(part.spread.median), rank=4),
        _column("75%", 6, lambda part: brief(part.spread.third), rank=4),
        _column("max", 6, lambda part: brief(part.spread.high), rank=2),
        _column("decided", 7, lambda part: (decided_text(part), "" if part.decided else "$faint")),
        _column("groups", 6, lambda part: str(part.groups), rank=3),
        Column(" trace", 7, _trace, "$curve", most=61),
    ),
    start=" ",
)


def row_line(row: model.PartRow, width: int) -> Line:
    """Return one part: kind, weight, distribution, how often it decided, its trace.

    Without a group there is only what the model sets.
    """
    line = PARTS.row(replace(row, trace=PARTS.fitted(width)[-1][1] - 1), width)
    if row.figures is not None:
        return line
    return (*line[:6], ("   no group yet", "$faint"))  # after name, kind and weight


def brief(value: float) -> str:
    """Return a value of a part in at most six characters."""
    if abs(value) < 100:
        return number(value)
    return figure(value) if abs(value) < 10_000 else f"{value:.0e}"


def weight_text(part: model.PartFigures) -> str:
    """Return its weight, or from-to where it differs between groups."""
    if part.kind != "weighted":
        return UNKNOWN
    low, high = part.weights
    if high - low < 0.005:
        return number(part.weight)
    return f"{number(low)}-{number(high)}".replace("0.", ".")


def decided_text(part: model.PartFigures) -> str:
    """Return the share of groups it decided; a dash for a part that cannot."""
    return UNKNOWN if part.kind == "noted" else percent(part.decided, part.decidable)


def is_constant(part: model.PartFigures) -> bool:
    """Return whether it gave every answer the same value."""
    return part.spread.high - part.spread.low < 1e-9


def trace_text(part: model.PartFigures, width: int) -> str:
    """Return its mean from group to group in at most `width` bars, within its own range."""
    if is_constant(part):
        return "─" * min(width, len(part.trace))
    low, room = part.spread.low, part.spread.high - part.spread.low
    means = thinned(part.trace, width)
    return sparkline([(mean - low) / room * 0.99 + 0.01 for mean in means], full=1.0).plain


def thinned(values: Sequence[float], most: int) -> list[float]:
    """Return at most `most` values: means of neighbours, aligned to the newest."""
    count = len(values)
    if count <= most:
        return list(values)
    edges = [round(at * count / most) for at in range(most + 1)]
    return [sum(values[start:end]) / (end - start) for start, end in pairwise(edges)]


def part_words(part: model.PartFigures, width: int) -> str:
    """Return the text beside the name of the part above its curve, as far as it fits."""
    spread, constant = part.spread, is_constant(part)
    notes = [f"{brief(spread.mean)} {'every time' if constant else f'±{brief(spread.std)}'}"]
    if part.kind != "noted" and part.decidable:
        notes.append(f"decided {part.decided} of {plural(part.decidable, 'group')}")
    if part.kind == "gate":
        notes.append(f"reduced {part.closed} of {plural(spread.count, 'answer')}")
    if part.kind == "noted":
        notes.append("shown only, weight 0")
    if not constant:
        notes.append(f"middle half {brief(spread.first)} to {brief(spread.third)}")
    while len(notes) > 1 and len(" · ".join(notes)) > width:
        notes.pop()
    return " · ".join(notes)


# --- the last fault --------------------------------------------------------------------------


def fault_lines(fault: model.Fault | None, now: float, width: int, unfolded: bool) -> list[Line]:
    """Return cause, place and traceback of the fault; empty without one."""
    if fault is None:
        return []
    age = ago(now - fault.at)
    when = age if age == "just now" else f"{clock(fault.at)}, {age}"
    state, tone = f"✖ {fault.what} ", "bold $engine-lost"
    if fault.resolution:
        state, tone = f"✔ {fault.resolution} ", "$reward-up"
        when = f" {fault.what} {when}"
    lines: list[Line] = [(("LAST FAULT  ", "bold $heading"), (state, tone), (when, "$muted"))]
    most = 6 if unfolded else 2
    cause = wrapped(one_line(fault.cause, 1_000), width - 2)
    if len(cause) > most:
        cause = [*cause[: most - 1], fit(" ".join(cause[most - 1 :]), width - 2)]
    lines += [((f"  {text}", "" if fault.resolution else "bold"),) for text in cause]
    return [*lines, *_traceback(fault, width, unfolded)]


def _traceback(fault: model.Fault, width: int, unfolded: bool) -> list[Line]:
    trace = wrapped(fault.traceback, width - 4, 20_000) if fault.traceback else []
    where = f"{one_line(Path(fault.file).name, 60)}:{fault.line}  " if fault.line else ""
    head: Line = ((f"  {where}", "bold $accent"),)
    if trace:
        sign, key = ("▾ ", "z folds") if unfolded else ("▸ ", "z unfolds")
        count = f"traceback, {plural(len(trace), 'line')}  "
        head = (f"  {sign}", "$accent"), (count, "$muted"), (where, "bold $accent"), (key, "$muted")
    lines = [head] if trace or where else []
    if unfolded:
        lines += [((f"    {text}", "$muted"),) for text in trace]
        if fault.file:
            lines += [((f"    {text}", "$faint"),) for text in wrapped(fault.file, width - 4)]
    return lines


# --- the values of one part ------------------------------------------------------------------


def value_lines(digest: model.Digest, name: str, width: int) -> list[Line]:
    """Return a group in one line, then the value of a part for each answer, and its reason."""
    group = digest.group
    marks = ["◆ decided it"] if digest.parts[name].decided else []
    marks += ["✓ human-rated"] if digest.by_hand else []
    step = f"step {UNKNOWN if group.step is None else group.step:<5} "
    room = max(10, width - 24 - len(step))
    head: Line = (
        (f" {clock(group.opened_at)}  {step}", "$muted"),
        (fit(one_line(group.query, 300) or "(no text)", room), "bold"),
        (" " + "  ".join(marks), "$winner"),
    )
    best = best_of(group)
    answers = (
        _value(candidate, name, reward, candidate.index == best, width)
        for candidate, reward in zip(group.candidates, known_rewards(group), strict=True)
    )
    return [head, *answers, EMPTY]


def _value(candidate: Candidate, name: str, reward: float | None, winner: bool, width: int) -> Line:
    part = next((part for part in candidate.parts if part.name == name), None)
    line: Line = (
        (f"   #{candidate.index + 1:<2} ", "$muted"),
        (f"{UNKNOWN:>6}", "$faint") if part is None else (f"{brief(part.value):>6}", "bold"),
        (f"   reward {number(reward):>5} ", "$muted"),
        ("▲ " if winner else "  ", "$winner"),
    )
    text, tone = f"“{one_line(candidate.text or candidate.tool_calls, 300)}”", "$muted"
    if part is not None and part.reason:
        text, tone = one_line(part.reason, 300), ""
    return (*line, (fit(text, max(8, width - line_width(line))).rstrip(), tone))


# --- what if ---------------------------------------------------------------------------------


def weight_line(part: RewardPart, weights: Mapping[str, float], width: int) -> Line:
    """Return a part with its active weight and the one being tried."""
    tried = weights.get(part.name)
    kind = "gate" if part.gate else "share" if part.share else "weight"
    now = UNKNOWN if part.gate else f"{part.weight:g}"
    room = max(12, min(28, width - 40))
    line: Line = (
        (f" {fit(one_line(part.name, 60), room)} ", "bold" if part.enabled else "$muted"),
        (fit(kind if part.enabled else "off", 7), "$muted"),
        (fit(now, 8, right=True), ""),
    )
    if tried is None or part.gate:
        return line
    return (*line, ("  to ", "$muted"), (f"{tried:g}", "bold $winner"))


def summary_lines(
    summary: TrialSummary, missing: int = 0, width: int = 160, *, read_only: bool = False
) -> list[Line]:
    """Return the result in three lines, and further notes."""
    remedy = "" if read_only else "r re-scores them"
    left_out = f"{plural(missing, 'group')} of older rewards" if missing else ""
    if not summary.compared:
        text = ": ".join(filter(None, ("No group in view can be compared", left_out)))
        text = "; ".join(filter(None, (text, remedy)))
        return [((line, "$muted"),) for line in wrapped(text, width)]

    def count(value: int, tone: str) -> tuple[str, str]:
        return str(value), f"bold {tone}" if value else "bold"

    muted, died = "$muted", count(summary.died, "$warning")
    flips, revived = count(summary.flips, "$warning"), count(summary.revived, "$winner")
    compared = plural(summary.compared, "group")
    dead = f"   ({summary.dead_before} before, {summary.dead_after} after)"
    means = f"{number(summary.mean_before)} to {number(summary.mean_after)}"
    spreads = f"{number(summary.spread_before)} to {number(summary.spread_after)}"
    lines: list[Line] = [
        (("winner flips ", muted), flips, (f" of {compared}", muted)),
        (("dead groups gained ", muted), died, ("   lost ", muted), revived, (dead, muted)),
        (("mean ", muted), (means, "bold"), ("   spread ", muted), (spreads, "bold")),
    ]
    notes = []
    if summary.outside:
        notes.append(f"! rewards leave 0 to 1 in {plural(summary.outside, 'group')}")
    if summary.gained:
        notes.append(f"{plural(summary.gained, 'group')} had no reward and now would")
    if summary.by_hand:
        notes.append(f"human-rated: the same winner in {summary.by_hand_kept} of {summary.by_hand}")
    if summary.abstained:
        cause = one_line(summary.abstentions[0][0], 60) if summary.abstentions else ""
        notes.append(f"? {summary.abstained} not scored: {cause}")
    for note, times in summary.notes[:1]:
        notes.append(f"! {times} differ from then: {one_line(note, 70)}")
    if missing:
        notes.append(": ".join(filter(None, (f"{left_out} left out", remedy))))
    return [*lines, *flow([((text, "$muted"),) for text in notes], width)]


def group_lines(trial: TrialGroup, width: int) -> tuple[Line, ...]:
    """Return a group that changes: its query, then its rewards before and after, as bars too."""
    top = max((0.0, *trial.before, *trial.after))
    bars_before, bars_after = (
        sparkline([max(0.0, reward) for reward in rewards], full=top).plain
        for rewards in (trial.before, trial.after)
    )
    rows = zip(trial.before, trial.after, strict=False)
    moves = "   ".join(f"{number(before)} to {number(after)}" for before, after in rows)
    winner = ""
    if trial.winner_before != trial.winner_after:
        winner = f"   winner {_place(trial.winner_before)} to {_place(trial.winner_after)}"
    room = max(10, width - len(bars_before) - len(bars_after) - 9)
    return (
        ((f" {fit(one_line(trial.query, 200), max(10, width - 2))}", "bold"),),
        (
            (f"   {bars_before} ▸ {bars_after}", "$curve"),
            (f"   {fit(moves + winner, room)}", "$muted"),
        ),
    )


def _place(index: int | None) -> str:
    return "none" if index is None else str(index + 1)
