"""One part of the reward as charts: values over groups, distribution, by rank, best and worst."""

import math
from collections.abc import Sequence
from statistics import fmean

from ajet_swarm.common.text import one_line, plural
from console.screens.rewards.model import Digest
from console.screens.rewards.text import brief
from console.session.group_facts import known_rewards
from console.text.format import filled, number
from console.text.lines import Line, fit
from console.text.wrap import wrapped, wrapped_within
from console.ui.plot import LABEL, Axis, Plot
from core.state import State

_SAME = 1e-9
"""Values closer than this count as one value."""
_ANSWER_ROWS = 2
"""Most rows of an answer."""
MOST_RANGES = 12
"""Most ranges of a histogram."""
CHARTS = {
    "groups": ("VALUES", "over groups", "Each answer's value is a dot here"),
    "spread": ("SPREAD", "", "Counts of answers by value appear here"),
    "ranks": ("BY RANK", "best reward first", "Means by rank appear here"),
    "best": ("BEST ANSWERS", "by this part", "Answers appear here"),
    "worst": ("WORST ANSWERS", "by this part", "Answers appear here"),
}
"""Chart -> its title, what stands beside it, and what will appear before there is a value."""


def chart(
    kind: str, state: State, digests: Sequence[Digest], name: str, width: int, height: int
) -> list[Line]:
    """Return a chart of a part, its title first, in at most `height` lines.

    Args:
        kind: A key of `CHARTS`.
        state: Has the answers.
        digests: The last groups, oldest first.
        name: The part.
        width: Cells of a line.
        height: Lines.
    """
    having = [digest for digest in digests if name in digest.parts]
    columns = [digest.parts[name].values for digest in having]
    values = [value for column in columns for value in column]
    title, about, empty = CHARTS[kind]
    head: Line = (
        (title, "bold $heading"),
        (f"  {about or plural(len(values), 'answer')}", "$muted"),
    )
    if not values:
        return [head, *empty_panel(empty, width)]
    if kind == "ranks":
        return [head, *_by_rank(having, name, width, height - 1)]
    if max(values) - min(values) < _SAME:
        return [head, ((f"Every answer has {brief(values[0])}", "$muted"),)]
    if kind == "groups":
        return [head, *scatter(columns, width, height - 1)]
    if kind == "spread":
        return [head, *histogram(values, width, height - 1)]
    return [head, *_answers(state, having, name, kind == "best", width, height - 1)]


def empty_panel(what: str, width: int) -> list[Line]:
    """Return the text of an empty panel: its future content, and the keys that start it."""
    text = f"{what} with the first scored group. F4, then s starts the mock user."
    return [((row, "$muted"),) for row in wrapped(text, width)]


def _by_rank(digests: Sequence[Digest], name: str, width: int, most: int) -> list[Line]:
    """Return the mean value by rank; it falls from rank 1 for a part with influence."""
    places: dict[int, list[float]] = {}
    for digest in digests:
        part = digest.parts[name]
        for value, place in zip(part.values, part.ranks, strict=False):
            places.setdefault(place, []).append(value)
    if not places:
        notes = wrapped("The rewards of each group are equal: no answer has a rank", width)
        return [((row, "$muted"),) for row in notes]
    means = [(place, fmean(values)) for place, values in sorted(places.items())[:most]]
    rows = [(f"{place}." + (" ▲" if place == 1 else "  "), mean) for place, mean in means]
    return bars(rows, width)


def extremes(
    digests: Sequence[Digest], name: str, best: bool, most: int
) -> list[tuple[str, int, float]]:
    """Return group, candidate and value of the answers with the highest or the lowest values.

    Of equal ones the newest; none from the other half between lowest and highest.
    """
    answers = [
        (digest.group.group_id, index, value)
        for digest in reversed(digests)
        for index, value in zip(digest.parts[name].indices, digest.parts[name].values, strict=True)
    ]
    values = [value for _, _, value in answers]
    middle = (min(values) + max(values)) / 2
    half = [answer for answer in answers if (answer[2] > middle if best else answer[2] < middle)]
    return sorted(half, key=lambda answer: -answer[2] if best else answer[2])[:most]


