"""Checklist 35 to 44: legacy completions, Responses, Messages, and the routes beside them."""

import json
from pathlib import Path
from typing import Any

import pytest

import ajet_swarm.api.watcher
from tests.conformance.forms import (
    CALL,
    CALM,
    CAPTURES,
    CHAT,
    COMPLETIONS,
    GREETING,
    MESSAGES,
    RESPONSES,
    TWO_CALLS,
    WEATHER,
    always,
    ask,
    ask_json,
    chunks,
    completion,
    events,
    same,
    scrubbed,
    settle,
    shape,
    shapes,
    stream,
)
from tests.support.proxy.front import BODIES, fronted
from tests.support.proxy.world import settings
from tests.support.scripted.swarm import ScriptedSwarm
from tests.support.wire import wire

SHORT = completion("TheTheThe user", finish="length", tokens=(1, 4, 0))
PROMPT = {"model": "tiny", "prompt": "Say", "max_tokens": 4}
ASKED = {"model": "tiny", "input": "Say hello.", "temperature": 0}
FUNCTION = {"type": "function", **WEATHER["function"]}
CLAUDES = {"name": "get_weather", "input_schema": WEATHER["function"]["parameters"]}

# --- legacy completions -------------------------------------------------------------------------


async def test_35_a_legacy_completion(tmp_path: Path) -> None:
    async with fronted(tmp_path, configured=settings(proxy=CALM)) as f:
        f.world.swarm.answer = always(SHORT)
        result = await ask_json(f, COMPLETIONS, PROMPT)
        same(scrubbed(result), CAPTURES["compl"]["body"])
        assert result["id"].startswith("cmpl-")
        body = {**PROMPT, "stream": True, "stream_options": {"include_usage": True}}
        actual = events((await ask(f, COMPLETIONS, body)).body)
        same(shapes(actual), CAPTURES["compl_stream"]["events"])
        assert result["usage"] | actual[-2][1]["usage"] == result["usage"]
        assert "".join(one["choices"][0]["text"] for _, one in actual[:-2]) == "TheTheThe user"
        await settle(f)


async def test_35_prompts_as_a_list(tmp_path: Path) -> None:
    async with fronted(tmp_path) as f:
        f.world.swarm.answer = always(SHORT)
        assert (await ask(f, COMPLETIONS, {**PROMPT, "prompt": ["Say"]})).status == 200
        odd: tuple[tuple[Any, str], ...] = (
            (["Say", [1, 2]], "token ids"),
            (["Say"] * 257, "At most 256 prompts"),
            ([1, 2, 3], "token ids"),
            ([[1, 2]], "token ids"),
            ([], "non-empty"),
            ("", "non-empty"),
        )
        for prompt, why in odd:
            answer = await ask(f, COMPLETIONS, {**PROMPT, "prompt": prompt})
            assert (answer.status, answer.json()["error"]["param"]) == (400, "prompt")
            assert why in answer.json()["error"]["message"]
        await settle(f)


async def test_35_echo_and_logprobs(tmp_path: Path) -> None:
    entries = [
        {"token": token, "logprob": -0.5, "bytes": list(token.encode()), "top_logprobs": []}
        for token in ("The", "The", "The", " user")
    ]
    upstream_answer = completion("TheTheThe user", logprobs={"content": entries}, tokens=(1, 4, 0))
    async with fronted(tmp_path) as f:
        f.world.swarm.answer = always(upstream_answer)
        (plain,) = (await ask_json(f, COMPLETIONS, {**PROMPT, "logprobs": 1}))["choices"]
        assert "".join(plain["logprobs"]["tokens"]) == plain["text"] == "TheTheThe user"
        assert plain["logprobs"]["token_logprobs"] == [-0.5] * 4
        assert plain["logprobs"]["text_offset"] == [0, 3, 6, 9]
        (echoed,) = (await ask_json(f, COMPLETIONS, {**PROMPT, "echo": True}))["choices"]
        assert echoed["text"] == "SayTheTheThe user"
        result = await chunks(f, {**PROMPT, "echo": True}, COMPLETIONS)
        assert "".join(one["choices"][0]["text"] for one in result) == echoed["text"]
        await settle(f)


