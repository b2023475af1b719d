"""Checklist 35 to 44: legacy completions, Responses, Messages, and the routes beside them."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import ajet_swarm.api.watcher
from tests.conformance.forms import (
    CHAT,
    COMPLETIONS,
    MESSAGES,
    RESPONSES,
    TWO_CALLS,
    WEATHER,
    always,
    ask,
    ask_json,
    chunks,
    completion,
    front,
    settle,
    stream,
)
from tests.support.proxy.front import BODIES, Front, fronted
from tests.support.proxy.world import settings
from tests.support.scripted.swarm import Denied, ScriptedSwarm
from tests.support.wire import wire

SHORT = completion("TheTheThe user", finish="length", tokens=(1, 4, 0))
SAY = {"model": "tiny", "prompt": "Say", "max_tokens": 4}
ASKED = {"model": "tiny", "input": "Say hello.", "temperature": 0}
FUNCTION = {"type": "function", **WEATHER["function"]}
CLAUDES = {"name": "get_weather", "input_schema": WEATHER["function"]["parameters"]}

# --- legacy completions -------------------------------------------------------------------------


async def test_35_prompts_as_a_list(f: Front) -> None:
    f.world.swarm.answer = always(SHORT)
    assert (await ask(f, COMPLETIONS, {**SAY, "prompt": ["Say"]})).status == 200
    odd: tuple[tuple[Any, str], ...] = (
        (["Say", [1, 2]], "token ids"),
        (["Say"] * 257, "At most 256 prompts"),
        ([1, 2, 3], "token ids"),
        ([[1, 2]], "token ids"),
        ([], "non-empty"),
        ("", "non-empty"),
    )
    for prompt, why in odd:
        answer = await ask(f, COMPLETIONS, {**SAY, "prompt": prompt})
        assert (answer.status, answer.json()["error"]["param"]) == (400, "prompt")
        assert why in answer.json()["error"]["message"]


async def test_35_echo_and_logprobs(f: Front) -> None:
    entries = [
        {"token": token, "logprob": -0.5, "bytes": list(token.encode()), "top_logprobs": []}
        for token in ("The", "The", "The", " user")
    ]
    upstream_answer = completion("TheTheThe user", logprobs={"content": entries}, tokens=(1, 4, 0))
    f.world.swarm.answer = always(upstream_answer)
    (plain,) = (await ask_json(f, COMPLETIONS, {**SAY, "logprobs": 1}))["choices"]
    assert "".join(plain["logprobs"]["tokens"]) == plain["text"] == "TheTheThe user"
    assert plain["logprobs"]["token_logprobs"] == [-0.5] * 4
    assert plain["logprobs"]["text_offset"] == [0, 3, 6, 9]
    (echoed,) = (await ask_json(f, COMPLETIONS, {**SAY, "echo": True}))["choices"]
    assert echoed["text"] == "SayTheTheThe user"
    result = await chunks(f, {**SAY, "echo": True}, COMPLETIONS)
    assert "".join(chunk["choices"][0]["text"] for chunk in result) == echoed["text"]


# --- responses ----------------------------------------------------------------------------------


TEXT = {"type": "input_text", "text": "Say hello."}
CODEX: dict[str, Any] = {
    "model": "gpt-5-codex",
    "instructions": "You are a coding agent.",
    "input": [
        {"type": "message", "role": "developer", "content": [TEXT]},
        {"type": "message", "role": "user", "content": [TEXT]},
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [],
            "content": [{"type": "reasoning_text", "text": "hm"}],
            "encrypted_content": None,
        },
        {
            "type": "function_call",
            "call_id": "c1",
            "name": "get_weather",
            "arguments": '{"city": "Rome"}',
        },
        {"type": "function_call_output", "call_id": "c1", "output": "rain"},
        {"type": "custom_tool_call", "call_id": "c2", "name": "apply_patch", "input": "*** x"},
        {"type": "custom_tool_call_output", "call_id": "c2", "output": "done"},
        {"type": "message", "role": "user", "content": [TEXT]},
    ],
    "tools": [
        {**FUNCTION, "strict": False},
        {"type": "custom", "name": "apply_patch", "description": "d", "format": {"type": "text"}},
        {"type": "namespace", "name": "multi_agent_v1", "description": "d", "tools": [FUNCTION]},
        {"type": "web_search", "external_web_access": False},
    ],
    "tool_choice": "auto",
    "parallel_tool_calls": True,
    "reasoning": {"effort": "medium", "summary": "auto"},
    "store": False,
    "include": ["reasoning.encrypted_content"],
    "prompt_cache_key": "0199a213-81c0-7800-8aa1-bbab2a035a53",
    "client_metadata": {"session_id": "one"},
}
"""What Codex sends, in short."""


async def test_37_requests_of_codex_are_accepted(f: Front) -> None:
    f.world.swarm.answer = always(TWO_CALLS)
    result = await stream(f, RESPONSES, CODEX)
    whole = result[-1][1]["response"]
    assert [item["type"] for item in whole["output"]] == [
        "reasoning",
        "message",
        "function_call",
        "function_call",
    ]
    ids = [item["call_id"] for item in whole["output"][2:]]
    assert len({*ids, "c1", "c2"}) == 4
    assert json.loads(whole["output"][3]["arguments"]) == {"city": "Rome"}
    (body,) = {json.dumps(body) for _, body, _ in f.world.swarm.chats}
    names = [tool["function"]["name"] for tool in json.loads(body)["tools"]]
    assert "get_weather" in names
    assert "apply_patch" in names
    assert "web_search" not in body  # runs elsewhere: the model cannot call it
    # Its own output is the history of the next turn.
    again = {**CODEX, "input": [*CODEX["input"], *whole["output"], CODEX["input"][-1]]}
    assert (await ask(f, RESPONSES, {**again, "stream": True})).status == 200


async def test_38_nothing_is_stored(tmp_path: Path) -> None:
    async with fronted(tmp_path) as f:
        answer = await ask(f, RESPONSES, {**ASKED, "previous_response_id": "resp_1"})
        assert answer.status == 404
        assert "resp_1" in answer.json()["error"]["message"]
        assert not f.world.state.groups


@pytest.mark.parametrize("streams", [False, True])
async def test_38_a_thread_is_refused_before_anything_is_asked(
    tmp_path: Path, streams: bool
) -> None:
    """Only its newest message is sent: the policy would answer it without all the rest."""
    body = {**BODIES[MESSAGES], "thread": {"type": "create"}, "stream": streams}
    async with fronted(tmp_path) as f:
        answer = await ask(f, f"{MESSAGES}?beta=true", body)
        assert answer.status == 400
        details = answer.json()["error"]["details"]
        assert details == {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}
        assert not f.world.state.groups
        assert not f.world.swarm.claims


# --- messages -----------------------------------------------------------------------------------


async def test_39_two_calls_in_a_message(f: Front) -> None:
    f.world.swarm.answer = always(TWO_CALLS)
    content = (await ask_json(f, MESSAGES, {**BODIES[MESSAGES], "tools": [CLAUDES]}))["content"]
    assert [block["type"] for block in content] == ["thinking", "text", "tool_use", "tool_use"]
    assert [block["input"]["city"] for block in content[2:]] == ["Paris", "Rome"]
    assert len({block["id"] for block in content[2:]}) == 2


CLAUDE_CODE: dict[str, Any] = {
    "model": "claude-opus-4-6",
    "max_tokens": 32000,
    "system": [
        {"type": "text", "text": "You are Claude Code.", "cache_control": {"type": "ephemeral"}}
    ],
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "hi", "cache_control": {}}]},
        {"role": "system", "content": "The date has changed."},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "abc"},
                {"type": "tool_use", "id": "t1", "name": "get_weather", "input": {"city": "R"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": "rain", "is_error": False}
            ],
        },
    ],
    "tools": [{**CLAUDES, "cache_control": {"type": "ephemeral"}}],
    "thinking": {"type": "adaptive"},
    "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    "output_config": {"effort": "medium"},
    "metadata": {"user_id": '{"session_id": "5b0e"}'},
    "safeguards": [{"type": "dangerous_tool_use", "classifier_context": {"v": 1}}],
}
"""What Claude Code sends, in short."""


@pytest.mark.parametrize("streams", [False, True])
async def test_40_requests_of_claude_code_are_accepted(f: Front, streams: bool) -> None:
    betas = {
        "anthropic_version": "2023-06-01",
        "anthropic_beta": "claude-code-20250219,interleaved-thinking-2025-05-14,made-up-1",
        "x_app": "cli",
    }
    answer = await ask(
        f, f"{MESSAGES}?beta=true", {**CLAUDE_CODE, "stream": streams}, headers=betas
    )
    assert answer.status == 200, answer.body
    assert b"event: ping" not in answer.body  # none is needed for a quick answer
    for _, body, _ in f.world.swarm.chats:
        roles = [message["role"] for message in body["messages"]]
        assert roles == ["system", "user", "system", "assistant", "tool"]
        for name in ("thinking", "context_management", "output_config", "cache_control"):
            assert name not in body
        assert "safeguards" not in body


# --- the rest -----------------------------------------------------------------------------------


async def test_43_health_of_an_unreachable_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ajet_swarm.api.watcher, "GONE_FOR", 0.3)
    async with fronted(tmp_path) as f, wire(f.url) as one:
        await one.ask("GET", "/health")
        assert (await one.answer()).status == 200
        f.world.line.cut = True
        await f.world.until(lambda: not f.world.groups.serving, 10.0)
        for method, path in (("GET", "/health"), ("GET", "/ping"), ("POST", "/ping")):
            await one.ask(method, path)
            assert (await one.answer()).status == 503


async def test_44_metrics_and_version(tmp_path: Path) -> None:
    async with front(tmp_path) as f, wire(f.url) as line:
        assert (await ask(f, MESSAGES, BODIES[MESSAGES])).status == 200
        await line.ask("GET", "/metrics")
        answer = await line.answer()
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        for name in (
            "vllm:num_requests_running{",
            "vllm:num_requests_waiting{",
            'vllm:request_success_total{engine="0",finished_reason="stop",model_name="scripted"} 1',
        ):
            assert f"\n{name}" in answer.body.decode()
        await line.ask("GET", "/version")
        assert list((await line.answer()).json()) == ["version"]
        await line.ask("GET", "/load")
        assert (await line.answer()).body == b'{"server_load":0}'
        for method, path in (
            ("GET", "/tokenizer_info"),
            ("POST", "/v1/chat/completions/batch"),
            ("GET", "/v1/responses/resp_1"),
        ):
            await line.ask(method, path, {} if method == "POST" else None)
            assert (await line.answer()).status == 404
        f.world.swarm.delay = 60.0
        async with wire(f.url) as two:
            await two.ask("POST", CHAT, BODIES[CHAT])
            await f.world.until(lambda: f.world.swarm.chats)
            await line.ask("GET", "/load")
            assert (await line.answer()).body == b'{"server_load":1}'


PROMPT = {"model": "tiny", "max_tokens": 4}


async def echo_prompt(name: str, body: dict[str, Any], index: int) -> Any:
    """Answer with the text of the prompt."""
    result = body["messages"][-1]["content"]
    return completion(f"{result}!", tokens=(len(result), 5, 0))


MANY: dict[str, Any] = {**PROMPT, "prompt": ["Say", "Tell me", "Ask"], "n": 2, "echo": True}


async def test_35_each_of_several_prompts_is_a_group(f: Front) -> None:
    f.world.swarm.answer = echo_prompt
    whole = await ask_json(f, COMPLETIONS, MANY)
    texts = [f"{prompt}{prompt}!" for prompt in MANY["prompt"] for _ in range(2)]
    assert [choice["text"] for choice in whole["choices"]] == texts
    assert [choice["index"] for choice in whole["choices"]] == list(range(6))
    prompt_tokens = sum(map(len, MANY["prompt"]))
    assert (whole["usage"]["prompt_tokens"], whole["usage"]["completion_tokens"]) == (
        prompt_tokens,
        30,
    )
    assert whole["usage"]["total_tokens"] == prompt_tokens + 30
    assert sorted(group.query for group in f.world.state.groups.values()) == sorted(MANY["prompt"])
    more = {"stream_options": {"include_usage": True}}
    result = await chunks(f, {**MANY, **more, "user": "b", "stream": True}, COMPLETIONS)
    actual, ends = [""] * 6, [0] * 6
    for chunk in result[:-1]:
        (choice,) = chunk["choices"]
        actual[choice["index"]] += choice["text"]
        ends[choice["index"]] += choice["finish_reason"] is not None
    assert (actual, ends) == (texts, [1] * 6)
    usage = {name: count for name, count in whole["usage"].items() if count is not None}
    assert (result[-1]["choices"], result[-1]["usage"]) == ([], usage)
    assert len({chunk["id"] for chunk in result}) == 1


@pytest.mark.parametrize(("streams", "begun"), [(False, False), (True, False), (True, True)])
async def test_35_one_prompt_without_an_answer_is_an_error(
    f: Front, streams: bool, begun: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.api.handler.SOON", 0.0 if begun else 60.0)

    async def fails(name: str, body: dict[str, Any], index: int) -> Any:
        if body["messages"][-1]["content"] == "Ask":
            raise Denied(400, "no")
        return await echo_prompt(name, body, index)

    f.world.swarm.answer = fails
    answer = await ask(f, COMPLETIONS, {**MANY, "stream": streams})
    if begun:
        assert answer.body.endswith(b"data: [DONE]\n\n")
        assert b'"error":{' in answer.body
        assert b"Say!" not in answer.body
    else:
        assert answer.status >= 400


async def test_35_a_disconnect_frees_the_groups_of_all_prompts(tmp_path: Path) -> None:
    async with fronted(tmp_path) as f:
        held = asyncio.Event()

        async def waits(name: str, body: dict[str, Any], index: int) -> Any:
            await held.wait()
            return "late"

        f.world.swarm.answer = waits
        async with wire(f.url) as line:
            await line.ask("POST", COMPLETIONS, {**MANY, "stream": True})
            await line.head()
            await f.world.swarm.until(lambda: len(f.world.swarm.chats) >= 6)
        await asyncio.wait_for(settle(f), 20.0)
        held.set()


async def test_35_all_prompts_are_admitted_or_none(tmp_path: Path) -> None:
    limit = {"queue_limit": 2}
    async with (
        ScriptedSwarm(slots=0) as swarm,
        fronted(tmp_path, swarm, settings(proxy=limit)) as f,
        wire(f.url) as first,
    ):
        await first.ask("POST", COMPLETIONS, {**PROMPT, "prompt": "It waits"})
        await f.world.until(lambda: f.world.groups.waiting == 1)
        refused = await ask(f, COMPLETIONS, {**PROMPT, "prompt": ["It fits", "It does not"]})
        assert refused.status == 503
        await f.world.until(lambda: len(f.world.groups.runs) == 1)
        swarm.register(4)
        assert (await first.answer()).status == 200
        await settle(f)


async def test_35_many_prompts_count_as_one_request_of_their_session(tmp_path: Path) -> None:
    one_at_a_time = {"session_cap": 1, "session_calls": 2}
    headers = {"x-session-id": "one"}
    async with front(tmp_path, proxy=one_at_a_time) as f:
        f.world.swarm.answer = echo_prompt
        for prompts in (["a", "b", "c"], ["d", "e"]):
            body = {**PROMPT, "prompt": prompts}
            answer = await ask(f, COMPLETIONS, body, headers=headers)
            assert answer.status == 200
            assert len(answer.json()["choices"]) == len(prompts)
            await f.world.closed()  # released once, with its last group
        groups = f.world.state.groups.values()
        assert [group.turn for group in groups] == [1, 1, 1, 2, 2]
        refused = await ask(f, COMPLETIONS, {**PROMPT, "prompt": ["g", "h"]}, headers=headers)
        assert refused.status == 429
