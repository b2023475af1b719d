"""What becomes of rewards on their way: lost answers, late ends, wiped records."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

import ajet_swarm.episodes.ends
from ajet_swarm.api.wire import SwarmWire
from ajet_swarm.protocol.schemas import EndOutcome
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


async def test_a_lost_answer_to_an_end_that_arrived_is_not_sent_again(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        w.swarm.fail_next("/end_episode", "drop_after")
        ticket = await w.ask()
        await w.reply(ticket)
        await w.closed()
        assert outcomes(w) == ["ended", "ended", "ended", "unknown"]
        assert w.swarm.requests["/end_episode"] == 4
        assert w.swarm.duplicate_ends == 0
        assert len(w.swarm.reward_log) == 4
        assert w.group(ticket).phase == "DONE"
        assert w.group(ticket).cause == "3 of 4 rewards taken, 1 unknown"
        assert w.group(ticket).cause_kind == "not_all_taken"
        assert w.group(ticket).cause_params == {"taken": 3, "of": 4, "others": {"unknown": 1}}


async def test_an_end_that_never_arrived_is_sent_once_more(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        w.swarm.fail_next("/end_episode", "drop")
        await w.reply(await w.ask())
        await w.closed()
        assert outcomes(w) == ["ended"] * 4
        assert w.swarm.requests["/end_episode"] == 5
        assert len(w.swarm.reward_log) == 4
        assert not w.swarm.claimed()


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
        ticket = await w.ask()
        await w.reply(ticket)
        await w.closed()
        assert outcomes(w) == ["ended"] * 3 + ["unknown"]
        assert len(swarm.reward_log) == 4


async def test_two_lost_ends_leave_nothing_claimed(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        w.swarm.fail_always("/end_episode", "drop")
        ticket = await w.ask()
        await w.reply(ticket)
        await w.closed()
        assert outcomes(w) == ["unknown"] * 4
        assert w.swarm.requests["/end_episode"] == 8
        await w.until(lambda: not w.swarm.claimed())
        assert not w.swarm.reward_log


async def test_a_reward_that_met_a_server_error_is_sent_once_more(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        w.swarm.fail_next("/end_episode", 500)
        ticket = await w.ask()
        await w.reply(ticket)
        await w.closed()
        assert outcomes(w) == ["ended"] * 4
        assert w.swarm.requests["/end_episode"] == 5
        assert w.swarm.duplicate_ends == 0


async def test_a_server_error_aborts_what_is_still_held(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        w.swarm.fail_always("/end_episode", 500)
        ticket = await w.ask()
        await w.reply(ticket)
        await w.closed()
        assert outcomes(w) == ["refused"] * 4
        assert w.group(ticket).phase == "FAILED"
        assert w.swarm.requests["/end_episode"] == 8
        await w.until(lambda: not w.swarm.claimed())
        assert not w.swarm.reward_log


async def test_records_wiped_before_the_end(tmp_path: Path) -> None:
    chosen = settings(rating={"mode": "answer_first"})
    async with ScriptedSwarm(automatic=False) as swarm, world(tmp_path, swarm, chosen) as w:
        ticket = await w.ask()
        await w.reply(ticket)
        await w.open("AWAITING_RATING")
        swarm.set_state("WEIGHT_SYNCING")
        await w.closed()
        assert w.group(ticket).phase == "ABORTED"
        assert w.group(ticket).cause == "lost: the engine left rolling"
        assert not swarm.aborts  # nothing of it was ours to abort


async def test_a_missed_training_step_is_detected_at_the_end(tmp_path: Path) -> None:
    chosen = settings(rating={"mode": "answer_first"})
    async with ScriptedSwarm(automatic=False) as swarm, world(tmp_path, swarm, chosen) as w:
        ticket = await w.ask()
        await w.reply(ticket)
        group = await w.open("AWAITING_RATING")
        swarm.set_state("WEIGHT_SYNCING")
        swarm.set_state("ROLLING", 1)
        await w.commands.accept(group.group_id)
        await w.closed()
        assert outcomes(w) == ["refused"] * 4
        assert group.phase == "FAILED"


async def test_a_late_end_is_sent_only_after_a_check(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        go_on = seal_held_up(w)
        ticket = await w.ask()
        await w.reply(ticket)
        w.swarm.expire(w.swarm.claims[0])
        go_on(300.0)
        await w.closed()
        assert w.swarm.requests["/can_continue_episode"] == 4
        assert outcomes(w) == ["ended", "ended", "ended", "expired"]


async def test_beyond_its_lifetime_an_end_becomes_an_abort(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        go_on = seal_held_up(w)
        ticket = await w.ask()
        await w.reply(ticket)
        go_on(500.0)
        await w.closed()
        assert outcomes(w) == ["expired"] * 4
        assert w.group(ticket).cause == "expired"
        assert w.group(ticket).cause_kind == "all_expired"
        assert not w.swarm.ends
        assert not w.swarm.claimed()


async def test_an_end_that_could_not_be_sent_waits_for_the_server(tmp_path: Path) -> None:
    async with world(tmp_path, configured=settings(rating={"mode": "answer_first"})) as w:
        ticket = await w.ask()
        await w.reply(ticket)
        group = await w.open("AWAITING_RATING")
        w.line.cut = True
        await w.commands.accept(group.group_id)
        await w.open("SUBMITTING")
        await w.until(lambda: not w.server.watcher.current.reachable)
        w.line.cut = False
        await w.closed()
        assert outcomes(w) == ["ended"] * 4
        assert len(w.swarm.reward_log) == 4


async def test_aborts_the_server_does_not_confirm_are_swept(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        w.swarm.delay = 30.0
        w.swarm.fail_next("/abort_episode", "drop", 4)
        ticket = await w.ask()
        await w.open("GENERATING")
        ticket.leave()
        await w.closed()
        await w.until(lambda: not w.swarm.claimed())


async def test_an_abort_that_waits_for_the_runner_is_sent_once(tmp_path: Path) -> None:
    """A second one would abort the episode of the client that is granted the same uuid next."""
    async with ScriptedSwarm(automatic=False, slots=4) as swarm, world(tmp_path, swarm) as w:
        swarm.delay = 900.0
        swarm.fail_always("/abort_episode", "stall")
        ticket = await w.ask()
        await w.open("GENERATING")
        ticket.leave()
        await w.until(lambda: swarm.requests["/abort_episode"] == 4)
        skip(35.0)
        await w.closed()
        w.server.claimer.ends.search_soon()
        before = swarm.requests["/get_episode_buffer"]
        await w.until(lambda: swarm.requests["/get_episode_buffer"] > before)
        assert await w.server.claimer.ends.reconcile() == []
        assert swarm.requests["/abort_episode"] == 4
        swarm.release()
        await w.until(lambda: not swarm.claimed())
        async with httpx.AsyncClient(base_url=swarm.url) as other:
            body = {"client_uuid": "other", "episode_type": "train", "discard_episode_timeout": 60}
            for _ in range(4):
                assert (await other.post("/claim_episode", json=body)).json()["success"]
        assert await w.server.claimer.ends.tasks.drain(30.0)
        assert len(swarm.claimed()) == len(swarm.aborts) == 4


@pytest.mark.parametrize("route", ["/claim_episode", "/v1/chat/completions"])
async def test_answers_lost_in_transit_leave_nothing_claimed(tmp_path: Path, route: str) -> None:
    async with world(tmp_path) as w:
        w.swarm.fail_next(route, "drop_after", 2)
        ticket = await w.ask()
        assert (await w.reply(ticket, 10.0)).answer is not None
        await w.closed(10.0)
        await w.until(lambda: not w.swarm.claimed())
        assert w.group(ticket).phase == "DONE"
        assert len(w.swarm.reward_log) == 4


# --- ends that wait for the runner ----------------------------------------------------------------


async def test_an_end_that_waits_for_the_runner_is_sent_once(tmp_path: Path) -> None:
    """The server waits up to 300 s for the runner, and shows the episode as claimed meanwhile."""
    async with world(tmp_path) as w:
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
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ajet_swarm.episodes.ends, "RUNNER", 0.2)
    monkeypatch.setattr(ajet_swarm.episodes.ends, "SILENT_PAUSES", (0.0, *[0.05] * 400))
    async with world(tmp_path) as w:
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
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ajet_swarm.episodes.ends, "RUNNER", 0.2)
    monkeypatch.setattr(ajet_swarm.episodes.ends, "SILENT_PAUSES", (0.0, 0.01))
    async with world(tmp_path) as w:
        w.swarm.fail_always("/end_episode", "hang_before")
        await w.reply(await w.ask())
        await w.closed()
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


async def test_an_eval_end_in_flight_is_not_aborted(tmp_path: Path) -> None:
    """Neither when the group is stopped, nor by a sweep: the episode may be another client's."""
    async with ScriptedSwarm(automatic=False) as swarm, world(tmp_path, swarm) as w:
        swarm.fail_next("/end_episode", "stall")
        ticket = await w.ask("hello", UNTRAINED)
        await w.reply(ticket)
        await w.until(lambda: swarm.requests["/end_episode"] == 1)
        stop = RunEnded("ABORTED", "stopped", refusal=ProxyStopping())
        assert w.groups.stop(w.groups.runs[ticket.group_id], stop)
        await w.closed()
        assert await w.server.claimer.ends.reconcile() == []
        swarm.release()
        await w.until(lambda: not swarm.claimed())
        assert not swarm.aborts


