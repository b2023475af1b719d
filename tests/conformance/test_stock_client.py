"""Checklist 80: what a vLLM's own HTTP tests and an SDK's ask of a server, with the stock client.

The turns an application makes with that client are in `tests/contract/test_clients.py`. The client
is imported where it is used: that takes half a second, and each worker collects all tests.
"""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.conformance.forms import WEATHER, always, completion
from tests.support.proxy.front import ASKED, Front, fronted
from tests.support.proxy.world import settings
from tests.support.scripted.swarm import ScriptedSwarm

if TYPE_CHECKING:
    from openai import AsyncOpenAI

CUT = completion(
    "One and one are two, as far as anybody can tell by counting them, which we",
    finish="length",
    tokens=(37, 17, 0),
)
NAMED = {"type": "function", "function": {"name": "get_weather"}}


@contextlib.asynccontextmanager
async def client_of(
    home: Path, upstream_answer: Any = CUT, swarm: ScriptedSwarm | None = None, **more: Any
) -> AsyncIterator["tuple[AsyncOpenAI, Front]"]:
    import openai

    async with (
        fronted(home, swarm, settings(proxy={"repeats": 1})) as f,
        openai.AsyncOpenAI(
            base_url=f"{f.url}/v1", api_key="EMPTY", max_retries=0, **more
        ) as client,
    ):
        f.world.swarm.answer = always(upstream_answer)
        yield client, f


def chat_body(**more: Any) -> Any:
    return {"model": "any", "messages": ASKED, **more}


async def test_80_a_cut_answer_ends_with_its_last_text(tmp_path: Path) -> None:
    async with client_of(tmp_path) as (client, _):
        whole = await client.chat.completions.create(**chat_body())
        texts, reasons = [], []
        async for chunk in await client.chat.completions.create(**chat_body(stream=True)):
            texts.append(chunk.choices[0].delta.content)
            reasons.append(chunk.choices[0].finish_reason)
        assert reasons[-1] == whole.choices[0].finish_reason == "length"
        assert reasons[:-1] == [None] * (len(reasons) - 1)
        assert texts[-1]
        assert "".join(texts) == whole.choices[0].message.content
        texts = []
        result: Any = {"model": "any", "prompt": "What is an LLM?", "max_tokens": 5}
        legacy = await client.completions.create(**result)
        async for chunk in await client.completions.create(**result, stream=True):
            texts.append(chunk.choices[0].text)
        assert texts[-1]
        assert "".join(texts) == legacy.choices[0].text


@pytest.mark.parametrize(
    "more",
    [
        {"seed": -(1 << 63) - 1},
        {"seed": 1 << 63},
        {"extra_body": {"prompt_logprobs": -1}},
        {"extra_body": {"prompt_logprobs": 1}, "stream": True},
        {"extra_body": {"prompt_logprobs": 21}},
        {"logprobs": True, "top_logprobs": 30},
        {"tools": [WEATHER], "tool_choice": {}},
        {"tools": [WEATHER], "tool_choice": {"type": "function", "function": {"name": "f"}}},
        {"tool_choice": NAMED},
        {"extra_headers": {"Content-Type": "application/x-www-form-urlencoded"}},
    ],
)
async def test_80_bad_requests(tmp_path: Path, more: dict[str, Any]) -> None:
    import openai

    async with client_of(tmp_path) as (client, f):
        with pytest.raises(openai.BadRequestError) as caught:
            await client.chat.completions.create(**chat_body(**more))
        if "seed" in more:
            assert "than_equal" in caught.value.message
        assert not f.world.state.groups
        assert (await client.chat.completions.create(**chat_body())).choices  # it still works


async def test_80_many_clients_that_give_up(tmp_path: Path) -> None:
    import openai

    async with (
        ScriptedSwarm(batch=1000, slots=400) as swarm,
        client_of(tmp_path, CUT, swarm, timeout=0.5) as (client, f),
    ):
        swarm.delay = 60.0
        for _ in range(3):
            with pytest.raises(openai.APITimeoutError):
                await client.chat.completions.create(**chat_body(max_tokens=10_000))
        swarm.delay = 0.0
        await f.world.closed()
        patient = client.with_options(timeout=60.0)
        assert (await patient.chat.completions.create(**chat_body())).choices
        await f.world.closed()
        assert not swarm.claimed()
