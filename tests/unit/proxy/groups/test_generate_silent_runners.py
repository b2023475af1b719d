"""Candidates that never answer: no user waits for them, and no batch."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ajet_swarm.protocol.errors import ChatErrorKind
from core.events import CandidateFailed, ClaimIntended, EpisodeAborted
from core.settings import Settings
from proxy.servers.facts import ENOUGH_ANSWERS
from tests.support.proxy.world import World, settings, texts, world
from tests.support.scripted.swarm import Cut, Denied, End, ScriptedSwarm

pytestmark = pytest.mark.slow

ABORT = "/abort_episode"
UNTRAINED = {"x-ajet-train": "no"}


class Silent:
    """Episodes that never answer, by the order of their claims."""

    def __init__(self, w: World, *places: int) -> None:
        self.w, self.places = w, places
        w.swarm.answer = self.answer
        answers_fast(w)

    async def answer(self, name: str, body: dict[str, Any], index: int) -> str:
        claims = self.w.swarm.claims
        if any(name == claims[place] for place in self.places if place < len(claims)):
            await asyncio.sleep(600)
        return f"fine {name[:6]}"


def answers_fast(w: World) -> None:
    """Let the server be known for fast answers."""
    w.groups.server_facts["s"].answer_seconds.extend([0.005] * ENOUGH_ANSWERS)


def rule(**proxy: Any) -> Settings:
    return settings(proxy={"straggler_after": 0.1, "straggler_limit": 0.3, **proxy})


async def answered(w: World, ticket: Any, count: int) -> None:
    """Wait until so many candidates of a group have answered."""
    await w.until(lambda: len([c for c in w.group(ticket).candidates if c.text]) == count)


def test_the_straggler_limit_is_ten_seconds_by_default() -> None:
    proxy = Settings().proxy
    assert (proxy.straggler_after, proxy.straggler_limit, proxy.straggler) == (10.0, 20.0, "answer")


async def test_in_rolling_the_user_is_answered_and_in_rolling_post_it_is_aborted(
    tmp_path: Path,
) -> None:
    async with world(tmp_path, configured=rule()) as w:
        Silent(w, 0)
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


async def test_a_batch_does_not_wait_for_the_answer_budget(tmp_path: Path) -> None:
    """Already ROLLING_POST when the others answer: the rule counts from there."""
    async with world(tmp_path, configured=rule(straggler_limit=0)) as w:
        Silent(w, 0)
        ticket = await w.ask()
        await w.until(lambda: len(w.swarm.chats) == 4)
        w.swarm.set_state("ROLLING_POST")
        assert (await w.reply(ticket, 2.0)).why == "winner"
        await w.swarm.until(lambda: w.swarm.step == 2, 2.0)


async def test_two_candidates_are_enough_for_the_rule(tmp_path: Path) -> None:
    async with ScriptedSwarm(repeat=2) as swarm, world(tmp_path, swarm, rule()) as w:
        Silent(w, 1)
        ticket = await w.ask()
        assert (await w.reply(ticket, 2.0)).why == "provisional"
        w.swarm.set_state("ROLLING_POST")
        await w.closed(2.0)
        assert w.group(ticket).phase == "ABORTED"
        assert "no answer 0.1 s after the other one, the batch waits" in w.group(ticket).cause
        assert not w.swarm.claimed()


async def test_a_candidate_that_failed_for_good_is_not_waited_for(tmp_path: Path) -> None:
    """One failed, two answered, one is silent: the rule still applies."""
    async with world(tmp_path, configured=rule(straggler_limit=0)) as w:
        silent = Silent(w, 0)

        async def answer(name: str, body: dict[str, Any], index: int) -> Any:
            if name == w.swarm.claims[1]:
                return Denied(422, "That cannot be read.")
            return await silent.answer(name, body, index)

        w.swarm.answer = answer
        assert (await w.reply(await w.ask(), 2.0)).why == "provisional"


async def test_several_silent_ones_are_late_after_the_limit(tmp_path: Path) -> None:
    async with world(tmp_path, configured=rule()) as w:
        Silent(w, 0, 1)
        ticket = await w.ask()
        assert (await w.reply(ticket, 2.0)).why == "provisional"
        w.swarm.set_state("ROLLING_POST")
        await w.closed(2.0)
        assert "candidates 1, 2 aborted: no answer in 0.3 s, the batch" in w.group(ticket).cause
        assert len(w.swarm.ends) == 2


async def test_silent_calls_are_aborted_in_rolling_post_and_the_next_batch_answers(
    tmp_path: Path,
) -> None:
    async with world(tmp_path, configured=rule()) as w:
        Silent(w, 0, 1, 2, 3)
        ticket = await w.ask()
        await w.until(lambda: len(w.swarm.chats) == 4)
        w.swarm.set_state("ROLLING_POST")
        await w.swarm.until(lambda: w.swarm.step == 2, 2.0)
        assert (await w.reply(ticket, 2.0)).why == "winner"
        await w.closed()
        assert w.group(ticket).phase == "DONE"
        assert w.group(ticket).cause == ""
        assert not w.swarm.claimed()


@pytest.mark.parametrize(("headers", "n"), [({}, 4), (UNTRAINED, 1)])
async def test_a_request_with_only_silent_calls_is_repeated_in_rolling(
    tmp_path: Path, headers: dict[str, str], n: int
) -> None:
    async with world(tmp_path, configured=rule()) as w:
        Silent(w, *range(n))
        ticket = await w.ask(headers=headers)
        assert (await w.reply(ticket, 5.0)).answer is not None
        await w.closed()
        assert w.swarm.state == "ROLLING"
        assert w.group(ticket).phase == "DONE"
        failed = w.kinds(CandidateFailed)
        assert {one.cause for one in failed} == {"timed_out: no answer in 0.3 s"}
        assert {one.unretried for one in failed} == {"its group claims fresh episodes"}
        assert len(failed) == len(w.swarm.aborts) == n
        assert not w.swarm.claimed()


async def test_the_second_silent_call_of_a_request_is_waited_for(tmp_path: Path) -> None:
    async with world(tmp_path, configured=rule()) as w:
        Silent(w, 0, 1)
        ticket = await w.ask(headers=UNTRAINED)
        await w.until(lambda: len(w.swarm.chats) == 2, 5.0)
        await asyncio.sleep(0.4)
        w.swarm.set_state("ROLLING_POST")
        await w.until(lambda: w.server.watcher.current.state == "ROLLING_POST")
        await asyncio.sleep(0.4)
        assert len(w.swarm.aborts) == 1
        assert w.group(ticket).phase == "GENERATING"
        ticket.leave()
        await w.closed()
        assert not w.swarm.claimed()


async def test_after_the_second_try_the_limit_counts_from_an_answer(tmp_path: Path) -> None:
    """Four silent calls, then two of four: no request waits for the whole answer budget."""
    async with world(tmp_path, configured=rule()) as w:
        Silent(w, 0, 1, 2, 3, 4, 5)
        ticket = await w.ask()
        assert (await w.reply(ticket, 5.0)).why == "provisional"
        w.swarm.set_state("ROLLING_POST")
        await w.closed(5.0)
        assert "candidates 1, 2 aborted: no answer in 0.3 s, the batch" in w.group(ticket).cause
        assert (len(w.swarm.ends), len(w.swarm.aborts)) == (2, 6)


@pytest.mark.parametrize("headers", [{}, UNTRAINED])
@pytest.mark.parametrize("users", [0, 3])
async def test_a_slow_answer_is_aborted_once_and_then_waited_for(
    tmp_path: Path, headers: dict[str, str], users: int
) -> None:
    """Fast answers of other users end each batch, and keep the usual time of an answer short."""
    async with (
        ScriptedSwarm(batch=2, slots=32) as swarm,
        world(tmp_path, swarm, rule()) as w,
    ):

        async def answer(name: str, body: dict[str, Any], index: int) -> str:
            await asyncio.sleep(0.42 if "slow" in str(body["messages"]) else 0.005)
            return f"fine {name[:6]}"

        async def ask_on(user: int) -> None:
            count = 0
            while not slow.done():
                count += 1
                await w.reply(await w.ask(f"fast {user} {count}"))

        swarm.answer = answer
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
        assert not swarm.claimed()


async def test_a_user_without_time_for_another_try_keeps_the_first_call(tmp_path: Path) -> None:
    configured = rule(straggler_limit=1.0, answer_budget=1.9)
    async with world(tmp_path, configured=configured) as w:

        async def answer(name: str, body: dict[str, Any], index: int) -> str:
            await asyncio.sleep(1.2)
            return f"fine {name[:6]}"

        w.swarm.answer = answer
        assert (await w.reply(await w.ask(headers=UNTRAINED))).answer is not None
        await w.closed()
        assert len(w.swarm.claims) == 1


async def test_a_slow_answer_of_an_unknown_server_is_generated_once(tmp_path: Path) -> None:
    async with world(tmp_path, configured=rule(straggler_limit=0.1)) as w:
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


async def test_an_answer_that_the_user_reads_is_not_requested_again(tmp_path: Path) -> None:
    async with world(tmp_path, configured=rule(answer="live")) as w:
        gate = asyncio.Event()

        async def on_token(name: str, index: int) -> None:
            if index == 2:
                await gate.wait()

        w.swarm.streaming, w.swarm.on_token = "three", on_token
        ticket = await w.ask(headers=UNTRAINED, stream=True)
        await w.until(lambda: w.swarm.chats)
        await asyncio.sleep(0.6)
        gate.set()
        assert (await w.reply(ticket)).answer is not None
        await w.closed()
        assert len(w.swarm.claims) == 1


async def test_a_slow_model_gets_twice_its_usual_time(tmp_path: Path) -> None:
    async with world(tmp_path, configured=rule(straggler_after=0)) as w:
        w.groups.server_facts["s"].answer_seconds.extend([1.0] * 8)
        gate = asyncio.Event()

        async def answer(name: str, body: dict[str, Any], index: int) -> str:
            await gate.wait()
            return f"fine {name[:6]}"

        w.swarm.answer = answer
        ticket = await w.ask()
        await w.until(lambda: len(w.swarm.chats) == 4)
        w.swarm.set_state("ROLLING_POST")
        await asyncio.sleep(0.5)
        assert not w.swarm.aborts
        gate.set()
        await w.reply(ticket, 2.0)
        await w.closed()
        assert len(w.swarm.ends) == 4


async def test_an_operator_does_not_wait_for_a_late_candidate(tmp_path: Path) -> None:
    proxy = {"straggler_after": 0.1}
    chosen = settings(proxy=proxy, rating={"mode": "hold"})
    async with world(tmp_path, configured=chosen) as w:
        Silent(w, 0)
        ticket = await w.ask()
        group = await w.open("AWAITING_RATING")
        assert "the operator cannot rate before" in group.candidates[0].error
        await w.commands.accept(group.group_id)
        assert (await w.reply(ticket)).index == 3
        await w.closed()
        assert len(w.swarm.ends) == 3


async def test_the_episode_of_a_silent_candidate_goes_to_a_waiting_request(tmp_path: Path) -> None:
    async with (
        ScriptedSwarm(slots=4, automatic=False) as swarm,
        world(tmp_path, swarm, rule()) as w,
    ):
        Silent(w, 0)
        first = await w.ask("one")
        assert (await w.reply(first, 2.0)).why == "provisional"
        second = await w.ask("two")  # it may get the silent runner, which is in the pool again
        await w.reply(second, 5.0)
        w.swarm.set_state("ROLLING_POST")
        await w.closed(5.0)
        assert "other requests wait for its episode" in w.group(first).cause
        assert not w.swarm.claimed()


async def test_an_answer_does_not_wait_for_a_slow_abort(tmp_path: Path) -> None:
    async with world(tmp_path, configured=rule()) as w:
        Silent(w, 0)
        w.swarm.fail_next(ABORT, "stall")
        ticket = await w.ask()
        await answered(w, ticket, 3)
        w.swarm.set_state("ROLLING_POST")
        assert (await w.reply(ticket, 2.0)).why == "winner"
        await w.until(lambda: len(w.swarm.ends) == 3)
        assert w.group(ticket).open  # until it is known to be given back
        assert len(w.swarm.claimed()) == 1
        w.swarm.release()
        await w.closed(2.0)
        assert len(w.swarm.aborts) == 1
        assert [kind.index for kind in w.kinds(EpisodeAborted)] == [0]
        assert not w.swarm.claimed()


async def test_a_stop_waits_for_episodes_that_are_being_returned(tmp_path: Path) -> None:
    async with world(tmp_path, configured=rule()) as w:
        Silent(w, 0)
        w.swarm.fail_next(ABORT, "stall")
        ticket = await w.ask()
        await answered(w, ticket, 3)
        w.swarm.set_state("ROLLING_POST")
        await w.reply(ticket, 2.0)
        assert len(w.groups.runs) == 1
        w.swarm.release()
        assert await w.groups.drain(2.0)
        assert not w.swarm.claimed()
        assert len(w.swarm.aborts) == 1


# --- streams that break off ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "mode", "kind"),
    [(End, "three", "broken"), (End, "keepalive", "broken"), (Cut, "three", "unreachable")],
)
async def test_an_empty_stream_fails_at_once(
    tmp_path: Path, how: type[Exception], mode: str, kind: str
) -> None:
    """200, then the end, without a chunk and without `[DONE]`."""

    async def on_token(name: str, index: int) -> None:
        if name == w.swarm.claims[0]:
            raise how

    async with world(tmp_path, configured=settings(proxy={"answer": "live"})) as w:
        w.swarm.streaming, w.swarm.on_token = mode, on_token
        ticket = await w.ask(stream=True)
        await w.until(lambda: w.kinds(CandidateFailed), 2.0)
        (failed, *_) = w.kinds(CandidateFailed)
        assert (failed.index, failed.cause.partition(":")[0]) == (0, kind)
        assert failed.retried
        w.swarm.on_token = None
        assert (await w.reply(ticket, 5.0)).answer is not None
        await w.closed()
        assert not w.swarm.claimed()


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
        ticket = await w.ask()
        await w.reply(ticket)
        await w.closed()
        (failed,) = w.kinds(CandidateFailed)
        assert (failed.retried, failed.unretried) == (False, why)
        assert w.group(ticket).candidates[failed.index].error.endswith(f"; not retried: {why}")
        assert w.group(ticket).cause.startswith("short: 3 of 4 candidates answered; candidate ")
        assert w.group(ticket).cause_kind == "too_few_answers"
        assert w.group(ticket).cause_params == {"answered": 3, "of": 4}
        assert w.group(ticket).cause.endswith(f"(not retried: {why})")


async def test_used_up_retries_are_reported_as_the_reason(tmp_path: Path) -> None:
    async with world(tmp_path, configured=settings(rewards={"retries": 1})) as w:

        async def answer(name: str, body: dict[str, Any], index: int) -> str:
            if name in (w.swarm.claims[0], *w.swarm.claims[4:]):
                raise RuntimeError("broken")
            return f"fine {name[:6]}"

        w.swarm.answer = answer
        ticket = await w.ask()
        await w.reply(ticket)
        await w.closed()
        assert [kind.unretried for kind in w.kinds(CandidateFailed)] == [
            "",
            "the retry is used up",
        ]
        assert w.group(ticket).candidates[0].error.startswith(ChatErrorKind.UPSTREAM)


async def test_an_engine_that_ends_its_batch_is_reported_as_the_reason(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        gate = asyncio.Event()

        async def answer(name: str, body: dict[str, Any], index: int) -> str:
            if name == w.swarm.claims[0]:
                await gate.wait()
                raise RuntimeError("broken")
            return f"fine {name[:6]}"

        w.swarm.answer = answer
        ticket = await w.ask()
        await answered(w, ticket, 3)
        w.swarm.set_state("ROLLING_POST")
        await w.until(lambda: w.server.watcher.current.state == "ROLLING_POST")
        gate.set()
        await w.reply(ticket)
        await w.closed()
        assert "(not retried: the engine is ROLLING_POST)" in w.group(ticket).cause


async def test_a_group_without_answers_reports_why_nothing_was_retried(tmp_path: Path) -> None:
    async with world(tmp_path, configured=settings(rewards={"retries": 0})) as w:
        w.swarm.answer = texts(RuntimeError("x"))
        ticket = await w.ask()
        assert (await w.reply(ticket)).error is not None
        await w.closed()
        assert w.group(ticket).cause == (
            "no candidate gave an answer: upstream; not retried: retries are off"
        )