def _answers(
    state: State, digests: Sequence[Digest], name: str, best: bool, width: int, rows: int
) -> list[Line]:
    """Return the best or the worst answers by a part, with value, reward and question."""
    tone = "bold $reward-up" if best else "bold $reward-down"
    lines: list[Line] = []
    for group_id, index, value in extremes(digests, name, best, max(1, rows // (_ANSWER_ROWS + 1))):
        group = state.groups.get(group_id)
        if group is None:
            continue
        reward = known_rewards(group)[index] if index < len(group.candidates) else None
        head = f"  reward {number(reward)}  #{index + 1}  "
        room = max(0, width - len(head) - len(brief(value)))
        query = fit(one_line(group.query, 300) or "(no text)", room).rstrip()
        answers = (answer for answer in group.candidates if answer.index == index)
        text = next((answer.text or answer.tool_calls for answer in answers), "")
        shown = wrapped_within(one_line(text, 600) or "(empty)", max(8, width - 2), _ANSWER_ROWS)
        lines.append(((brief(value), tone), (head + query, "$muted")))
        lines += [((f"  {row}", ""),) for row in shown]
    return lines


# --- plots ------------------------------------------------------------------------------------


def scatter(columns: Sequence[Sequence[float]], width: int, height: int) -> list[Line]:
    """Plot the values of each group as dots, oldest at the left; means are highlighted.

    Groups in the same column of cells share its dots. The last line counts the groups.

    Args:
        columns: The values of each group, at least one.
        width: Cells of a line.
        height: Total number of lines, including the count; at least 3.
    """
    room, rows = width - LABEL, height - 1
    if not columns or rows < 2 or room < 4:
        return []
    axis = Axis.around(*(value for values in columns for value in values))
    wide = room * 2
    plot = Plot(room, rows, (0, wide - 1))
    means: dict[int, list[float]] = {}
    for place, values in enumerate(columns):
        at = place * wide // len(columns)
        for value in values:
            plot.dot(at, value, axis, "$curve")
        means.setdefault(at // 2, []).append(fmean(values))
    for column, values in means.items():
        plot.sign(column, plot.row(fmean(values), axis), "━", "bold $winner")
    label = plural(len(columns), "group")
    if len(columns) > 1 and len(label) + 21 <= room:
        label += ", newest at the right"
    legend = "  ⠂ answer  "
    foot: Line = ((f"{'':{LABEL}}{label}", "$muted"),)
    if len(label) + len(legend) + 6 <= room:
        foot += ((legend, "$curve"), ("━", "bold $winner"), (" mean", "$winner"))
    return [*plot.lines(axis), foot]


def histogram(values: Sequence[float], width: int, rows: int) -> list[Line]:
    """Count the values in each of at most `rows` equal ranges, the highest range first."""
    if not values or rows < 1 or width < 20:
        return []
    axis = Axis.around(*values)
    span = axis.high - axis.low
    count = _ranges(span, min(rows, MOST_RANGES))
    bins = [0] * count
    for value in values:
        bins[min(count - 1, int((value - axis.low) / span * count))] += 1
    most = max(bins)
    places = 2 if span < 10 else 0
    if span < 0.1:
        places = min(4, 1 - math.floor(math.log10(span)))
    lines: list[Line] = []
    for at in reversed(range(count)):
        label = f"{axis.low + span * at / count:>{LABEL}.{places}f}+ "
        bar = filled(bins[at] / most, width - len(label) - len(str(most)) - 1)
        number_text = (f" {bins[at]}", "") if bins[at] else (" ·", "$faint")
        lines.append(((label, "$muted"), (bar, "$curve"), number_text))
    return lines


def _ranges(span: float, most: int) -> int:
    """Return the number of equal round ranges that make up `span`; `most` if none fits."""
    for count in range(most, max(2, most // 2), -1):
        step = span / count
        first = step / 10 ** math.floor(math.log10(step) + 1e-9)
        if any(abs(first - good) < 1e-6 for good in (1, 2, 2.5, 5)):
            return count
    return most


def bars(rows: Sequence[tuple[str, float]], width: int) -> list[Line]:
    """Return a bar for each label and value; the longest is the highest value above 0."""
    if not rows or width < 20:
        return []
    label = max(len(name) for name, _ in rows)
    top = max(1e-9, *(value for _, value in rows))
    room = max(4, width - label - max(len(brief(value)) for _, value in rows) - 2)
    return [
        (
            (f"{name:>{label}} ", "$muted"),
            (filled(value / top, room), "$curve"),
            (f" {brief(value)}", ""),
        )
        for name, value in rows
    ]
