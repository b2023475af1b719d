"""The user gets an answer, once, also to a cut prompt and while the disk stalls."""

import asyncio
import contextlib
import os
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

import core.journal.writer
import proxy.groups.lifecycle
from console.session.filters import parse
from console.views.events import event_line
from core.control_payloads import EngineInfo
from core.dialects.errors import ApiError
from core.events import (
    AlertCleared,
    AlertRaised,
    AnswerReturned,
    GroupClosed,
    GroupOpened,
    GroupSealed,
    MockStarted,
)
from proxy.control.api import ControlApi
from proxy.control.client import ControlClient
from proxy.control.dispatch import CommandDispatcher
from proxy.control.journal_alerts import follow_journal
from tests.support.alerts import cause_of, todo_of
from tests.support.proxy.world import World, settings, texts, world
from tests.support.scripted.chat import completion
from tests.support.served import below, served

# --- 5: the user's answer -----------------------------------------------------------------------


@pytest.mark.world(state="WEIGHT_SYNCING", automatic=False)
async def test_requests_queue_while_the_engine_syncs(w: World) -> None:
    tickets = [await w.ask(f"q{number}") for number in range(5)]
    assert w.groups.serving
    assert w.groups.waiting == 5
    w.swarm.set_state("ROLLING", 2)
    w.swarm.register(8)
    w.swarm.automatic = True
    assert [(await w.reply(ticket)).why for ticket in tickets] == ["winner"] * 5
    await w.closed()


@pytest.mark.world(settings(proxy={"answer_budget": 0.3}))
async def test_the_budget_gives_the_provisional_best(w: World) -> None:
    gate = w.hold(0)
    ticket = await w.ask()
    reply = await w.reply(ticket)
    assert reply.why == "provisional"
    assert reply.index is not None
    assert w.group(ticket).phase == "GENERATING"
    gate.set()
    await w.closed()
    assert len(w.swarm.ends) == 4  # it is still trained on
    assert len(w.kinds(AnswerReturned)) == 1


@pytest.mark.world(settings(proxy={"answer_budget": 0.2}))
async def test_after_the_budget_the_first_answer_is_sent(w: World) -> None:
    gates = [asyncio.Event(), asyncio.Event()]

    async def answer(name: str, body: dict[str, Any], index: int) -> Any:
        await gates[name != w.swarm.claims[2]].wait()
        return "fine"

    w.swarm.answer = answer
    ticket = await w.ask()
    assert await ticket.next(0.5) is None
    gates[0].set()
    reply = await w.reply(ticket)
    assert (reply.why, reply.index) == ("provisional", 2)
    gates[1].set()
    await w.closed()
    assert len(w.swarm.chats) == len(w.swarm.ends) == 4


@pytest.mark.world(settings(proxy={"answer_budget": 0.2}))
async def test_a_client_that_leaves_after_the_budget_frees_the_episodes(w: World) -> None:
    w.swarm.delay = 30.0
    ticket = await w.ask()
    assert await ticket.next(0.5) is None
    ticket.leave()
    await w.closed()
    assert w.group(ticket).cause == "client left"


@pytest.mark.parametrize(
    "limits",
    [
        {"proxy": {"answer_budget": 0.2, "answer_limit": 0.4}},
        {"proxy": {"answer_budget": 0.2}, "rating": {"discard_timeout": 1.0}},
    ],
    ids=["answer limit", "clock of the claim"],
)
async def test_no_candidate_within_the_limit_is_a_504_and_frees_the_episodes(
    tmp_path: Path, limits: dict[str, Any]
) -> None:
    async with world(tmp_path, configured=settings(**limits)) as w:
        w.swarm.delay = 30.0
        ticket = await w.ask()
        reply = await w.reply(ticket)
        assert (reply.error.status, reply.error.retry_after) == (504, None)
        await w.closed()
        assert len(w.swarm.chats) == 4
        assert w.group(ticket).cause == "no answer in time"
        assert not w.swarm.claimed()


@pytest.mark.world(
    settings(proxy={"answer_budget": 0.2, "answer_limit": 0.3}),
    state="WEIGHT_SYNCING",
    automatic=False,
)
async def test_a_request_without_an_episode_within_its_budget_gets_a_503(w: World) -> None:
    assert (await w.refused(await w.ask())).status == 503
    await w.closed()
    assert not w.swarm.claims


