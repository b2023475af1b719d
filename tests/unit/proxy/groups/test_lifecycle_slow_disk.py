"""A disk that takes its time holds up rewards, and no user, no console and no mock user."""

import contextlib
import os
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

import core.journal.writer
from core.events import GroupSealed, MockStarted
from proxy.control.api import ControlApi
from proxy.control.client import ControlClient
from proxy.control.dispatch import CommandDispatcher
from proxy.control.journal_alerts import follow_journal
from tests.support.alerts import cause_of
from tests.support.proxy.world import World, world
from tests.support.served import below, served


@pytest.fixture
def writable(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """While it is not set, the disk does not answer."""
    writable = threading.Event()
    writable.set()

    def to_disk(file: int) -> None:
        assert writable.wait(60)
        os.fsync(file)

    monkeypatch.setattr(core.journal.writer, "to_disk", to_disk)
    yield writable
    writable.set()


@contextlib.asynccontextmanager
async def console(w: World) -> AsyncIterator[ControlClient]:
    orders = CommandDispatcher(w.context, w.groups)
    async with (
        served(
            below("/control", ControlApi(w.context, orders, "secret", frozenset()).app())
        ) as url,
        ControlClient(url, "secret") as client,
    ):
        yield client


async def test_users_are_answered_while_the_disk_stalls_and_rewards_wait_for_it(
    tmp_path: Path, writable: threading.Event
) -> None:
    async with world(tmp_path) as w:
        writable.clear()
        try:
            tickets = [await w.ask(f"question {number}") for number in range(3)]
            for ticket in tickets:
                assert (await w.reply(ticket)).why == "winner"
            await w.until(lambda: len(w.kinds(GroupSealed)) == 3)
            assert not w.swarm.ends
            assert len(w.swarm.claimed()) == 12
        finally:
            writable.set()
        await w.closed()
        assert len(w.swarm.ends) == 12
        assert not w.swarm.claimed()


@pytest.mark.slow
async def test_console_and_mock_user_continue_while_the_disk_stalls(
    tmp_path: Path, writable: threading.Event
) -> None:
    async with world(tmp_path) as w, console(w) as client:
        ticket = await w.ask()
        await w.closed()
        await w.context.journal.durable(w.state.seq)
        writable.clear()
        try:
            again = await w.ask("another question")
            await w.until(lambda: w.kinds(GroupSealed)[1:])
            assert await client.group_events(again.group_id)
            assert await client.history(0, 10)
            before = w.state.seq
            started = MockStarted(mock_id="m1", dataset="d", target="t", total=1, concurrency=1)
            await client.post_fact("f1", started)
            events = aiter(client.events(after=before))
            assert isinstance(await anext(events), MockStarted)
            assert await w.commands.rerun(ticket.group_id)
        finally:
            writable.set()
        await w.closed()


@pytest.mark.slow
async def test_a_disk_stall_raises_an_alert_and_returns_waiting_episodes(
    tmp_path: Path, writable: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core.journal.writer, "SLOW", 0.05)
    monkeypatch.setattr(core.journal.writer, "HOPELESS", 0.1)
    async with world(tmp_path) as w:
        follow_journal(w.context)
        await w.context.journal.durable(w.state.seq)
        writable.clear()
        try:
            first = await w.ask("question 1")
            assert (await w.reply(first)).why == "winner"
            await w.until(lambda: "journal" in w.state.alerts)
            assert "not answered" in cause_of(w.state.alerts["journal"])
            await w.closed()
            assert w.group(first).phase == "ABORTED"
            assert not w.swarm.claimed()
            second = await w.ask("question 2")  # asked, and not trained on
            assert (await w.reply(second)).answer is not None
            await w.closed()
            assert not w.swarm.claimed()
            assert not w.swarm.ends
        finally:
            writable.set()
        await w.until(lambda: "journal" not in w.state.alerts)
        third = await w.ask("question 3")
        await w.reply(third)
        await w.closed()
        assert w.group(third).phase == "DONE"
        assert len(w.swarm.ends) == 4
