"""Server trouble: gone, frozen, mute, restarted, knocked OFFLINE; and a pool that is full."""

import asyncio
from typing import Any

import pytest

import ajet_swarm.api.watcher
import ajet_swarm.episodes.ends
from ajet_swarm.episodes.queue import QueueEntry
from core.dialects.errors import ApiError
from core.events import CandidateFailed
from proxy.servers.facts import is_down
from tests.support.proxy.world import FAST, World, settings

pytestmark = pytest.mark.slow

LATER = settings(rating={"mode": "answer_first"})
ROUTES = ("/claim_episode", "/v1/chat/completions", "/get_engine_status", "/abort_episode")


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ajet_swarm.api.watcher, "GONE_FOR", 0.3)
    monkeypatch.setattr(ajet_swarm.api.watcher, "FROZEN_FOR", 0.5)
    monkeypatch.setattr(ajet_swarm.episodes.ends, "RECORDS_TIMEOUT", 0.3)


@pytest.fixture
def small(w: World) -> World:
    """It gives its server little time to answer a poll."""
    w.server.watcher.poll_timeout = 0.05
    return w


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
    small: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        ajet_swarm.api.watcher, "FROZEN_FOR", 60.0
    )  # it stays frozen, and is not given up
    small.swarm.freeze()
    await small.until(lambda: trouble(small) == "frozen")
    assert small.groups.serving
    assert not is_down(small.server.watcher.current)
    assert small.server.watcher.current.error == "frozen: no answer for 0.05 s"
    ticket = await small.ask()
    small.swarm.unfreeze()
    assert (await small.reply(ticket)).why == "winner"
    await small.until(lambda: trouble(small) == "")
    await small.closed()
    assert len(small.swarm.ends) == 4


async def test_a_server_freeze_during_a_group_only_delays_the_group(
    small: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ajet_swarm.api.watcher, "FROZEN_FOR", 60.0)
    small.swarm.delay = 0.05
    ticket = await small.ask()
    await small.until(lambda: len(small.swarm.chats) == 4)
    small.swarm.freeze(0.3)
    assert (await small.reply(ticket)).why == "winner"
    await small.closed()
    assert len(small.swarm.ends) == 4
    assert not small.kinds(CandidateFailed)


