"""A streamed completion is put together again, from bytes."""

import asyncio
import contextlib
import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ajet_swarm.api.chat import OVERFLOW, ChatAnswer, ChatStream, EventSplitter, chat_answer
from ajet_swarm.api.wire import SwarmWire
from ajet_swarm.http.interface import Response
from ajet_swarm.http.transport import HttpTransport
from ajet_swarm.protocol.errors import ChatError, ChatErrorKind, TooLarge
from tests.support.scripted.swarm import Cut, Denied, ScriptedSwarm
from tests.unit.ajet_swarm.helpers import HELLO, claimed

DONE = b"data: [DONE]\n\n"


def chunk(delta: dict[str, Any], finish: str | None = None, **more: Any) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish, **more.pop("choice", {})}
    return event({"id": "c", "object": "chat.completion.chunk", "choices": [choice], **more})


def event(data: Any) -> bytes:
    return b"data: " + json.dumps(data).encode() + b"\n\n"


def read(*parts: bytes) -> tuple[ChatAnswer, list[dict[str, Any]]]:
    deltas: list[dict[str, Any]] = []
    stream = ChatStream(deltas.append)
    for part in parts:
        stream.feed(part)
    return stream.finish(), deltas


def test_text_reasoning_usage_and_what_servers_add() -> None:
    answer, deltas = read(
        b": keepalive\n\n",
        chunk({"role": "assistant", "content": ""}, model="m", ajetc={"truncated": True}),
        chunk({"reasoning": "Hm"}),
        chunk({"reasoning": "."}),
        chunk({"content": "Hel"}, choice={"logprobs": {"content": [{"token": "Hel"}]}}),
        chunk({"content": "lo"}, choice={"logprobs": {"content": [{"token": "lo"}]}}),
        chunk({}, "stop", choice={"stop_reason": "END", "token_ids": [1, 2]}),
        event({"id": "c", "choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}}),
        DONE,
    )
    assert deltas == [
        {"reasoning": "Hm"},
        {"reasoning": "."},
        {"content": "Hel"},
        {"content": "lo"},
    ]
    assert answer.message == {"role": "assistant", "content": "Hello", "reasoning": "Hm."}
    assert (answer.finish_reason, answer.usage["prompt_tokens"]) == ("stop", 3)
    choice = answer.parsed["choices"][0]
    assert choice["logprobs"] == {"content": [{"token": "Hel"}, {"token": "lo"}]}
    assert (choice["stop_reason"], choice["token_ids"]) == ("END", [1, 2])
    assert answer.parsed["ajetc"] == {"truncated": True}
    assert json.loads(answer.body) == answer.parsed
    assert answer.parsed["object"] == "chat.completion"


def test_parallel_tool_calls_by_index() -> None:
    def part(index: int, **fields: Any) -> bytes:
        return chunk({"content": None, "tool_calls": [{"index": index, **fields}]})

    answer, deltas = read(
        part(0, id="a", type="function", function={"name": "f"}),
        part(0, function={"arguments": '{"x"'}),
        part(1, id="b", type="function", function={"name": "g", "arguments": ""}),
        part(0, function={"arguments": ": 1}"}),
        part(1, function={"arguments": "{}"}),
        chunk({}, "tool_calls"),
        DONE,
    )
    calls = answer.message["tool_calls"]
    assert [(call["id"], call["function"]["name"]) for call in calls] == [("a", "f"), ("b", "g")]
    assert [call["function"]["arguments"] for call in calls] == ['{"x": 1}', "{}"]
    call_deltas = [delta["tool_calls"][0] for delta in deltas]
    assert [delta["index"] for delta in call_deltas] == [0, 0, 1, 0, 1]
    assert call_deltas[0] == {"id": "a", "type": "function", "index": 0, "function": {"name": "f"}}
    assert call_deltas[1] == {"index": 0, "function": {"arguments": '{"x"'}}
    assert answer.message["content"] is None


@pytest.mark.parametrize("index", [{}, {"index": 0}])
def test_whole_calls_in_one_delta_with_useless_indices(index: dict[str, int]) -> None:
    calls = [
        {**index, "id": name, "function": {"name": name, "arguments": {"n": name}}} for name in "ab"
    ]
    answer, deltas = read(chunk({"tool_calls": calls}), chunk({}, "tool_calls"), DONE)
    assert [call["id"] for call in answer.message["tool_calls"]] == ["a", "b"]
    assert answer.message["tool_calls"][1]["function"]["arguments"] == '{"n":"b"}'
    assert [delta["tool_calls"][0]["index"] for delta in deltas] == [0, 0, 1, 1]
    assert "arguments" not in deltas[0]["tool_calls"][0]["function"]


@pytest.mark.parametrize("function", [{"arguments": ""}, {"arguments": None}, {}])
def test_calls_without_arguments_have_an_empty_object(function: dict[str, Any]) -> None:
    calls = [{"index": n, "id": f"c{n}", "function": {"name": "f", **function}} for n in range(2)]
    answer, deltas = read(chunk({"tool_calls": calls}), chunk({}, "tool_calls"), DONE)
    assert [call["function"]["arguments"] for call in answer.message["tool_calls"]] == ["{}", "{}"]
    parts = [delta["tool_calls"][0] for delta in deltas]
    assert parts[2:] == [{"index": n, "function": {"arguments": "{}"}} for n in range(2)]


def test_a_call_without_an_id_gets_one() -> None:
    answer, _ = read(
        chunk({"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": "{}"}}]}),
        chunk({}, "tool_calls"),
        DONE,
    )
    assert answer.message["tool_calls"][0]["id"].startswith("chatcmpl-tool-")


