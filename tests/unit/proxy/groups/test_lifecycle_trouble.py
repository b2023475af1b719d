"""Server trouble: gone, frozen, mute, restarted, knocked OFFLINE; and a pool that is full."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import ajet_swarm.api.watcher
import ajet_swarm.episodes.ends
from ajet_swarm.episodes.queue import QueueEntry
from core.dialects.errors import ApiError
from core.events import CandidateFailed
from proxy.servers.facts import is_down
from tests.support.proxy.world import FAST, World, settings, world
from tests.support.scripted.swarm import ScriptedSwarm

pytestmark = pytest.mark.slow

LATER = settings(rating={"mode": "answer_first"})
ROUTES = ("/claim_episode", "/v1/chat/completions", "/get_engine_status", "/abort_episode")


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ajet_swarm.api.watcher, "GONE_FOR", 0.3)
    monkeypatch.setattr(ajet_swarm.api.watcher, "FROZEN_FOR", 0.5)
    monkeypatch.setattr(ajet_swarm.episodes.ends, "RECORDS_TIMEOUT", 0.3)


@contextlib.asynccontextmanager
async def small(tmp_path: Path, **more: Any) -> AsyncIterator[World]:
    async with world(tmp_path, **more) as w:
        w.server.watcher.poll_timeout = 0.05
        yield w


def trouble(w: World) -> str:
    return w.server.watcher.current.trouble


def make_unreachable(w: World, route: str = "drop") -> None:
    """Every connection is closed before a request is read."""
    for path in ("/get_current_batch_rollout_pool_information", "/get_episode_buffer", *ROUTES):
        w.swarm.fail_always(path, route)


def make_reachable(w: World) -> None:
    for path in ("/get_current_batch_rollout_pool_information", "/get_episode_buffer", *ROUTES):
        w.swarm.fail_always(path, None)


# --- it freezes, and answers again --------------------------------------------------------------


async def test_requests_queue_while_the_server_is_frozen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        ajet_swarm.api.watcher, "FROZEN_FOR", 60.0
    )  # it stays frozen, and is not given up
    async with small(tmp_path) as w:
        w.swarm.freeze()
        await w.until(lambda: trouble(w) == "frozen")
        assert w.groups.serving
        assert not is_down(w.server.watcher.current)
        assert w.server.watcher.current.error == "frozen: no answer for 0.05 s"
        ticket = await w.ask()
        w.swarm.unfreeze()
        assert (await w.reply(ticket)).why == "winner"
        await w.until(lambda: trouble(w) == "")
        await w.closed()
        assert len(w.swarm.ends) == 4


async def test_a_server_freeze_during_a_group_only_delays_the_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ajet_swarm.api.watcher, "FROZEN_FOR", 60.0)
    async with small(tmp_path) as w:
        w.swarm.delay = 0.05
        ticket = await w.ask()
        await w.until(lambda: len(w.swarm.chats) == 4)
        w.swarm.freeze(0.3)
        assert (await w.reply(ticket)).why == "winner"
        await w.closed()
        assert len(w.swarm.ends) == 4
        assert not w.kinds(CandidateFailed)


async def test_a_stop_waits_once_for_the_last_rewards_to_a_frozen_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A drain has waited for them: the close that follows adds nothing."""
    monkeypatch.setattr(ajet_swarm.api.watcher, "FROZEN_FOR", 60.0)
    limits = {**FAST, "last_ends": 1.0}
    async with small(tmp_path, limits=limits, configured=LATER) as w:
        await w.reply(await w.ask())
        group = await w.open("AWAITING_RATING")
        w.swarm.freeze()
        await w.commands.accept(group.group_id)
        await w.until(lambda: group.phase == "SUBMITTING")
        loop = asyncio.get_running_loop()
        assert not await w.groups.drain(0.0)
        began = loop.time()
        await w.groups.close()
        assert loop.time() - began < limits["last_ends"] / 2
        assert group.phase == "SUBMITTING"  # the next start sends it


# --- it stays mute, or is gone ------------------------------------------------------------------


