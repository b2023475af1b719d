"""Tables of the parts of the reward and of the prompts that changed, before and now."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ajet_swarm.common.text import one_line
from console.models.progress.parts import TRAITS, ordered_parts
from console.models.progress.prompts import PromptChange
from console.text.format import UNKNOWN, figure, number
from console.text.lines import Line, fit
from console.ui.table import Cell, Column, Table
from console.views.progress.prompt_pair import pair_lines
from core.events import LookEnded, PartFigures
from core.state import Progress

_OUTCOMES = {
    "better": ("▲ better", "$reward-up"),
    "worse": ("▼ worse", "$reward-down"),
    "unknown": ("· not known yet", "$muted"),
    "": ("", ""),
}


# --- parts -------------------------------------------------------------------------------------


def parts_head(width: int) -> Line:
    """Return the titles of the columns of the parts."""
    return _PARTS.head(width)


def parts_lines(look: LookEnded, width: int, weights: Mapping[str, float]) -> list[Line]:
    """Return a row for each part: mean before and now, change, verdict.

    They are in the order of `ordered_parts`; the parts that are left out of a look, with the
    reason, come last.

    Args:
        look: The look.
        width: Cells of a line.
        weights: Weight of each part in the reward; may be empty.
    """
    rows = ordered_parts(look, weights)
    return [
        *(_PARTS.row(part, width) for part in rows),
        *(_left_out(left_out, width) for left_out in look.left_out),
    ]


def _left_out(text: str, width: int) -> Line:
    name, _, why = one_line(text, 200).partition(": ")
    room = _PARTS.fitted(width)[0][1]
    reason = f"left out{': ' if why else ''}{why}"
    return ((f" {fit(name, room)}", "$muted"), (fit(f"  {reason}", width - room - 1), "$muted"))


def _part_name(figures: PartFigures) -> str:
    return one_line(figures.part if figures.outcome else TRAITS.get(figures.part, figures.part), 60)


def _verdict(figures: PartFigures) -> Cell:
    words, tone = _OUTCOMES.get(figures.outcome, _OUTCOMES[""])
    return f"  {words}", tone


def _mean(value: float | None) -> str:
    """Return a mean with three places at most, without an exponent for a small one."""
    return figure(value if value is None or abs(value) >= 10 else round(value, 3))


def _change(figures: PartFigures) -> str:
    """Return the difference with its sign and as many places as its figures have."""
    if figures.before is None:
        return UNKNOWN
    places = 3 if max(abs(figures.before), abs(figures.mean)) < 10 else 1
    change = round(figures.mean - figures.before, places) + 0.0  # no minus for a change of 0
    return f"{change:+.{places}f}"


_PARTS: Table[PartFigures] = Table(
    (
        Column("part", 8, _part_name, most=30),
        Column("before", 8, lambda figures: _mean(figures.before), "$muted", right=True),
        Column("now", 8, lambda figures: _mean(figures.mean), "bold", right=True),
        Column("change", 8, _change, right=True),
        Column("  verdict", 17, _verdict),
    ),
    start=" ",
    gap="",
)


def no_parts(width: int) -> Line:
    """Return what the table of the parts will show."""
    words = " Each part before and now: with the first look after the baseline"
    return ((fit(words, width), "$muted"),)


# --- prompts -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PromptColumns:
    """The columns of the prompts that have content."""

    before: bool = True
    """Means of the baseline; comparisons have none: what they count is a win over the baseline."""
    answer: bool = True
    """Whether the likeliest answer is the same; not every server can sample it."""


def prompt_columns(changes: Sequence[PromptChange]) -> PromptColumns:
    """Return the columns that have content for these prompts."""
    return PromptColumns(
        before=any(change.before is not None for change in changes),
        answer=any(change.likeliest for change in changes),
    )


def prompts_head(width: int, columns: PromptColumns = PromptColumns()) -> Line:
    """Return the titles of the columns of the prompts."""
    means = f"{'before':>8}{'now':>7}" if columns.before else f"{'wins':>7}"
    answer = "  answer   " if columns.answer else "  "
    return ((fit(f" {'change':>7}{means}{answer}prompt", width), "$muted"),)


def no_prompts(width: int) -> Line:
    """Return what the list of prompts will show."""
    words = " Prompts that changed most: with the first look after the baseline"
    return ((fit(words, width), "$muted"),)


def prompt_line(change: PromptChange, width: int, columns: PromptColumns = PromptColumns()) -> Line:
    """Return `▲ +0.50    0.25   0.75  other    What is the capital of …`."""
    rounded = round(change.change, 2)
    sign, tone = ("▲", "$reward-up") if rounded > 0 else ("▼", "$reward-down")
    if not rounded:
        sign, tone = "·", "$muted"
    before = f"{number(change.before):>8}" if columns.before else ""
    answer = "  "
    if columns.answer:
        word = UNKNOWN if not change.likeliest else "same" if change.same_text else "other"
        answer = f"  {word:<9}"
    room = width - 15 - len(before) - len(answer)
    return (
        (f" {sign} ", tone),
        (f"{rounded:+.2f}" if rounded else " 0.00", f"bold {tone}"),
        (f"{before}{change.now:>7.2f}", ""),
        (answer, "$muted"),
        (fit(one_line(change.prompt, 300), max(1, room)), ""),
    )


def prompt_pair(change: PromptChange, progress: Progress, width: int) -> list[Line]:
    """Return a prompt with its answers in the baseline and in the newest look."""
    look, baseline = progress.current, progress.baseline
    return pair_lines(change, _step(baseline), _step(look), width)


def _step(look: LookEnded | None) -> str:
    return f"step {look.step}" if look is not None and look.step is not None else ""
