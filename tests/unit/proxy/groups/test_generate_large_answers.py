"""Answers that are too large, and valid ones of megabytes."""

import threading
from pathlib import Path
from typing import Any

import pytest

from ajet_swarm.api.chat import ChatAnswer, chat_answer
from ajet_swarm.http.interface import Response
from core.events import CandidateFailed
from proxy.groups.generate import LEAST, MOST, largest_answer
from tests.support.proxy.world import settings, texts, world


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
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed_by: list[threading.Thread] = []

    def parse(response: Response, where: str) -> ChatAnswer:
        parsed_by.append(threading.current_thread())
        return chat_answer(response, where)

    monkeypatch.setattr("ajet_swarm.api.chat.chat_answer", parse)
    async with world(tmp_path) as w:
        await w.reply(await w.ask("short"))
        assert set(parsed_by) == {threading.main_thread()}
        await w.closed()
        parsed_by.clear()
        w.swarm.answer = texts("x" * (1 << 20))
        reply = await w.reply(await w.ask("long"))
        assert reply.answer is not None
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
