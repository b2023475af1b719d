"""The group life cycle: claims, rounds, rewards, groups without rewards, nothing left behind."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import proxy.servers.facts
from ajet_swarm.protocol.schemas import EngineState
from core.events import (
    AnswerReturned,
    ClaimIntended,
    EpisodesClaimed,
    GroupClosed,
    GroupOpened,
    GroupSealed,
    RatingAwaited,
)
from proxy.dataset_rows import Row
from proxy.rewards.source import GroupContext, RequestReport
from tests.support.capped_clock import loop_time, skip
from tests.support.proxy.singles import EpisodeEnded
from tests.support.proxy.world import FAST, World, sent, settings, world
from tests.support.scripted.swarm import ScriptedSwarm

pytestmark = pytest.mark.slow


# --- the whole life -----------------------------------------------------------------------------


async def test_a_request_becomes_a_group_that_is_trained_on(w: World) -> None:
    group, reply = await w.complete(
        "hello", {"x-request-id": "req-1"}, temperature=0.1, seed=7, top_k=3
    )
    assert (reply.index, reply.why) == (3, "winner")
    assert (group.phase, group.cause, group.returned, group.best) == ("DONE", "", 3, 3)
    assert [candidate.phase for candidate in group.candidates] == ["ended"] * 4
    task = f"req-1#{group.group_id}"
    assert {key: sorted(value) for key, value in sent(w.swarm).items()} == {
        task: [0.0, 0.1, 0.2, 0.3]
    }
    metadata = w.swarm.ends[0]["workflow_output"]["metadata"]
    assert metadata == {"task_id": task, "dataset_task_id": ""}
    assert {"queue", "claim", "generate", "score", "rate", "submit"} <= set(group.latency)
    assert sum(candidate.advantage or 0.0 for candidate in group.candidates) == pytest.approx(0.0)
    assert not w.swarm.claimed()
    _, body, headers = w.swarm.chats[0]
    assert not {"temperature", "seed", "stream", "n"} & set(body)
    assert body["top_k"] == 3
    assert {key.lower(): value for key, value in headers.items()}["x-request-id"] == "req-1"


async def test_the_intent_is_on_disk_before_the_first_claim_and_the_seal_before_the_first_end(
    w: World,
) -> None:
    calls: list[tuple[str, set[str]]] = []
    client: Any = w.server.client

    def on_disk() -> set[str]:
        return {event.kind for event in w.context.journal.events()}

    def spy(what: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*args: Any, **more: Any) -> Any:
            calls.append((what, on_disk()))
            return call(*args, **more)

        return noted

    client.claim, client.end = spy("claim", client.claim), spy("end", client.end)
    await w.complete()
    assert [what for what, _ in calls] == ["claim"] * 4 + ["end"] * 4
    assert all("claim_intended" in kinds for what, kinds in calls if what == "claim")
    assert all("group_sealed" in kinds for what, kinds in calls if what == "end")


async def test_n_is_read_again_after_an_engine_was_stopped_while_a_group_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proxy.servers.facts, "REPEATS_TIMEOUT", 0.01)
    async with ScriptedSwarm(repeat=8, automatic=False) as swarm, world(tmp_path, swarm) as w:
        watcher = w.server.watcher
        swarm.set_state("OFFLINE")
        await watcher.wait_for({EngineState.OFFLINE}, 20)
        asking = w.context.tasks.spawn(w.groups.server_facts["s"].repeats(), "repeats")
        for _ in range(3):
            await watcher.refresh(20)
        swarm.set_state("ROLLING", 2)
        assert await asking == 8


async def test_n_is_read_after_a_server_was_away_since_its_first_answer(tmp_path: Path) -> None:
    pool = "/get_current_batch_rollout_pool_information"
    async with ScriptedSwarm(repeat=8, automatic=False) as swarm:
        swarm.fail_always(pool, "drop")
        async with world(tmp_path, swarm) as w:
            watcher = w.server.watcher
            asking = w.context.tasks.spawn(w.groups.server_facts["s"].repeats(), "repeats")
            await w.until(lambda: swarm.requests[pool])
            swarm.fail_always("/get_engine_status", "drop")
            await watcher.wait_for(lambda status: not status.reachable, 20)
            skip(proxy.servers.facts.REPEATS_TIMEOUT)
            await asyncio.wait({asking}, timeout=0.01)
            swarm.fail_always(pool, None)
            swarm.fail_always("/get_engine_status", None)
            assert await asking == 8


@pytest.mark.world(repeat=3)
async def test_n_comes_from_the_server_and_is_only_raised(w: World) -> None:
    await w.reply(await w.ask("a"))
    w.source.report = RequestReport(repeat=2)
    await w.reply(await w.ask("b"))
    w.source.report = RequestReport(repeat=5)
    await w.complete("c")
    assert [event.n for event in w.kinds(ClaimIntended)] == [3, 3, 5]


async def test_the_default_n_applies_when_the_server_reports_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proxy.servers.facts, "REPEATS_TIMEOUT", 0.1)
    async with ScriptedSwarm() as swarm:
        swarm.pool_default = True
        async with world(tmp_path, swarm) as w:
            await w.complete()
            assert [event.n for event in w.kinds(ClaimIntended)] == [4]


async def test_a_request_gets_the_reference_and_id_of_its_row(w: World) -> None:
    row = Row(row_id="row7", query="hello", task_id="t7", reference="42", metadata={"a": 1})
    w.context.rows.register(row)
    group, _ = await w.complete("hello")
    assert (group.row_id, group.dataset_task_id, group.reference) == ("row7", "t7", "42")
    assert group.task_id == f"row7#{group.group_id}"
    assert w.source.contexts[0].reference == "42"
    assert w.source.contexts[0].metadata["a"] == 1
    assert "42" not in str(w.swarm.chats[0][1])
    assert not len(w.context.rows)


async def test_a_row_that_was_not_answered_is_matched_again(w: World) -> None:
    w.context.rows.register(Row(row_id="row7", query="hello", reference="42"))
    w.swarm.delay = 30.0
    first = await w.ask("hello")
    await w.open("GENERATING")
    first.leave()
    await w.closed()
    w.swarm.delay = 0.0
    second = await w.ask("hello")
    await w.reply(second)
    assert second.group_id != first.group_id
    assert w.group(second).row_id == "row7"
    await w.closed()


# --- 1: all N or none, and many at once ---------------------------------------------------------


@pytest.mark.world(batch=2, repeat=4, slots=8, sync_seconds=0.02)
async def test_many_users_are_answered_over_several_batches(w: World) -> None:

    async def user(number: int) -> list[str]:
        return [
            (await w.reply(await w.ask(f"user {number} asks {turn}"), 20)).why for turn in range(2)
        ]

    result = await asyncio.gather(*(user(number) for number in range(12)))
    await w.closed(20)
    assert result == [["winner"] * 2] * 12
    assert len(w.swarm.batches) >= 6
    assert not w.swarm.claimed()
    assert w.swarm.duplicate_ends == 0
    assert not w.swarm.lost
    assert all(len(rewards) == 4 for rewards in sent(w.swarm).values())
    assert len(sent(w.swarm)) == 24
    done = [group for group in w.state.groups.values() if group.phase == "DONE"]
    assert len(done) == 24
    assert len(w.kinds(EpisodeEnded)) == 24 * 4


@pytest.mark.world(slots=3)
async def test_a_partly_claimed_group_is_not_held_over_a_batch_boundary(w: World) -> None:
    ticket = await w.ask()
    await w.until(lambda: w.swarm.refusals)
    w.swarm.set_state("ROLLING_POST")
    await w.until(lambda: w.swarm.state == "WEIGHT_SYNCING")  # nothing of ours holds it up
    w.swarm.slots = 4
    w.swarm.finish_sync()
    assert (await w.reply(ticket)).index == 3
    await w.closed()
    assert not w.swarm.lost
    assert w.group(ticket).phase == "DONE"


# --- 2: nothing is left claimed -----------------------------------------------------------------


async def test_a_client_that_leaves_frees_its_episodes(w: World) -> None:
    w.swarm.delay = 30.0
    ticket = await w.ask()
    await w.open("GENERATING")
    began = loop_time()
    ticket.leave()
    await w.until(lambda: not w.swarm.claimed())
    await w.closed()
    assert loop_time() - began < 1.0
    group = w.group(ticket)
    assert (group.phase, group.cause, group.returned) == ("ABORTED", "client left", None)
    assert [candidate.phase for candidate in group.candidates] == ["aborted"] * 4
    assert all(not body["declare_client_active"] for body in w.swarm.aborts)


@pytest.mark.world(state="WEIGHT_SYNCING", automatic=False)
async def test_a_client_that_leaves_the_queue_claims_nothing(w: World) -> None:
    ticket = await w.ask()
    await asyncio.sleep(0.02)
    ticket.leave()
    await w.closed()
    assert w.group(ticket).cause == "client left"
    assert not w.swarm.claims


@pytest.mark.world(settings(rating={"window": 30.0}), limits={**FAST, "leave_grace": 0.5})
async def test_an_answer_while_the_retry_of_a_client_that_left_is_awaited_frees_its_episodes(
    w: World,
) -> None:
    w.console()
    w.swarm.delay = 0.2
    ticket = await w.ask()
    await w.open("GENERATING")
    ticket.leave()
    await w.closed()
    assert (w.group(ticket).phase, w.group(ticket).cause) == ("ABORTED", "client left")
    assert not w.swarm.ends


async def test_a_claim_answered_after_its_client_left_opens_no_group(w: World) -> None:
    w.swarm.fail_next("/claim_episode", "late", times=4)
    ticket = await w.ask()
    await w.until(lambda: len(w.swarm.claimed()) == 4)
    ticket.leave()
    await w.closed()
    w.swarm.release()
    await w.until(lambda: not w.swarm.claimed())
    assert w.group(ticket).cause == "client left"
    assert not w.state.open_groups()


async def test_closing_returns_all_episodes(tmp_path: Path) -> None:
    async with ScriptedSwarm() as swarm:
        swarm.delay = 30.0
        async with world(tmp_path, swarm) as w:
            ticket = await w.ask()
            await w.open("GENERATING")
        assert not swarm.claimed()
        reply = await ticket.next(0.1)
        assert reply.error.status == 503
        assert w.group(ticket).cause == "the proxy stopped"


async def test_an_episode_claimed_again_by_another_group_is_not_ended(tmp_path: Path) -> None:
    async with ScriptedSwarm(slots=4, automatic=False) as swarm:
        slow = settings(rating={"mode": "answer_first"})
        async with world(tmp_path, swarm, slow) as w:
            group = await w.awaiting("first")
            for episode in list(swarm.claimed()):
                swarm.expire(episode.uuid)
            second = await w.ask("second")
            await w.reply(second)
            await w.commands.accept(group.group_id)
            await w.until(lambda: not group.open)
            assert group.phase == "ABORTED"
            assert group.cause == "expired"
            assert not swarm.ends
            await w.commands.accept(second.group_id)
            await w.closed()
            assert list(sent(swarm)) == [w.group(second).task_id]
            assert not swarm.claimed()


# --- 7 and 8: one watcher, ends in parallel -----------------------------------------------------


@pytest.mark.world(state="WEIGHT_SYNCING", automatic=False)
async def test_one_poll_serves_all_waiting_claims(w: World) -> None:
    tickets = [await w.ask(f"q{number}") for number in range(30)]
    before, began = w.swarm.requests["/get_engine_status"], asyncio.get_running_loop().time()
    await asyncio.sleep(0.05)
    await asyncio.sleep(0.05)
    spent = asyncio.get_running_loop().time() - began
    polls = w.swarm.requests["/get_engine_status"] - before
    assert polls <= spent / 0.01 + 2  # the watcher's own rate, not 30 times it
    for ticket in tickets:
        ticket.leave()
    await w.closed()


async def test_rewards_are_sent_at_once_and_do_not_delay_the_answer(w: World) -> None:
    w.swarm.fail_always("/end_episode", "hang")
    ticket = await w.ask()
    assert (await w.reply(ticket, 2.0)).why == "winner"
    await w.until(lambda: w.swarm.requests["/end_episode"] == 4)  # none waits for another


# --- agreement ----------------------------------------------------------------------------------


async def test_the_proxy_agrees_to_the_sync_when_none_of_its_groups_is_open(tmp_path: Path) -> None:
    method = "rollout_until_any_client_agree_sync_weight"
    async with ScriptedSwarm(method=method) as swarm, world(tmp_path, swarm) as w:
        await w.until(lambda: w.server.watcher.pool is not None)
        await w.reply(await w.ask())
        await w.until(lambda: swarm.step == 2)
        assert len(swarm.batches) == 1


async def test_the_order_of_events_of_a_group(w: World) -> None:
    await w.complete()
    wanted = (
        GroupOpened,
        ClaimIntended,
        EpisodesClaimed,
        AnswerReturned,
        GroupSealed,
        EpisodeEnded,
        GroupClosed,
    )
    kinds = list(dict.fromkeys(type(event) for event in w.kinds(*wanted)))
    assert kinds == list(wanted)
    assert not w.kinds(RatingAwaited)


async def test_candidates_that_fail_as_the_batch_ends_are_generated_again(tmp_path: Path) -> None:
    """In ROLLING_POST no fresh episode can be had: the next batch has some."""
    async with ScriptedSwarm() as swarm:
        usual, names = swarm.answer, []

        async def failing(name: str, body: dict[str, Any], index: int) -> Any:
            names.append(name)
            if len(names) > 4:
                return await usual(name, body, index)
            await swarm.until(lambda: len(names) == 4)
            if swarm.state == "ROLLING":
                swarm.set_state("ROLLING_POST")
            return RuntimeError("broken")

        swarm.answer = failing
        async with world(tmp_path, swarm) as w:
            reply = await w.reply(await w.ask())
            assert reply.answer is not None
            await w.closed()
            assert len(swarm.chats) == 8
            assert len(swarm.reward_log) == 4
            assert not swarm.claimed()


ABSTAINED = "returned None, expected a list of 4 numbers"


@pytest.mark.world(batch=4)
async def test_unscored_groups_hold_at_most_half_of_the_pool(w: World) -> None:
    w.console()
    w.source.abstains = ABSTAINED
    replies = [await w.reply(await w.ask(f"question {one}"), 5.0) for one in range(6)]
    assert {reply.why for reply in replies} == {"provisional"}
    await w.until(lambda: len(w.groups.runs) == 2)
    assert len(w.swarm.claimed()) == 8
    causes = {group.cause for group in w.state.groups.values() if not group.open}
    half = "unscored: open unscored groups hold half of the pool; judge: " + ABSTAINED
    assert causes == {half}
    w.source.abstains = ""
    for one in range(2):  # the rest of the pool is trained on
        await w.reply(await w.ask(f"more {one}"), 5.0)
    await w.until(lambda: w.state.totals.done == 2)


@pytest.mark.world(settings(rating={"mode": "hold"}), batch=2)
async def test_a_held_answer_is_given_when_unscored_groups_exceed_their_share(w: World) -> None:
    w.console()
    w.source.abstains = ABSTAINED
    await w.ask("one")
    await w.open("AWAITING_RATING")
    assert (await w.reply(await w.ask("two"), 5.0)).why == "provisional"


@pytest.mark.world(settings(rating={"mode": "hold", "window": 0.0}), batch=1)
async def test_a_group_that_is_the_whole_pool_may_wait_for_its_rating(w: World) -> None:
    w.console()
    w.source.abstains = ABSTAINED
    _, group = await w.held("one")
    await w.commands.rate(group.group_id, "best", (0,))
    await w.until(lambda: w.state.groups[group.group_id].phase == "DONE")
    assert sorted(w.swarm.rewards.values()) == [0.0, 0.0, 0.0, 1.0]


@pytest.mark.world(batch=2)
async def test_the_weight_update_does_not_wait_for_an_unscored_group(w: World) -> None:
    step = w.swarm.step
    assert step is not None
    w.console()
    w.swarm.slots = 16
    w.source.abstains = ABSTAINED
    unscored = await w.ask("one")
    await w.open("AWAITING_RATING")
    w.source.abstains = ""
    for one in ("two", "three"):
        await w.reply(await w.ask(one), 5.0)
    await w.until(lambda: (w.swarm.step or 0) > step)
    await w.closed()
    cause = "unscored: the weight update waits for its episodes"
    assert w.group(unscored).cause.startswith(cause)


async def test_open_groups_are_scored_when_a_corrected_version_loads(w: World) -> None:
    w.console()
    w.source.abstains = ABSTAINED
    tickets = [await w.ask("one"), await w.ask("two")]
    await w.until(lambda: len(w.state.waiting()) == 2)
    w.source.load("v2")  # it abstains as well: nothing changes
    await w.until(lambda: len(w.source.contexts) == 4)
    assert len(w.state.waiting()) == 2
    w.source.abstains = ""
    w.source.load("v3")
    await w.closed()
    for ticket in tickets:
        group = w.group(ticket)
        assert (group.phase, group.abstained, group.version) == ("DONE", "", "v3")


async def test_a_version_that_loads_during_the_scoring_scores_the_group(w: World) -> None:
    begun = asyncio.Event()

    async def fails(context: GroupContext) -> list[float]:
        w.source.scorer = scores
        begun.set()
        await w.until(lambda: w.source.version == "v2")
        raise ValueError("the old version")

    async def scores(context: GroupContext) -> list[float]:
        return [0.1, 0.2, 0.3, 0.4]

    w.source.scorer = fails
    ticket = await w.ask()
    await begun.wait()
    w.source.load("v2")
    await w.closed()
    assert w.group(ticket).phase == "DONE"
    assert sorted(w.swarm.rewards.values()) == [0.1, 0.2, 0.3, 0.4]