async def test_a_lost_eval_end_of_a_stopped_group_leaves_nothing_claimed(tmp_path: Path) -> None:
    """The group is stopped while its end is looked up: nothing of it is in flight any more."""
    swarm = ScriptedSwarm(automatic=False)
    async with swarm, world(tmp_path, swarm, recover=False) as w:
        swarm.fail_next("/end_episode", "drop")
        swarm.fail_next("/get_episode_buffer", "stall")
        ticket = await w.ask("hello", UNTRAINED)
        await w.reply(ticket)
        await w.until(lambda: swarm.requests["/get_episode_buffer"] == 1)
        stop = RunEnded("ABORTED", "stopped", refusal=ProxyStopping())
        assert w.groups.stop(w.groups.runs[ticket.group_id], stop)
        await w.closed()
        swarm.release()
        skip(END_IN_FLIGHT)
        await w.until(lambda: not swarm.claimed())
        assert swarm.requests["/end_episode"] == len(swarm.aborts) == 1


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
    for one in w.swarm.claimed():
        w.swarm.expire(one.uuid)
    gate = asyncio.Event()

    async def answer(name: str, body: dict[str, Any], index: int) -> str:
        await gate.wait()
        return "late"

    w.swarm.answer = answer
    second = await w.ask("second")
    await w.until(lambda: len(w.swarm.chats) == 2)
    w.swarm.release()
    await w.until(lambda: first.group_id not in w.groups.runs)
    gate.set()
    await w.reply(second)
    await w.closed()
    return first