@pytest.mark.world(LATER, limits={**FAST, "last_ends": 1.0})
@pytest.mark.leaves
async def test_a_stop_waits_once_for_the_last_rewards_to_a_frozen_server(
    small: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A drain has waited for them: the close that follows adds nothing."""
    monkeypatch.setattr(ajet_swarm.api.watcher, "FROZEN_FOR", 60.0)
    group = await small.awaiting()
    small.swarm.freeze()
    await small.commands.accept(group.group_id)
    await small.until(lambda: group.phase == "SUBMITTING")
    loop = asyncio.get_running_loop()
    assert not await small.groups.drain(0.0)
    began = loop.time()
    await small.groups.close()
    assert loop.time() - began < 0.5
    assert group.phase == "SUBMITTING"  # the next start sends it


# --- it stays mute, or is gone ------------------------------------------------------------------


@pytest.mark.parametrize(("how", "word"), [("hang_before", "silent"), ("drop", "gone")])
async def test_an_unreachable_server_ends_the_wait_of_a_request(
    small: World, how: str, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("GONE_FOR", "FROZEN_FOR"):
        monkeypatch.setattr(ajet_swarm.api.watcher, name, 60.0)
    make_unreachable(small, how)
    await small.until(lambda: trouble(small) in ("frozen", "gone"))
    ticket = await small.ask()  # it is expected back
    for name in ("GONE_FOR", "FROZEN_FOR"):
        monkeypatch.setattr(ajet_swarm.api.watcher, name, 0.3)
    reply = await small.reply(ticket, 20.0)
    assert reply.error.status == 503
    assert reply.error.message == "The engine cannot be reached. Please try again later."
    assert trouble(small) == word
    assert not small.groups.serving
    with pytest.raises(ApiError) as refused:
        await small.ask("another")
    assert refused.value.status == 503
    await small.closed()
    make_reachable(small)
    await small.until(lambda: small.groups.serving)
    assert (await small.reply(await small.ask())).why == "winner"
    await small.closed()


@pytest.mark.parametrize("how", ["hang_before", "drop"])
async def test_a_server_lost_during_a_group_ends_the_group(small: World, how: str) -> None:
    small.swarm.delay = 30.0
    ticket = await small.ask()
    await small.until(lambda: len(small.swarm.chats) == 4)
    make_unreachable(small, how)  # the calls that are under way are never answered either
    assert (await small.refused(ticket, 4.0)).status == 503
    await small.closed()
    assert small.kinds(CandidateFailed)
    assert len(small.swarm.claimed()) == 4
    make_reachable(small)
    await small.until(lambda: not small.swarm.claimed())  # given back once it is there again
    assert not small.swarm.ends


async def test_a_short_server_outage_costs_one_round(small: World) -> None:
    small.swarm.delay = 30.0
    ticket = await small.ask()
    await small.until(lambda: len(small.swarm.chats) == 4)
    make_unreachable(small)
    await small.until(lambda: is_down(small.server.watcher.current))
    await small.until(lambda: len(small.kinds(CandidateFailed)) == 4)
    small.swarm.delay = 0.0
    make_reachable(small)
    assert (await small.reply(ticket)).why == "winner"
    await small.closed()
    await small.until(lambda: not small.swarm.claimed())
    assert len(small.swarm.ends) == 4


async def test_a_port_that_never_answered_is_mute(w: World) -> None:
    mute = ajet_swarm.api.watcher.Watcher(w.server.client, poll_timeout=0.05)
    w.swarm.freeze()
    await mute.poll()
    status = await mute.poll()
    assert (status.trouble, status.down, status.error) == (
        "silent",
        True,
        "silent: no answer for 0.05 s",
    )


# --- it is restarted, or stopped ----------------------------------------------------------------


async def test_a_restart_with_empty_state_costs_a_round(small: World) -> None:
    small.swarm.automatic = False
    small.swarm.delay = 30.0
    ticket = await small.ask()
    await small.until(lambda: len(small.swarm.chats) == 4)
    make_unreachable(small)
    await small.until(lambda: trouble(small) == "gone")
    small.swarm.set_state("OFFLINE")
    small.swarm.step, small.swarm.delay = None, 0.0
    make_reachable(small)
    await small.until(lambda: trouble(small) == "restarted")
    assert small.server.watcher.current.detail == "restarted: its episodes are lost"
    await small.until(lambda: len(small.kinds(CandidateFailed)) == 4)
    small.swarm.set_state("ROLLING", 1)
    assert (await small.reply(ticket)).why == "winner"
    assert trouble(small) == ""
    await small.closed()
    assert small.group(ticket).phase == "DONE"
    assert not small.swarm.claimed()


async def test_a_stop_by_another_client_ends_the_group_with_a_503(small: World) -> None:
    small.swarm.delay = 30.0
    ticket = await small.ask()
    await small.until(lambda: len(small.swarm.chats) == 4)
    small.swarm.set_state("OFFLINE", 0)
    assert (await small.refused(ticket, 2.0)).status == 503
    assert trouble(small) == "stopped by another client"
    assert small.server.watcher.current.detail.startswith("stopped by someone else")
    await small.closed()
    assert not small.swarm.aborts  # they were wiped


async def test_our_own_stop_of_the_engine_raises_no_alert(small: World) -> None:
    await small.server.client.stop_engine()
    await small.until(lambda: small.server.watcher.current.state == "OFFLINE")
    assert trouble(small) == ""
    assert small.server.watcher.current.detail == ""


@pytest.mark.world(settings(rating={"mode": "answer_first"}))
async def test_a_restart_while_a_group_is_open_to_the_operator(small: World) -> None:
    small.swarm.automatic = False
    group = await small.awaiting()
    make_unreachable(small)
    await small.until(lambda: trouble(small) == "gone")
    small.swarm.set_state("OFFLINE")
    make_reachable(small)
    await small.closed()
    assert group.cause == "lost: the engine left rolling"
    assert not small.swarm.ends


# --- rating windows in a full pool --------------------------------------------------------------


@pytest.mark.world(settings(rating={"window": 30.0}), slots=4, automatic=False)
async def test_a_full_pool_closes_unused_rating_windows(w: World) -> None:
    w.console()
    group = await w.awaiting("first")
    second = await w.ask("second")
    assert (await w.reply(second, 3.0)).why == "winner"
    assert group.phase == "DONE"
    assert group.source == "auto"
    await w.open("AWAITING_RATING")  # no user waits for the second
    assert w.group(second).phase == "AWAITING_RATING"
    assert not w.server.claimer.queue.starved


@pytest.mark.world(settings(rating={"window": 30.0}), slots=8, automatic=False)
async def test_a_free_episode_leaves_rating_windows_open(w: World) -> None:
    w.console()
    first, second = await w.ask("first"), await w.ask("second")
    await w.reply(first)
    await w.reply(second)
    await w.until(
        lambda: [w.group(one).phase for one in (first, second)] == ["AWAITING_RATING"] * 2
    )


# --- turns --------------------------------------------------------------------------------------


@pytest.mark.world(settings(proxy={"max_groups": 1}))
async def test_a_group_waits_for_its_turn_and_leaves_the_queue_without_episodes(w: World) -> None:
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


@pytest.mark.world(settings(proxy={"answer_budget": 0.2, "answer_limit": 0.2}))
async def test_a_request_whose_turn_does_not_open_gets_a_503(w: World) -> None:
    queue = w.server.claimer.queue
    queue.limit = 1
    await QueueEntry(queue, ("", "", "")).take()
    ticket = await w.ask()
    assert (await w.refused(ticket)).status == 503
    await w.closed()
    assert not w.swarm.claims
    assert queue.waiting == 0


@pytest.mark.world(settings(rating={"window": 30.0}))
async def test_a_request_that_waits_for_its_turn_closes_rating_windows(
    w: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.servers.facts.CONTENDED_AFTER", 0.02)
    w.console()
    group = await w.awaiting("first")
    w.server.claimer.queue.limit = 1
    second = await w.ask("second")
    await w.until(lambda: group.phase == "DONE")
    await w.reply(second)
    await w.open("AWAITING_RATING")
    assert w.group(second).phase == "AWAITING_RATING"


# --- requests that are not trained on -----------------------------------------------------------


async def test_an_eval_episode_is_ended_with_its_automatic_reward(w: World) -> None:

    async def scorer(ctx: Any) -> list[float]:
        return [0.7]

    w.source.scorer = scorer
    group, reply = await w.complete("title", {"x-ajet-train": "no"}, temperature=0.3, seed=1)
    assert (reply.index, reply.why, group.episode_type) == (0, "only", "eval")
    assert len(w.swarm.claims) == 1
    assert w.swarm.chats[0][1]["temperature"] == 0.3
    (end,) = w.swarm.ends
    assert end["workflow_output"]["reward"] == 0.7
    assert not w.swarm.rewards  # the trainer never saw it
    assert not w.swarm.aborts
    assert (group.phase, group.cause) == ("DONE", "not trained on")


async def test_an_eval_episode_without_a_reward_is_returned(w: World) -> None:
    w.source.abstains = "no judge"
    await w.complete("hello", {"x-ajet-train": "no"})
    assert not w.swarm.ends
    assert len(w.swarm.aborts) == 1
