"""The stock OpenAI client against the fake vLLM, over loopback: what applications do with it."""

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from core.settings import Settings
from tests.support.engine.agent_swarm import DONE, agent_swarm
from tests.support.proxy.front import Front, fronted
from tests.support.proxy.world import settings

if TYPE_CHECKING:
    from openai import AsyncOpenAI

REPEAT = 3
FUNCTION: dict[str, Any] = {
    "name": "get_word",
    "description": "Tells a word.",
    "parameters": {
        "type": "object",
        "properties": {"of": {"type": "string"}, "how_often": {"type": "integer", "minimum": 2}},
        "required": ["of", "how_often"],
    },
}
CHAT_TOOL: dict[str, Any] = {"type": "function", "function": FUNCTION}
RESPONSES_TOOL: dict[str, Any] = {"type": "function", "strict": False, **FUNCTION}
BOTH = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])


@contextlib.asynccontextmanager
async def application(
    home: Path, configured: Settings | None = None
) -> AsyncIterator["tuple[AsyncOpenAI, Front]"]:
    """A client as an application makes it, and the proxy it asks."""
    import openai  # half a second, and each worker collects all tests

    async with (
        agent_swarm(repeat=REPEAT) as swarm,
        fronted(home, swarm, configured) as front,
        openai.AsyncOpenAI(
            base_url=f"{front.url}/v1", api_key="any", max_retries=0, timeout=60.0
        ) as client,
    ):
        yield client, front


async def chat(client: "AsyncOpenAI", stream: bool, messages: list[Any], **more: Any) -> Any:
    """One completion, streamed or whole."""
    if not stream:
        return await client.chat.completions.create(model="gpt-5", messages=messages, **more)
    usage = {"include_usage": True}
    request = {"model": "gpt-5", "messages": messages, "stream_options": usage, **more}
    async with client.chat.completions.stream(**request) as events:
        async for _ in events:
            pass
        return await events.get_final_completion()


async def respond(client: "AsyncOpenAI", stream: bool, input_items: list[Any], **more: Any) -> Any:
    """One response, streamed or whole."""
    if not stream:
        return await client.responses.create(model="gpt-5", input=input_items, **more)
    async with client.responses.stream(model="gpt-5", input=input_items, **more) as events:
        numbers = [event.sequence_number async for event in events]
        assert numbers == list(range(len(numbers)))
        return await events.get_final_response()


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


# --- chat completions ---------------------------------------------------------------------------


@BOTH
async def test_a_text_turn(tmp_path: Path, stream: bool) -> None:
    async with application(tmp_path) as (client, front):
        result = await chat(client, stream, [user("Say hello.")])
        await front.world.closed()
        swarm = front.world.swarm
        assert result.choices[0].message.content.endswith(DONE)
        assert result.choices[0].finish_reason == "stop"
        assert result.model == "gpt-5"
        words = len(result.choices[0].message.content.split())
        assert (result.usage.prompt_tokens, result.usage.completion_tokens) == (7, words)
        assert len(swarm.claims) == len(swarm.rewards) == REPEAT
        best = max(swarm.rewards, key=lambda name: swarm.rewards[name])
        assert best[:6] in result.choices[0].message.content


@BOTH
async def test_reasoning_is_sent_beside_the_text(tmp_path: Path, stream: bool) -> None:
    async with application(tmp_path) as (client, _):
        message = (await chat(client, stream, [user("Think, then say hello.")])).choices[0].message
        assert "thinks about it" in message.model_extra["reasoning"]
        assert message.content.endswith(DONE)


@BOTH
@pytest.mark.parametrize(("words", "count"), [("use the tool", 1), ("use two tools", 2)])
async def test_a_tool_turn(tmp_path: Path, stream: bool, words: str, count: int) -> None:
    async with application(tmp_path) as (client, front):
        messages: list[Any] = [user(f"Please {words}.")]
        first = (await chat(client, stream, messages, tools=[CHAT_TOOL])).choices[0]
        calls = first.message.tool_calls
        assert first.finish_reason == "tool_calls"
        assert len({call.id for call in calls}) == len(calls) == count
        for call in calls:
            assert call.function.name == "get_word"
            assert json.loads(call.function.arguments)["how_often"] == 2
        messages.append(first.message.model_dump(exclude_none=True, exclude={"parsed"}))
        messages += [
            {"role": "tool", "tool_call_id": call.id, "content": "elderberry"} for call in calls
        ]
        last = (await chat(client, stream, messages, tools=[CHAT_TOOL])).choices[0]
        assert "'elderberry'" in last.message.content
        assert last.finish_reason == "stop"
        await front.world.closed()
        sessions = {group.session for group in front.world.state.groups.values()}
        assert len(sessions) == 1


