"""What becomes of rewards on their way: lost answers, late ends, wiped records, fronts."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

import ajet_swarm.episodes.ends
from ajet_swarm.api.wire import RUNNER, SwarmWire
from ajet_swarm.episodes.holdings import Holdings
from ajet_swarm.protocol.schemas import EndKind, EndOutcome
from core.events import Event, GroupSealed
from proxy.groups.answer import AnswerWaiter
from proxy.groups.recovery import END_IN_FLIGHT
from proxy.groups.run import RunEnded
from proxy.http.errors import ProxyStopping
from proxy.rewards.source import GroupContext
from tests.support.capped_clock import loop_time, skip
from tests.support.proxy.singles import EpisodeEnded
from tests.support.proxy.world import FAST, World, settings, world
from tests.support.scripted.swarm import ScriptedSwarm

UNTRAINED = {"x-ajet-train": "no"}


def outcomes(w: World) -> list[str]:
    """Of all ends, sorted."""
    return sorted(event.outcome for event in w.kinds(EpisodeEnded))


def seal_held_up(w: World) -> Callable[[float], None]:
    """No group is sealed before the result is called: with the seconds that go by at once then."""
    gate, passed = asyncio.Event(), 0.0
    clock, durable = w.context.clock, w.context.bus.publish_durable

    async def held_up(event: Event) -> int:
        if isinstance(event, GroupSealed):
            await gate.wait()
        return await durable(event)

    def go_on(seconds: float) -> None:
        nonlocal passed
        passed = seconds
        gate.set()

    w.context.clock = w.server.claimer.ends.holdings.wall = lambda: clock() + passed
    w.context.bus.publish_durable = held_up  # type: ignore[method-assign]  # held up
    return go_on


async def test_a_lost_answer_to_an_end_that_arrived_is_not_sent_again(w: World) -> None:
    w.swarm.fail_next("/end_episode", "drop_after")
    group, _ = await w.complete()
    assert outcomes(w) == ["ended", "ended", "ended", "unknown"]
    assert w.swarm.requests["/end_episode"] == 4
    assert w.swarm.duplicate_ends == 0
    assert len(w.swarm.reward_log) == 4
    assert group.phase == "DONE"
    assert group.cause == "3 of 4 rewards taken, 1 unknown"
    assert group.cause_kind == "not_all_taken"
    assert group.cause_params == {"taken": 3, "of": 4, "others": {"unknown": 1}}


@pytest.mark.parametrize("failure", ["drop", 500])
async def test_an_end_that_failed_is_sent_once_more(w: World, failure: str | int) -> None:
    w.swarm.fail_next("/end_episode", failure)
    await w.complete()
    assert outcomes(w) == ["ended"] * 4
    assert w.swarm.requests["/end_episode"] == 5
    assert w.swarm.duplicate_ends == 0
    assert len(w.swarm.reward_log) == 4


class LateSwarm(ScriptedSwarm):
    """A server that reads the first end only when the repeated one arrives."""

    def end(self, body: dict[str, Any]) -> dict[str, Any]:
        if self.requests["/end_episode"] == 5:
            super().end(body)
        return super().end(body)


@pytest.mark.parametrize("failure", ["drop", 500])
async def test_an_end_that_arrives_during_its_repetition_has_no_known_outcome(
    tmp_path: Path, failure: str | int
) -> None:
    async with LateSwarm() as swarm, world(tmp_path, swarm) as w:
        swarm.fail_next("/end_episode", failure)
        await w.complete()
        assert outcomes(w) == ["ended"] * 3 + ["unknown"]
        assert len(swarm.reward_log) == 4


@pytest.mark.parametrize(
    ("failure", "outcome", "phase"), [("drop", "unknown", "DONE"), (500, "refused", "FAILED")]
)
async def test_an_end_that_fails_twice_leaves_nothing_claimed(
    w: World, failure: str | int, outcome: str, phase: str
) -> None:
    w.swarm.fail_always("/end_episode", failure)
    group, _ = await w.complete()
    assert outcomes(w) == [outcome] * 4
    assert group.phase == phase
    assert w.swarm.requests["/end_episode"] == 8
    await w.until(lambda: not w.swarm.claimed())
    assert not w.swarm.reward_log


@pytest.mark.world(settings(rating={"mode": "answer_first"}), automatic=False)
async def test_records_wiped_before_the_end(w: World) -> None:
    group = await w.awaiting()
    w.swarm.set_state("WEIGHT_SYNCING")
    await w.closed()
    assert group.phase == "ABORTED"
    assert group.cause == "lost: the engine left rolling"
    assert not w.swarm.aborts  # nothing of it was ours to abort


@pytest.mark.world(settings(rating={"mode": "answer_first"}), automatic=False)
async def test_a_missed_training_step_is_detected_at_the_end(w: World) -> None:
    group = await w.awaiting()
    w.swarm.set_state("WEIGHT_SYNCING")
    w.swarm.set_state("ROLLING", 1)
    await w.commands.accept(group.group_id)
    await w.closed()
    assert outcomes(w) == ["refused"] * 4
    assert group.phase == "FAILED"


async def test_a_late_end_is_sent_only_after_a_check(w: World) -> None:
    go_on = seal_held_up(w)
    ticket = await w.ask()
    await w.reply(ticket)
    w.swarm.expire(w.swarm.claims[0])
    go_on(300.0)
    await w.closed()
    assert w.swarm.requests["/can_continue_episode"] == 4
    assert outcomes(w) == ["ended", "ended", "ended", "expired"]


async def test_beyond_its_lifetime_an_end_becomes_an_abort(w: World) -> None:
    go_on = seal_held_up(w)
    ticket = await w.ask()
    await w.reply(ticket)
    go_on(500.0)
    await w.closed()
    assert outcomes(w) == ["expired"] * 4
    assert w.group(ticket).cause == "expired"
    assert w.group(ticket).cause_kind == "all_expired"
    assert not w.swarm.ends


@pytest.mark.world(settings(rating={"mode": "answer_first"}))
async def test_an_end_that_could_not_be_sent_waits_for_the_server(w: World) -> None:
    group = await w.awaiting()
    w.line.cut = True
    await w.commands.accept(group.group_id)
    await w.open("SUBMITTING")
    await w.until(lambda: not w.server.watcher.current.reachable)
    w.line.cut = False
    await w.closed()
    assert outcomes(w) == ["ended"] * 4
    assert len(w.swarm.reward_log) == 4


async def test_aborts_the_server_does_not_confirm_are_swept(w: World) -> None:
    w.swarm.delay = 30.0
    w.swarm.fail_next("/abort_episode", "drop", 4)
    ticket = await w.ask()
    await w.open("GENERATING")
    ticket.leave()
    await w.closed()


@pytest.mark.world(automatic=False, slots=4)
async def test_an_abort_that_waits_for_the_runner_is_sent_once(w: World) -> None:
    """A second one would abort the episode of the client that is granted the same uuid next."""
    w.swarm.delay = 900.0
    w.swarm.fail_always("/abort_episode", "stall")
    ticket = await w.ask()
    await w.open("GENERATING")
    ticket.leave()
    await w.until(lambda: w.swarm.requests["/abort_episode"] == 4)
    skip(35.0)
    await w.closed()
    w.server.claimer.ends.search_soon()
    before = w.swarm.requests["/get_episode_buffer"]
    await w.until(lambda: w.swarm.requests["/get_episode_buffer"] > before)
    assert await w.server.claimer.ends.reconcile() == []
    assert w.swarm.requests["/abort_episode"] == 4
    w.swarm.release()
    await w.until(lambda: not w.swarm.claimed())
    async with httpx.AsyncClient(base_url=w.swarm.url) as other:
        body = {"client_uuid": "other", "episode_type": "train", "discard_episode_timeout": 60}
        for _ in range(4):
            assert (await other.post("/claim_episode", json=body)).json()["success"]
    assert await w.server.claimer.ends.tasks.drain(30.0)
    assert len(w.swarm.claimed()) == len(w.swarm.aborts) == 4


@pytest.mark.parametrize("route", ["/claim_episode", "/v1/chat/completions"])
async def test_answers_lost_in_transit_leave_nothing_claimed(w: World, route: str) -> None:
    w.swarm.fail_next(route, "drop_after", 2)
    ticket = await w.ask()
    assert (await w.reply(ticket, 10.0)).answer is not None
    await w.closed(10.0)
    await w.until(lambda: not w.swarm.claimed())
    assert w.group(ticket).phase == "DONE"
    assert len(w.swarm.reward_log) == 4


# --- ends that wait for the runner ----------------------------------------------------------------


async def test_an_end_that_waits_for_the_runner_is_sent_once(w: World) -> None:
    """The server waits up to 300 s for the runner, and shows the episode as claimed meanwhile."""
    w.swarm.fail_always("/end_episode", "stall")
    ticket = await w.ask()
    await w.reply(ticket)
    await w.until(lambda: w.swarm.requests["/end_episode"] == 4)
    skip(299.0)
    for _ in range(3):  # what was due is done
        await w.server.watcher.refresh(20)
    w.swarm.release()
    await w.closed()
    assert outcomes(w) == ["ended"] * 4
    assert w.group(ticket).phase == "DONE"
    assert w.swarm.requests["/end_episode"] == 4
    assert not w.swarm.aborts


async def test_an_end_that_is_not_answered_in_time_is_looked_up_and_not_repeated(
    w: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ajet_swarm.episodes.ends, "RUNNER", 0.2)
    monkeypatch.setattr(ajet_swarm.episodes.ends, "SILENT_PAUSES", (0.0, *[0.05] * 400))
    w.swarm.fail_always("/end_episode", "stall")
    before = w.swarm.requests["/get_episode_buffer"]
    ticket = await w.ask()
    await w.reply(ticket)
    await w.until(lambda: w.swarm.requests["/get_episode_buffer"] >= before + 12)
    w.swarm.release()
    await w.closed(60.0)
    assert outcomes(w) == ["unknown"] * 4
    assert w.group(ticket).phase == "DONE"
    assert w.swarm.requests["/end_episode"] == 4
    assert len(w.swarm.reward_log) == 4
    assert not w.swarm.aborts


async def test_an_end_that_is_never_answered_leaves_nothing_claimed(
    w: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ajet_swarm.episodes.ends, "RUNNER", 0.2)
    monkeypatch.setattr(ajet_swarm.episodes.ends, "SILENT_PAUSES", (0.0, 0.01))
    w.swarm.fail_always("/end_episode", "hang_before")
    await w.complete()
    assert outcomes(w) == ["unknown"] * 4
    await w.until(lambda: not w.swarm.claimed())
    assert w.swarm.requests["/end_episode"] == len(w.swarm.aborts) == 4


async def test_closing_does_not_wait_for_an_end_in_flight(tmp_path: Path) -> None:
    """Recovery sends the reward again, and does not take its refusal for a loss."""
    async with ScriptedSwarm(automatic=False) as swarm:
        async with world(tmp_path, swarm) as w:
            swarm.fail_always("/end_episode", "stall")
            ticket = await w.ask()
            await w.reply(ticket)
            await w.until(lambda: swarm.requests["/end_episode"] == 4)
            began = loop_time()
            assert not await w.groups.drain(0.1)
            await w.groups.close()
            assert loop_time() - began < 3.0
            assert w.group(ticket).open
            await w.context.journal.durable(w.state.seq)
        assert not swarm.aborts
        async with world(tmp_path, swarm, recover=False, limits={**FAST, "recover": 0.1}) as w:
            await w.groups.recover()
            await w.until(lambda: swarm.requests["/end_episode"] == 8)
            swarm.release()
            await w.until(lambda: not w.group(ticket).open)
            assert w.group(ticket).phase == "DONE"
            assert set(outcomes(w)) <= {"ended", "unknown"}
            assert len(swarm.reward_log) == 4
            assert not swarm.aborts


async def stopped_at(w: World, path: str) -> None:
    """Stop an eval group when its end has reached this call of the server."""
    ticket = await w.ask("hello", UNTRAINED)
    await w.reply(ticket)
    await w.until(lambda: w.swarm.requests[path] == 1)
    stop = RunEnded("ABORTED", "stopped", refusal=ProxyStopping())
    assert w.groups.stop(w.groups.runs[ticket.group_id], stop)
    await w.closed()


@pytest.mark.world(automatic=False)
async def test_an_eval_end_in_flight_is_not_aborted(w: World) -> None:
    """Neither when the group is stopped, nor by a sweep: the episode may be another client's."""
    w.swarm.fail_next("/end_episode", "stall")
    await stopped_at(w, "/end_episode")
    assert await w.server.claimer.ends.reconcile() == []
    w.swarm.release()
    await w.until(lambda: not w.swarm.claimed())
    assert not w.swarm.aborts


