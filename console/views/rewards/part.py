"""The values of one part of the reward in the newest groups, answer by answer."""

from collections.abc import Iterator
from dataclasses import dataclass

from ajet_swarm.common.text import one_line
from console.models.reward_figures import digest
from console.session.group_facts import best_of, known_rewards
from console.text.format import UNKNOWN, clock, number
from console.text.lines import Line, fit, line_width
from console.views.rewards.table import brief
from core.state import Candidate, Group, State

MAX_GROUPS = 100
"""Most groups in the list."""


@dataclass(frozen=True, slots=True)
class PartOpinion:
    """The value of a part for one answer."""

    index: int
    value: float | None
    """None when the part gave no value."""
    reason: str
    text: str
    """The start of the answer, shown where there is no reason."""
    reward: float | None
    winner: bool


@dataclass(frozen=True, slots=True)
class GroupOpinions:
    """The values of a part for one group."""

    group_id: str
    at: float
    step: int | None
    query: str
    decided: bool
    by_hand: bool
    answers: tuple[PartOpinion, ...]


def group_opinions(state: State, name: str, most: int = MAX_GROUPS) -> list[GroupOpinions]:
    """Return the values of the part `name` in the newest groups that have it, newest first."""
    opinions: list[GroupOpinions] = []
    for group in reversed(state.groups.values()):
        if len(opinions) == most:
            break
        if any(part.name == name for candidate in group.candidates for part in candidate.parts):
            opinions.append(_of_group(group, name))
    return opinions


def _of_group(group: Group, name: str) -> GroupOpinions:
    part_digest = digest(group).parts.get(name)
    rewards, best = known_rewards(group), best_of(group)
    answers = tuple(
        _opinion(candidate, name, rewards[place], candidate.index == best)
        for place, candidate in enumerate(group.candidates)
    )
    return GroupOpinions(
        group.group_id,
        group.opened_at,
        group.step,
        group.query,
        part_digest is not None and part_digest.decided,
        group.source == "human",
        answers,
    )


def _opinion(candidate: Candidate, name: str, reward: float | None, winner: bool) -> PartOpinion:
    part = next((part for part in candidate.parts if part.name == name), None)
    text = (candidate.text or candidate.tool_calls)[:400]
    if part is None:
        return PartOpinion(candidate.index, None, "", text, reward, winner)
    return PartOpinion(candidate.index, part.value, part.reason, text, reward, winner)


def opinion_lines(opinions: GroupOpinions, width: int) -> Iterator[Line]:
    """Return the group in one line, then each of its answers in one."""
    marks = "◆ decided it" if opinions.decided else ""
    if opinions.by_hand:
        marks += ("  " if marks else "") + "✓ human-rated"
    step = f"step {'–' if opinions.step is None else opinions.step:<5} "
    room = max(10, width - 24 - len(step))
    head: Line = (
        (f" {clock(opinions.at)}  ", "$muted"),
        (step, "$muted"),
        (fit(one_line(opinions.query, 300) or "(no text)", room), "bold"),
        (" ", ""),
        (marks, "$winner"),
    )
    yield head
    for answer in opinions.answers:
        yield _answer_line(answer, width)
    yield ()


def _answer_line(opinion: PartOpinion, width: int) -> Line:
    value = UNKNOWN if opinion.value is None else brief(opinion.value)
    line: Line = (
        (f"   #{opinion.index + 1:<2} ", "$muted"),
        (f"{value:>6}", "bold" if opinion.value is not None else "$faint"),
        (f"   reward {number(opinion.reward):>5} ", "$muted"),
        ("▲ " if opinion.winner else "  ", "$winner"),
    )
    room = max(8, width - line_width(line))
    if opinion.reason:
        return (*line, (fit(one_line(opinion.reason, 300), room).rstrip(), ""))
    return (*line, (fit(f"“{one_line(opinion.text, 300)}”", room).rstrip(), "$muted"))
