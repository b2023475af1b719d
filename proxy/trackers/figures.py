"""Figures of each step, computed from the state and from the groups that closed."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from core.bus import Bus
from core.events import Event, GroupClosed, LookEnded, UpdateDone
from core.state import Server, StepStats
from proxy.trackers.sink import StepFigures

_TOKENS, _SECONDS = "answers/tokens", "answers/seconds"
_VERDICTS = {"better": 1.0, "worse": -1.0}
STEPS_KEPT = 8
"""Steps per server whose groups are counted at once; older ones are forgotten."""


@dataclass(slots=True)
class _Counts:
    """Sums and numbers of values of the groups of one step, by name."""

    sums: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    numbers: Counter[str] = field(default_factory=Counter)

    def add(self, name: str, value: float) -> None:
        self.sums[name] += value
        self.numbers[name] += 1


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
        counts = steps.setdefault(group.step, _Counts())
        for old in sorted(steps)[:-STEPS_KEPT]:
            del steps[old]
        for candidate in group.candidates:
            if candidate.seconds:
                counts.add(_TOKENS, candidate.tokens)
                counts.add(_SECONDS, candidate.seconds)
            for part in candidate.parts:
                counts.add(f"part/{part.name}", part.value)

    def of(self, event: Event) -> StepFigures | None:
        """Return the figures that an event completes: a weight update or a look; else None."""
        server = self._bus.state.servers.get(event.server)
        if server is None:
            return None
        if isinstance(event, UpdateDone):
            stats = next((step for step in reversed(server.steps) if step.step == event.step), None)
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
    name = next((earlier.name for earlier in reversed(server.runs) if earlier.number == run), "")
    return StepFigures(server.name, name, step, at, values)


def _counted(counts: _Counts) -> Iterator[tuple[str, float]]:
    yield "answers/count", float(counts.numbers[_TOKENS])
    yield _TOKENS, float(counts.sums[_TOKENS])
    means = {_TOKENS: "answers/mean_tokens", _SECONDS: "answers/mean_seconds"}
    for name, number in sorted(counts.numbers.items()):
        yield means.get(name, name), counts.sums[name] / number


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