@pytest.mark.world(recover=False, automatic=False)
async def test_a_lost_eval_end_of_a_stopped_group_leaves_nothing_claimed(w: World) -> None:
    """The group is stopped while its end is looked up: nothing of it is in flight any more."""
    w.swarm.fail_next("/end_episode", "drop")
    w.swarm.fail_next("/get_episode_buffer", "stall")
    await stopped_at(w, "/get_episode_buffer")
    w.swarm.release()
    skip(END_IN_FLIGHT)
    await w.until(lambda: not w.swarm.claimed())
    assert w.swarm.requests["/end_episode"] == len(w.swarm.aborts) == 1


async def test_an_eval_end_in_flight_is_not_aborted_by_the_next_start(tmp_path: Path) -> None:
    async with ScriptedSwarm(automatic=False) as swarm:
        async with world(tmp_path, swarm) as w:
            swarm.fail_next("/end_episode", "stall")
            ticket = await w.ask("hello", UNTRAINED)
            await w.reply(ticket)
            await w.until(lambda: swarm.requests["/end_episode"] == 1)
        async with world(tmp_path, swarm) as w:
            assert not w.group(ticket).open
            assert await w.server.claimer.ends.reconcile() == []
            swarm.release()
            await w.until(lambda: not swarm.claimed())
        assert not swarm.aborts
        assert swarm.requests["/end_episode"] == 1


