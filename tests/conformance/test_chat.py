"""Checklist 14 to 34: chat completions, tool calls, reasoning and texts, from raw bytes."""

import json
from pathlib import Path
from typing import Any

import pytest

from core.state import Group
from tests.conformance.forms import (
    CALL,
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
    each,
    events,
    front,
    same,
    settle,
    stream,
    text_in,
    text_of,
)
from tests.support.proxy.front import BODIES, LAST, Front, fronted
from tests.support.proxy.world import settings

UNTRAINED = {"x_ajet_train": "no"}
USAGE = {"stream_options": {"include_usage": True}}


def upstream_bodies(f: Front) -> list[dict[str, Any]]:
    """The request bodies that the upstream received."""
    return [body for _, body, _ in f.world.swarm.chats]


def latest(f: Front) -> Group:
    """The group opened last."""
    group: Group = list(f.world.state.groups.values())[-1]
    return group


# --- answers ------------------------------------------------------------------------------------


async def test_14_usage_only_when_requested(f: Front) -> None:
    f.world.swarm.answer = always(GREETING)
    options: tuple[dict[str, Any], ...] = (
        {},
        {"stream_options": {}},
        {"stream_options": {"include_usage": False}},
    )
    for more in options:
        assert not any("usage" in chunk for chunk in await chunks(f, {**HELLO, **more}))
    result = await chunks(f, {**HELLO, **USAGE})
    assert not any("usage" in chunk for chunk in result[:-1])
    assert result[-1]["choices"] == []
    whole = (await ask_json(f, CHAT, HELLO))["usage"]
    assert result[-1]["usage"] == {k: v for k, v in whole.items() if v is not None}
    # Of the winner alone, whatever the group has cost.
    assert (whole["prompt_tokens"], whole["completion_tokens"]) == (17, 23)


