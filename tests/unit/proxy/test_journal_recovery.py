"""A journal that cannot be written for a while: users are answered, and training is on again."""

import contextlib
import sqlite3
from pathlib import Path

import pytest

import core.journal
import core.journal_reading
from core.events import AlertCleared
from proxy.journal_watch import follow_journal
from tests.support.seat import world


async def test_training_is_on_again_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core.journal_reading, "BUSY", 0.02)
    for name in ("RETRY_BUSY", "LOOK"):
        monkeypatch.setattr(core.journal, name, 0.02)
    monkeypatch.setattr(core.journal, "RETRY", (0.02, 0.05))
    async with world(tmp_path) as w:
        follow_journal(w.seat)
        await w.seat.journal.durable(w.state.seq)
        with contextlib.closing(sqlite3.connect(tmp_path / "j.db")) as other:
            other.execute("begin immediate")
            for _ in range(2):
                ticket = await w.ask()
                assert (await w.reply(ticket)).answer is not None
                await w.closed()
            assert not w.swarm.ends
            assert not w.swarm.claimed()
            await w.until(lambda: "journal" in w.state.alerts)
        await w.until(lambda: "journal" not in w.state.alerts)
        (over,) = w.kinds(AlertCleared)
        assert over.note.startswith("it is written again, after")
        untrained = w.group(ticket).phase
        again = await w.ask(text="another question")
        await w.reply(again)
        await w.closed()
        assert len(w.swarm.ends) == 4
        assert (w.group(again).phase, w.group(ticket).phase) == ("DONE", untrained)
        await w.seat.journal.durable(w.state.seq)
        assert w.seat.journal.replayed_state() == w.state
