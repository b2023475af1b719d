"""Each claim is given back once: a second abort may hit the client that has claimed it since."""

import asyncio
from collections import Counter

import pytest

import ajet_swarm.episodes.claim
from ajet_swarm.api.wire import SwarmWire
from ajet_swarm.common.tasks import Tasks, cancel
from ajet_swarm.episodes.claim import EpisodeClaimer
from ajet_swarm.http.transport import HttpTransport
from ajet_swarm.protocol.errors import ClaimTimedOut
from tests.support.capped_clock import skip
from tests.support.scripted.swarm import ScriptedSwarm
from tests.unit.ajet_swarm.helpers import Book, claimed, group, within


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ajet_swarm.episodes.claim, "KEEP_AFTER", 0.0)
    monkeypatch.setattr(ajet_swarm.episodes.claim, "KEEP", (20.0, 20.0))


def aborted(server: ScriptedSwarm) -> list[int]:
    """The numbers of aborts, by episode."""
    return list(Counter(one["episode_uuid"] for one in server.aborts).values())


async def keeping(claimer: EpisodeClaimer, book: Book, server: ScriptedSwarm) -> None:
    """Wait until the group holds three episodes in a window; forget the aborts before it."""
    await server.until(lambda: claimer.keeping and len(book.mine) == 3)
    server.aborts.clear()


def three_free(server: ScriptedSwarm) -> None:
    server.automatic = False
    server.unclaimed[3:] = []


async def test_a_cancelled_group_reports_its_returns_before_it_ends(
    claimer: EpisodeClaimer, book: Book, server: ScriptedSwarm, tasks: Tasks
) -> None:
    """Its caller would give back what it still takes for its own."""
    three_free(server)
    left: list[set[str]] = []

    async def work() -> None:
        try:
            await group(claimer, book)
        finally:
            left.append(set(book.mine))
            await claimer.ends.give_back(list(book.mine))

    waiting = tasks.spawn(work(), "group")
    await keeping(claimer, book, server)
    await cancel(waiting)
    assert left == [set()]
    assert await claimer.ends.tasks.drain(20)
    assert aborted(server) == [1, 1, 1]
    assert not server.claimed()


async def test_a_group_at_its_deadline_reports_its_returns_before_it_ends(
    claimer: EpisodeClaimer, book: Book, server: ScriptedSwarm
) -> None:
    three_free(server)
    timer = {"deadline": within(60.0)}

    async def soon() -> None:
        await keeping(claimer, book, server)
        timer["deadline"] = within(0.0)

    async with asyncio.TaskGroup() as both:
        both.create_task(soon())
        with pytest.raises(ClaimTimedOut):
            await claimer.claim_group(
                4,
                deadline=lambda: min(timer["deadline"], within(0.01)),
                on_claimed=book.on_claimed,
                on_returned=book.on_returned,
            )
        assert book.mine == set()
    assert await claimer.ends.tasks.drain(20)
    assert aborted(server) == [1, 1, 1]


async def test_an_episode_that_is_being_given_back_is_not_given_back_again(
    claimer: EpisodeClaimer, book: Book, server: ScriptedSwarm, tasks: Tasks
) -> None:
    uuids = [one.episode_uuid for one in await group(claimer, book)]
    server.fail_always("/abort_episode", "stall")
    first = tasks.spawn(claimer.ends.give_back(uuids), "first")
    await server.until(lambda: server.requests["/abort_episode"] == 4)
    await claimer.ends.give_back(uuids)
    await cancel(first)  # its aborts go on
    await claimer.ends.give_back(uuids)
    server.release()
    await claimer.ends.holdings.returned(uuids, 30.0)
    assert aborted(server) == [1, 1, 1, 1]
    assert not server.claimed()


async def test_reconcile_leaves_out_episodes_that_are_being_given_back(
    claimer: EpisodeClaimer, book: Book, server: ScriptedSwarm, tasks: Tasks
) -> None:
    three_free(server)
    waiting = tasks.spawn(group(claimer, book), "group")
    await keeping(claimer, book, server)
    server.fail_always("/abort_episode", "stall")
    await cancel(waiting)
    await server.until(lambda: server.requests["/abort_episode"] >= 3)
    assert book.mine == set()
    assert await claimer.ends.reconcile() == []
    server.release()
    assert await claimer.ends.tasks.drain(20)
    assert aborted(server) == [1, 1, 1]
    assert not server.claimed()


async def test_reconcile_leaves_out_episodes_given_back_since_it_asked(
    claimer: EpisodeClaimer, book: Book, server: ScriptedSwarm
) -> None:
    """The records that it reads are older than the return."""
    uuids = [one.episode_uuid for one in await group(claimer, book)]
    server.fail_next("/abort_episode", "late", times=4)
    server.fail_next("/get_episode_buffer", "stall")
    async with asyncio.TaskGroup() as both:
        giving = both.create_task(claimer.ends.give_back(uuids))
        await server.until(lambda: len(server.aborts) == 4)
        for uuid in uuids:  # the server still shows them: they are reset one after the other
            server.episodes[uuid].status, server.episodes[uuid].client = "claimed", "me"
        book.forget()
        sweeping = both.create_task(claimer.ends.reconcile())
        await server.until(lambda: server.requests["/get_episode_buffer"] == 1)
        server.release()
        await giving
    assert sweeping.result() == []
    assert aborted(server) == [1, 1, 1, 1]


