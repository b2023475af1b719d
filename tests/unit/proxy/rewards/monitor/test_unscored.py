"""The alert about groups that get no automatic rewards."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from ajet_swarm.common.tasks import Tasks
from core.bus import Bus
from core.events import (
    AlertRaised,
    CandidateScore,
    GroupClosed,
    GroupOpened,
    GroupScored,
    RatingAwaited,
    RewardsChanged,
    ScoringAbstained,
)
from core.journal.writer import Journal
from proxy.alerts import dismiss_alert
from proxy.rewards.monitor import unscored
from proxy.rewards.monitor.unscored import KEY, UnscoredMonitor
from tests.support.alerts import cause_of, todo_of

NONE = "returned None, expected a list of 4 numbers, one for each answer"


class Watched:
    """A bus with the watch on it."""

    def __init__(self, bus: Bus) -> None:
        self.bus = bus
        self.watch = UnscoredMonitor(bus, 80.0)

    @property
    def alert(self) -> AlertRaised | None:
        return self.bus.state.alerts.get(KEY)

    def abstain(self, group_id: str, cause: str = NONE, *, late: bool = False) -> None:
        self._open(group_id)
        abstained = ScoringAbstained(group_id=group_id, part="hook", cause=cause, late=late)
        self.bus.publish(abstained)

    def score(self, group_id: str) -> None:
        self._open(group_id)
        scores = (CandidateScore(index=0, reward=0.5),)
        scored = GroupScored(group_id=group_id, scores=scores, best=0, version="v", seconds=0.1)
        self.bus.publish(scored)

    def wait(self, group_id: str) -> None:
        self.bus.publish(
            RatingAwaited(group_id=group_id, until=9e9, fallback="abort", why="abstained")
        )

    def close(self, group_id: str) -> None:
        self.bus.publish(GroupClosed(group_id=group_id, phase="ABORTED", cause="unscored"))

    def _open(self, group_id: str) -> None:
        if group_id not in self.bus.state.groups:
            opened = GroupOpened(
                group_id=group_id, request_id="r", task_id="t", n=4, query="q", body={}
            )
            self.bus.publish(opened)

    async def looked(self) -> None:
        """The watch has seen all events so far."""
        await self.until(lambda: not self.watch._changed.is_set())

    async def until(self, test: Callable[[], object]) -> None:
        async with asyncio.timeout(20):
            while not test():
                await asyncio.sleep(0.005)


@pytest.fixture
async def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Watched]:
    monkeypatch.setattr(unscored, "EVERY", 0.0)
    journal = Journal(tmp_path / "j.db")
    try:
        async with Tasks("t") as tasks:
            made = Watched(Bus(journal, "run"))
            tasks.spawn(made.watch.run(), "watch")
            await asyncio.sleep(0)
            yield made
    finally:
        journal.close()


async def test_a_hook_that_returns_nothing_raises_an_alert_with_the_remedy(
    watched: Watched,
) -> None:
    watched.score("g1")
    watched.abstain("g2")
    watched.wait("g2")
    await watched.until(lambda: watched.alert)
    alert = watched.alert
    assert alert is not None
    assert cause_of(alert).startswith("1 of the last 2 groups have no automatic reward")
    assert f"hook: {NONE}" in cause_of(alert)
    assert cause_of(alert).endswith("; 1 open group waits for you")
    assert "`S` re-scores, `x` aborts" in todo_of(alert)
    assert alert.level == "error"


async def test_the_alert_about_a_slow_hook_names_the_limit(watched: Watched) -> None:
    for number in range(6):
        watched.abstain(f"g{number}", "the hook did not answer within 80 s", late=True)
        watched.close(f"g{number}")
    await watched.until(lambda: watched.alert and "6 of the last 6" in cause_of(watched.alert))
    assert watched.alert is not None
    assert "raise rewards.time_limit (now 80 s)" in todo_of(watched.alert)


async def test_the_alert_has_present_figures_and_is_cleared_with_its_cause(
    watched: Watched,
) -> None:
    watched.abstain("g1")
    watched.wait("g1")
    await watched.until(lambda: watched.alert)
    watched.score("g1")  # it was scored again
    await watched.until(lambda: watched.alert is None)
    watched.abstain("g2")
    watched.close("g2")
    await watched.until(lambda: watched.alert)
    for number in range(3, 13):
        watched.score(f"g{number}")
    await watched.until(lambda: watched.alert is None)


async def test_another_version_clears_the_alert_unless_groups_are_open(
    watched: Watched,
) -> None:
    watched.abstain("g1")
    watched.close("g1")
    watched.abstain("g2")
    await watched.until(lambda: watched.alert and "2 of the last 2" in cause_of(watched.alert))
    watched.bus.publish(RewardsChanged(source="h", ok=True, version="v2"))
    await watched.until(lambda: watched.alert and "the last group" in cause_of(watched.alert))
    watched.score("g2")
    await watched.until(lambda: watched.alert is None)


async def test_a_dismissed_alert_stays_hidden_until_its_cause_is_gone(watched: Watched) -> None:
    watched.abstain("g1")
    await watched.until(lambda: watched.alert)
    dismiss_alert(watched.bus, KEY)
    watched.abstain("g2")
    await watched.looked()
    assert watched.alert is None
    watched.score("g1")
    watched.score("g2")
    await watched.looked()
    watched.abstain("g3")
    await watched.until(lambda: watched.alert)


async def test_rewards_that_do_not_load_raise_a_separate_alert(watched: Watched) -> None:
    watched.bus.publish(AlertRaised(key="rewards", cause="the rewards did not load"))
    watched.abstain("g1")
    await watched.looked()
    assert watched.alert is None
