"""Checklist 12 to 25 and 29 to 34: chat completions, against a real vLLM's. From raw bytes."""

from pathlib import Path
from typing import Any

import pytest

from core.state import Group
from proxy.dialects.chat.writer import fingerprint
from tests.conformance.forms import (
    CALL,
    CALM,
    CAPTURES,
    CHAT,
    GREETING,
    HELLO,
    PATHS,
    TOOLED,
    always,
    ask,
    ask_json,
    chunks,
    completion,
    each,
    same,
    scrubbed,
    settle,
    shapes,
    stream,
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


# --- shapes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "body", "upstream_answer"),
    [
        ("chat", HELLO, GREETING),
        (
            "chat_length",
            {**HELLO, "max_tokens": 5},
            completion(None, reasoning="\nThe user wants", finish="length", tokens=(17, 5, 4)),
        ),
        (
            "tool",
            TOOLED,
            completion(
                None,
                reasoning="\nI need the tool.\n",
                calls=[("get_weather", '{"city": "Paris"}')],
                tokens=(42, 33, 7),
            ),
        ),
    ],
)
async def test_12_non_stream_key_set(
    tmp_path: Path, name: str, body: dict[str, Any], upstream_answer: dict[str, Any]
) -> None:
    async with fronted(tmp_path) as f:
        f.world.swarm.answer = always(upstream_answer)
        result = await ask_json(f, CHAT, body)
        same(scrubbed(result), CAPTURES[name]["body"])
        assert result["id"].startswith("chatcmpl-")
        assert len(result["id"]) == len("chatcmpl-") + 16
        assert result["system_fingerprint"] == fingerprint()
        await settle(f)


@pytest.mark.parametrize("answer", ["best", "live"])
@pytest.mark.parametrize(("name", "more"), [("chat_stream", {}), ("chat_stream_usage", USAGE)])
async def test_13_chunk_sequence(
    tmp_path: Path, name: str, more: dict[str, Any], answer: str
) -> None:
    async with fronted(tmp_path, configured=settings(proxy={"answer": answer, **CALM})) as f:
        f.world.swarm.answer = always(GREETING)
        f.world.swarm.streaming = "tokens"
        result = await stream(f, CHAT, {**HELLO, **more})
        same(shapes(result), CAPTURES[name]["events"])
        message = GREETING["choices"][0]["message"]
        actual = [data for _, data in result if data != "[DONE]"]
        assert text_of(actual) == message["content"]
        assert text_of(actual, "reasoning") == message["reasoning"]
        await settle(f)


async def test_14_usage_only_when_requested(tmp_path: Path) -> None:
    async with fronted(tmp_path) as f:
        f.world.swarm.answer = always(GREETING)
        options: tuple[dict[str, Any], ...] = (
            {},
            {"stream_options": {}},
            {"stream_options": {"include_usage": False}},
        )
        for more in options:
            assert not any("usage" in chunk for chunk in await chunks(f, {**HELLO, **more}))
        result = await chunks(f, {**HELLO, **USAGE})
        assert not any("usage" in one for one in result[:-1])
        assert result[-1]["choices"] == []
        whole = (await ask_json(f, CHAT, HELLO))["usage"]
        assert result[-1]["usage"] == {k: v for k, v in whole.items() if v is not None}
        # Of the winner alone, whatever the group has cost.
        assert (whole["prompt_tokens"], whole["completion_tokens"]) == (17, 23)
        await settle(f)


async def test_15_continuous_usage(tmp_path: Path) -> None:
    more = {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}
    async with fronted(tmp_path) as f:
        f.world.swarm.answer = always(GREETING)
        result = await chunks(f, {**HELLO, **more})
        running = [one["usage"]["completion_tokens"] for one in result]
        assert running == sorted(running)
        assert (running[0], running[-1]) == (0, 23)
        for one in result:
            usage = one["usage"]
            assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
            assert usage["prompt_tokens"] > 0
        again = await chunks(f, {**HELLO, **more, "user": "another"})  # its length is known now
        assert {one["usage"]["prompt_tokens"] for one in again} == {17}
        await settle(f)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