async def test_a_claim_after_an_eval_end_is_returned_by_the_next_start(tmp_path: Path) -> None:
    """The killed proxy had claimed the same episode once more, which its journal does not have."""
    async with ScriptedSwarm(slots=1, repeat=1, automatic=False) as swarm:
        async with world(tmp_path, swarm) as w:
            swarm.fail_next("/end_episode", "hang")
            ticket = await w.ask("hello", UNTRAINED)
            await w.reply(ticket)
            await w.until(lambda: swarm.requests["/end_episode"] == 1 and not swarm.claimed())
            await w.context.journal.durable(w.state.seq)
            w.kill()
        again = {"client_uuid": "me", "episode_type": "eval", "discard_episode_timeout": 240}
        assert swarm.claim(again)["success"]
        async with world(tmp_path, swarm) as w:
            assert await w.server.claimer.ends.reconcile() == []
            skip(END_IN_FLIGHT)
            await w.until(lambda: not swarm.claimed())
        assert len(swarm.aborts) == 1


# --- episodes that another candidate of ours has claimed since ------------------------------------


async def by_question(ctx: GroupContext) -> list[float]:
    """The first question gets 0.1, the second one 0.2."""
    return [0.1 if ctx.query == "first" else 0.2] * len(ctx.answers)


async def claimed_again(w: World, monkeypatch: pytest.MonkeyPatch, **headers: str) -> AnswerWaiter:
    """Let a second request claim the only episode while the end of the first one is looked up.

    Returns:
        The second request; it is not answered before `w.swarm.delay` is 0.
    """
    monkeypatch.setattr(ajet_swarm.episodes.ends, "BROKEN_PAUSES", (0.0, 0.0))
    w.source.scorer = by_question
    w.swarm.fail_next("/get_episode_buffer", "stall")
    first = await w.ask("first", headers)
    await w.reply(first)
    await w.until(lambda: w.swarm.requests["/get_episode_buffer"] == 1)
    for episode in w.swarm.claimed():
        w.swarm.expire(episode.uuid)
    gate = w.hold()
    second = await w.ask("second")
    await w.until(lambda: len(w.swarm.chats) == 2)
    w.swarm.release()
    await w.until(lambda: first.group_id not in w.groups.runs)
    gate.set()
    await w.reply(second)
    await w.closed()
    return first


