"""The user reads the first candidate while it is generated; several choices; large answers."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from ajet_swarm.api.chat import ChatAnswer, chat_answer
from ajet_swarm.http.interface import Response
from core.events import AnswerReturned, CandidateFailed
from proxy.groups.answer import AnswerWaiter, Delta, FinalAnswer
from proxy.groups.generate import LEAST, MOST, largest_answer
from tests.support.proxy.world import World, sent, settings, texts, world
from tests.support.scripted.swarm import Cut

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
@pytest.mark.world(LIVE)
async def test_the_user_reads_the_first_candidate_whichever_wins(w: World, how: str) -> None:
    w.swarm.streaming, w.swarm.answer = how, words
    ticket = await w.ask(stream=True)
    text, reply = await read(ticket)
    await w.closed()
    assert ticket.has_streamed
    assert (reply.index, reply.why) == (0, "live")
    assert text == reply.answer.text == f"one two three {first(w)[:6]}"
    group = w.group(ticket)
    assert (group.phase, group.best, group.returned) == ("DONE", 3, 0)
    assert sorted(sent(w.swarm)[group.task_id]) == [0.0, 0.1, 0.2, 0.3]
    assert [bool(body.get("stream")) for _, body, _ in w.swarm.chats] == [True] + [False] * 3
    assert group.candidates[0].text == text
    assert group.candidates[0].tokens == 4
    assert group.latency["first_piece"] <= group.latency["answered"]


@pytest.mark.world(LIVE)
async def test_deltas_arrive_before_the_other_candidates_are_done(w: World) -> None:
    others = w.hold(1, 2, 3)
    w.swarm.streaming, piece = "tokens", w.hold_piece(2)
    ticket = await w.ask(stream=True)
    assert await ticket.next(5.0) == Delta({"content": "fine "})
    assert await ticket.next(0.01) is None
    late = await w.ask(stream=True)  # a retry of the same bytes reads from the start
    assert late.group_id == ticket.group_id
    piece.set()
    others.set()
    assert (await read(ticket))[0] == first(w)[:6]
    assert (await read(late))[0] == f"fine {first(w)[:6]}"
    await w.closed()
    assert len(w.kinds(AnswerReturned)) == 1


@pytest.mark.world(LIVE)
async def test_a_request_without_a_stream_gets_the_first_answer_whole(w: World) -> None:
    gate = w.hold(1, 2, 3)
    ticket = await w.ask()
    reply = await w.reply(ticket)
    assert (reply.index, reply.why, ticket.has_streamed) == (0, "live", False)
    assert w.group(ticket).phase == "GENERATING"
    gate.set()
    await w.closed()
    assert len(w.swarm.ends) == 4
    assert not any(body.get("stream") for _, body, _ in w.swarm.chats)


@pytest.mark.world(LIVE)
async def test_another_candidate_replaces_the_first_before_any_delta(w: World) -> None:
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


@pytest.mark.world(NO_RETRY)
async def test_an_earlier_answer_replaces_a_failed_first_candidate(w: World) -> None:
    gate = w.hold(0, then=RuntimeError("worker"))
    ticket = await w.ask(stream=True)
    await w.answered(ticket, 3)
    gate.set()
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
        assert reply.error.status == 503
        assert len(w.kinds(AnswerReturned)) == 1
        group = w.group(ticket)
        assert group.returned is None
        assert group.phase == "DONE"  # it is still trained on
        assert len(w.swarm.ends) == (4 if configured is LIVE else 3)
        assert not w.swarm.claimed()


@pytest.mark.world(settings(proxy={"answer": "live", "stream_budget": 0.3}))
async def test_a_budget_that_runs_out_between_deltas_is_an_error(w: World) -> None:
    w.swarm.streaming, w.swarm.answer = "tokens", words
    w.hold_piece(2)
    ticket = await w.ask(stream=True)
    text, reply = await read(ticket)
    await w.closed()
    assert (text, reply.answer) == ("one ", None)
    assert reply.error is not None


@pytest.mark.world(LIVE)
async def test_a_user_who_leaves_during_the_stream_frees_the_episodes(w: World) -> None:
    w.swarm.streaming, w.swarm.answer = "tokens", words
    w.hold_piece(2)
    ticket = await w.ask(stream=True)
    assert isinstance(await ticket.next(5.0), Delta)
    ticket.leave()
    await w.closed()
    assert w.group(ticket).cause == "client left"


@pytest.mark.parametrize("body", [{"n": 2}, {"logprobs": True}])
@pytest.mark.world(LIVE)
async def test_fields_that_do_not_fit_into_deltas_give_a_whole_answer(
    w: World, body: dict[str, Any]
) -> None:
    ticket = await w.ask(stream=True, **body)
    text, reply = await read(ticket)
    await w.closed()
    assert text == ""
    assert (reply.index, len(reply.answers)) == ((3, 2) if "n" in body else (0, 1))


@pytest.mark.world(settings(proxy={"answer": "live"}, rating={"mode": "hold"}))
async def test_the_mode_that_holds_answers_overrides_streaming(w: World) -> None:
    ticket, group = await w.held(stream=True)
    assert await ticket.next(0.01) is None
    await w.commands.accept(group.group_id)
    assert (await read(ticket))[1].index == 3
    await w.closed()


@pytest.mark.world(LIVE)
async def test_an_untrained_request_is_streamed_too(w: World) -> None:
    w.swarm.streaming = "tokens"
    ticket = await w.ask("hello", {"x-ajet-train": "no"}, stream=True)
    text, reply = await read(ticket)
    await w.closed()
    assert text == reply.answer.text
    assert reply.why == "live"


# --- several choices ----------------------------------------------------------------------------


async def test_n_choices_are_the_n_best_answers(w: World) -> None:
    group, reply = await w.complete(n=3)
    assert (reply.index, reply.others) == (3, (2, 1))
    texts = [answer.text for answer in reply.answers]
    assert texts == [group.candidates[index].text for index in (3, 2, 1)]
    (event,) = w.kinds(AnswerReturned)
    assert event.others == (2, 1)
    assert len(w.swarm.claims) == 4


@pytest.mark.world(slots=8)
async def test_a_group_is_as_large_as_the_choices(w: World) -> None:
    _, reply = await w.complete(n=6)
    assert len(reply.answers) == 6
    assert len(w.swarm.ends) == 6


@pytest.mark.world(settings(rewards={"retries": 0}))
async def test_failed_candidates_reduce_the_number_of_choices(w: World) -> None:
    w.hold(0, then=RuntimeError("worker")).set()
    _, reply = await w.complete(n=4)
    assert len(reply.answers) == 3
    assert len(w.kinds(CandidateFailed)) == 1


@pytest.mark.parametrize("answer", ["best", "live"])
async def test_an_oversized_answer_is_not_requested_again_and_nothing_of_it_is_kept(
    tmp_path: Path, answer: str
) -> None:
    async with world(tmp_path, configured=settings(proxy={"answer": answer})) as w:
        w.swarm.answer = texts("x" * (3 << 20))
        ticket = await w.ask(max_tokens=16, stream=answer == "live")
        run = w.groups.runs[ticket.group_id]
        reply = await w.reply(ticket)
        await w.closed()
        assert reply.error is not None
        assert len(w.swarm.chats) == 4
        assert {kind.failure for kind in w.kinds(CandidateFailed)} == {"oversized"}
        failures = [slot.failure for slot in run.slots.candidates if slot.failure is not None]
        assert not any(
            failure.__traceback__ or failure.__cause__ or failure.__context__
            for failure in failures
        )
        transport = w.line.transport
        assert transport.held == 0


async def test_a_long_answer_is_parsed_in_a_thread(
    w: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed_by: list[threading.Thread] = []

    def parse(response: Response, where: str) -> ChatAnswer:
        parsed_by.append(threading.current_thread())
        return chat_answer(response, where)

    monkeypatch.setattr("ajet_swarm.api.chat.chat_answer", parse)
    await w.reply(await w.ask("short"))
    assert set(parsed_by) == {threading.main_thread()}
    await w.closed()
    parsed_by.clear()
    w.swarm.answer = texts("x" * (1 << 20))
    reply = await w.reply(await w.ask("long"))
    assert len(reply.answer.text) == 1 << 20
    assert threading.main_thread() not in parsed_by
    await w.closed()
    assert len(w.swarm.ends) == 8


@pytest.mark.parametrize(
    ("body", "window", "size"),
    [
        ({"max_tokens": 16}, 4096, LEAST),
        ({"max_tokens": 20_000}, None, 20_000 * 64 * 4),
        ({"max_completion_tokens": 20_000, "max_tokens": 5}, None, 20_000 * 64 * 4),
        ({"max_tokens": 1000, "logprobs": True, "top_logprobs": 5}, None, 1000 * 1064 * 4),
        ({}, 100_000, 100_000 * 64 * 4),
        ({"max_tokens": 1 << 30}, None, MOST),
        ({"max_tokens": 10, "prompt_logprobs": 5}, 4096, 4106 * 1064 * 4),
        ({"max_tokens": "many"}, 4096, LEAST),
    ],
)
def test_the_size_follows_from_the_request(
    body: dict[str, Any], window: int | None, size: int
) -> None:
    assert largest_answer(body, window) == size
