"""The same request again where it is not to be joined, and sessions that take turns."""

from pathlib import Path

import pytest

from core.events import GroupOpened
from tests.support.proxy.world import world
from tests.support.scripted.swarm import ScriptedSwarm


async def test_the_same_request_in_flight_need_not_be_joined(tmp_path: Path) -> None:
    headers = {"x-ajet-join": "No"}
    async with world(tmp_path) as w:
        w.swarm.delay = 0.05
        first, second = await w.ask("same", headers), await w.ask("same", headers)
        assert first.group_id != second.group_id
        retry = await w.ask("same", {**headers, "x-stainless-retry-count": "1"})
        assert retry.group_id == second.group_id
        for ticket in (first, second, retry):
            assert (await w.reply(ticket)).answers
        await w.closed()
        assert len(w.kinds(GroupOpened)) == 2


async def test_a_session_that_repeats_itself_at_once_gets_the_same_answer(tmp_path: Path) -> None:
    mark = {"x-session-id": "ses_1"}
    async with world(tmp_path) as w:
        first = await w.ask("same", mark)
        value = await w.reply(first)
        again = await w.ask("same", mark)
        assert await w.reply(again) == value
        own = await w.ask("same", {**mark, "x-ajet-join": "no"})
        row = await w.ask("same", {**mark, "x-ajet-row": "r1"})
        bare = await w.ask("same", {"authorization": "Bearer other"})
        for ticket in (own, row, bare):
            assert ticket.group_id != first.group_id
            await w.reply(ticket)
        await w.closed()


@pytest.mark.slow
async def test_one_busy_session_does_not_keep_another_one_waiting(tmp_path: Path) -> None:
    """Two groups fit at a time: the one of another session waits for about one of them."""
    async with ScriptedSwarm(batch=400, slots=8) as swarm, world(tmp_path, swarm) as w:
        swarm.delay = 0.15
        busy = [await w.ask(f"a{number}", {"x-session-id": "a"}) for number in range(24)]
        await w.until(lambda: len(swarm.chats) >= 8 and w.server.claimer.queue.starved)
        before = len([group for group in w.state.groups.values() if not group.open])
        other = await w.ask("b", {"x-session-id": "b"})
        await w.reply(other)
        after = len([group for group in w.state.groups.values() if not group.open])
        assert after - before <= 6
        assert w.state.groups[busy[-1].group_id].open
        for ticket in busy:
            ticket.leave()
        await w.closed()