# --- responses ----------------------------------------------------------------------------------


def vllm_events(name: str) -> Any:
    return json.loads(json.dumps(CAPTURES[name]["events"]))


@pytest.mark.parametrize(
    ("name", "upstream_answer", "more"),
    [
        ("resp_stream", GREETING, {}),
        ("resp_tool_stream", CALL, {"tools": [FUNCTION]}),
    ],
)
async def test_36_a_responses_stream(
    tmp_path: Path, name: str, upstream_answer: dict[str, Any], more: dict[str, Any]
) -> None:
    async with fronted(tmp_path, configured=settings(proxy=CALM)) as f:
        f.world.swarm.answer = always(upstream_answer)
        result = await stream(f, RESPONSES, {**ASKED, **more})
        assert [data["sequence_number"] for _, data in result] == list(range(len(result)))
        actual, wanted = shapes(result), vllm_events(name)
        assert [one[0] for one in actual] == [one[0] for one in wanted]
        for mine, theirs in zip(actual, wanted, strict=True):
            for one in (mine, theirs):  # vLLM fills in what its model would take
                one[1].get("response", {}).pop("max_output_tokens", None)
            same(mine, theirs)
        whole = result[-1][1]["response"]
        assert whole["status"] == "completed"
        message = upstream_answer["choices"][0]["message"]
        kinds = [one["type"] for one in whole["output"]]
        assert kinds[:2] == ["reasoning", "message"]
        assert whole["output"][0]["content"][0]["text"] == message["reasoning"]
        assert whole["output"][1]["content"][0]["text"] == message["content"]
        usage = upstream_answer["usage"]
        assert whole["usage"]["input_tokens"] == usage["prompt_tokens"]
        assert whole["usage"]["output_tokens"] == usage["completion_tokens"]
        assert whole["usage"]["output_tokens_details"]["reasoning_tokens"] == 8 or more
        await settle(f)


async def test_36_a_whole_response(tmp_path: Path) -> None:
    async with fronted(tmp_path) as f:
        f.world.swarm.answer = always(GREETING)
        result, wanted = scrubbed(await ask_json(f, RESPONSES, ASKED)), CAPTURES["resp"]["body"]
        assert list(result) == list(wanted)
        same({**result, "max_output_tokens": 4079}, wanted)
        await settle(f)


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


async def test_37_requests_of_codex_are_accepted(tmp_path: Path) -> None:
    async with fronted(tmp_path) as f:
        f.world.swarm.answer = always(TWO_CALLS)
        result = await stream(f, RESPONSES, CODEX)
        whole = result[-1][1]["response"]
        assert [one["type"] for one in whole["output"]] == [
            "reasoning",
            "message",
            "function_call",
            "function_call",
        ]
        ids = [one["call_id"] for one in whole["output"][2:]]
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
        await settle(f)


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


@pytest.mark.parametrize(
    ("name", "upstream_answer", "more"),
    [("msg_stream", GREETING, {}), ("msg_tool_stream", CALL, {"tools": [CLAUDES]})],
)
async def test_39_a_messages_stream(
    tmp_path: Path, name: str, upstream_answer: dict[str, Any], more: dict[str, Any]
) -> None:
    async with fronted(tmp_path, configured=settings(proxy=CALM)) as f:
        f.world.swarm.answer = always(upstream_answer)
        result = await stream(f, MESSAGES, {**BODIES[MESSAGES], **more})
        same(shapes(result), CAPTURES[name]["events"])
        assert [name for name, _ in result][-1] == "message_stop"
        last = result[-2][1]
        assert last["delta"]["stop_reason"] == ("tool_use" if more else "end_turn")
        begun = result[0][1]["message"]["usage"]
        # the message starts before the upstream reports its usage
        assert begun["input_tokens"] != upstream_answer["usage"]["prompt_tokens"]
        assert last["usage"] == {
            "input_tokens": upstream_answer["usage"]["prompt_tokens"],
            "output_tokens": upstream_answer["usage"]["completion_tokens"],
        }
        if more:
            actual = [one["delta"].get("partial_json", "") for _, one in result if "delta" in one]
            assert json.loads("".join(actual)) == {"city": "Paris"}
        await settle(f)


