"""Claims that are given up, refused, cut and late all at once."""

import asyncio
import logging
from typing import Any

import pytest

import ajet_swarm.episodes.claim
from ajet_swarm.api.wire import SwarmWire
from ajet_swarm.common.tasks import Tasks, cancel
from ajet_swarm.episodes.claim import EpisodeClaimer
from ajet_swarm.http.transport import HttpTransport
from ajet_swarm.protocol.errors import ClaimTimedOut
from ajet_swarm.protocol.schemas import Claimed
from tests.support.capped_clock import CappedClockLoop, loop_time
from tests.support.scripted.swarm import ScriptedSwarm
from tests.unit.ajet_swarm.helpers import Book, drop, group, idle, uuids


@pytest.fixture(autouse=True)
async def _open_connections(client: SwarmWire, server: ScriptedSwarm) -> None:
    """Open the connections first: claims need no new one."""
    await asyncio.gather(*(client.status() for _ in range(8)))
    server.requests.clear()


def only(server: ScriptedSwarm, free: int) -> None:
    server.automatic = False
    server.unclaimed[free:] = []


async def test_closing_waits_for_cancelled_claims_in_flight(
    claimer: EpisodeClaimer, book: Book, server: ScriptedSwarm, tasks: Tasks
) -> None:
    claimer.ends.timeout = 30.0
    server.fail_next("/claim_episode", "late", times=4)
    work = tasks.spawn(group(claimer, book), "group")
    await server.until(lambda: len(server.claims) == 4)
    await cancel(work)
    assert not await claimer.ends.tasks.drain(0.05)
    async with asyncio.TaskGroup() as both:
        both.create_task(claimer.close(20))
        server.release()
    assert server.claimed() == []
    assert book.mine == set()
    assert len(book.returned) >= 1


async def test_closing_has_a_time_limit_and_logs_nothing(
    claimer: EpisodeClaimer,
    book: Book,
    server: ScriptedSwarm,
    tasks: Tasks,
    transport: HttpTransport,
    caplog: pytest.LogCaptureFixture,
) -> None:
    claimer.ends.timeout = 30.0
    server.fail_next("/claim_episode", "hang_before", times=4)
    work = tasks.spawn(group(claimer, book), "group")
    await server.until(lambda: server.requests["/claim_episode"] == 4)
    await cancel(work)
    began = loop_time()
    await claimer.close(0.1)
    await transport.close()
    assert loop_time() - began < 3.0
    assert [one for one in caplog.records if one.levelno >= logging.ERROR] == []


async def test_a_refusal_and_a_cancel_at_once(
    claimer: EpisodeClaimer, book: Book, server: ScriptedSwarm, tasks: Tasks
) -> None:
    """Three are granted, one of them late; one is refused; then the request is cancelled."""
    only(server, 3)
    server.fail_next("/claim_episode", "late")
    work = tasks.spawn(group(claimer, book), "group")
    await server.until(lambda: server.refusals)
    await cancel(work)
    server.release()
    assert await claimer.ends.tasks.drain(20)
    assert server.claimed() == []
    assert book.mine == set()
    assert idle(claimer)


@pytest.mark.parametrize("how", ["drop", "drop_after"])
async def test_connections_lost_during_four_claims(
    claimer: EpisodeClaimer, book: Book, server: ScriptedSwarm, how: str
) -> None:
    server.fail_next("/claim_episode", how, times=2)
    episodes = await group(claimer, book)
    assert await claimer.ends.tasks.drain(20)
    assert uuids(episodes) == book.mine == {record.uuid for record in server.claimed()}
    assert len(server.claims) == {"drop": 2, "drop_after": 4}[how] + 4


async def test_a_cancellation_from_the_callback_of_the_last_grant(
    claimer: EpisodeClaimer, book: Book, server: ScriptedSwarm, tasks: Tasks
) -> None:
    def last(uuid: str) -> None:
        book.on_claimed(uuid)
        if len(book.mine) == 4:
            work.cancel()

    work = tasks.spawn(
        claimer.claim_group(4, on_claimed=last, on_returned=book.on_returned), "group"
    )
    with pytest.raises(asyncio.CancelledError):
        await work
    assert await claimer.ends.tasks.drain(20)
    assert server.claimed() == []
    assert book.mine == set()
    assert idle(claimer)


