"""What one part of the reward said of the newest groups, answer by answer."""

from collections.abc import Iterator
from dataclasses import dataclass

from ajet_swarm.common.text import one_line
from console.models.reward_figures import digest
from console.session.group_facts import best_of, known_rewards
from console.text.format import UNKNOWN, clock, number
from console.text.lines import Line, fit, line_width
from console.views.rewards.table import brief
from core.state import Candidate, Group, State

SAYINGS = 100
"""Groups that are listed at most."""


@dataclass(frozen=True, slots=True)
class Saying:
    """What a part said of one answer."""

    index: int
    value: float | None
    """None when it said nothing of it."""
    reason: str
    text: str
    """The beginning of the answer, shown where there is no reason."""
    reward: float | None
    winner: bool


@dataclass(frozen=True, slots=True)
class GroupSayings:
    """What a part said of one group."""

    group_id: str
    at: float
    step: int | None
    query: str
    decided: bool
    by_hand: bool
    answers: tuple[Saying, ...]


def sayings(state: State, name: str, most: int = SAYINGS) -> list[GroupSayings]:
    """What the part `name` said of the newest groups that have it, newest first."""
    found: list[GroupSayings] = []
    for group in reversed(state.groups.values()):
        if len(found) == most:
            break
        if any(part.name == name for one in group.candidates for part in one.parts):
            found.append(_of_group(group, name))
    return found


def _of_group(group: Group, name: str) -> GroupSayings:
    told = digest(group).parts.get(name)
    rewards, best = known_rewards(group), best_of(group)
    answers = tuple(
        _saying(one, name, rewards[place], one.index == best)
        for place, one in enumerate(group.candidates)
    )
    return GroupSayings(
        group.group_id,
        group.opened_at,
        group.step,
        group.query,
        told is not None and told.decided,
        group.source == "human",
        answers,
    )


def _saying(one: Candidate, name: str, reward: float | None, winner: bool) -> Saying:
    part = next((part for part in one.parts if part.name == name), None)
    text = (one.text or one.tool_calls)[:400]
    if part is None:
        return Saying(one.index, None, "", text, reward, winner)
    return Saying(one.index, part.value, part.reason, text, reward, winner)


def saying_lines(told: GroupSayings, width: int) -> Iterator[Line]:
    """The group in one line, then each of its answers in one."""
    marks = "◆ decided it" if told.decided else ""
    if told.by_hand:
        marks += ("  " if marks else "") + "✓ human-rated"
    step = f"step {'–' if told.step is None else told.step:<5} "
    room = max(10, width - 24 - len(step))
    head: Line = (
        (f" {clock(told.at)}  ", "$muted"),
        (step, "$muted"),
        (fit(one_line(told.query, 300) or "(no text)", room), "bold"),
        (" ", ""),
        (marks, "$winner"),
    )
    yield head
    for one in told.answers:
        yield _answer_line(one, width)
    yield ()


def _answer_line(one: Saying, width: int) -> Line:
    value = UNKNOWN if one.value is None else brief(one.value)
    line: Line = (
        (f"   #{one.index + 1:<2} ", "$muted"),
        (f"{value:>6}", "bold" if one.value is not None else "$faint"),
        (f"   reward {number(one.reward):>5} ", "$muted"),
        ("▲ " if one.winner else "  ", "$winner"),
    )
    room = max(8, width - line_width(line))
    if one.reason:
        return (*line, (fit(one_line(one.reason, 300), room).rstrip(), ""))
    return (*line, (fit(f"“{one_line(one.text, 300)}”", room).rstrip(), "$muted"))
