"""A disk that takes its time holds up rewards, and no user."""

import os
import threading
from pathlib import Path

import pytest

import core.journal_sync
from core.events import GroupSealed
from tests.support.seat import world


async def test_users_are_answered_while_the_disk_stalls_and_rewards_wait_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lets = threading.Event()
    lets.set()

    def to_disk(file: int) -> None:
        assert lets.wait(60)
        os.fsync(file)

    monkeypatch.setattr(core.journal_sync, "to_disk", to_disk)
    async with world(tmp_path) as w:
        lets.clear()
        try:
            tickets = [await w.ask(f"question {number}") for number in range(3)]
            for ticket in tickets:
                assert (await w.reply(ticket)).why == "winner"
            await w.until(lambda: len(w.kinds(GroupSealed)) == 3)
            assert not w.swarm.ends
            assert len(w.swarm.claimed()) == 12
        finally:
            lets.set()
        await w.closed()
        assert len(w.swarm.ends) == 12
        assert not w.swarm.claimed()
