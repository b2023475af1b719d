"""Checklist 35: several prompts in one legacy completion, each answered from a group of its own."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.forms import COMPLETIONS, ask, ask_json, chunks, completion, settle
from tests.support.proxy.front import fronted
from tests.support.proxy.world import settings
from tests.support.scripted.swarm import Denied, ScriptedSwarm
from tests.support.wire import wire

PROMPT = {"model": "tiny", "max_tokens": 4}


async def echo_prompt(name: str, body: dict[str, Any], index: int) -> Any:
    """Answer with the text of the prompt."""
    result = body["messages"][-1]["content"]
    return completion(f"{result}!", tokens=(len(result), 5, 0))


MANY: dict[str, Any] = {**PROMPT, "prompt": ["Say", "Tell me", "Ask"], "n": 2, "echo": True}


async def test_35_each_of_several_prompts_is_a_group(tmp_path: Path) -> None:
    async with fronted(tmp_path) as f:
        f.world.swarm.answer = echo_prompt
        whole = await ask_json(f, COMPLETIONS, MANY)
        texts = [f"{prompt}{prompt}!" for prompt in MANY["prompt"] for _ in range(2)]
        assert [one["text"] for one in whole["choices"]] == texts
        assert [one["index"] for one in whole["choices"]] == list(range(6))
        prompt_tokens = sum(map(len, MANY["prompt"]))
        assert (whole["usage"]["prompt_tokens"], whole["usage"]["completion_tokens"]) == (
            prompt_tokens,
            30,
        )
        assert whole["usage"]["total_tokens"] == prompt_tokens + 30
        assert sorted(group.query for group in f.world.state.groups.values()) == sorted(
            MANY["prompt"]
        )
        more = {"stream_options": {"include_usage": True}}
        result = await chunks(f, {**MANY, **more, "user": "b", "stream": True}, COMPLETIONS)
        actual, ends = [""] * 6, [0] * 6
        for one in result[:-1]:
            (choice,) = one["choices"]
            actual[choice["index"]] += choice["text"]
            ends[choice["index"]] += choice["finish_reason"] is not None
        assert (actual, ends) == (texts, [1] * 6)
        usage = {name: count for name, count in whole["usage"].items() if count is not None}
        assert (result[-1]["choices"], result[-1]["usage"]) == ([], usage)
        assert len({one["id"] for one in result}) == 1
        await settle(f)


@pytest.mark.parametrize(("streams", "begun"), [(False, False), (True, False), (True, True)])
async def test_35_one_prompt_without_an_answer_is_an_error(
    tmp_path: Path, streams: bool, begun: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.api.handler.SOON", 0.0 if begun else 60.0)

    async def fails(name: str, body: dict[str, Any], index: int) -> Any:
        if body["messages"][-1]["content"] == "Ask":
            raise Denied(400, "no")
        return await echo_prompt(name, body, index)

    async with fronted(tmp_path) as f:
        f.world.swarm.answer = fails
        answer = await ask(f, COMPLETIONS, {**MANY, "stream": streams})
        if begun:
            assert answer.body.endswith(b"data: [DONE]\n\n")
            assert b'"error":{' in answer.body
            assert b"Say!" not in answer.body
        else:
            assert answer.status >= 400
        await settle(f)


async def test_35_a_disconnect_frees_the_groups_of_all_prompts(tmp_path: Path) -> None:
    async with fronted(tmp_path) as f:
        held = asyncio.Event()

        async def waits(name: str, body: dict[str, Any], index: int) -> Any:
            await held.wait()
            return "late"

        f.world.swarm.answer = waits
        async with wire(f.url) as one:
            await one.ask("POST", COMPLETIONS, {**MANY, "stream": True})
            await one.head()
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
    async with fronted(tmp_path, configured=settings(proxy=one_at_a_time)) as f:
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
        await settle(f)