@pytest.mark.parametrize(
    "parts",
    [
        (),
        (b": keepalive\n\n",),
        (chunk({"content": "half"}),),
        (chunk({"content": "half"}), DONE),
        (chunk({"content": "whole"}, "stop"),),
        (chunk({"content": "whole"}, "stop"), DONE.strip()),
    ],
)
def test_a_stream_that_ends_early_is_a_failure(parts: tuple[bytes, ...]) -> None:
    with pytest.raises(ChatError, match="ended too early") as caught:
        read(*parts)
    assert caught.value.kind is ChatErrorKind.BROKEN


@pytest.mark.parametrize(
    ("result", "kind", "text"),
    [
        (
            {"error": {"message": "boom", "code": 500}},
            ChatErrorKind.UPSTREAM,
            "boom",
        ),
        ({"error": "boom"}, ChatErrorKind.UPSTREAM, "boom"),
        (
            {"error": {"message": "Episode x not found.", "code": 404}},
            ChatErrorKind.LOST_EPISODE,
            "not found",
        ),
        ({"status_code": 401, "detail": "bad key"}, ChatErrorKind.UNAUTHORIZED, "bad key"),
        ({"error": {"message": "late", "code": 200}}, ChatErrorKind.UPSTREAM, "late"),
        ({"hello": 1}, ChatErrorKind.UPSTREAM, ""),
        ([], ChatErrorKind.UPSTREAM, "not a chat chunk"),
    ],
)
def test_errors_in_the_stream(result: Any, kind: ChatErrorKind, text: str) -> None:
    with pytest.raises(ChatError) as caught:
        read(chunk({"content": "half"}), event(result), DONE)
    assert caught.value.kind is kind
    assert text in caught.value.text


def test_a_context_overflow_error_is_not_streamed_as_text() -> None:
    deltas: list[dict[str, Any]] = []
    stream = ChatStream(deltas.append)
    for part in (OVERFLOW[:9], OVERFLOW[9:], " 3000 tokens"):
        stream.feed(chunk({"content": part}))
    stream.feed(chunk({}, "length") + DONE)
    with pytest.raises(ChatError) as caught:
        stream.finish()
    assert caught.value.kind is ChatErrorKind.OVERFLOW
    assert not deltas


@pytest.mark.parametrize("text", [OVERFLOW[:9], "A", "\n"])
def test_text_held_back_as_a_possible_error_is_delivered_at_the_end(text: str) -> None:
    answer, deltas = read(chunk({"content": text}), chunk({}, "stop"), DONE)
    assert deltas == [{"content": text}]
    assert answer.text == text


def test_leading_blanks_are_held_until_visible_text_follows() -> None:
    deltas: list[dict[str, Any]] = []
    stream = ChatStream(deltas.append)
    stream.feed(chunk({"reasoning": "\n"}) + chunk({"content": "\n"}))
    assert not deltas
    stream.feed(chunk({"content": "Hi"}))
    assert deltas == [{"reasoning": "\n"}, {"content": "\n"}, {"content": "Hi"}]