async def test_a_deadline_in_the_same_loop_iteration_as_the_last_grant(
    claimer: EpisodeClaimer, book: Book, client: SwarmWire, server: ScriptedSwarm
) -> None:
    """All or none, whichever of the two the loop takes first."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, CappedClockLoop)
    for early in (0.0, 0.001, 0.002, 0.003, 0.005, 0.01):
        deadline = loop.time() + 0.01

        def last(uuid: str, until: float = deadline - early) -> None:
            book.on_claimed(uuid)
            if len(book.mine) == 4:
                loop.skip(until - loop.time())

        try:
            episodes = await claimer.claim_group(
                4, deadline=deadline, on_claimed=last, on_returned=book.on_returned
            )
        except ClaimTimedOut:
            episodes = []
        assert await claimer.ends.tasks.drain(20)
        assert uuids(episodes) == book.mine == {record.uuid for record in server.claimed()}
        assert idle(claimer)
        await drop(client, book, episodes)


async def test_a_refill_cancelled_at_any_moment(
    claimer: EpisodeClaimer,
    book: Book,
    client: SwarmWire,
    server: ScriptedSwarm,
    tasks: Tasks,
) -> None:
    for steps in range(0, 40, 2):
        work = tasks.spawn(
            claimer.refill(on_claimed=book.on_claimed, on_returned=book.on_returned), "refill"
        )
        for _ in range(steps):
            await asyncio.sleep(0)
        work.cancel()
        try:
            results = [await work]
        except asyncio.CancelledError:
            results = []
        held = [one for one in results if isinstance(one, Claimed)]
        assert await claimer.ends.tasks.drain(20)
        assert uuids(held) == book.mine == {record.uuid for record in server.claimed()}
        await drop(client, book, held)


async def test_nothing_is_claimed_while_episodes_are_being_given_back(
    claimer: EpisodeClaimer,
    book: Book,
    server: ScriptedSwarm,
    tasks: Tasks,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same uuid could be claimed again before its holder learns of the loss."""
    monkeypatch.setattr(ajet_swarm.episodes.claim, "KEEP_AFTER", 0.0)
    monkeypatch.setattr(ajet_swarm.episodes.claim, "KEEP", (0.3, 0.3))
    monkeypatch.setattr(ajet_swarm.episodes.claim, "BACK_OFF", (0.0, 0.001))
    claimer.ends.timeout = 30.0
    only(server, 3)
    twice: list[str] = []

    def on_claimed(uuid: str) -> None:
        if uuid in book.mine:
            twice.append(uuid)
        book.on_claimed(uuid)

    work = tasks.spawn(
        claimer.claim_group(4, on_claimed=on_claimed, on_returned=book.on_returned), "group"
    )
    await server.until(lambda: claimer.keeping and len(server.claimed()) == 3)
    server.fail_next("/abort_episode", "late", times=3)
    aborts = server.requests["/abort_episode"]
    await server.until(lambda: server.requests["/abort_episode"] == aborts + 3)
    claims = server.requests["/claim_episode"]
    for _ in range(30):
        await claimer.client.status()
    assert server.requests["/claim_episode"] == claims
    server.release()
    await server.until(lambda: server.requests["/claim_episode"] > claims)
    await cancel(work)
    assert twice == []
    assert await claimer.ends.tasks.drain(20)
    assert server.claimed() == []
    assert book.mine == set()


@pytest.mark.parametrize("failing", [0, 2])
async def test_a_claim_that_cannot_be_sent_keeps_no_lock(
    claimer: EpisodeClaimer,
    book: Book,
    client: SwarmWire,
    server: ScriptedSwarm,
    monkeypatch: pytest.MonkeyPatch,
    failing: int,
) -> None:
    """The group gets the error, what it has is given back, and the next group claims."""
    original, sent = client.claim, 0

    def fails(*args: Any, **options: Any) -> Any:
        nonlocal sent
        sent += 1
        if sent > failing:
            raise ZeroDivisionError
        return original(*args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(client, "claim", fails)
        with pytest.raises(ZeroDivisionError):
            await group(claimer, book)
    assert server.claimed() == []
    assert book.mine == set()
    assert len(await group(claimer, book)) == 4


async def test_every_waiting_group_gets_an_unexpected_error(
    claimer: EpisodeClaimer,
    book: Book,
    client: SwarmWire,
    server: ScriptedSwarm,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(*args: Any, **options: Any) -> Any:
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr(client, "claim", fails)
        groups = [group(claimer, book) for _ in range(5)]
        errors = await asyncio.gather(*groups, return_exceptions=True)
    assert [type(error) for error in errors] == [ZeroDivisionError] * 5
    assert len(await group(claimer, book)) == 4