@pytest.mark.world(state="OFFLINE")
async def test_an_engine_that_is_off_is_refused_before_any_claim(w: World) -> None:
    with pytest.raises(ApiError) as refused:
        await w.ask()
    assert (refused.value.status, refused.value.retry_after) == (503, 60)
    assert not w.groups.serving
    assert not w.kinds(GroupOpened)


@pytest.mark.world(state="WEIGHT_SYNCING", automatic=False)
async def test_requests_that_wait_for_an_engine_that_stays_off_are_refused(w: World) -> None:
    ticket = await w.ask()
    w.swarm.set_state("OFFLINE", 0)
    assert (await w.refused(ticket, 2.0)).status == 503
    await w.closed()
    assert w.group(ticket).phase == "FAILED"


async def test_draining_refuses_new_requests_and_completes_those_in_flight(w: World) -> None:
    w.swarm.delay = 0.05
    ticket = await w.ask()
    await w.open("GENERATING")
    assert await w.groups.drain(5.0)
    assert (await w.reply(ticket)).why == "winner"
    assert len(w.swarm.ends) == 4
    with pytest.raises(ApiError):
        await w.ask("late")


# --- 9: one request, one group ------------------------------------------------------------------


async def test_a_group_continues_while_one_of_its_users_waits(w: World) -> None:
    w.swarm.delay = 0.2
    first = await w.ask("same")
    second = await w.ask("same")
    await w.open("GENERATING")
    first.leave()
    assert (await w.reply(second)).why == "winner"
    await w.closed()
    assert len(w.swarm.ends) == 4


async def test_a_quick_retry_joins_its_group(w: World) -> None:
    w.swarm.delay = 0.2
    first = await w.ask("same")
    await w.open("GENERATING")
    first.leave()
    second = await w.ask("same")
    assert second.group_id == first.group_id
    assert (await w.reply(second)).why == "winner"
    await w.closed()
    assert len(w.swarm.claims) == 4


KEY = "cut:s"


def answered(text: str, truncated: bool) -> dict[str, Any]:
    """A completion of the embedded engine."""
    return {**completion(text), "ajetc": {"truncated": truncated, "step": 0}}


async def test_a_cut_prompt_is_answered_and_not_trained_on(w: World) -> None:
    w.server.info = EngineInfo(context=512)
    w.swarm.answer = texts(answered("whole", False), answered("cut", True))
    group, reply = await w.complete()
    assert (reply.why, reply.index) == ("winner", 3)
    assert (group.phase, group.cause) == ("ABORTED", "prompt cut to 512 tokens: not trained on")
    assert not w.swarm.ends
    assert len(w.swarm.aborts) == 4
    assert not w.kinds(GroupSealed)
    assert parse("truncated:yes").matches(group)
    line = event_line(w.kinds(GroupClosed)[0])
    assert "prompt cut to 512 tokens: not trained on" in line.text
    alert = w.state.alerts[KEY]
    assert cause_of(alert) == (
        "prompts are cut to 512 tokens: answers will be poor, and these groups are not trained on"
    )
    assert "smollm2" in todo_of(alert)
    assert "a GPU server" in todo_of(alert)
    assert "--strict-context" in todo_of(alert)


@pytest.mark.parametrize("mode", ["answer_first", "hold"])
async def test_a_group_with_a_cut_prompt_is_not_open_for_rating(tmp_path: Path, mode: str) -> None:
    async with world(tmp_path, configured=settings(rating={"mode": mode})) as w:
        w.console()
        w.swarm.answer = texts(answered("cut", True))
        group, reply = await w.complete()
        assert reply.answer is not None
        assert group.cause == "prompt cut to the engine's window: not trained on"


async def test_the_alert_is_cleared_when_its_cause_is_gone(
    w: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proxy.groups.lifecycle, "RECENT", 2)
    for at, truncated in enumerate((True, True, False, False)):
        assert bool(w.state.alerts) is (at > 0)
        w.swarm.answer = texts(answered("text", truncated))
        await w.complete(f"question {at}")
    assert not w.state.alerts
    assert [len(w.kinds(kind)) for kind in (AlertRaised, AlertCleared)] == [2, 1]
    assert [len(kind.groups) for kind in w.kinds(AlertRaised)] == [1, 2]


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
    w: World, writable: threading.Event
) -> None:
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
    w: World, writable: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core.journal.writer, "SLOW", 0.05)
    monkeypatch.setattr(core.journal.writer, "HOPELESS", 0.1)
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
    group, _ = await w.complete("question 3")
    assert group.phase == "DONE"
    assert len(w.swarm.ends) == 4
