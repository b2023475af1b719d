"""One part of the reward as charts: values over groups, distribution, by rank, best and worst."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from textual.content import Content

from ajet_swarm.common.text import one_line, plural
from console.models.reward_figures import Digest
from console.session.group_facts import known_rewards
from console.text.format import filled, number
from console.text.lines import Line, fit
from console.text.sections import Room, heading, lines
from console.text.wrap import wrapped, wrapped_within
from console.ui.plot import LABEL, Axis, Plot
from console.views.rewards.table import brief
from core.state import Group, State

_SAME = 1e-9
"""Values closer than this count as one value."""
_ANSWER_ROWS = 2
"""Most rows of an answer."""
MOST_RANGES = 12
"""Most ranges of a histogram."""


@dataclass(frozen=True, slots=True)
class Extreme:
    """An answer to which a part gave one of its highest or lowest values."""

    group_id: str
    index: int
    value: float


def over_groups(digests: Sequence[Digest], name: str, room: Room) -> Content:
    """Return each answer's value over the groups, oldest at the left."""
    columns = [digest.parts[name].values for digest in digests if name in digest.parts]
    title = heading("VALUES", "over groups")
    if not columns:
        return lines(title, empty_panel("Each answer's value is a dot here", room.width))
    values = [value for column in columns for value in column]
    if max(values) - min(values) < _SAME:
        return lines(title, Content.styled(f"Every answer has {brief(values[0])}", "$muted"))
    return lines(title, *scatter(columns, room.width, room.height - 1))


def spread(digests: Sequence[Digest], name: str, room: Room) -> Content:
    """Return the distribution of the values."""
    values = [
        value for digest in digests if name in digest.parts for value in digest.parts[name].values
    ]
    title = heading("SPREAD", plural(len(values), "answer"))
    if not values:
        return lines(title, empty_panel("Counts of answers by value appear here", room.width))
    if max(values) - min(values) < _SAME:
        text = f"All {plural(len(values), 'answer')} have {brief(values[0])}"
        return lines(title, Content.styled(text, "$muted"))
    return lines(title, *histogram(values, room.width, room.height - 1))


def by_rank(digests: Sequence[Digest], name: str, room: Room) -> Content:
    """Return the mean value by rank; it falls from rank 1 for a part with influence."""
    places: dict[int, list[float]] = {}
    for digest in digests:
        part = digest.parts.get(name)
        for value, place in zip(part.values, part.ranks, strict=False) if part else ():
            places.setdefault(place, []).append(value)
    title = heading("BY RANK", "best reward first")
    if not places:
        if not any(name in digest.parts for digest in digests):
            return lines(title, empty_panel("Means by rank appear here", room.width))
        notes = wrapped("The rewards of each group are equal: no answer has a rank", room.width)
        return lines(title, *(Content.styled(row, "$muted") for row in notes))
    rows = []
    for place, values in sorted(places.items())[: room.height - 1]:
        mean = sum(values) / len(values)
        rows.append((f"{place}." + (" ▲" if place == 1 else "  "), mean, f"{brief(mean)}"))
    return lines(title, *bars(rows, room.width))


def extremes(
    digests: Sequence[Digest], name: str, most: int
) -> tuple[list[Extreme], list[Extreme]]:
    """Return the answers with the highest and the lowest values; the newest of equal ones."""
    candidates = [
        Extreme(digest.group_id, index, value)
        for digest in reversed(digests)
        if name in digest.parts
        for index, value in zip(digest.parts[name].indices, digest.parts[name].values, strict=True)
    ]
    if not candidates:
        return [], []
    high = sorted(candidates, key=lambda candidate: -candidate.value)[:most]
    low = sorted(candidates, key=lambda candidate: candidate.value)[:most]
    if high[0].value - low[0].value < _SAME:
        return high, []
    middle = (high[0].value + low[0].value) / 2
    return (
        [extreme for extreme in high if extreme.value > middle],
        [extreme for extreme in low if extreme.value < middle],
    )