async def test_15_continuous_usage(f: Front) -> None:
    more = {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}
    f.world.swarm.answer = always(GREETING)
    result = await chunks(f, {**HELLO, **more})
    running = [chunk["usage"]["completion_tokens"] for chunk in result]
    assert running == sorted(running)
    assert (running[0], running[-1]) == (0, 23)
    for chunk in result:
        usage = chunk["usage"]
        assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
        assert usage["prompt_tokens"] > 0
    again = await chunks(f, {**HELLO, **more, "user": "another"})  # its length is known now
    assert {chunk["usage"]["prompt_tokens"] for chunk in again} == {17}


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
async def test_16_done_comes_last_and_once(
    tmp_path: Path, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.api.handler.SOON", 0.0)
    async with front(tmp_path, rewards={"retries": 0}) as f:
        upstream_answers: tuple[Any, ...] = (
            GREETING,
            completion("cut", finish="length"),
            RuntimeError("x"),
        )
        for number, upstream_answer in enumerate(upstream_answers):
            f.world.swarm.answer = always(upstream_answer)
            body = {**BODIES[path], "stream": True, "user": str(number)}
            answer = await ask(f, path, body)
            assert answer.body.count(b"data: [DONE]") == 1
            assert answer.body.endswith(b"\n\ndata: [DONE]\n\n")


async def test_17_one_id_one_time_one_model(f: Front) -> None:
    ids = set()
    for alias in ("tiny", "gpt-4o", "org/some-model:7b"):
        result = await chunks(f, {**HELLO, **USAGE, "model": alias, "n": 2})
        (head,) = {(chunk["id"], chunk["created"], chunk["model"]) for chunk in result}
        assert head[2] == alias
        ids.add(head[0])
    assert len(ids) == 3


@pytest.mark.parametrize(
    ("upstream_answer", "reason", "stop"),
    [
        (GREETING, "stop", None),
        (completion("cut", finish="length"), "length", None),
        (CALL, "tool_calls", None),
        (completion("Hello! ", stop_reason="How"), "stop", "How"),
        (completion("Hello! ", stop_reason=151645), "stop", 151645),
    ],
)
async def test_18_finish_and_stop_reason(
    f: Front, upstream_answer: dict[str, Any], reason: str, stop: Any
) -> None:
    f.world.swarm.answer = always(upstream_answer)
    whole = (await ask_json(f, CHAT, TOOLED))["choices"][0]
    streamed = [choice for chunk in await chunks(f, TOOLED) for choice in chunk["choices"]]
    for last in (whole, streamed[-1]):
        assert (last["finish_reason"], last["stop_reason"]) == (reason, stop)
    assert {choice["finish_reason"] for choice in streamed[:-1]} == {None}


@pytest.mark.parametrize("answer", ["best", "live"])
@pytest.mark.parametrize(
    ("text", "reasoning", "finish"),
    [(None, None, "stop"), ("", None, "length"), (None, "\nThe user wants", "length")],
)
async def test_18_an_empty_answer_is_valid(
    tmp_path: Path, text: str | None, reasoning: str | None, finish: str, answer: str
) -> None:
    upstream_answer = completion(text, reasoning=reasoning, finish=finish, tokens=(17, 1, 1))
    async with fronted(tmp_path, configured=settings(proxy={"answer": answer})) as f:
        f.world.swarm.answer = always(upstream_answer)
        f.world.swarm.streaming = "tokens"
        whole = (await ask_json(f, CHAT, {**HELLO, "max_tokens": 1}))["choices"][0]
        assert (whole["message"]["content"], whole["finish_reason"]) == (None, finish)
        assert whole["message"]["reasoning"] == reasoning
        result = await chunks(f, {**HELLO, "max_tokens": 1, "stream": True})
        assert result[-1]["choices"][0]["finish_reason"] == finish
        assert (text_of(result), text_of(result, "reasoning")) == ("", reasoning or "")
        for path in PATHS:
            assert (await ask(f, path, {**BODIES[path], "max_tokens": 1})).status == 200
            assert LAST[path] in (await ask(f, path, {**BODIES[path], "stream": True})).body
        await settle(f)
        assert {group.phase for group in f.world.state.groups.values()} == {"DONE"}


async def test_19_three_choices_are_three_candidates(tmp_path: Path) -> None:
    async def by_name(name: str, body: dict[str, Any], index: int) -> Any:
        return completion(f"text of {name}")

    async with fronted(tmp_path) as f:
        for form in ("whole", "stream"):
            f.world.swarm.answer = by_name
            body: dict[str, Any] = {**HELLO, **({} if form == "whole" else USAGE), "n": 3}
            if form == "whole":
                result = await ask_json(f, CHAT, body)
                texts = [choice["message"]["content"] for choice in result["choices"]]
                assert [choice["index"] for choice in result["choices"]] == [0, 1, 2]
                usage = result["usage"]
            else:
                actual = await chunks(f, body)
                texts = [text_of(actual, index=at) for at in range(3)]
                roles = [chunk["choices"][0] for chunk in actual[:3]]
                assert [role["index"] for role in roles] == [0, 1, 2]
                assert all(role["delta"]["role"] == "assistant" for role in roles)
                usage = actual[-1]["usage"]
            assert len(set(texts)) == 3
            assert (usage["prompt_tokens"], usage["completion_tokens"]) == (17, 3 * 23)
            await settle(f)
            group = latest(f)
            names = [candidate.episode_uuid for candidate in group.candidates]
            assert texts == [f"text of {names[at]}" for at in (3, 2, 1)]  # best first
            assert group.returned == 3


# --- requests to the upstream -------------------------------------------------------------------


async def test_20_seed_and_temperature(f: Front) -> None:
    own = {"seed": 7, "temperature": 0.25}
    await ask_json(f, CHAT, {**HELLO, **own, "top_p": 0.5})
    assert len(upstream_bodies(f)) == 4
    for body in upstream_bodies(f):  # with one seed all candidates would be the same
        assert not set(own) & set(body)
        assert body["top_p"] == 0.5
    f.world.swarm.chats.clear()
    for _ in range(2):
        await ask_json(f, CHAT, {**HELLO, **own}, UNTRAINED)
    one, other = upstream_bodies(f)
    assert one == other
    assert {name: one[name] for name in own} == own


def _entries(text: str) -> list[dict[str, Any]]:
    raw = text.encode()
    parts = [raw[at : at + 3] for at in range(0, len(raw), 3)]
    return [
        {
            "token": part.decode(errors="replace"),
            "logprob": -0.1,
            "bytes": list(part),
            "top_logprobs": [{"token": "x", "logprob": -2.0, "bytes": [120]}],
        }
        for part in parts
    ]


async def test_21_logprobs_are_the_winners(tmp_path: Path) -> None:
    texts = [f"Candidate {at} says \U0001f600 naïvely." for at in range(4)]
    upstream_answers = [completion(text, logprobs={"content": _entries(text)}) for text in texts]
    body = {**HELLO, "logprobs": True, "top_logprobs": 1}
    async with front(tmp_path, proxy={"answer": "best"}) as f:
        f.world.swarm.answer = each(*upstream_answers)
        choice = (await ask_json(f, CHAT, body))["choices"][0]
        assert _decoded(choice["logprobs"]["content"]) == choice["message"]["content"]

        f.world.swarm.answer = each(*upstream_answers)
        result = await chunks(f, body)
        entries = [
            entry
            for chunk in result
            for entry in (chunk["choices"][0]["logprobs"] or {}).get("content", ())
        ]
        assert _decoded(entries) == text_of(result)
        assert text_of(result) in texts


def _decoded(entries: list[Any]) -> str:
    return b"".join(bytes(entry["bytes"]) for entry in entries).decode()


async def test_22_token_ids_are_the_winners(f: Front) -> None:
    upstream_answers = [
        {**completion(f"text {at}", token_ids=[at, at]), "prompt_token_ids": [9]} for at in range(4)
    ]
    f.world.swarm.answer = each(*upstream_answers)
    result = await ask_json(f, CHAT, {**HELLO, "return_token_ids": True})
    choice = result["choices"][0]
    assert choice["message"]["content"] == f"text {choice['token_ids'][0]}"
    assert result["prompt_token_ids"] == [9]
    f.world.swarm.answer = each(*upstream_answers)
    actual = await chunks(f, {**HELLO, "return_token_ids": True})
    (ids,) = [chunk["choices"][0]["token_ids"] for chunk in actual if _ids(chunk)]
    assert text_of(actual) == f"text {ids[0]}"


def _ids(one: dict[str, Any]) -> Any:
    return one["choices"] and one["choices"][0].get("token_ids")


PASSED: dict[str, dict[str, Any]] = {
    "23-format": {
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "a", "schema": {"type": "object"}, "strict": True},
        },
        "structured_outputs": {"regex": "a+"},
    },
    "23-object": {"response_format": {"type": "json_object"}},
    "24-stop": {"stop": ["How", "\n\n"], "include_stop_str_in_output": True},
    "25-tokens": {"max_tokens": 12},
    "25-new": {"max_completion_tokens": 12, "min_tokens": 2},
    "31-unknown": {
        "store": True,
        "metadata": {"a": ["b"]},
        "verbosity": "low",
        "prompt_cache_key": "k",
        "safety_identifier": "s",
        "made_up": {"deep": [1, 2.5, None, "ü"]},
        "top_k": 5,
    },
    "33-prefill": {
        "messages": [
            {"role": "user", "content": "Say hello."},
            {"role": "assistant", "content": "Hel"},
        ],
        "continue_final_message": True,
        "add_generation_prompt": False,
    },
}
"""Fields for the upstream: every candidate's request contains them unchanged."""


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("item", list(PASSED))
async def test_23_24_25_31_33_fields_pass_untouched(f: Front, item: str, stream: bool) -> None:
    more = PASSED[item]
    answer = await ask(f, CHAT, {**HELLO, **more, "stream": stream})
    assert answer.status == 200
    assert len(upstream_bodies(f)) == 4
    for body in upstream_bodies(f):
        same({name: body[name] for name in more}, more)


