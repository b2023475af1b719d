"""Figures of each step, computed from the state and from the groups that closed."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from core.bus import Bus
from core.events import Event, GroupClosed, LookEnded, UpdateDone
from core.state import Group, Server, StepStats
from proxy.trackers.sink import StepFigures

_VERDICTS = {"better": 1.0, "worse": -1.0}
STEPS_KEPT = 8
"""Steps per server whose groups are counted at once; older ones are forgotten."""


@dataclass(slots=True)
class _PartSum:
    """Sum of the values of one reward part."""

    total: float = 0.0
    count: int = 0


@dataclass(slots=True)
class _Counts:
    """Sums over the groups of one step."""

    tokens: int = 0
    answers: int = 0
    seconds: float = 0.0
    parts: dict[str, _PartSum] = field(default_factory=dict)


class FigureSource:
    """Makes the figures of steps and looks.

    Args:
        bus: Its state has the figures of rewards and updates.
    """

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._counts: dict[str, dict[int, _Counts]] = {}

    def count(self, event: GroupClosed) -> None:
        """Count the answers, tokens and reward parts of a group that closed."""
        group = self._bus.state.groups.get(event.group_id)
        if group is None or group.step is None or group.episode_type == "eval":
            return
        steps = self._counts.setdefault(event.server, {})
        counts = steps.get(group.step)
        if counts is None:
            counts = steps[group.step] = _Counts()
            for old in sorted(steps)[:-STEPS_KEPT]:
                del steps[old]
        _count_group(counts, group)

    def of(self, event: Event) -> StepFigures | None:
        """Return the figures that an event completes: a weight update or a look; else None."""
        server = self._bus.state.servers.get(event.server)
        if server is None:
            return None
        if isinstance(event, UpdateDone):
            stats = next((one for one in reversed(server.steps) if one.step == event.step), None)
            values = {} if stats is None else dict(_step_values(stats))
            counts = self._counts.get(event.server, {}).pop(event.step, None)
            if counts is not None:
                values |= dict(_counted(counts))
            return _figures(server, event.at, event.step, event.run, values)
        if isinstance(event, LookEnded) and event.outcome == "complete" and event.step is not None:
            return _figures(server, event.at, event.step, event.run, dict(_look_values(event)))
        return None


def _figures(
    server: Server, at: float, step: int, run: int, values: dict[str, float]
) -> StepFigures:
    name = next((one.name for one in reversed(server.runs) if one.number == run), "")
    return StepFigures(server.name, name, step, at, values)


def _count_group(counts: _Counts, group: Group) -> None:
    for candidate in group.candidates:
        if candidate.seconds:
            counts.answers += 1
            counts.tokens += candidate.tokens
            counts.seconds += candidate.seconds
        for part in candidate.parts:
            sum_ = counts.parts.setdefault(part.name, _PartSum())
            sum_.total += part.value
            sum_.count += 1


def _counted(counts: _Counts) -> Iterator[tuple[str, float]]:
    yield "answers/count", float(counts.answers)
    yield "answers/tokens", float(counts.tokens)
    if counts.answers:
        yield "answers/mean_tokens", counts.tokens / counts.answers
        yield "answers/mean_seconds", counts.seconds / counts.answers
    for name, sum_ in sorted(counts.parts.items()):
        yield f"part/{name}", sum_.total / sum_.count


def _step_values(stats: StepStats) -> Iterator[tuple[str, float]]:
    yield "groups/count", float(stats.groups)
    yield "groups/dead", float(stats.dead)
    yield "groups/by_hand", float(stats.by_hand)
    yield "reward/count", float(stats.rewards)
    if stats.rewards:
        yield "reward/mean", stats.mean
        yield "reward/std", stats.std
    if stats.auto:
        yield "reward/automatic_mean", stats.auto_mean
        yield "reward/automatic_std", stats.auto_std
    if stats.hand:
        yield "reward/human_mean", stats.hand_mean
    for name, value in stats.update.items():
        yield f"update/{name}", float(value)


def _look_values(look: LookEnded) -> Iterator[tuple[str, float]]:
    yield "look/mean", look.mean
    yield "look/low", look.low
    yield "look/high", look.high
    if look.verdict is not None:
        yield "look/effect", look.verdict.effect
        yield "look/verdict", _VERDICTS.get(look.verdict.outcome, 0.0)
    for part in look.parts:
        yield f"look/part/{part.part}", part.mean