async def test_16_done_comes_last_and_once(
    tmp_path: Path, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.api.handler.SOON", 0.0)
    async with fronted(tmp_path, configured=settings(rewards={"retries": 0})) as f:
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
        await settle(f)


async def test_17_one_id_one_time_one_model(tmp_path: Path) -> None:
    async with fronted(tmp_path) as f:
        ids = set()
        for alias in ("tiny", "gpt-4o", "org/some-model:7b"):
            result = await chunks(f, {**HELLO, **USAGE, "model": alias, "n": 2})
            (head,) = {(one["id"], one["created"], one["model"]) for one in result}
            assert head[2] == alias
            ids.add(head[0])
        assert len(ids) == 3
        await settle(f)


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
    tmp_path: Path, upstream_answer: dict[str, Any], reason: str, stop: Any
) -> None:
    async with fronted(tmp_path) as f:
        f.world.swarm.answer = always(upstream_answer)
        whole = (await ask_json(f, CHAT, TOOLED))["choices"][0]
        streamed = [choice for chunk in await chunks(f, TOOLED) for choice in chunk["choices"]]
        for last in (whole, streamed[-1]):
            assert (last["finish_reason"], last["stop_reason"]) == (reason, stop)
        assert {one["finish_reason"] for one in streamed[:-1]} == {None}
        await settle(f)


@pytest.mark.parametrize("answer", ["best", "live"])
@pytest.mark.parametrize(
    ("text", "reasoning", "finish"),
    [(None, None, "stop"), ("", None, "length"), (None, "\nThe user wants", "length")],
)
async def test_18_an_empty_answer_is_valid(
    tmp_path: Path, text: str | None, reasoning: str | None, finish: str, answer: str
) -> None:
    upstream_answer = completion(text, reasoning=reasoning, finish=finish, tokens=(17, 1, 1))
    async with fronted(tmp_path, configured=settings(proxy={"answer": answer, **CALM})) as f:
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
                texts = [one["message"]["content"] for one in result["choices"]]
                assert [one["index"] for one in result["choices"]] == [0, 1, 2]
                usage = result["usage"]
            else:
                actual = await chunks(f, body)
                texts = [text_of(actual, index=at) for at in range(3)]
                roles = [one["choices"][0] for one in actual[:3]]
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


async def test_20_seed_and_temperature(tmp_path: Path) -> None:
    own = {"seed": 7, "temperature": 0.25}
    async with fronted(tmp_path) as f:
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
        await settle(f)


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
    async with fronted(tmp_path, configured=settings(proxy={"answer": "best"})) as f:
        f.world.swarm.answer = each(*upstream_answers)
        choice = (await ask_json(f, CHAT, body))["choices"][0]
        assert _decoded(choice["logprobs"]["content"]) == choice["message"]["content"]
        assert list(choice["logprobs"]["content"][0]) == list(
            CAPTURES["chat_logprobs"]["body"]["choices"][0]["logprobs"]["content"][0]
        )
        f.world.swarm.answer = each(*upstream_answers)
        result = await chunks(f, body)
        entries = [
            entry
            for one in result
            for entry in (one["choices"][0]["logprobs"] or {}).get("content", ())
        ]
        assert _decoded(entries) == text_of(result)
        assert text_of(result) in texts
        await settle(f)


def _decoded(entries: list[Any]) -> str:
    return b"".join(bytes(entry["bytes"]) for entry in entries).decode()


async def test_22_token_ids_are_the_winners(tmp_path: Path) -> None:
    upstream_answers = [
        {**completion(f"text {at}", token_ids=[at, at]), "prompt_token_ids": [9]} for at in range(4)
    ]
    async with fronted(tmp_path) as f:
        f.world.swarm.answer = each(*upstream_answers)
        result = await ask_json(f, CHAT, {**HELLO, "return_token_ids": True})
        choice = result["choices"][0]
        assert choice["message"]["content"] == f"text {choice['token_ids'][0]}"
        assert result["prompt_token_ids"] == [9]
        f.world.swarm.answer = each(*upstream_answers)
        actual = await chunks(f, {**HELLO, "return_token_ids": True})
        (ids,) = [one["choices"][0]["token_ids"] for one in actual if _ids(one)]
        assert text_of(actual) == f"text {ids[0]}"
        await settle(f)


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
async def test_23_24_25_31_33_fields_pass_untouched(
    tmp_path: Path, item: str, stream: bool
) -> None:
    more = PASSED[item]
    async with fronted(tmp_path) as f:
        answer = await ask(f, CHAT, {**HELLO, **more, "stream": stream})
        assert answer.status == 200
        assert len(upstream_bodies(f)) == 4
        for body in upstream_bodies(f):
            same({name: body[name] for name in more}, more)
        await settle(f)
