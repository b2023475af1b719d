"""Candidates that are late or never answer: no user waits for them, and no batch."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ajet_swarm.protocol.errors import ChatErrorKind
from core.events import CandidateFailed, ClaimIntended, EpisodeAborted, GroupClosed
from core.settings import Settings
from proxy.servers.facts import ENOUGH_ANSWERS
from tests.support.proxy.world import World, settings, texts, world
from tests.support.scripted.swarm import Cut, Denied, End

pytestmark = pytest.mark.slow


def by_count(**more: Any) -> Settings:
    return settings(proxy={"straggler_after": 0.05, **more}, rewards={"retries": 0})


def rule(**proxy: Any) -> Settings:
    return settings(proxy={"straggler_after": 0.1, "straggler_limit": 0.3, **proxy})


def answers_fast(w: World, *silent: int) -> None:
    """Let the server be known for fast answers, and the answers to some claims never come."""
    w.groups.server_facts["s"].answer_seconds.extend([0.005] * ENOUGH_ANSWERS)
    if silent:
        w.hold(*silent)


@pytest.mark.world(by_count())
async def test_the_user_is_answered_and_the_group_completes(w: World) -> None:
    gate = w.hold(0)
    ticket = await w.ask()
    reply = await w.reply(ticket)
    assert (reply.index, reply.why) == (1, "provisional")
    assert w.group(ticket).phase == "GENERATING"
    gate.set()
    await w.closed()
    assert len(w.swarm.ends) == 4
    assert not w.kinds(CandidateFailed)


@pytest.mark.world(by_count(straggler="cut"))
async def test_late_candidates_are_cut_and_the_best_earlier_one_is_the_answer(w: World) -> None:
    w.hold(0)
    group, reply = await w.complete()
    assert (reply.index, reply.why) == (3, "winner")
    (failed,) = w.kinds(CandidateFailed)
    assert (failed.index, failed.cause) == (0, "timed_out: no answer 0.05 s after the other 3")
    assert len(w.swarm.ends) == 3
    assert len(w.swarm.aborts) == 1
    assert group.phase == "DONE"


@pytest.mark.world(
    settings(
        proxy={"straggler_after": 0.05, "straggler": "cut"},
        rewards={"retries": 0, "short_group": "abort"},
    )
)
async def test_a_group_with_cut_candidates_counts_as_short(w: World) -> None:
    w.hold(0)
    group, reply = await w.complete()
    assert reply.answer is not None
    assert group.cause == (
        "short: 3 of 4 candidates answered; candidate 1 aborted: no answer 0.05 s after the "
        "other 3 (not retried: its group goes on without it)"
    )
    assert not w.swarm.ends


@pytest.mark.world(by_count(straggler="cut", straggler_after=0.01))
async def test_no_candidate_is_late_before_the_first_answers(w: World) -> None:
    gate = w.hold(0, 1)
    ticket = await w.ask()
    await w.answered(ticket, 2)
    await asyncio.sleep(0.05)
    assert w.group(ticket).phase == "GENERATING"
    gate.set()
    assert (await w.reply(ticket)).why == "winner"
    await w.closed()
    assert len(w.swarm.ends) == 4


@pytest.mark.world(settings(proxy={"straggler_after": 0.02}, rating={"mode": "hold"}))
async def test_a_held_answer_is_not_given_early(w: World) -> None:
    gate = w.hold(0)
    ticket = await w.ask()
    await w.answered(ticket, 3)
    await asyncio.sleep(0.05)
    assert await ticket.next(0.01) is None
    gate.set()
    group = await w.open("AWAITING_RATING")
    await w.commands.accept(group.group_id)
    assert (await w.reply(ticket)).index == 3
    await w.closed()


@pytest.mark.world(by_count(straggler="replace"))
async def test_hedging_replaces_a_late_candidate_by_a_fresh_episode(w: World) -> None:
    w.hold(0)
    group, reply = await w.complete()
    assert reply.why == "winner"
    (failed,) = w.kinds(CandidateFailed)
    assert (failed.index, failed.retried) == (0, True)
    assert failed.cause == "timed_out: late: a fresh episode takes its place"
    assert group.candidates[0].attempt == 2
    assert len(w.swarm.ends) == 4
    assert len(w.swarm.claims) == 5


@pytest.mark.world(by_count(straggler="replace"))
async def test_a_hedged_candidate_can_be_late_too(w: World) -> None:
    gate = w.hold(0, 4)
    ticket = await w.ask()
    assert (await w.reply(ticket)).why == "provisional"
    gate.set()
    await w.closed()
    assert [event.retried for event in w.kinds(CandidateFailed)] == [True]
    assert len(w.swarm.ends) == 4


@pytest.mark.world(by_count(straggler="replace", straggler_after=0.1))
async def test_no_candidate_is_hedged_in_rolling_post(w: World) -> None:
    w.hold(0)
    ticket = await w.ask()
    await w.until(lambda: len(w.swarm.chats) == 4)
    await w.knows("ROLLING_POST")
    assert (await w.reply(ticket)).why == "winner"
    await w.closed()
    (failed,) = w.kinds(CandidateFailed)
    assert not failed.retried  # it was given back: the batch waited for it
    assert len(w.swarm.ends) == 3


@pytest.mark.world(by_count(straggler="replace"))
async def test_a_stop_while_hedging_ends_the_group(w: World) -> None:
    w.hold(0, 4)
    ticket = await w.ask()
    await w.until(lambda: len(w.swarm.claims) == 5)
    await w.commands.abort(ticket.group_id)
    await w.closed()
    assert w.group(ticket).phase == "ABORTED"


# --- the ledger ---------------------------------------------------------------------------------


@pytest.mark.world(settings(proxy={"keepalive": 0.02}))
async def test_the_latency_lists_the_time_of_each_phase(w: World) -> None:
    w.swarm.delay = 0.1
    ticket = await w.ask(stream=True)
    while (result := await ticket.next(0.02)) is None:
        ticket.count_keepalive()
    assert result is not None
    await w.closed()
    (closed,) = w.kinds(GroupClosed)
    latency = closed.latency
    phases = ("queue", "claim", "generate", "score", "rate", "submit")
    assert set(latency) == {*phases, "slowest", "answered", "keepalives"}
    assert latency["generate"] >= latency["slowest"] >= 0.1
    assert latency["answered"] >= latency["claim"] + latency["generate"]
    assert latency["keepalives"] == ticket.keepalives > 2


async def test_a_stopped_group_has_the_latency_of_its_phases(w: World) -> None:
    w.swarm.delay = 30.0
    ticket = await w.ask()
    await w.open("GENERATING")
    await asyncio.sleep(0.03)
    ticket.leave()
    await w.closed()
    (closed,) = w.kinds(GroupClosed)
    assert closed.latency["generate"] >= 0.03
    assert "submit" not in closed.latency


ABORT = "/abort_episode"


UNTRAINED = {"x-ajet-train": "no"}


def test_the_straggler_limit_is_ten_seconds_by_default() -> None:
    proxy = Settings().proxy
    assert (proxy.straggler_after, proxy.straggler_limit, proxy.straggler) == (10.0, 20.0, "answer")


@pytest.mark.world(rule())
async def test_in_rolling_the_user_is_answered_and_in_rolling_post_it_is_aborted(w: World) -> None:
    answers_fast(w, 0)
    ticket = await w.ask()
    assert (await w.reply(ticket)).why == "provisional"
    await asyncio.sleep(0.2)
    assert not w.swarm.aborts
    assert w.group(ticket).phase == "GENERATING"
    w.swarm.set_state("ROLLING_POST")
    await w.closed(2.0)
    group = w.group(ticket)
    assert group.phase == "DONE"
    assert group.cause == (
        "short: 3 of 4 candidates answered; candidate 1 aborted: no answer 0.1 s after the "
        "other 3, the batch waits for it (not retried: the engine is ROLLING_POST)"
    )
    assert "no answer 0.1 s after the other 3, the batch waits" in group.candidates[0].error
    assert "not retried: the engine is ROLLING_POST" in group.candidates[0].error
    assert group.candidates[0].phase == "aborted"
    assert (len(w.swarm.ends), len(w.swarm.aborts)) == (3, 1)


@pytest.mark.world(rule(straggler_limit=0))
async def test_a_batch_does_not_wait_for_the_answer_budget(w: World) -> None:
    """Already ROLLING_POST when the others answer: the rule counts from there."""
    answers_fast(w, 0)
    ticket = await w.ask()
    await w.until(lambda: len(w.swarm.chats) == 4)
    w.swarm.set_state("ROLLING_POST")
    assert (await w.reply(ticket, 2.0)).why == "winner"
    await w.swarm.until(lambda: w.swarm.step == 2, 2.0)


@pytest.mark.world(rule(), repeat=2)
async def test_two_candidates_are_enough_for_the_rule(w: World) -> None:
    answers_fast(w, 1)
    ticket = await w.ask()
    assert (await w.reply(ticket, 2.0)).why == "provisional"
    w.swarm.set_state("ROLLING_POST")
    await w.closed(2.0)
    assert w.group(ticket).phase == "ABORTED"
    assert "no answer 0.1 s after the other one, the batch waits" in w.group(ticket).cause


@pytest.mark.world(rule(straggler_limit=0))
async def test_a_candidate_that_failed_for_good_is_not_waited_for(w: World) -> None:
    """One failed, two answered, one is silent: the rule still applies."""
    answers_fast(w, 0)
    silent = w.swarm.answer

    async def answer(name: str, body: dict[str, Any], index: int) -> Any:
        if name == w.swarm.claims[1]:
            return Denied(422, "That cannot be read.")
        return await silent(name, body, index)

    w.swarm.answer = answer
    assert (await w.reply(await w.ask(), 2.0)).why == "provisional"


@pytest.mark.world(rule())
async def test_silent_calls_are_aborted_in_rolling_post_and_the_next_batch_answers(
    w: World,
) -> None:
    answers_fast(w, 0, 1, 2, 3)
    ticket = await w.ask()
    await w.until(lambda: len(w.swarm.chats) == 4)
    w.swarm.set_state("ROLLING_POST")
    await w.swarm.until(lambda: w.swarm.step == 2, 2.0)
    assert (await w.reply(ticket, 2.0)).why == "winner"
    await w.closed()
    assert w.group(ticket).phase == "DONE"
    assert w.group(ticket).cause == ""


@pytest.mark.parametrize(("headers", "n"), [({}, 4), (UNTRAINED, 1)])
@pytest.mark.world(rule())
async def test_a_request_with_only_silent_calls_is_repeated_in_rolling(
    w: World, headers: dict[str, str], n: int
) -> None:
    answers_fast(w, *range(n))
    ticket = await w.ask(headers=headers)
    assert (await w.reply(ticket, 5.0)).answer is not None
    await w.closed()
    assert w.swarm.state == "ROLLING"
    assert w.group(ticket).phase == "DONE"
    failed = w.kinds(CandidateFailed)
    assert {candidate.cause for candidate in failed} == {"timed_out: no answer in 0.3 s"}
    assert {candidate.unretried for candidate in failed} == {"its group claims fresh episodes"}
    assert len(failed) == len(w.swarm.aborts) == n


@pytest.mark.world(rule())
async def test_the_second_silent_call_of_a_request_is_waited_for(w: World) -> None:
    answers_fast(w, 0, 1)
    ticket = await w.ask(headers=UNTRAINED)
    await w.until(lambda: len(w.swarm.chats) == 2, 5.0)
    await asyncio.sleep(0.4)
    await w.knows("ROLLING_POST")
    await asyncio.sleep(0.4)
    assert len(w.swarm.aborts) == 1
    assert w.group(ticket).phase == "GENERATING"
    ticket.leave()
    await w.closed()


@pytest.mark.parametrize("silent", [2, 6])
@pytest.mark.world(rule())
async def test_several_silent_ones_are_late_after_the_limit(w: World, silent: int) -> None:
    """Two of four, or all four and then two of four: no request waits for the answer budget."""
    answers_fast(w, *range(silent))
    ticket = await w.ask()
    assert (await w.reply(ticket, 5.0)).why == "provisional"
    w.swarm.set_state("ROLLING_POST")
    await w.closed(5.0)
    assert "candidates 1, 2 aborted: no answer in 0.3 s, the batch" in w.group(ticket).cause
    assert (len(w.swarm.ends), len(w.swarm.aborts)) == (2, silent)


@pytest.mark.parametrize("headers", [{}, UNTRAINED])
@pytest.mark.parametrize("users", [0, 3])
@pytest.mark.world(rule(), batch=2, slots=32)
async def test_a_slow_answer_is_aborted_once_and_then_waited_for(
    w: World, headers: dict[str, str], users: int
) -> None:
    """Fast answers of other users end each batch, and keep the usual time of an answer short."""

    async def answer(name: str, body: dict[str, Any], index: int) -> str:
        await asyncio.sleep(0.42 if "slow" in str(body["messages"]) else 0.005)
        return f"fine {name[:6]}"

    async def ask_on(user: int) -> None:
        count = 0
        while not slow.done():
            count += 1
            await w.reply(await w.ask(f"fast {user} {count}"))

    w.swarm.answer = answer
    answers_fast(w)
    ticket = await w.ask("slow", headers)
    async with asyncio.TaskGroup() as group:
        slow = group.create_task(w.reply(ticket))
        for user in range(users):
            group.create_task(ask_on(user))
    assert slow.result().error is None
    assert slow.result().answer is not None
    await w.closed()
    rounds = [kind for kind in w.kinds(ClaimIntended) if kind.group_id == ticket.group_id]
    assert len(rounds) == 2


@pytest.mark.world(rule(straggler_limit=1.0, answer_budget=1.9))
async def test_a_user_without_time_for_another_try_keeps_the_first_call(w: World) -> None:

    async def answer(name: str, body: dict[str, Any], index: int) -> str:
        await asyncio.sleep(1.2)
        return f"fine {name[:6]}"

    w.swarm.answer = answer
    assert (await w.reply(await w.ask(headers=UNTRAINED))).answer is not None
    await w.closed()
    assert len(w.swarm.claims) == 1


@pytest.mark.world(rule(straggler_limit=0.1))
async def test_a_slow_answer_of_an_unknown_server_is_generated_once(w: World) -> None:
    gates = [asyncio.Event() for _ in range(4)]

    async def answer(name: str, body: dict[str, Any], index: int) -> str:
        await gates[w.swarm.claims.index(name)].wait()
        return f"fine {name[:6]}"

    w.swarm.answer = answer
    ticket = await w.ask()
    await w.until(lambda: len(w.swarm.chats) == 4)
    await asyncio.sleep(0.3)
    for gate in gates:  # the others get time after the first one
        gate.set()
        await asyncio.sleep(0.01)
    assert (await w.reply(ticket)).why == "winner"
    await w.closed()
    assert len(w.swarm.chats) == 4
    assert not w.swarm.aborts


@pytest.mark.world(rule(answer="live"))
async def test_an_answer_that_the_user_reads_is_not_requested_again(w: World) -> None:
    gate = w.hold_piece(2)
    ticket = await w.ask(headers=UNTRAINED, stream=True)
    await w.until(lambda: w.swarm.chats)
    await asyncio.sleep(0.6)
    gate.set()
    assert (await w.reply(ticket)).answer is not None
    await w.closed()
    assert len(w.swarm.claims) == 1


@pytest.mark.world(rule(straggler_after=0))
async def test_a_slow_model_gets_twice_its_usual_time(w: World) -> None:
    w.groups.server_facts["s"].answer_seconds.extend([1.0] * 8)
    gate = w.hold()
    ticket = await w.ask()
    await w.until(lambda: len(w.swarm.chats) == 4)
    w.swarm.set_state("ROLLING_POST")
    await asyncio.sleep(0.5)
    assert not w.swarm.aborts
    gate.set()
    await w.reply(ticket, 2.0)
    await w.closed()
    assert len(w.swarm.ends) == 4


@pytest.mark.world(settings(proxy={"straggler_after": 0.1}, rating={"mode": "hold"}))
async def test_an_operator_does_not_wait_for_a_late_candidate(w: World) -> None:
    answers_fast(w, 0)
    ticket, group = await w.held()
    assert "the operator cannot rate before" in group.candidates[0].error
    await w.commands.accept(group.group_id)
    assert (await w.reply(ticket)).index == 3
    await w.closed()
    assert len(w.swarm.ends) == 3


@pytest.mark.world(rule(), slots=4, automatic=False)
async def test_the_episode_of_a_silent_candidate_goes_to_a_waiting_request(w: World) -> None:
    answers_fast(w, 0)
    first = await w.ask("one")
    assert (await w.reply(first, 2.0)).why == "provisional"
    second = await w.ask("two")  # it may get the silent runner, which is in the pool again
    await w.reply(second, 5.0)
    w.swarm.set_state("ROLLING_POST")
    await w.closed(5.0)
    assert "other requests wait for its episode" in w.group(first).cause


@pytest.mark.world(rule())
@pytest.mark.parametrize("stops", [False, True])
async def test_a_stop_waits_for_a_slow_abort_and_an_answer_does_not(w: World, stops: bool) -> None:
    answers_fast(w, 0)
    w.swarm.fail_next(ABORT, "stall")
    ticket = await w.ask()
    await w.answered(ticket, 3)
    w.swarm.set_state("ROLLING_POST")
    assert (await w.reply(ticket, 2.0)).why == "winner"
    assert len(w.groups.runs) == 1
    if stops:
        w.swarm.release()
        assert await w.groups.drain(2.0)
    else:
        await w.until(lambda: len(w.swarm.ends) == 3)
        assert w.group(ticket).open  # until it is known to be given back
        assert len(w.swarm.claimed()) == 1
        w.swarm.release()
        await w.closed(2.0)
    assert len(w.swarm.aborts) == 1
    assert [kind.index for kind in w.kinds(EpisodeAborted)] == [0]


# --- streams that break off ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "mode", "kind"),
    [(End, "three", "broken"), (End, "keepalive", "broken"), (Cut, "three", "unreachable")],
)
@pytest.mark.world(settings(proxy={"answer": "live"}))
async def test_an_empty_stream_fails_at_once(
    w: World, how: type[Exception], mode: str, kind: str
) -> None:
    """200, then the end, without a chunk and without `[DONE]`."""

    async def on_token(name: str, index: int) -> None:
        if name == w.swarm.claims[0]:
            raise how

    w.swarm.streaming, w.swarm.on_token = mode, on_token
    ticket = await w.ask(stream=True)
    await w.until(lambda: w.kinds(CandidateFailed), 2.0)
    (failed, *_) = w.kinds(CandidateFailed)
    assert (failed.index, failed.cause.partition(":")[0]) == (0, kind)
    assert failed.retried
    w.swarm.on_token = None
    assert (await w.reply(ticket, 5.0)).answer is not None
    await w.closed()


# --- why a candidate was not retried --------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "retries", "why"),
    [
        (RuntimeError("x"), 0, "retries are off"),
        (Denied(422, "no"), 2, "a fresh episode would get the same answer"),
    ],
)
async def test_a_group_reports_why_a_candidate_was_not_retried(
    tmp_path: Path, fault: Exception, retries: int, why: str
) -> None:
    async with world(tmp_path, configured=settings(rewards={"retries": retries})) as w:
        w.swarm.answer = texts(fault, "fine")
        group, _ = await w.complete()
        (failed,) = w.kinds(CandidateFailed)
        assert (failed.retried, failed.unretried) == (False, why)
        assert group.candidates[failed.index].error.endswith(f"; not retried: {why}")
        assert group.cause.startswith("short: 3 of 4 candidates answered; candidate ")
        assert group.cause_kind == "too_few_answers"
        assert group.cause_params == {"answered": 3, "of": 4}
        assert group.cause.endswith(f"(not retried: {why})")


@pytest.mark.world(settings(rewards={"retries": 1}))
async def test_used_up_retries_are_reported_as_the_reason(w: World) -> None:

    async def answer(name: str, body: dict[str, Any], index: int) -> str:
        if name in (w.swarm.claims[0], *w.swarm.claims[4:]):
            raise RuntimeError("broken")
        return f"fine {name[:6]}"

    w.swarm.answer = answer
    group, _ = await w.complete()
    assert [kind.unretried for kind in w.kinds(CandidateFailed)] == ["", "the retry is used up"]
    assert group.candidates[0].error.startswith(ChatErrorKind.UPSTREAM)


@pytest.mark.world(settings(rewards={"retries": 0}))
async def test_a_group_without_answers_reports_why_nothing_was_retried(w: World) -> None:
    w.swarm.answer = texts(RuntimeError("x"))
    group, reply = await w.complete()
    assert reply.error is not None
    assert group.cause == "no candidate gave an answer: upstream; not retried: retries are off"