@pytest.mark.parametrize(("how", "word"), [("hang_before", "silent"), ("drop", "gone")])
async def test_an_unreachable_server_ends_the_wait_of_a_request(
    tmp_path: Path, how: str, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with small(tmp_path) as w:
        for name in ("GONE_FOR", "FROZEN_FOR"):
            monkeypatch.setattr(ajet_swarm.api.watcher, name, 60.0)
        make_unreachable(w, how)
        await w.until(lambda: trouble(w) in ("frozen", "gone"))
        ticket = await w.ask()  # it is expected back
        for name in ("GONE_FOR", "FROZEN_FOR"):
            monkeypatch.setattr(ajet_swarm.api.watcher, name, 0.3)
        reply = await w.reply(ticket, 20.0)
        assert reply.error is not None
        assert reply.error.status == 503
        assert reply.error.message == "The engine cannot be reached. Please try again later."
        assert trouble(w) == word
        assert not w.groups.serving
        with pytest.raises(ApiError) as refused:
            await w.ask("another")
        assert refused.value.status == 503
        await w.closed()
        make_reachable(w)
        await w.until(lambda: w.groups.serving)
        assert (await w.reply(await w.ask())).why == "winner"
        await w.closed()


@pytest.mark.parametrize("how", ["hang_before", "drop"])
async def test_a_server_lost_during_a_group_ends_the_group(tmp_path: Path, how: str) -> None:
    async with small(tmp_path) as w:
        w.swarm.delay = 30.0
        ticket = await w.ask()
        await w.until(lambda: len(w.swarm.chats) == 4)
        make_unreachable(w, how)  # the calls that are under way are never answered either
        reply = await w.reply(ticket, 4.0)
        assert reply.error is not None
        assert reply.error.status == 503
        await w.closed()
        assert w.kinds(CandidateFailed)
        assert len(w.swarm.claimed()) == 4
        make_reachable(w)
        await w.until(lambda: not w.swarm.claimed())  # given back once it is there again
        assert not w.swarm.ends


async def test_a_short_server_outage_costs_one_round(tmp_path: Path) -> None:
    async with small(tmp_path) as w:
        w.swarm.delay = 30.0
        ticket = await w.ask()
        await w.until(lambda: len(w.swarm.chats) == 4)
        make_unreachable(w)
        await w.until(lambda: is_down(w.server.watcher.current))
        await w.until(lambda: len(w.kinds(CandidateFailed)) == 4)
        w.swarm.delay = 0.0
        make_reachable(w)
        assert (await w.reply(ticket)).why == "winner"
        await w.closed()
        await w.until(lambda: not w.swarm.claimed())
        assert len(w.swarm.ends) == 4


async def test_a_port_that_never_answered_is_mute(tmp_path: Path) -> None:
    async with ScriptedSwarm() as swarm_, world(tmp_path, swarm_) as w:
        mute = ajet_swarm.api.watcher.Watcher(w.server.client, poll_timeout=0.05)
        swarm_.freeze()
        await mute.poll()
        status = await mute.poll()
        assert (status.trouble, status.down, status.error) == (
            "silent",
            True,
            "silent: no answer for 0.05 s",
        )


# --- it is restarted, or stopped ----------------------------------------------------------------


async def test_a_restart_with_empty_state_costs_a_round(tmp_path: Path) -> None:
    async with small(tmp_path) as w:
        w.swarm.automatic = False
        w.swarm.delay = 30.0
        ticket = await w.ask()
        await w.until(lambda: len(w.swarm.chats) == 4)
        make_unreachable(w)
        await w.until(lambda: trouble(w) == "gone")
        w.swarm.set_state("OFFLINE")
        w.swarm.step, w.swarm.delay = None, 0.0
        make_reachable(w)
        await w.until(lambda: trouble(w) == "restarted")
        assert w.server.watcher.current.detail == "restarted: its episodes are lost"
        await w.until(lambda: len(w.kinds(CandidateFailed)) == 4)
        w.swarm.set_state("ROLLING", 1)
        assert (await w.reply(ticket)).why == "winner"
        assert trouble(w) == ""
        await w.closed()
        assert w.group(ticket).phase == "DONE"
        assert not w.swarm.claimed()


async def test_a_stop_by_another_client_ends_the_group_with_a_503(tmp_path: Path) -> None:
    async with small(tmp_path) as w:
        w.swarm.delay = 30.0
        ticket = await w.ask()
        await w.until(lambda: len(w.swarm.chats) == 4)
        w.swarm.set_state("OFFLINE", 0)
        reply = await w.reply(ticket, 2.0)
        assert reply.error is not None
        assert reply.error.status == 503
        assert trouble(w) == "stopped by another client"
        assert w.server.watcher.current.detail.startswith("stopped by someone else")
        await w.closed()
        assert not w.swarm.aborts  # they were wiped


async def test_our_own_stop_of_the_engine_raises_no_alert(tmp_path: Path) -> None:
    async with small(tmp_path) as w:
        await w.server.client.stop_engine()
        await w.until(lambda: w.server.watcher.current.state == "OFFLINE")
        assert trouble(w) == ""
        assert w.server.watcher.current.detail == ""


async def test_a_restart_while_a_group_is_open_to_the_operator(tmp_path: Path) -> None:
    async with small(tmp_path, configured=settings(rating={"mode": "answer_first"})) as w:
        w.swarm.automatic = False
        ticket = await w.ask()
        await w.reply(ticket)
        await w.open("AWAITING_RATING")
        make_unreachable(w)
        await w.until(lambda: trouble(w) == "gone")
        w.swarm.set_state("OFFLINE")
        make_reachable(w)
        await w.closed()
        assert w.group(ticket).cause == "lost: the engine left rolling"
        assert not w.swarm.ends


# --- rating windows in a full pool --------------------------------------------------------------


async def test_a_full_pool_closes_unused_rating_windows(tmp_path: Path) -> None:
    long = settings(rating={"window": 30.0})
    async with (
        ScriptedSwarm(slots=4, automatic=False) as swarm_,
        world(tmp_path, swarm_, long) as w,
    ):
        w.console()
        first = await w.ask("first")
        await w.reply(first)
        await w.open("AWAITING_RATING")
        second = await w.ask("second")
        assert (await w.reply(second, 3.0)).why == "winner"
        assert w.group(first).phase == "DONE"
        assert w.group(first).source == "auto"
        await w.open("AWAITING_RATING")  # no user waits for the second
        assert w.group(second).phase == "AWAITING_RATING"
        assert not w.server.claimer.queue.starved


async def test_a_free_episode_leaves_rating_windows_open(tmp_path: Path) -> None:
    long = settings(rating={"window": 30.0})
    async with (
        ScriptedSwarm(slots=8, automatic=False) as swarm_,
        world(tmp_path, swarm_, long) as w,
    ):
        w.console()
        first, second = await w.ask("first"), await w.ask("second")
        await w.reply(first)
        await w.reply(second)
        await w.until(
            lambda: [w.group(one).phase for one in (first, second)] == ["AWAITING_RATING"] * 2
        )


# --- turns --------------------------------------------------------------------------------------


async def test_a_group_waits_for_its_turn_and_leaves_the_queue_without_episodes(
    tmp_path: Path,
) -> None:
    async with world(tmp_path, configured=settings(proxy={"max_groups": 1})) as w:
        queue = w.server.claimer.queue
        first = QueueEntry(queue, ("", "", ""))
        await first.take()
        first.claimed()  # it holds episodes, as another group of this proxy
        ticket = await w.ask("hello", {"x-session-id": "s1"})
        await w.until(lambda: queue.waiting == 1)
        assert not w.swarm.claims
        first.leave()
        await w.reply(ticket)
        await w.closed()
        assert (queue.inside, queue.claiming) == (0, 0)


async def test_a_request_whose_turn_does_not_open_gets_a_503(tmp_path: Path) -> None:
    limits = {"answer_budget": 0.2, "answer_limit": 0.2}
    async with world(tmp_path, configured=settings(proxy=limits)) as w:
        queue = w.server.claimer.queue
        queue.limit = 1
        await QueueEntry(queue, ("", "", "")).take()
        ticket = await w.ask()
        reply = await w.reply(ticket)
        assert reply.error is not None
        assert reply.error.status == 503
        await w.closed()
        assert not w.swarm.claims
        assert queue.waiting == 0


async def test_a_request_that_waits_for_its_turn_closes_rating_windows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.servers.facts.CONTENDED_AFTER", 0.02)
    async with world(tmp_path, configured=settings(rating={"window": 30.0})) as w:
        w.console()
        first = await w.ask("first")
        await w.reply(first)
        await w.open("AWAITING_RATING")
        w.server.claimer.queue.limit = 1
        second = await w.ask("second")
        await w.until(lambda: w.group(first).phase == "DONE")
        await w.reply(second)
        await w.open("AWAITING_RATING")
        assert w.group(second).phase == "AWAITING_RATING"


# --- requests that are not trained on -----------------------------------------------------------


async def test_an_eval_episode_is_ended_with_its_automatic_reward(tmp_path: Path) -> None:
    async with world(tmp_path) as w:

        async def scorer(ctx: Any) -> list[float]:
            return [0.7]

        w.source.scorer = scorer
        ticket = await w.ask("hello", {"x-ajet-train": "no"})
        assert (await w.reply(ticket)).why == "only"
        await w.closed()
        (end,) = w.swarm.ends
        assert end["workflow_output"]["reward"] == 0.7
        assert not w.swarm.rewards  # the trainer never saw it
        assert not w.swarm.aborts
        assert (w.group(ticket).phase, w.group(ticket).cause) == ("DONE", "not trained on")


async def test_an_eval_episode_without_a_reward_is_returned(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        w.source.abstains = "no judge"
        ticket = await w.ask("hello", {"x-ajet-train": "no"})
        await w.reply(ticket)
        await w.closed()
        assert not w.swarm.ends
        assert len(w.swarm.aborts) == 1
        assert not w.swarm.claimed()