NAMED = {"type": "function", "function": {"name": "get_weather"}}


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
    async with front(tmp_path, proxy={"answer": answer}) as f:
        f.world.swarm.answer = always(TWO_CALLS)
        f.world.swarm.streaming = "tokens"
        result = await stream(f, CHAT, {**TOOLED, **USAGE})

        streamed = calls_in([data for _, data in result[:-1]])
        whole = (await ask_json(f, CHAT, TOOLED))["choices"][0]["message"]["tool_calls"]
        for tool_calls in (streamed, whole):
            assert len({call["id"] for call in tool_calls}) == 2
            assert {call["type"] for call in tool_calls} == {"function"}
        assert [call["index"] for call in streamed] == [0, 1]
        cities = [json.loads(call["arguments"])["city"] for call in streamed]
        assert cities == ["Paris", "Rome"]
        assert [json.loads(call["function"]["arguments"])["city"] for call in whole] == cities


async def test_26_ids_differ_in_all_of_a_request(f: Front) -> None:
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
    f.world.swarm.answer = always(TWO_CALLS)  # whose ids are call-0 and call-1
    body = {**TOOLED, "messages": [*HELLO["messages"], *history], "n": 2}
    result = await ask_json(f, CHAT, body)
    ids = [call["id"] for choice in result["choices"] for call in choice["message"]["tool_calls"]]
    assert len({*ids, "call-0"}) == 5


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
    f: Front, choice: Any, reason: str, calls: int, streams: bool
) -> None:
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