@pytest.mark.parametrize("how", ["drop", 500])
async def test_a_return_that_fails_is_found_by_the_search(
    claimer: EpisodeClaimer, book: Book, server: ScriptedSwarm, tasks: Tasks, how: int | str
) -> None:
    three_free(server)
    waiting = tasks.spawn(group(claimer, book), "group")
    await keeping(claimer, book, server)
    server.fail_next("/abort_episode", how)
    await cancel(waiting)
    assert await claimer.ends.tasks.drain(60)
    assert not server.claimed()
    assert aborted(server) == [1, 1, 1]
    assert len(book.lost) == 1


async def test_a_return_that_cannot_be_recorded_is_made(
    claimer: EpisodeClaimer,
    book: Book,
    server: ScriptedSwarm,
    tasks: Tasks,
    caplog: pytest.LogCaptureFixture,
) -> None:
    three_free(server)

    def fails(uuids: object, cause: str) -> None:
        raise ValueError("the book is full")

    waiting = tasks.spawn(
        claimer.claim_group(4, on_claimed=book.on_claimed, on_returned=fails), "group"
    )
    await keeping(claimer, book, server)
    await cancel(waiting)
    assert await claimer.ends.tasks.drain(20)
    assert "a return could not be recorded" in caplog.text
    assert not server.claimed()


async def test_an_episode_is_set_aside_for_a_time(
    claimer: EpisodeClaimer, book: Book, server: ScriptedSwarm
) -> None:
    (aside, other) = await group(claimer, book, 2)
    book.forget()
    claimer.ends.holdings.set_aside(aside.episode_uuid, 0.3)
    assert await claimer.ends.reconcile() == [other.episode_uuid]
    await server.until(lambda: not server.claimed())
    assert aborted(server) == [1, 1]


async def test_an_episode_that_is_claimed_again_is_no_longer_set_aside(
    claimer: EpisodeClaimer, book: Book, server: ScriptedSwarm
) -> None:
    server.automatic = False
    server.unclaimed[1:] = []
    (first,) = await group(claimer, book, 1)
    claimer.ends.holdings.set_aside(first.episode_uuid, 60.0)
    server.expire(first.episode_uuid)
    (again,) = await group(claimer, book, 1)
    assert again.episode_uuid == first.episode_uuid
    book.forget()
    assert await claimer.ends.reconcile() == [first.episode_uuid]


# -- aborts that wait for the runner ---------------------------------------------------------------


async def test_an_abort_that_waits_for_the_runner_is_sent_once(
    claimer: EpisodeClaimer, book: Book, server: ScriptedSwarm, transport: HttpTransport
) -> None:
    """The server waits up to 300 s for the runner; once it has the acknowledgement, it grants the
    same uuid to another client, whose episode a second abort would end."""
    server.automatic = False
    server.unclaimed[4:] = []
    claimer.ends.timeout = 0.1
    mine = [one.episode_uuid for one in await group(claimer, book)]
    server.fail_always("/abort_episode", "stall")
    await claimer.ends.give_back(mine)
    book.forget()
    for _ in range(3):
        assert await claimer.ends.reconcile() == []
    assert server.requests["/abort_episode"] == 4
    server.release()
    await server.until(lambda: len(server.aborts) == 4)
    other = SwarmWire(server.url, transport, "other")
    theirs = {(await claimed(other)).episode_uuid for _ in mine}
    assert theirs == set(mine)
    assert await claimer.ends.tasks.drain(60)
    assert len(server.claimed()) == 4
    assert aborted(server) == [1, 1, 1, 1]


async def test_a_search_does_not_repeat_its_own_aborts(
    claimer: EpisodeClaimer, book: Book, server: ScriptedSwarm
) -> None:
    claimer.ends.timeout = 0.1
    strays = [one.episode_uuid for one in await group(claimer, book)]
    server.fail_always("/abort_episode", "stall")
    book.forget()
    assert sorted(await claimer.ends.reconcile()) == sorted(strays)
    for _ in range(2):
        assert await claimer.ends.reconcile() == []
    assert server.requests["/abort_episode"] == 4
    server.release()
    assert await claimer.ends.tasks.drain(60)
    assert sorted(book.lost) == sorted(strays)
    assert not server.claimed()


@pytest.mark.parametrize("how", ["drop", 504])
async def test_an_abort_that_a_front_breaks_is_set_aside_for_as_long_as_the_server_may_take(
    claimer: EpisodeClaimer, book: Book, server: ScriptedSwarm, how: int | str
) -> None:
    """A front with a limit of 60 s ends the wait, not the abort."""
    (one,) = await group(claimer, book, 1)
    server.fail_next("/abort_episode", how)
    server.freeze()
    async with asyncio.TaskGroup() as both:
        giving = both.create_task(claimer.ends.give_back([one.episode_uuid]))
        await asyncio.sleep(0.05)
        skip(20.0)
        server.unfreeze()
        await giving
    book.forget()
    for seconds in (0.0, 280.0):
        skip(seconds)
        assert await claimer.ends.reconcile() == []
        assert server.requests["/abort_episode"] == 1
    skip(30.0)
    await server.until(lambda: not server.claimed())
    assert aborted(server) == [1]


async def test_a_return_after_the_end_raises_nothing(
    claimer: EpisodeClaimer, book: Book, server: ScriptedSwarm
) -> None:
    held = [one.episode_uuid for one in await group(claimer, book)]
    await claimer.close()
    server.fail_always("/abort_episode", "drop")
    assert await claimer.ends.give_back(held) == held
    assert not claimer.ends._searching
    server.fail_always("/abort_episode", None)
    assert await claimer.ends.give_back(held) == []
    assert server.claimed() == []