@pytest.mark.parametrize("failure", ["drop", 500])
async def test_an_end_is_not_repeated_for_an_episode_of_another_candidate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: str | int
) -> None:
    swarm = ScriptedSwarm(slots=1, repeat=1, automatic=False)
    async with swarm, world(tmp_path, swarm, recover=False) as w:
        swarm.fail_next("/end_episode", failure)
        first = await claimed_again(w, monkeypatch)
        assert w.group(first).candidates[0].phase == "expired"
        assert [reward for _, _, reward in swarm.reward_log] == [0.2]
        assert swarm.requests["/end_episode"] == 2
        assert not swarm.aborts


async def test_an_eval_end_does_not_reach_the_next_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    swarm = ScriptedSwarm(slots=1, repeat=1, automatic=False)
    async with swarm, world(tmp_path, swarm, recover=False) as w:
        swarm.fail_next("/end_episode", "drop_after")
        await claimed_again(w, monkeypatch, **UNTRAINED)
        assert [reward for _, _, reward in swarm.reward_log] == [0.2]
        assert swarm.requests["/end_episode"] == 2
        assert not swarm.aborts


@pytest.mark.parametrize("failure", ["drop", 500])
async def test_an_eval_end_is_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: str | int
) -> None:
    monkeypatch.setattr(ajet_swarm.episodes.ends, "BROKEN_PAUSES", (0.0, 0.0))
    async with world(tmp_path) as w:
        w.swarm.fail_next("/end_episode", failure)
        await w.reply(await w.ask("hello", UNTRAINED))
        await w.closed()
        assert w.swarm.requests["/end_episode"] == 1
        await w.until(lambda: not w.swarm.claimed())
        assert len(w.swarm.aborts) == 1


async def test_an_end_is_not_repeated_for_a_claim_in_flight(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server has taken the episode back, and granted it to another group of ours."""
    monkeypatch.setattr(ajet_swarm.episodes.ends, "BROKEN_PAUSES", (0.0,))
    plain = SwarmWire.end
    async with (
        ScriptedSwarm(automatic=False, batch=9, repeat=1, slots=1) as swarm,
        world(tmp_path, swarm) as w,
    ):

        async def end(self: SwarmWire, uuid: str, *more: Any, **options: Any) -> EndOutcome:
            outcome = await plain(self, uuid, *more, **options)
            if not tickets:
                swarm.expire(uuid)
                swarm.fail_next("/claim_episode", "late")
                tickets.append(await w.ask("second"))
                await w.until(swarm.claimed)
                asyncio.get_running_loop().call_later(0.05, swarm.release)
            return outcome

        tickets: list[AnswerWaiter] = []
        monkeypatch.setattr(SwarmWire, "end", end)
        swarm.fail_next("/end_episode", "drop")
        first = await w.ask("first")
        await w.closed(60.0)
        assert outcomes(w) == ["ended", "expired"]
        second = w.group(tickets[0])
        assert [task for _, task, _ in swarm.reward_log] == [second.task_id]
        assert w.group(first).phase == "ABORTED"


@pytest.mark.parametrize(
    ("seconds", "why"), [(300.0, "granted it to this client again"), (500.0, "not ours any more")]
)
async def test_a_late_end_or_abort_waits_for_the_claims_in_flight(
    tmp_path: Path, seconds: float, why: str
) -> None:
    """One of them may be for the same episode, which the server has taken back."""
    async with (
        ScriptedSwarm(automatic=False, batch=9, repeat=1, slots=1) as swarm,
        world(tmp_path, swarm) as w,
    ):
        go_on = seal_held_up(w)
        first = await w.ask("first")
        await w.reply(first)
        swarm.expire(swarm.claims[0])
        swarm.fail_next("/claim_episode", "late")
        second = await w.ask("second")
        await w.until(lambda: len(swarm.claims) == 2)
        go_on(seconds)
        asyncio.get_running_loop().call_later(0.05, swarm.release)
        await w.until(lambda: not w.group(first).open)
        assert [(kind.outcome, why in kind.text) for kind in w.kinds(EpisodeEnded)][:1] == [
            ("expired", True)
        ]
        await w.closed(60.0)
        assert not [task for _, task, _ in swarm.reward_log if task != w.group(second).task_id]
        assert len(swarm.aborts) == (seconds == 500.0)  # by then the second one is late, too