@pytest.mark.parametrize("answer", ["best", "live"])
async def test_28_one_call_at_a_time(tmp_path: Path, answer: str) -> None:
    async with front(tmp_path, proxy={"answer": answer}) as f:
        f.world.swarm.answer = always(TWO_CALLS)
        f.world.swarm.streaming = "tokens"
        body = {**TOOLED, "parallel_tool_calls": False}
        (call,) = calls_in(await chunks(f, body))
        assert json.loads(call["arguments"]) == {"city": "Paris"}
        whole = (await ask_json(f, CHAT, body))["choices"][0]["message"]["tool_calls"]
        assert [call["function"]["arguments"] for call in whole] == ['{"city": "Paris"}']


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
async def test_29_the_name_of_the_reasoning_field(tmp_path: Path, field: str) -> None:
    other = {"reasoning": "reasoning_content", "reasoning_content": "reasoning"}[field]
    history = [
        {"role": "assistant", "content": "a", "reasoning": "one"},
        {"role": "user", "content": "b"},
        {"role": "assistant", "content": "c", "reasoning_content": "two"},
        {"role": "user", "content": "d"},
    ]
    async with front(tmp_path, proxy={"reasoning_field": field}) as f:
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
    async with front(tmp_path, proxy={"answer": answer}) as f:
        f.world.swarm.answer = always(completion(text))
        f.world.swarm.streaming = "tokens"
        answered = await ask(f, path, {**BODIES[path], "stream": True})
        assert b"\xef\xbf\xbd" not in answered.body
        assert b"\\ufffd" not in answered.body
        assert text_in(path, answered.body) == text
        whole = await ask_json(f, path, BODIES[path])
        assert text_of_whole(path, whole) == text


def text_of_whole(path: str, body: dict[str, Any]) -> str:
    """The text of an answer that was not streamed."""
    if path == "/v1/responses":
        items = [item for item in body["output"] if item["type"] == "message"]
        return "".join(part["text"] for item in items for part in item["content"])
    if path == "/v1/messages":
        return "".join(block["text"] for block in body["content"] if block["type"] == "text")
    choice = body["choices"][0]
    return str(choice["text"] if path == "/v1/completions" else choice["message"]["content"])


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "upstream_answer", [GREETING, completion("a"), CALL], ids=["text", "short", "call"]
)
async def test_34_a_stream_and_a_whole_answer_are_equal(
    f: Front, path: str, upstream_answer: dict[str, Any]
) -> None:
    f.world.swarm.answer = always(upstream_answer)
    streamed = await ask(f, path, {**BODIES[path], "stream": True})
    whole = await ask_json(f, path, BODIES[path])
    assert text_in(path, streamed.body) == text_of_whole(path, whole)
    if path == "/v1/responses":
        last = events(streamed.body)[-1][1]["response"]
        assert [_of_item(item) for item in last["output"]] == [
            _of_item(item) for item in whole["output"]
        ]


def _of_item(item: dict[str, Any]) -> Any:
    result = {name: item.get(name) for name in ("type", "name", "arguments", "role", "summary")}
    return result, [part.get("text") for part in item.get("content") or ()]
