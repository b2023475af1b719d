"""Checklist 26 to 34: tool calls, reasoning, histories and texts of chats. From raw bytes."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.forms import (
    CALL,
    CALM,
    CAPTURES,
    CHAT,
    GREETING,
    HELLO,
    PATHS,
    TOOLED,
    TWO_CALLS,
    always,
    ask,
    ask_json,
    chunks,
    completion,
    events,
    same,
    settle,
    shapes,
    stream,
    text_in,
    text_of,
)
from tests.support.proxy.front import BODIES, fronted
from tests.support.proxy.world import settings

NAMED = {"type": "function", "function": {"name": "get_weather"}}
USAGE = {"stream_options": {"include_usage": True}}


def calls_in(chat_chunks: list[Any]) -> list[dict[str, Any]]:
    """The tool calls of a stream, put together as clients do it."""
    calls: dict[int, dict[str, Any]] = {}
    for chunk in chat_chunks:
        for choice in chunk["choices"]:
            for delta in choice["delta"].get("tool_calls") or ():
                if delta["index"] not in calls:
                    assert set(delta) == {"id", "type", "index", "function"}
                    assert set(delta["function"]) == {"name"}
                    calls[delta["index"]] = {**delta, "arguments": "", "pieces": 0}
                else:
                    assert set(delta) == {"index", "function"}
                    assert set(delta["function"]) == {"arguments"}
                    calls[delta["index"]]["arguments"] += delta["function"]["arguments"]
                    calls[delta["index"]]["pieces"] += 1
    return [calls[index] for index in sorted(calls)]


@pytest.mark.parametrize("answer", ["best", "live"])
async def test_26_parallel_calls(tmp_path: Path, answer: str) -> None:
    async with fronted(tmp_path, configured=settings(proxy={"answer": answer, **CALM})) as f:
        f.world.swarm.answer = always(TWO_CALLS)
        f.world.swarm.streaming = "tokens"
        result = await stream(f, CHAT, {**TOOLED, **USAGE})
        same(shapes(result), CAPTURES["tool2_stream"]["events"])
        streamed = calls_in([data for _, data in result[:-1]])
        whole = (await ask_json(f, CHAT, TOOLED))["choices"][0]["message"]["tool_calls"]
        for one in (streamed, whole):
            assert len({call["id"] for call in one}) == 2
            assert {call["type"] for call in one} == {"function"}
        assert [call["index"] for call in streamed] == [0, 1]
        cities = [json.loads(call["arguments"])["city"] for call in streamed]
        assert cities == ["Paris", "Rome"]
        assert [json.loads(call["function"]["arguments"])["city"] for call in whole] == cities
        await settle(f)


async def test_26_ids_differ_in_all_of_a_request(tmp_path: Path) -> None:
    history = [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": "call-0",
                    "type": "function",
                    "function": {"name": "get_weather", "arguments": "{}"},
                }
            ],
        },
        {"role": "tool", "tool_call_id": "call-0", "content": "rain"},
    ]
    async with fronted(tmp_path) as f:
        f.world.swarm.answer = always(TWO_CALLS)  # whose ids are call-0 and call-1
        body = {**TOOLED, "messages": [*HELLO["messages"], *history], "n": 2}
        result = await ask_json(f, CHAT, body)
        ids = [
            call["id"] for choice in result["choices"] for call in choice["message"]["tool_calls"]
        ]
        assert len({*ids, "call-0"}) == 5
        await settle(f)


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize(
    ("choice", "reason", "calls"),
    [
        ("auto", "tool_calls", 2),
        ("required", "tool_calls", 2),
        (NAMED, "stop", 2),
        ("none", "stop", 0),
    ],
)
async def test_27_tool_choice(
    tmp_path: Path, choice: Any, reason: str, calls: int, streams: bool
) -> None:
    async with fronted(tmp_path) as f:
        f.world.swarm.answer = always(TWO_CALLS)
        body = {**TOOLED, "tool_choice": choice}
        if streams:
            result = await chunks(f, body)
            tool_calls, content = calls_in(result), text_of(result)
            last = result[-1]["choices"][0]["finish_reason"]
        else:
            (one,) = (await ask_json(f, CHAT, body))["choices"]
            tool_calls = one["message"].get("tool_calls", [])
            content, last = one["message"]["content"], one["finish_reason"]
        assert (len(tool_calls), last) == (calls, reason)
        assert content.count("<tool_call>") == (2 if choice == "none" else 0)
        for _, upstream_body, _ in f.world.swarm.chats:  # the upstream has to obey it
            assert upstream_body["tool_choice"] == choice
        await settle(f)


@pytest.mark.parametrize("answer", ["best", "live"])
async def test_28_one_call_at_a_time(tmp_path: Path, answer: str) -> None:
    async with fronted(tmp_path, configured=settings(proxy={"answer": answer})) as f:
        f.world.swarm.answer = always(TWO_CALLS)
        f.world.swarm.streaming = "tokens"
        body = {**TOOLED, "parallel_tool_calls": False}
        (call,) = calls_in(await chunks(f, body))
        assert json.loads(call["arguments"]) == {"city": "Paris"}
        whole = (await ask_json(f, CHAT, body))["choices"][0]["message"]["tool_calls"]
        assert [one["function"]["arguments"] for one in whole] == ['{"city": "Paris"}']
        await settle(f)


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
async def test_29_the_name_of_the_reasoning_field(tmp_path: Path, field: str) -> None:
    other = {"reasoning": "reasoning_content", "reasoning_content": "reasoning"}[field]
    history = [
        {"role": "assistant", "content": "a", "reasoning": "one"},
        {"role": "user", "content": "b"},
        {"role": "assistant", "content": "c", "reasoning_content": "two"},
        {"role": "user", "content": "d"},
    ]
    async with fronted(tmp_path, configured=settings(proxy={"reasoning_field": field})) as f:
        f.world.swarm.answer = always(GREETING)
        body = {**HELLO, "messages": [*HELLO["messages"], *history]}
        result = await chunks(f, body)
        message = (await ask_json(f, CHAT, body))["choices"][0]["message"]
        wanted = GREETING["choices"][0]["message"]["reasoning"]
        assert message[field] == text_of(result, field) == wanted
        assert other not in message
        assert not text_of(result, other)
        for _, upstream_body, _ in f.world.swarm.chats:
            same(upstream_body["messages"], body["messages"])
        await settle(f)


async def test_30_any_form_of_a_history_is_accepted(tmp_path: Path) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
    messages = [
        {"role": "system", "content": "be brief"},
        {"role": "developer", "content": [{"type": "text", "text": "be kind"}]},
        {"role": "user", "content": "plain", "name": "ann"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "found"}]},
        {"role": "assistant", "content": ""},
        {"role": "narrator", "content": "meanwhile", "made_up": 1},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "see"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}},
            ],
        },
    ]
    sees = settings(servers={"s": {"vision": True}})
    async with fronted(tmp_path, configured=sees) as f:
        for streams in (False, True):
            answer = await ask(f, CHAT, {**HELLO, "messages": messages, "stream": streams})
            assert answer.status == 200
        for _, upstream_body, _ in f.world.swarm.chats:
            same(upstream_body["messages"], messages)
        await settle(f)


ODD = (
    "naïve 漢字 \U0001f600 \U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1eb\U0001f1f7 "
    "e\u0301 \U0001f44d\U0001f3fd ไทยกำ \u202e \x01 \u2028 tail "
)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("answer", ["best", "live"])
async def test_32_no_character_is_broken(tmp_path: Path, path: str, answer: str) -> None:
    text = ODD * 20
    async with fronted(tmp_path, configured=settings(proxy={"answer": answer})) as f:
        f.world.swarm.answer = always(completion(text))
        f.world.swarm.streaming = "tokens"
        answered = await ask(f, path, {**BODIES[path], "stream": True})
        assert b"\xef\xbf\xbd" not in answered.body
        assert b"\\ufffd" not in answered.body
        assert text_in(path, answered.body) == text
        whole = await ask_json(f, path, BODIES[path])
        assert text_of_whole(path, whole) == text
        await settle(f)


def text_of_whole(path: str, body: dict[str, Any]) -> str:
    """The text of an answer that was not streamed."""
    if path == "/v1/responses":
        items = [one for one in body["output"] if one["type"] == "message"]
        return "".join(part["text"] for item in items for part in item["content"])
    if path == "/v1/messages":
        return "".join(one["text"] for one in body["content"] if one["type"] == "text")
    choice = body["choices"][0]
    return str(choice["text"] if path == "/v1/completions" else choice["message"]["content"])


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "upstream_answer", [GREETING, completion("a"), CALL], ids=["text", "short", "call"]
)
async def test_34_a_stream_and_a_whole_answer_are_equal(
    tmp_path: Path, path: str, upstream_answer: dict[str, Any]
) -> None:
    async with fronted(tmp_path) as f:
        f.world.swarm.answer = always(upstream_answer)
        streamed = await ask(f, path, {**BODIES[path], "stream": True})
        whole = await ask_json(f, path, BODIES[path])
        assert text_in(path, streamed.body) == text_of_whole(path, whole)
        if path == "/v1/responses":
            last = events(streamed.body)[-1][1]["response"]
            assert [_of_item(one) for one in last["output"]] == [
                _of_item(one) for one in whole["output"]
            ]
        await settle(f)


def _of_item(item: dict[str, Any]) -> Any:
    result = {name: item.get(name) for name in ("type", "name", "arguments", "role", "summary")}
    return result, [part.get("text") for part in item.get("content") or ()]
