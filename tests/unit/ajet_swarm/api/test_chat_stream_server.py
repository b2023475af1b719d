"""Streamed chat calls against a server that streams in all the known ways."""

import asyncio
from typing import Any

import pytest

from ajet_swarm.api.wire import SwarmWire
from ajet_swarm.http.transport import HttpTransport
from ajet_swarm.protocol.errors import ChatError, ChatErrorKind, TooLarge
from tests.support.scripted.swarm import Cut, Denied, ScriptedSwarm
from tests.unit.ajet_swarm.helpers import HELLO, claimed

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