@pytest.mark.parametrize("failure", ["drop", 500])
@pytest.mark.world(recover=False, slots=1, repeat=1, automatic=False)
async def test_an_end_is_not_repeated_for_an_episode_of_another_candidate(
    w: World, monkeypatch: pytest.MonkeyPatch, failure: str | int
) -> None:
    w.swarm.fail_next("/end_episode", failure)
    first = await claimed_again(w, monkeypatch)
    assert w.group(first).candidates[0].phase == "expired"
    assert [reward for _, _, reward in w.swarm.reward_log] == [0.2]
    assert w.swarm.requests["/end_episode"] == 2
    assert not w.swarm.aborts


@pytest.mark.world(recover=False, slots=1, repeat=1, automatic=False)
async def test_an_eval_end_does_not_reach_the_next_owner(
    w: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    w.swarm.fail_next("/end_episode", "drop_after")
    await claimed_again(w, monkeypatch, **UNTRAINED)
    assert [reward for _, _, reward in w.swarm.reward_log] == [0.2]
    assert w.swarm.requests["/end_episode"] == 2
    assert not w.swarm.aborts


@pytest.mark.parametrize("failure", ["drop", 500])
async def test_an_eval_end_is_not_repeated(
    w: World, monkeypatch: pytest.MonkeyPatch, failure: str | int
) -> None:
    monkeypatch.setattr(ajet_swarm.episodes.ends, "BROKEN_PAUSES", (0.0, 0.0))
    w.swarm.fail_next("/end_episode", failure)
    await w.complete("hello", UNTRAINED)
    assert w.swarm.requests["/end_episode"] == 1
    await w.until(lambda: not w.swarm.claimed())
    assert len(w.swarm.aborts) == 1


@pytest.mark.world(automatic=False, batch=9, repeat=1, slots=1)
async def test_an_end_is_not_repeated_for_a_claim_in_flight(
    w: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server has taken the episode back, and granted it to another group of ours."""
    monkeypatch.setattr(ajet_swarm.episodes.ends, "BROKEN_PAUSES", (0.0,))
    plain = SwarmWire.end

    async def end(self: SwarmWire, uuid: str, *more: Any, **options: Any) -> EndOutcome:
        outcome = await plain(self, uuid, *more, **options)
        if not tickets:
            w.swarm.expire(uuid)
            w.swarm.fail_next("/claim_episode", "late")
            tickets.append(await w.ask("second"))
            await w.until(w.swarm.claimed)
            asyncio.get_running_loop().call_later(0.05, w.swarm.release)
        return outcome

    tickets: list[AnswerWaiter] = []
    monkeypatch.setattr(SwarmWire, "end", end)
    w.swarm.fail_next("/end_episode", "drop")
    first = await w.ask("first")
    await w.closed(60.0)
    assert outcomes(w) == ["ended", "expired"]
    second = w.group(tickets[0])
    assert [task for _, task, _ in w.swarm.reward_log] == [second.task_id]
    assert w.group(first).phase == "ABORTED"


@pytest.mark.parametrize(
    ("seconds", "why"), [(300.0, "granted it to this client again"), (500.0, "not ours any more")]
)
@pytest.mark.world(automatic=False, batch=9, repeat=1, slots=1)
async def test_a_late_end_or_abort_waits_for_the_claims_in_flight(
    w: World, seconds: float, why: str
) -> None:
    """One of them may be for the same episode, which the server has taken back."""
    go_on = seal_held_up(w)
    first = await w.ask("first")
    await w.reply(first)
    w.swarm.expire(w.swarm.claims[0])
    w.swarm.fail_next("/claim_episode", "late")
    second = await w.ask("second")
    await w.until(lambda: len(w.swarm.claims) == 2)
    go_on(seconds)
    asyncio.get_running_loop().call_later(0.05, w.swarm.release)
    await w.until(lambda: not w.group(first).open)
    assert [(kind.outcome, why in kind.text) for kind in w.kinds(EpisodeEnded)][:1] == [
        ("expired", True)
    ]
    await w.closed(60.0)
    assert not [task for _, task, _ in w.swarm.reward_log if task != w.group(second).task_id]
    assert len(w.swarm.aborts) == (seconds == 500.0)  # by then the second one is late, too


@pytest.fixture
def front(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every end meets the limit of a front in between after 10 s, while the server goes on with it.

    The loop's clock does not pass these seconds: they would be over for all other requests too.
    """
    monkeypatch.setattr(ajet_swarm.episodes.ends, "BROKEN_PAUSES", (0.0, 0.01))
    plain = Holdings.cut_off

    def cut_off(self: Holdings, uuid: str, took: float) -> None:
        plain(self, uuid, took + 10.0)

    monkeypatch.setattr(Holdings, "cut_off", cut_off)


async def swept(w: World) -> None:
    """Wait for the sweep after the group, then sweep again."""
    await w.server.watcher.refresh(20)
    assert await w.server.claimer.ends.reconcile() == []


@pytest.mark.slow
@pytest.mark.usefixtures("front")
@pytest.mark.world(automatic=False)
async def test_a_reward_whose_ends_a_front_cuts_off_is_unknown_and_not_aborted(w: World) -> None:
    """The server is still processing it: it counts in the end."""
    w.swarm.fail_always("/end_episode", "front")
    ticket = await w.ask()
    await w.reply(ticket)
    await w.closed(600.0)
    assert outcomes(w) == ["unknown"] * 4
    assert w.group(ticket).cause == "0 of 4 rewards taken, 4 unknown"
    await swept(w)
    assert not w.swarm.requests["/abort_episode"]
    w.swarm.release()
    await w.until(lambda: len(w.swarm.reward_log) == 4)


@pytest.mark.slow
@pytest.mark.usefixtures("front")
@pytest.mark.world(automatic=False)
@pytest.mark.leaves
async def test_a_repetition_that_finds_no_server_leaves_the_outcome_unknown(
    w: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server may be processing the first request."""
    plain, sent = SwarmWire.end, set[str]()

    async def end(self: SwarmWire, uuid: str, *arguments: Any, **options: Any) -> EndOutcome:
        if uuid in sent:
            return EndOutcome(EndKind.UNREACHABLE, "no connection")
        sent.add(uuid)
        return await plain(self, uuid, *arguments, **options)

    monkeypatch.setattr(SwarmWire, "end", end)
    w.swarm.fail_always("/end_episode", "front")
    group, _ = await w.complete()
    assert outcomes(w) == ["unknown"] * 4
    assert group.phase == "DONE"


@pytest.mark.slow
@pytest.mark.usefixtures("front")
@pytest.mark.world(automatic=False)
async def test_an_eval_end_that_a_front_cuts_off_is_not_aborted(w: World) -> None:
    """Another client may have been granted the episode by then."""
    w.swarm.fail_always("/end_episode", "front")
    ticket = await w.ask("hello", UNTRAINED)
    await w.reply(ticket)
    await w.closed(600.0)
    assert outcomes(w) == ["unknown"]
    await swept(w)
    assert w.swarm.requests["/end_episode"] == 1
    assert not w.swarm.requests["/abort_episode"]
    w.swarm.release()


@pytest.mark.slow
@pytest.mark.usefixtures("front")
@pytest.mark.world(automatic=False)
async def test_an_end_that_a_front_lost_is_aborted_in_the_end(w: World) -> None:
    w.swarm.fail_always("/end_episode", 504)
    await w.reply(await w.ask())
    await w.closed(600.0)
    assert outcomes(w) == ["unknown"] * 4
    skip(RUNNER)
    await w.until(lambda: not w.swarm.claimed())
    assert len(w.swarm.aborts) == 4


@pytest.mark.slow
@pytest.mark.world(automatic=False)
async def test_an_end_that_a_front_cuts_off_after_the_lifetime_is_not_aborted(w: World) -> None:
    """It was sent in time, and the server is still processing it: it counts in the end."""
    go_on = seal_held_up(w)
    w.swarm.fail_always("/end_episode", "front")
    ticket = await w.ask()
    await w.reply(ticket)
    w.swarm.freeze()
    go_on(220.0)
    await w.until(lambda: w.swarm.arrived["/end_episode"] == 4)
    skip(280.0)
    w.swarm.unfreeze()
    await w.closed(600.0)
    assert outcomes(w) == ["unknown"] * 4
    await swept(w)
    assert not w.swarm.requests["/abort_episode"]
    w.swarm.release()
    await w.until(lambda: len(w.swarm.reward_log) == 4)