async def test_39_a_whole_message(tmp_path: Path) -> None:
    async with fronted(tmp_path) as f:
        f.world.swarm.answer = always(GREETING)
        result = await ask_json(f, MESSAGES, BODIES[MESSAGES])
        same(scrubbed(result), CAPTURES["msg"]["body"])
        f.world.swarm.answer = always(TWO_CALLS)
        body = {**BODIES[MESSAGES], "tools": [CLAUDES]}
        content = (await ask_json(f, MESSAGES, body))["content"]
        assert [one["type"] for one in content] == ["thinking", "text", "tool_use", "tool_use"]
        assert [one["input"]["city"] for one in content[2:]] == ["Paris", "Rome"]
        assert len({one["id"] for one in content[2:]}) == 2
        await settle(f)


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
async def test_40_requests_of_claude_code_are_accepted(tmp_path: Path, streams: bool) -> None:
    betas = {
        "anthropic_version": "2023-06-01",
        "anthropic_beta": "claude-code-20250219,interleaved-thinking-2025-05-14,made-up-1",
        "x_app": "cli",
    }
    async with fronted(tmp_path) as f:
        answer = await ask(
            f, f"{MESSAGES}?beta=true", {**CLAUDE_CODE, "stream": streams}, headers=betas
        )
        assert answer.status == 200, answer.body
        assert b"event: ping" not in answer.body  # none is needed for a quick answer
        for _, body, _ in f.world.swarm.chats:
            roles = [one["role"] for one in body["messages"]]
            assert roles == ["system", "user", "system", "assistant", "tool"]
            for name in ("thinking", "context_management", "output_config", "cache_control"):
                assert name not in body
            assert "safeguards" not in body
        await settle(f)


# --- the rest -----------------------------------------------------------------------------------


async def test_42_the_models(tmp_path: Path) -> None:
    async with ScriptedSwarm() as server:
        server.model = "/models/tiny"
        async with fronted(tmp_path, server) as f, wire(f.url) as one:
            await f.world.until(lambda: f.world.server.watcher.pool)
            await one.ask("GET", "/v1/models")
            answer = await one.answer()
            wanted = json.loads(json.dumps(CAPTURES["models"]["body"]))
            wanted["data"][0]["max_model_len"] = None  # a swarm server does not report it
            same(shape(scrubbed(answer.json())), shape(wanted))
            await one.ask("GET", "/v1/models/tiny")
            same(scrubbed((await one.answer()).json()), scrubbed(answer.json()["data"][0]))


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
    async with fronted(tmp_path) as f, wire(f.url) as one:
        assert (await ask(f, MESSAGES, BODIES[MESSAGES])).status == 200
        await one.ask("GET", "/metrics")
        answer = await one.answer()
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        for name in (
            "vllm:num_requests_running{",
            "vllm:num_requests_waiting{",
            'vllm:request_success_total{engine="0",finished_reason="stop",model_name="scripted"} 1',
        ):
            assert f"\n{name}" in answer.body.decode()
        await one.ask("GET", "/version")
        assert list((await one.answer()).json()) == ["version"]
        await one.ask("GET", "/load")
        assert (await one.answer()).body == b'{"server_load":0}'
        for method, path in (
            ("GET", "/tokenizer_info"),
            ("POST", "/v1/chat/completions/batch"),
            ("GET", "/v1/responses/resp_1"),
        ):
            await one.ask(method, path, {} if method == "POST" else None)
            assert (await one.answer()).status == 404
        f.world.swarm.delay = 60.0
        async with wire(f.url) as two:
            await two.ask("POST", CHAT, BODIES[CHAT])
            await f.world.until(lambda: f.world.swarm.chats)
            await one.ask("GET", "/load")
            assert (await one.answer()).body == b'{"server_load":1}'
        await settle(f)
