"""A journal that cannot be written for a while: users are answered, and training is on again."""

import asyncio
import contextlib
import errno
import secrets
import sqlite3
from pathlib import Path

import pytest

import core.journal.storage
import core.journal.writer
from core.events import AlertCleared, GroupNoted
from core.journal.file import PAGE, mark_of
from core.journal.prune import Pruner, Retention
from proxy import main
from proxy.control.journal_alerts import follow_journal
from tests.support.alerts import cause_of, todo_of
from tests.support.proxy.world import world


async def test_training_resumes_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core.journal.storage, "BUSY", 0.02)
    monkeypatch.setattr(core.journal.writer, "POLL", 0.02)
    monkeypatch.setattr(core.journal.writer, "RETRY", (0.02, 0.05))
    async with world(tmp_path) as w:
        follow_journal(w.context)
        await w.context.journal.durable(w.state.seq)
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
        await w.context.journal.durable(w.state.seq)
        assert w.context.journal.replayed_state() == w.state


@pytest.mark.slow
async def test_a_journal_that_is_deleted_while_training_goes_on(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        follow_journal(w.context)
        await w.reply(await w.ask())
        await w.closed()
        await w.context.journal.durable(w.state.seq)
        for path in tmp_path.glob("j.db*"):
            path.unlink()
        await w.reply(await w.ask(text="another question"))
        await w.closed()
        alert = await w.until(lambda: w.state.alerts.get("journal_file"))
        assert "the journal was deleted" in cause_of(alert)
        assert len(w.swarm.ends) == 8
        await w.context.journal.durable(w.state.seq)
        assert w.context.journal.replayed_state() == w.state


async def test_a_damaged_page_is_found_in_the_background(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        for number in range(30):
            w.context.bus.publish(GroupNoted(group_id=f"g{number}", note=secrets.token_hex(1_000)))
        await w.context.journal.durable(w.state.seq)
    with contextlib.closing(sqlite3.connect(tmp_path / "j.db")) as db:
        (row,) = db.execute("select data from rows order by length(data) desc").fetchone()
    async with world(tmp_path, recover=False) as w:
        with (tmp_path / "j.db").open("r+b") as file:
            file.seek((tmp_path / "j.db").read_bytes().index(row[-500:]) // PAGE * PAGE)
            file.write(b"\xff" * PAGE)
        follow_journal(w.context)
        alert = await w.until(lambda: w.state.alerts.get("journal_damage"))
        assert "Restart the proxy" in todo_of(alert)
        assert mark_of(tmp_path / "j.db").exists()


async def test_a_failed_pruning_is_an_alert_until_it_succeeds(tmp_path: Path) -> None:
    async with world(tmp_path, recover=False) as w:
        pruner = w.context.pruner = Pruner(w.context.journal, Retention())
        follow_journal(w.context)
        assert pruner.on_change is not None
        await asyncio.to_thread(pruner.on_change, OSError(5, "disk \x1b gone"))
        alert = await w.until(lambda: w.state.alerts.get("journal_prune"))
        assert "OSError: [Errno 5] disk" in cause_of(alert)
        assert "\x1b" not in alert.params["error"]
        await asyncio.to_thread(pruner.on_change, None)
        await w.until(lambda: "journal_prune" not in w.state.alerts)


async def test_a_start_without_a_journal_that_can_be_written(tmp_path: Path) -> None:
    async with world(tmp_path, recover=False) as w:
        w.context.journal.error = "database or disk is full"
        follow_journal(w.context)
        await main._announce(w.context, "http://127.0.0.1:1", "the journal was damaged")
        alert = await w.until(lambda: w.state.alerts.get("journal"))
        assert "disk is full" in cause_of(alert)
        assert cause_of(w.state.alerts["journal_file"]) == "the journal was damaged"
        w.context.journal.error = ""


async def test_a_run_file_is_written_later_if_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(main, "PUBLISH_RETRY", 0.01)
    tries: list[int] = []

    def publish() -> None:
        tries.append(1)
        if len(tries) < 4:
            raise OSError(errno.ENOSPC, "No space left on device")

    assert not main._publish_run_file(publish)
    async with asyncio.timeout(20):
        await main._retry_publish(publish)
    assert len(tries) == 4