@BOTH
async def test_two_turns_of_one_conversation(tmp_path: Path, stream: bool) -> None:
    async with application(tmp_path) as (client, front):
        messages: list[Any] = [user("Note: the word is indigo.")]
        first = (await chat(client, stream, messages)).choices[0].message
        messages += [{"role": "assistant", "content": first.content}, user("Which word was it?")]
        second = (await chat(client, stream, messages)).choices[0].message
        assert second.content.startswith("The word was indigo.")
        await front.world.closed()
        groups = list(front.world.state.groups.values())
        assert len(groups) == 2
        assert len({group.session for group in groups}) == 1
        assert len(front.world.swarm.rewards) == 2 * REPEAT


async def test_a_slow_reward_is_waited_for_on_a_stream(tmp_path: Path) -> None:
    async with application(tmp_path, settings(proxy={"keepalive": 0.05})) as (client, front):
        scored = front.world.source.scorer

        async def slow(ctx: Any) -> list[float]:
            # ten times as long as the wait between two signs of life
            await front.world.until(lambda: front.handler.metrics.open and ticks() >= 3)
            return await scored(ctx)

        def ticks() -> int:
            return sum(ticket.keepalives for ticket in front.handler.waiting)

        front.world.source.scorer = slow
        request: dict[str, Any] = {"model": "m", "messages": [user("Say hello.")], "stream": True}
        chunks = [chunk async for chunk in await client.chat.completions.create(**request)]
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
        assert text.endswith(DONE)
        assert sum(not chunk.choices[0].delta.content for chunk in chunks) >= 4


async def test_n_answers(tmp_path: Path) -> None:
    async with application(tmp_path) as (client, _):
        result = await chat(client, False, [user("Say hello.")], n=REPEAT)
        assert [choice.index for choice in result.choices] == list(range(REPEAT))
        assert len({choice.message.content for choice in result.choices}) == REPEAT


# --- the other APIs -----------------------------------------------------------------------------


@BOTH
async def test_legacy_completions(tmp_path: Path, stream: bool) -> None:
    async with application(tmp_path) as (client, _):
        request: dict[str, Any] = {"model": "m", "prompt": "Say hello.", "max_tokens": 32}
        if stream:
            chunks = [one async for one in await client.completions.create(stream=True, **request)]
            text = "".join(chunk.choices[0].text for chunk in chunks)
            reason = chunks[-1].choices[0].finish_reason
        else:
            result = await client.completions.create(**request)
            text, reason = result.choices[0].text, result.choices[0].finish_reason
        assert text.endswith(DONE)
        assert reason == "stop"


@BOTH
async def test_a_response(tmp_path: Path, stream: bool) -> None:
    async with application(tmp_path) as (client, _):
        result = await respond(client, stream, [user("Think, then say hello.")])
        assert result.status == "completed"
        assert result.output_text.endswith(DONE)
        assert [item.type for item in result.output] == ["reasoning", "message"]
        assert result.usage.total_tokens == result.usage.input_tokens + result.usage.output_tokens


@BOTH
async def test_a_response_with_tools(tmp_path: Path, stream: bool) -> None:
    async with application(tmp_path) as (client, front):
        values: list[Any] = [user("Please use two tools.")]
        first = await respond(client, stream, values, tools=[RESPONSES_TOOL])
        calls = [item for item in first.output if item.type == "function_call"]
        assert len({call.call_id for call in calls}) == len(calls) == 2
        for call in calls:
            values.append(call.model_dump(exclude_none=True, exclude={"parsed_arguments"}))
        values += [
            {"type": "function_call_output", "call_id": call.call_id, "output": "elderberry"}
            for call in calls
        ]
        last = await respond(client, stream, values, tools=[RESPONSES_TOOL])
        assert "'elderberry'" in last.output_text
        await front.world.closed()
        assert len({group.session for group in front.world.state.groups.values()}) == 1


async def test_two_responses_of_one_conversation(tmp_path: Path) -> None:
    async with application(tmp_path) as (client, _):
        values: list[Any] = [user("Note: the word is indigo.")]
        first = await respond(client, True, values)
        values += [item.model_dump(exclude_none=True) for item in first.output]
        for part in values[-1]["content"]:
            part.pop("parsed", None)
        values.append(user("Which word was it?"))
        assert "The word was indigo." in (await respond(client, True, values)).output_text


async def test_the_models(tmp_path: Path) -> None:
    configured = settings(proxy={"served_model_name": "my-policy"})
    async with application(tmp_path, configured) as (client, _):
        listed = [model.id async for model in client.models.list()]
        assert listed == ["my-policy"]
        assert (await client.models.retrieve("my-policy")).id == "my-policy"
