"""The monitor under a load that never ends: it still reports."""

import asyncio
from pathlib import Path

import pytest

from ajet_swarm.common.tasks import Tasks
from core.bus import Bus
from core.events import Event, GroupSealed, RewardsWatched
from core.journal.writer import Journal
from core.state import Candidate, Group, State
from proxy.rewards.monitor import watcher
from proxy.rewards.monitor.watcher import RewardMonitor

REWARDS = (0.1, 0.9)


class Busy(RewardMonitor):
    """While it reads one group, the next one is sealed."""

    def __init__(self, bus: Bus) -> None:
        super().__init__(bus)
        self.bus = bus
        self.read = 0

    def take(self, group: Group, texts: bool = True) -> None:
        super().take(group, texts)
        self.read += texts
        self.bus.publish(GroupSealed(group_id=group.group_id, rewards=(), best=0, source="auto"))


async def test_the_monitor_reports_while_groups_keep_arriving(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watcher, "EVERY", 0.01)
    monkeypatch.setattr(watcher, "TEXTS_READ", 5)
    state, names = State(), [f"g{number}" for number in range(12)]
    for name in names:
        state.groups[name] = Group(
            group_id=name,
            request_id="r",
            server="s",
            task_id="t",
            n=2,
            query="q",
            opened_at=1.0,
            sealed_at=2.0,
            candidates=[
                Candidate(index=index, text=f"{name} {index}", reward=reward, phase="ended")
                for index, reward in enumerate(REWARDS)
            ],
        )
    journal = Journal(tmp_path / "j.db")
    bus = Bus(journal, "run", state)
    monitor = Busy(bus)
    result = asyncio.Event()
    read_then: list[int] = []

    def on_event(event: Event, _: frozenset[str]) -> None:
        read_then.append(monitor.read)
        result.set()

    bus.listen(on_event, RewardsWatched)
    try:
        async with asyncio.timeout(20), Tasks("watch") as tasks:
            tasks.spawn(monitor.run(), "watch")
            await result.wait()
            first = monitor.read
            while monitor.read == first:  # groups that arrived meanwhile are read next
                await asyncio.sleep(0.005)
    finally:
        journal.close()
    assert read_then[0] <= 5
