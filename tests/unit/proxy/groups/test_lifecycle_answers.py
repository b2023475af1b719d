"""The user gets an answer, once, and may leave or ask again."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from core.dialects.errors import ApiError
from core.events import AnswerReturned, GroupOpened
from tests.support.proxy.world import settings, world
from tests.support.scripted.swarm import ScriptedSwarm

OVERFLOW = "AgentJet: Exceeded max model context length."


# --- 5: the user's answer -----------------------------------------------------------------------


async def test_requests_queue_while_the_engine_syncs(tmp_path: Path) -> None:
    async with (
        ScriptedSwarm(state="WEIGHT_SYNCING", automatic=False) as swarm,
        world(tmp_path, swarm) as w,
    ):
        tickets = [await w.ask(f"q{number}") for number in range(5)]
        assert w.groups.serving
        assert w.groups.waiting == 5
        swarm.set_state("ROLLING", 2)
        swarm.register(8)
        swarm.automatic = True
        assert [(await w.reply(ticket)).why for ticket in tickets] == ["winner"] * 5
        await w.closed()


async def test_the_budget_gives_the_provisional_best(tmp_path: Path) -> None:
    quick = settings(proxy={"answer_budget": 0.3})
    async with world(tmp_path, configured=quick) as w:
        gate = asyncio.Event()

        async def answer(name: str, body: dict[str, Any], index: int) -> Any:
            if name == w.swarm.claims[0]:
                await gate.wait()
            return "fine"

        w.swarm.answer = answer
        ticket = await w.ask()
        reply = await w.reply(ticket)
        assert reply.why == "provisional"
        assert reply.index is not None
        assert w.group(ticket).phase == "GENERATING"
        gate.set()
        await w.closed()
        assert len(w.swarm.ends) == 4  # it is still trained on
        assert len(w.kinds(AnswerReturned)) == 1


async def test_after_the_budget_the_first_answer_is_sent(tmp_path: Path) -> None:
    async with world(tmp_path, configured=settings(proxy={"answer_budget": 0.2})) as w:
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


async def test_a_client_that_leaves_after_the_budget_frees_the_episodes(tmp_path: Path) -> None:
    async with world(tmp_path, configured=settings(proxy={"answer_budget": 0.2})) as w:
        w.swarm.delay = 30.0
        ticket = await w.ask()
        assert await ticket.next(0.5) is None
        ticket.leave()
        await w.closed()
        assert w.group(ticket).cause == "client left"
        assert not w.swarm.claimed()


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
        assert reply.error is not None
        assert (reply.error.status, reply.error.retry_after) == (504, None)
        await w.closed()
        assert len(w.swarm.chats) == 4
        assert w.group(ticket).cause == "no answer in time"
        assert not w.swarm.claimed()


async def test_a_request_without_an_episode_within_its_budget_gets_a_503(tmp_path: Path) -> None:
    async with (
        ScriptedSwarm(state="WEIGHT_SYNCING", automatic=False) as swarm,
        world(tmp_path, swarm, settings(proxy={"answer_budget": 0.2, "answer_limit": 0.3})) as w,
    ):
        reply = await w.reply(await w.ask())
        assert reply.error is not None
        assert reply.error.status == 503
        await w.closed()
        assert not swarm.claims


async def test_an_engine_that_is_off_is_refused_before_any_claim(tmp_path: Path) -> None:
    async with ScriptedSwarm(state="OFFLINE") as swarm, world(tmp_path, swarm) as w:
        with pytest.raises(ApiError) as refused:
            await w.ask()
        assert (refused.value.status, refused.value.retry_after) == (503, 60)
        assert not w.groups.serving
        assert not w.kinds(GroupOpened)


async def test_requests_that_wait_for_an_engine_that_stays_off_are_refused(tmp_path: Path) -> None:
    async with (
        ScriptedSwarm(state="WEIGHT_SYNCING", automatic=False) as swarm,
        world(tmp_path, swarm) as w,
    ):
        ticket = await w.ask()
        swarm.set_state("OFFLINE", 0)
        reply = await w.reply(ticket, 2.0)
        assert reply.error is not None
        assert reply.error.status == 503
        await w.closed()
        assert w.group(ticket).phase == "FAILED"


async def test_overload_is_refused_before_any_claim(tmp_path: Path) -> None:
    async with (
        ScriptedSwarm(state="BOOTING", automatic=False) as swarm,
        world(tmp_path, swarm, settings(proxy={"queue_limit": 2})) as w,
    ):
        tickets = [await w.ask("a"), await w.ask("b")]
        with pytest.raises(ApiError, match="currently busy") as refused:
            await w.ask("c")
        assert refused.value.retry_after == 2
        for ticket in tickets:
            ticket.leave()
        await w.closed()


async def test_draining_refuses_new_requests_and_completes_those_in_flight(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        w.swarm.delay = 0.05
        ticket = await w.ask()
        await w.open("GENERATING")
        assert await w.groups.drain(5.0)
        assert (await w.reply(ticket)).why == "winner"
        assert len(w.swarm.ends) == 4
        with pytest.raises(ApiError):
            await w.ask("late")


# --- 9: one request, one group ------------------------------------------------------------------


async def test_identical_requests_in_flight_are_joined(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        w.swarm.delay = 0.05
        first = await w.ask("same")
        second = await w.ask("same")
        other = await w.ask("same", {"authorization": "Bearer someone else"})
        assert first.group_id == second.group_id
        assert other.group_id != first.group_id
        assert (await w.reply(first)) is (await w.reply(second))
        await w.reply(other)
        await w.closed()
        assert len(w.swarm.claims) == 8
        again = await w.ask("same")
        assert again.group_id != first.group_id  # once answered, it is a new request
        await w.reply(again)
        await w.closed()


async def test_a_group_continues_while_one_of_its_users_waits(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        w.swarm.delay = 0.2
        first = await w.ask("same")
        second = await w.ask("same")
        await w.open("GENERATING")
        first.leave()
        assert (await w.reply(second)).why == "winner"
        await w.closed()
        assert len(w.swarm.ends) == 4


async def test_a_quick_retry_joins_its_group(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        w.swarm.delay = 0.2
        first = await w.ask("same")
        await w.open("GENERATING")
        first.leave()
        second = await w.ask("same")
        assert second.group_id == first.group_id
        assert (await w.reply(second)).why == "winner"
        await w.closed()
        assert len(w.swarm.claims) == 4