def test_only_the_first_choice_counts_and_nothing_after_the_end() -> None:
    answer, _ = read(
        event({"choices": [{"index": 1, "delta": {"content": "other"}}]}),
        chunk({"content": "mine"}, "stop"),
        DONE + event({"error": {"message": "too late"}}),
    )
    assert answer.text == "mine"


_WIRE = (
    chunk({"content": "héllo 👋"})
    + b": comment\r\n\r\n"
    + b"event: x\nid: 3\n"
    + chunk({"content": " wörld"}, "stop").replace(b"\n", b"\r\n")
    + DONE
)


@pytest.mark.slow
@given(st.lists(st.integers(0, len(_WIRE)), max_size=12))
def test_the_result_does_not_depend_on_chunk_boundaries(cuts: list[int]) -> None:
    bounds = [0, *sorted(cuts), len(_WIRE)]
    parts = [_WIRE[start:end] for start, end in itertools.pairwise(bounds)]
    assert read(*parts)[0].text == "héllo 👋 wörld"


@given(st.binary(max_size=300))
def test_bytes_of_any_kind_are_an_answer_or_a_chat_error(data: bytes) -> None:
    with contextlib.suppress(ChatError):
        read(data, b"\n\n", DONE)


def test_data_of_several_lines() -> None:
    assert EventSplitter().feed(b"data: a\ndata:b\n\n\ndata: c\n\n") == [b"a\nb", b"c"]


def test_a_broken_character_or_number_does_not_lose_the_answer() -> None:
    broken = (
        b'{"index":0,"delta":{"content":"\\ud83d half"},"logprobs":{"content":[NaN,-Infinity]}}'
    )
    answer, deltas = read(
        b'data: {"id":"c","choices":[' + broken + b"]}\n\n", chunk({}, "stop"), DONE
    )
    assert deltas == [{"content": "\ufffd half"}]
    assert answer.text == "\ufffd half"
    assert answer.parsed["choices"][0]["logprobs"] == {"content": [None, None]}


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b'"\\ud83d half"', "\ufffd half"),
        (b'"\\ude00\\ud83d"', "\ufffd\ufffd"),
        (b'"\\ud83d\\ude00"', "\U0001f600"),
        (b'"bytes \xff"', "bytes \ufffd"),
    ],
)
def test_a_complete_answer_is_parsed_as_leniently_as_a_stream(raw: bytes, text: str) -> None:
    body = b'{"choices":[{"message":{"role":"assistant","content":%s}}],"usage":{"x":Infinity}}'
    answer = chat_answer(Response(200, {}, body % raw), "here")
    assert answer.text == text
    assert answer.usage == {"x": None}


@pytest.mark.parametrize("body", [b'{"a":NaN', b"NaN", b"[]", b"\xff\xfe", b"[" * 100_000])
def test_an_answer_that_is_not_json_is_an_error(body: bytes) -> None:
    with pytest.raises(ChatError, match="not a JSON object"):
        chat_answer(Response(200, {}, body), "here")


CALLS = {
    "content": "Let me see.",
    "reasoning": "A tool will do.",
    "tool_calls": [
        {"id": "t1", "type": "function", "function": {"name": "look", "arguments": '{"at": 1}'}}
    ],
}


@pytest.mark.parametrize("how", ["three", "keepalive", "tokens", "whole"])
async def test_the_answer_is_that_of_a_call_without_a_stream(
    client: SwarmWire, server: ScriptedSwarm, how: str
) -> None:
    server.streaming = how

    async def answer(name: str, body: dict[str, Any], index: int) -> Any:
        await asyncio.sleep(0.03)
        result = dict(CALLS)
        if how in ("three", "keepalive"):
            del result["reasoning"]  # the emulation drops it
        return result

    server.answer = answer
    deltas: list[dict[str, Any]] = []
    streamed = await client.chat(await claimed(client), HELLO, on_delta=deltas.append)
    whole = await client.chat(await claimed(client), HELLO)
    shown = ("content", "reasoning", "tool_calls")
    assert {name: streamed.message.get(name) for name in shown} == {
        name: whole.message.get(name) for name in shown
    }
    assert streamed.finish_reason == whole.finish_reason == "tool_calls"
    assert streamed.usage == whole.usage
    result = "".join(delta.get("content") or "" for delta in deltas)
    assert result == ("" if how == "whole" else "Let me see.")
    assert server.chats[0][1]["stream_options"] == {"include_usage": True}
    await asyncio.sleep(0)
    assert server.connections == 1  # the stream's connection was used again