def answers(state: State, digests: Sequence[Digest], name: str, best: bool, room: Room) -> Content:
    """Return the best or the worst answers by this part, with value, reward and question."""
    word = "BEST" if best else "WORST"
    most = max(1, (room.height - 1) // (_ANSWER_ROWS + 1))
    high, low = extremes(digests, name, most)
    shown = high if best else low
    title = heading(f"{word} ANSWERS", "by this part")
    if not shown:
        if not high:
            return lines(title, empty_panel("Answers appear here", room.width))
        return lines(title, Content.styled("All answers have the same value", "$muted"))
    result = [title]
    for extreme in shown:
        group = state.groups.get(extreme.group_id)
        if group is not None:
            result += _answer(group, extreme, best, room.width)
    return lines(*result)


def _answer(group: Group, extreme: Extreme, best: bool, width: int) -> list[Content]:
    rewards = known_rewards(group)
    reward = rewards[extreme.index] if extreme.index < len(rewards) else None
    tone = "bold $reward-up" if best else "bold $reward-down"
    head = f"  reward {number(reward)}  #{extreme.index + 1}  "
    value = brief(extreme.value)
    query = fit(one_line(group.query, 300) or "(no text)", max(0, width - len(head) - len(value)))
    text = next(
        (each.text or each.tool_calls for each in group.candidates if each.index == extreme.index),
        "",
    )
    rows = wrapped_within(one_line(text, 600) or "(empty)", max(8, width - 2), _ANSWER_ROWS)
    return [
        Content.assemble((value, tone), (head, "$muted"), (query.rstrip(), "$muted")),
        *(Content(f"  {row}") for row in rows),
    ]


def empty_panel(what: str, width: int) -> Content:
    """Return the text of an empty panel: its future content, and the keys that start it."""
    text = f"{what} with the first scored group. F4, then s starts the mock user."
    return lines(*(Content.styled(row, "$muted") for row in wrapped(text, width)))


# --- plots ------------------------------------------------------------------------------------


def scatter(columns: Sequence[Sequence[float]], width: int, height: int) -> list[Line]:
    """Plot the values of each group as dots, oldest at the left; means are highlighted.

    Groups in the same column of cells share its dots. The last line counts the groups.

    Args:
        columns: The values of each group, at least one.
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
    size = len(str(most))
    rows_shown: list[Line] = []
    for at in reversed(range(count)):
        start = axis.low + span * at / count
        label = f"{_figure(start, span):>{LABEL}}+ "
        bar = filled(bins[at] / most, width - len(label) - size - 1)
        count_text = f" {bins[at]}" if bins[at] else " ·"
        tone = "" if bins[at] else "$faint"
        rows_shown.append(((label, "$muted"), (bar, "$curve"), (count_text, tone)))
    return rows_shown


def _ranges(span: float, most: int) -> int:
    """Return the number of equal round ranges that make up `span`; `most` if none fits."""
    for count in range(most, max(2, most // 2), -1):
        step = span / count
        first = step / 10 ** math.floor(math.log10(step) + 1e-9)
        if any(abs(first - good) < 1e-6 for good in (1, 2, 2.5, 5)):
            return count
    return most


def bars(rows: Sequence[tuple[str, float, str]], width: int) -> list[Line]:
    """Return a bar for each (label, value, words); the longest is the highest value above 0."""
    if not rows or width < 20:
        return []
    label = max(len(name) for name, _, _ in rows)
    words = max(len(text) for _, _, text in rows)
    top = max(1e-9, *(value for _, value, _ in rows))
    room = max(4, width - label - words - 2)
    return [
        (
            (f"{name:>{label}} ", "$muted"),
            (filled(value / top, room), "$curve"),
            (f" {count_text}", ""),
        )
        for name, value, count_text in rows
    ]


def _figure(value: float, span: float) -> str:
    places = 2 if span < 10 else 0
    if span < 0.1:
        places = min(4, 1 - math.floor(math.log10(span)))
    return f"{value:.{places}f}"
