"""Groups with the parts of their rewards, and sources that load or break."""

from collections.abc import Sequence

from console.screens.rewards.model import reward_of
from core.events import CandidateScore, Event, GroupScored, Part, ProxyStarted, RewardsChanged
from core.state import State
from tests.support.sample import NOW, group_events, state_of

TRACE = (
    "Traceback (most recent call last):\n"
    '  File "/h/other.py", line 3, in f\n    g()\n'
    '  File "/h/hook.py", line 12, in g\n    1 / 0\n'
    "ZeroDivisionError: division by zero\n"
)
STARTED = ProxyStarted(
    client_uuid="c", pid=1, url="http://p", version="1", servers={}, rewards="/h", at=NOW - 900
)


def loaded(version: str, at: float) -> RewardsChanged:
    return RewardsChanged(source="/h", ok=True, version=version, at=at)


def broken(at: float, cause: str = "SyntaxError: no", version: str = "v1") -> RewardsChanged:
    return RewardsChanged(
        source="/h",
        ok=False,
        version=version,
        cause=cause,
        traceback=TRACE,
        file="/h/hook.py",
        line=12,
        at=at,
    )


def scored(
    number: int, parts: Sequence[Sequence[Part]], *, step: int = 1, until: str = "DONE"
) -> list[Event]:
    """A group whose candidates have these parts; its rewards are what they make."""
    rewards = [reward_of(part) for part in parts]
    scores = tuple(
        CandidateScore(index=index, reward=rewards[index], parts=tuple(part))
        for index, part in enumerate(parts)
    )
    events: list[Event] = []
    for event in group_events(
        number, rewards=rewards, at=NOW - 500 + number, step=step, until=until
    ):
        if isinstance(event, GroupScored):
            event = GroupScored(
                group_id=event.group_id,
                server=event.server,
                scores=scores,
                best=event.best,
                version="v1",
                seconds=0.1,
                at=event.at,
            )
        events.append(event)
    return events


def two(left: float, right: float, *, gate: float = 1.0, weight: float = 0.5) -> list[Part]:
    return [
        Part("open", gate, gate=True, reason="it ended"),
        Part("left", left, weight, reason=f"left {left}"),
        Part("right", right, 1 - weight),
    ]


def state_with(*groups: list[Event]) -> State:
    return state_of(STARTED, *(event for group in groups for event in group))