async def test_deltas_arrive_before_the_end(client: SwarmWire, server: ScriptedSwarm) -> None:
    server.streaming = "tokens"
    gate, delta_arrived = asyncio.Event(), asyncio.Event()

    async def on_token(name: str, index: int) -> None:
        if index == 2:
            await gate.wait()

    server.on_token = on_token
    episode = await claimed(client)
    async with asyncio.timeout(100), asyncio.TaskGroup() as group:
        work = group.create_task(
            asyncio.wait_for(
                client.chat(episode, HELLO, on_delta=lambda _: delta_arrived.set()), 30
            )
        )
        await delta_arrived.wait()
        assert not work.done()
        gate.set()


async def _breaks(name: str, index: int) -> None:
    if index == 2:
        raise Cut


@pytest.mark.parametrize(
    ("how", "fault", "kind"),
    [
        ("tokens", "cut", ChatErrorKind.UNREACHABLE),
        ("keepalive", RuntimeError("worker"), ChatErrorKind.UNREACHABLE),
        ("three", RuntimeError("worker"), ChatErrorKind.UPSTREAM),
        ("three", Denied(404, "Episode x not found."), ChatErrorKind.LOST_EPISODE),
        ("three", Denied(400, "the maximum context length is 9"), ChatErrorKind.OVERFLOW),
    ],
)
async def test_faults(
    client: SwarmWire, server: ScriptedSwarm, how: str, fault: Any, kind: ChatErrorKind
) -> None:
    server.streaming = how

    async def answer(name: str, body: dict[str, Any], index: int) -> Any:
        return "one two three" if fault == "cut" else fault

    server.answer = answer
    if fault == "cut":
        server.on_token = _breaks
    with pytest.raises(ChatError) as caught:
        await client.chat(await claimed(client), HELLO, on_delta=lambda _: None)
    assert caught.value.kind is kind


async def test_a_bad_key_in_a_200(client: SwarmWire, server: ScriptedSwarm) -> None:
    episode = await claimed(client)
    wrong = type(episode)(**{**_facts(episode), "api_key": "sk-ajet-nonsense"})
    with pytest.raises(ChatError) as caught:
        await client.chat(wrong, HELLO, on_delta=lambda _: None)
    assert caught.value.kind is ChatErrorKind.UNAUTHORIZED


def _facts(episode: Any) -> dict[str, Any]:
    return {name: getattr(episode, name) for name in episode.__slots__}


async def test_a_silent_stream_ends_at_its_time_limit(
    client: SwarmWire, server: ScriptedSwarm
) -> None:
    server.streaming = "keepalive"
    server.delay = 30.0
    with pytest.raises(ChatError) as caught:
        await client.chat(await claimed(client), HELLO, on_delta=lambda _: None, timeout=0.2)
    assert caught.value.kind is ChatErrorKind.TIMED_OUT


async def test_an_unreachable_server_is_an_error() -> None:
    async with HttpTransport() as transport, ScriptedSwarm() as server:
        client = SwarmWire(server.url, transport, "me")
        episode = await claimed(client)
        unreachable = type(episode)(**{**_facts(episode), "base_url": "http://127.0.0.1:9/v1"})
        with pytest.raises(ChatError) as caught:
            await client.chat(unreachable, HELLO, on_delta=lambda _: None)
        assert caught.value.kind is ChatErrorKind.UNREACHABLE


async def test_a_stream_is_bounded() -> None:
    async with HttpTransport(largest=1000) as transport, ScriptedSwarm() as server:
        client = SwarmWire(server.url, transport, "me")

        async def answer(name: str, body: dict[str, Any], index: int) -> str:
            return "x" * 2000

        server.answer = answer
        with pytest.raises(ChatError) as caught:
            await client.chat(await claimed(client), HELLO, on_delta=lambda _: None)
        assert caught.value.kind is ChatErrorKind.OVERSIZED
        assert isinstance(caught.value.__cause__, TooLarge)
