"""Live first: the user reads the first candidate while it is generated; the others only train."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from core.events import AnswerReturned, CandidateFailed
from proxy.groups.answer import AnswerWaiter, Delta, FinalAnswer
from tests.support.proxy.world import World, sent, settings, world
from tests.support.scripted.swarm import Cut, ScriptedSwarm

LIVE = settings(proxy={"answer": "live"})
NO_RETRY = settings(proxy={"answer": "live"}, rewards={"retries": 0})


async def read(ticket: AnswerWaiter) -> tuple[str, FinalAnswer]:
    """All events of a stream, and its end."""
    text = ""
    async with asyncio.timeout(30):
        while True:
            result = await ticket.next(1.0)
            if isinstance(result, Delta):
                text += result.delta.get("content") or ""
            elif result is not None:
                return text, result


def first(w: World) -> str:
    """The episode of the first candidate."""
    return w.swarm.claims[0]


async def words(name: str, body: dict[str, Any], index: int) -> str:
    return f"one two three {name[:6]}"


@pytest.mark.parametrize("how", ["tokens", "three", "keepalive"])
async def test_the_user_reads_the_first_candidate_whichever_wins(tmp_path: Path, how: str) -> None:
    async with world(tmp_path, configured=LIVE) as w:
        w.swarm.streaming, w.swarm.answer = how, words
        ticket = await w.ask(stream=True)
        text, reply = await read(ticket)
        await w.closed()
        assert ticket.has_streamed
        assert (reply.index, reply.why) == (0, "live")
        assert reply.answer is not None
        assert text == reply.answer.text == f"one two three {first(w)[:6]}"
        group = w.group(ticket)
        assert (group.phase, group.best, group.returned) == ("DONE", 3, 0)
        assert sorted(sent(w.swarm)[group.task_id]) == [0.0, 0.1, 0.2, 0.3]
        assert [bool(body.get("stream")) for _, body, _ in w.swarm.chats] == [True] + [False] * 3
        assert group.candidates[0].text == text
        assert group.candidates[0].tokens == 4
        assert group.latency["first_piece"] <= group.latency["answered"]


async def test_deltas_arrive_before_the_other_candidates_are_done(tmp_path: Path) -> None:
    async with world(tmp_path, configured=LIVE) as w:
        gate = asyncio.Event()

        async def on_token(name: str, index: int) -> None:
            if index == 2:
                await gate.wait()

        async def answer(name: str, body: dict[str, Any], index: int) -> str:
            if not body.get("stream"):
                await gate.wait()
            return "one two three"

        w.swarm.streaming, w.swarm.on_token, w.swarm.answer = "tokens", on_token, answer
        ticket = await w.ask(stream=True)
        result = await ticket.next(5.0)
        assert result == Delta({"content": "one "})
        assert await ticket.next(0.01) is None
        late = await w.ask(stream=True)  # a retry of the same bytes reads from the start
        assert late.group_id == ticket.group_id
        gate.set()
        assert (await read(ticket))[0] == "two three"
        assert (await read(late))[0] == "one two three"
        await w.closed()
        assert len(w.kinds(AnswerReturned)) == 1


async def test_a_request_without_a_stream_gets_the_first_answer_whole(tmp_path: Path) -> None:
    async with world(tmp_path, configured=LIVE) as w:
        gate = asyncio.Event()

        async def answer(name: str, body: dict[str, Any], index: int) -> str:
            if name != first(w):
                await gate.wait()
            return "fine"

        w.swarm.answer = answer
        ticket = await w.ask()
        reply = await w.reply(ticket)
        assert (reply.index, reply.why, ticket.has_streamed) == (0, "live", False)
        assert w.group(ticket).phase == "GENERATING"
        gate.set()
        await w.closed()
        assert len(w.swarm.ends) == 4
        assert not any(body.get("stream") for _, body, _ in w.swarm.chats)


async def test_another_candidate_replaces_the_first_before_any_delta(tmp_path: Path) -> None:
    async with world(tmp_path, configured=LIVE) as w:
        gate = asyncio.Event()

        async def answer(name: str, body: dict[str, Any], index: int) -> Any:
            if body.get("stream") and not gate.is_set():
                gate.set()
                return RuntimeError("worker")
            await gate.wait()
            return "fine"

        w.swarm.answer = answer
        ticket = await w.ask(stream=True)
        text, reply = await read(ticket)
        await w.closed()
        assert reply.why == "live"
        assert reply.answer is not None
        assert text in ("", "fine")  # another's whole answer, or the fresh episode's unchanged
        assert len(w.swarm.ends) == 4
        assert not w.swarm.claimed()


async def test_an_earlier_answer_replaces_a_failed_first_candidate(tmp_path: Path) -> None:
    async with world(tmp_path, configured=NO_RETRY) as w:

        async def answer(name: str, body: dict[str, Any], index: int) -> Any:
            if name == first(w):
                await w.until(lambda: sum(c.phase == "answered" for c in group().candidates) == 3)
                return RuntimeError("worker")
            return "fine"

        def group() -> Any:
            return next(iter(w.state.groups.values()))

        w.swarm.answer = answer
        ticket = await w.ask(stream=True)
        text, reply = await read(ticket)
        await w.closed()
        assert (text, reply.index, reply.why) == ("", 1, "live")
        assert len(w.swarm.ends) == 3


@pytest.mark.parametrize("configured", [LIVE, NO_RETRY])
async def test_a_break_after_deltas_is_an_error_and_not_another_answer(
    tmp_path: Path, configured: Any
) -> None:
    async with world(tmp_path, configured=configured) as w:
        broken: list[str] = []

        async def on_token(name: str, index: int) -> None:
            if index == 3 and not broken:
                broken.append(name)
                raise Cut

        w.swarm.streaming, w.swarm.answer, w.swarm.on_token = "tokens", words, on_token
        ticket = await w.ask(stream=True)
        text, reply = await read(ticket)
        await w.closed()
        assert text == "one two "
        assert ticket.has_streamed
        assert reply.answer is None
        assert reply.error is not None
        assert reply.error.status == 503
        assert len(w.kinds(AnswerReturned)) == 1
        group = w.group(ticket)
        assert group.returned is None
        assert group.phase == "DONE"  # it is still trained on
        assert len(w.swarm.ends) == (4 if configured is LIVE else 3)
        assert not w.swarm.claimed()


async def test_a_budget_that_runs_out_between_deltas_is_an_error(tmp_path: Path) -> None:
    short = settings(proxy={"answer": "live", "stream_budget": 0.3})
    async with world(tmp_path, configured=short) as w:

        async def on_token(name: str, index: int) -> None:
            if index == 2:
                await asyncio.sleep(30)

        w.swarm.streaming, w.swarm.answer, w.swarm.on_token = "tokens", words, on_token
        ticket = await w.ask(stream=True)
        text, reply = await read(ticket)
        await w.closed()
        assert (text, reply.answer) == ("one ", None)
        assert reply.error is not None
        assert not w.swarm.claimed()


async def test_a_user_who_leaves_during_the_stream_frees_the_episodes(tmp_path: Path) -> None:
    async with world(tmp_path, configured=LIVE) as w:

        async def on_token(name: str, index: int) -> None:
            if index == 2:
                await asyncio.sleep(30)

        w.swarm.streaming, w.swarm.answer, w.swarm.on_token = "tokens", words, on_token
        ticket = await w.ask(stream=True)
        assert isinstance(await ticket.next(5.0), Delta)
        ticket.leave()
        await w.closed()
        assert w.group(ticket).cause == "client left"
        assert not w.swarm.claimed()


@pytest.mark.parametrize("body", [{"n": 2}, {"logprobs": True}])
async def test_fields_that_do_not_fit_into_deltas_give_a_whole_answer(
    tmp_path: Path, body: dict[str, Any]
) -> None:
    async with world(tmp_path, configured=LIVE) as w:
        ticket = await w.ask(stream=True, **body)
        text, reply = await read(ticket)
        await w.closed()
        assert text == ""
        assert (reply.index, len(reply.answers)) == ((3, 2) if "n" in body else (0, 1))


async def test_the_mode_that_holds_answers_overrides_streaming(tmp_path: Path) -> None:
    held = settings(proxy={"answer": "live"}, rating={"mode": "hold"})
    async with world(tmp_path, configured=held) as w:
        ticket = await w.ask(stream=True)
        group = await w.open("AWAITING_RATING")
        assert await ticket.next(0.01) is None
        await w.commands.accept(group.group_id)
        assert (await read(ticket))[1].index == 3
        await w.closed()


async def test_an_untrained_request_is_streamed_too(tmp_path: Path) -> None:
    async with world(tmp_path, configured=LIVE) as w:
        w.swarm.streaming = "tokens"
        ticket = await w.ask("hello", {"x-ajet-train": "no"}, stream=True)
        text, reply = await read(ticket)
        await w.closed()
        assert reply.answer is not None
        assert text == reply.answer.text
        assert reply.why == "live"


# --- several choices ----------------------------------------------------------------------------


async def test_n_choices_are_the_n_best_answers(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        ticket = await w.ask(n=3)
        reply = await w.reply(ticket)
        await w.closed()
        assert (reply.index, reply.others) == (3, (2, 1))
        texts = [answer.text for answer in reply.answers]
        assert texts == [w.group(ticket).candidates[index].text for index in (3, 2, 1)]
        (event,) = w.kinds(AnswerReturned)
        assert event.others == (2, 1)
        assert len(w.swarm.claims) == 4


async def test_a_group_is_as_large_as_the_choices(tmp_path: Path) -> None:
    async with ScriptedSwarm(slots=8) as swarm, world(tmp_path, swarm) as w:
        ticket = await w.ask(n=6)
        assert len((await w.reply(ticket)).answers) == 6
        await w.closed()
        assert len(swarm.ends) == 6


async def test_failed_candidates_reduce_the_number_of_choices(tmp_path: Path) -> None:
    async with world(tmp_path, configured=settings(rewards={"retries": 0})) as w:

        async def answer(name: str, body: dict[str, Any], index: int) -> Any:
            return RuntimeError("worker") if name == first(w) else "fine"

        w.swarm.answer = answer
        reply = await w.reply(await w.ask(n=4))
        await w.closed()
        assert len(reply.answers) == 3
        assert len(w.kinds(CandidateFailed)) == 1
