"""One part of the reward as charts: values over groups, distribution, by rank, best and worst."""

from collections.abc import Sequence
from dataclasses import dataclass

from textual.content import Content

from ajet_swarm.common.text import one_line, plural
from console.models.reward_figures import Digest
from console.session.group_facts import known_rewards
from console.text.format import number
from console.text.lines import fit
from console.text.sections import Room, heading, lines
from console.text.wrap import wrapped
from console.views.plots import PlotColumn, bars, histogram, scatter
from console.views.rewards.table import brief
from core.state import Group, State

_SAME = 1e-9
"""Values closer than this count as one value."""
_ANSWER_ROWS = 2
"""Most rows of an answer."""


@dataclass(frozen=True, slots=True)
class Extreme:
    """An answer to which a part gave one of its highest or lowest values."""

    group_id: str
    index: int
    value: float


def over_groups(digests: Sequence[Digest], name: str, room: Room) -> Content:
    """Return each answer's value over the groups, oldest at the left."""
    columns = [PlotColumn(one.parts[name].values) for one in digests if name in one.parts]
    title = heading("VALUES", "over groups")
    if not columns:
        return lines(title, empty_panel("Each answer's value is a dot here", room.width))
    values = [value for one in columns for value in one.values]
    if max(values) - min(values) < _SAME:
        return lines(title, Content.styled(f"Every answer has {brief(values[0])}", "$muted"))
    return lines(title, *scatter(columns, room.width, room.height - 1))


def spread(digests: Sequence[Digest], name: str, room: Room) -> Content:
    """Return the distribution of the values."""
    values = [value for one in digests if name in one.parts for value in one.parts[name].values]
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
    for one in digests:
        part = one.parts.get(name)
        for value, place in zip(part.values, part.ranks, strict=False) if part else ():
            places.setdefault(place, []).append(value)
    title = heading("BY RANK", "best reward first")
    if not places:
        if not any(name in one.parts for one in digests):
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
        Extreme(one.group_id, index, value)
        for one in reversed(digests)
        if name in one.parts
        for index, value in zip(one.parts[name].indices, one.parts[name].values, strict=True)
    ]
    if not candidates:
        return [], []
    high = sorted(candidates, key=lambda one: -one.value)[:most]
    low = sorted(candidates, key=lambda one: one.value)[:most]
    if high[0].value - low[0].value < _SAME:
        return high, []
    middle = (high[0].value + low[0].value) / 2
    return (
        [one for one in high if one.value > middle],
        [one for one in low if one.value < middle],
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
    for one in shown:
        group = state.groups.get(one.group_id)
        if group is not None:
            result += _answer(group, one, best, room.width)
    return lines(*result)


def _answer(group: Group, one: Extreme, best: bool, width: int) -> list[Content]:
    rewards = known_rewards(group)
    reward = rewards[one.index] if one.index < len(rewards) else None
    tone = "bold $reward-up" if best else "bold $reward-down"
    head = f"  reward {number(reward)}  #{one.index + 1}  "
    value = brief(one.value)
    query = fit(one_line(group.query, 300) or "(no text)", max(0, width - len(head) - len(value)))
    text = next(
        (each.text or each.tool_calls for each in group.candidates if each.index == one.index), ""
    )
    rows = wrapped(one_line(text, 600) or "(empty)", max(8, width - 2))
    if len(rows) > _ANSWER_ROWS:
        rest = " ".join(rows[_ANSWER_ROWS - 1 :])
        rows = [*rows[: _ANSWER_ROWS - 1], fit(rest, max(8, width - 2))]
    return [
        Content.assemble((value, tone), (head, "$muted"), (query.rstrip(), "$muted")),
        *(Content(f"  {row}") for row in rows),
    ]


def empty_panel(what: str, width: int) -> Content:
    """Return the text of an empty panel: its future content, and the keys that start it."""
    text = f"{what} with the first scored group. F4, then s starts the mock user."
    return lines(*(Content.styled(row, "$muted") for row in wrapped(text, width)))
