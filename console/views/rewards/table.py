"""The rewards as lines: source, figures, the table of parts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ajet_swarm.common.text import one_line, plural
from console.models.reward_edit import model_pieces
from console.models.reward_figures import PartFigures, RewardFigures
from console.text.format import UNKNOWN, clock, elapsed, figure, number, percent
from console.text.lines import Line, flow
from console.ui.plot import sparkline
from console.ui.table import Cell, Column, Table
from console.views.rewards.fault import last_fault, source_kind
from console.views.rewards.rows import OFF, PartRow
from core.state import State

WIDE = 100
"""Cells from which there is room for secondary content."""


# --- source and figures ----------------------------------------------------------------------


def head_lines(
    state: State, totals: RewardFigures, now: float, width: int, seen: bool
) -> list[Line]:
    """Return source with version and age, then the figures over the last groups."""
    if not seen or not state.rewards.source:
        return [_title("the rewards are not known yet")]
    dead = _causes("○", "dead", totals.dead, totals.sent, totals.causes)
    lost = _causes("×", "lost", totals.lost, totals.settled, totals.losses)
    unscored = _causes("?", "not scored", totals.abstained, totals.groups, totals.abstentions)
    fault = last_fault(state)
    if fault is not None and [cause for cause, _ in totals.abstentions] == [fault.cause]:
        del unscored[1:]  # the fault below shows it
    return [
        *flow(_source(state, now, width), width, "  "),
        *flow(model_pieces(state), width, "  "),
        *flow([*_totals(totals, width), *dead[:1], *lost[:1], *unscored[:1]], width, "  "),
        *flow(_after("  dead: ", dead[1:]), width, "  "),
        *flow(_after("  lost: ", lost[1:]), width, "  "),
        *flow(_after("  not scored: ", unscored[1:]), width, "  "),
    ]


def _after(word: str, pieces: Sequence[Line]) -> list[Line]:
    """Return the pieces with a word before the first."""
    return [((word if at == 0 else "", "$muted"), *piece) for at, piece in enumerate(pieces)]


def _title(notes: str) -> Line:
    return (("REWARDS", "bold $heading"), (f"  {notes}", "$muted"))


def _source(state: State, now: float, width: int) -> list[Line]:
    rewards = state.rewards
    name: Line = (("REWARDS  ", "bold $heading"), (source_kind(rewards.source), "bold"))
    if source_kind(rewards.source) in ("hooks", "file"):
        name = (*name, (f"  {_where(rewards.source, width)}", ""))
    pieces = [name]
    if rewards.version:
        shown = one_line(rewards.version, 40)[: 12 if width >= WIDE else 8]
        pieces.append((("version ", "$muted"), (shown, "bold")))
        if rewards.since:
            age = elapsed(now - rewards.since)
            pieces.append(((f"since {clock(rewards.since)} ({age})", "$muted"),))
    pieces.append((_status(state),))
    return pieces


def _status(state: State) -> tuple[str, str]:
    rewards = state.rewards
    if state.watch_only:
        return "scores nothing: watch-only", "$muted"
    if rewards.ok and rewards.version:
        return "● active", "$engine-rolling"
    if rewards.ok:
        return "◌ loading", "$engine-booting"
    fault = rewards.fault
    if rewards.version and rewards.waits:
        waits = one_line(rewards.waits, 30)
        return f"◌ the newest waits for {waits}, this version stays active", "$engine-booting"
    if rewards.waits:
        return f"◌ waits for {one_line(rewards.waits, 30)}", "$engine-booting"
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


def _totals(totals: RewardFigures, width: int) -> list[Line]:
    if not totals.groups:
        return [(("No group is scored yet", "$muted"),)]
    pieces: list[Line] = [(("last ", "$muted"), (plural(totals.groups, "group"), "bold"))]
    if totals.reward is not None:
        pieces.append(
            (
                ("reward ", "$muted"),
                (number(totals.reward.mean), "bold $curve"),
                (f" ±{number(totals.reward.std)}", "$curve"),
            )
        )
    if totals.scored and totals.present < totals.scored:
        pieces.append((("this version ", "$muted"), (f"{totals.present}/{totals.scored}", "")))
    if totals.by_hand:
        rated: Line = (("human-rated ", "$muted"), (str(totals.by_hand), ""))
        if totals.hand is not None:
            rated += ((", winner ", "$muted"), (number(totals.hand), ""))
        pieces.append(rated)
    value = UNKNOWN if totals.correlation is None else f"{totals.correlation:+.2f}"
    basis = f"{plural(totals.paired, 'answer')}, {totals.unit}" if width >= WIDE else ""
    strong = totals.correlation is not None and abs(totals.correlation) >= 0.5
    pieces.append(
        (
            ("length ", "$muted"),
            (f"r {value}", "bold $warning" if strong else "bold"),
            (f" ({basis or f'n {totals.paired}'})", "$muted"),
        )
    )
    return pieces


def _causes(
    sign: str, word: str, count: int, whole: int, causes: Sequence[tuple[str, int]]
) -> list[Line]:
    """Return `○ dead 11% (11 of 96)   9 equal rewards   2 few rewards`; empty for none."""
    if not whole or (not count and word != "dead"):
        return []
    tone = "$warning" if count * 3 > whole else "$foreground"
    share: Line = (
        (f"{sign} {word} ", "$muted"),
        (percent(count, whole), f"bold {tone}"),
        (f" ({count} of {whole})", "$muted"),
    )
    shown: list[Line] = [
        ((f"{times} ", "bold"), (one_line(cause, 70), "$dead")) for cause, times in causes[:3]
    ]
    if len(causes) > 3:
        rest = sum(times for _, times in causes[3:])
        shown.append(((f"{rest} for other causes", "$muted"),))
    return [share, *shown]


# --- the table of parts ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _PartLine:
    """A row with the cells of its trace."""

    row: PartRow
    trace: int = 0


def _part_name(line: _PartLine) -> Cell:
    figures, part = line.row.figures, line.row.part
    if figures is not None:
        return one_line(figures.name, 60), "bold" if figures.kind != "noted" else ""
    assert part is not None
    return one_line(part.name, 60), "bold" if part.enabled else "$muted"


def _kind(line: _PartLine) -> Cell:
    figures, part = line.row.figures, line.row.part
    if figures is not None:
        return figures.kind, "$winner" if figures.kind == "gate" else "$muted"
    assert part is not None
    return OFF if not part.enabled else "gate" if part.gate else "weighted", "$muted"


def _weight(line: _PartLine) -> Cell:
    figures, part = line.row.figures, line.row.part
    if figures is not None:
        return weight_text(figures), "" if figures.kind == "weighted" else "$faint"
    assert part is not None
    return UNKNOWN if part.gate else number(part.weight), "$muted"


def _column(
    title: str,
    width: int,
    read: Callable[[PartFigures], str | Cell],
    tone: str = "$muted",
    rank: int = 0,
) -> Column[_PartLine]:
    """Return a column of figures, which is empty before the first group."""

    def text(line: _PartLine) -> str | Cell:
        figures = line.row.figures
        return "" if figures is None else read(figures)

    return Column(title, width, text, tone, rank, right=True)


def _decided(part: PartFigures) -> Cell:
    return decided_text(part), "" if part.decided else "$faint"


def _trace(line: _PartLine) -> str:
    return "" if line.row.figures is None else f" {trace_text(line.row.figures, line.trace)}"


_TABLE: Table[_PartLine] = Table(
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
        _column("decided", 7, _decided),
        _column("groups", 6, lambda part: str(part.groups), rank=3),
        Column(" trace", 7, _trace, "$curve", most=61),
    ),
    start=" ",
)


def part_head(width: int) -> Line:
    """Return the titles of the table."""
    return _TABLE.head(width)


def row_line(row: PartRow, width: int) -> Line:
    """Return one part: kind, weight, distribution, how often it decided, its trace.

    Without a group there is only what the model sets.
    """
    trace = _TABLE.fitted(width)[-1][1] - 1
    line = _TABLE.row(_PartLine(row, trace), width)
    if row.figures is not None:
        return line
    return (*line[:6], ("   no group yet", "$faint"))  # after name, kind and weight


def brief(value: float) -> str:
    """Return a value of a part in at most six characters."""
    if abs(value) < 100:
        return number(value)
    return figure(value) if abs(value) < 10_000 else f"{value:.0e}"


def weight_text(part: PartFigures) -> str:
    """Return its weight, or from-to where it differs between groups."""
    if part.kind != "weighted":
        return UNKNOWN
    low, high = part.weights
    if high - low < 0.005:
        return number(part.weight)
    return f"{number(low)}-{number(high)}".replace("0.", ".")


def decided_text(part: PartFigures) -> str:
    """Return the share of groups it decided; a dash for a part that cannot."""
    return UNKNOWN if part.kind == "noted" else percent(part.decided, part.decidable)


def is_constant(part: PartFigures) -> bool:
    """Return whether it gave every answer the same value."""
    return part.spread.high - part.spread.low < 1e-9


def trace_text(part: PartFigures, width: int) -> str:
    """Return its mean from group to group in at most `width` bars, within its own range."""
    low, high = part.spread.low, part.spread.high
    if is_constant(part):
        return "─" * min(width, len(part.trace))
    means = thinned(part.trace, width)
    room = high - low
    return sparkline([(mean - low) / room * 0.99 + 0.01 for mean in means], full=1.0).plain


def thinned(values: Sequence[float], most: int) -> list[float]:
    """Return at most `most` values: means of neighbours, aligned to the newest."""
    count = len(values)
    if count <= most:
        return list(values)
    edges = [round(at * count / most) for at in range(most + 1)]
    return [sum(values[start:end]) / (end - start) for start, end in pairwise(edges)]


def part_words(part: PartFigures, width: int) -> str:
    """Return the text beside the name of the part above its curve, as far as it fits."""
    spread = part.spread
    constant = is_constant(part)
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
