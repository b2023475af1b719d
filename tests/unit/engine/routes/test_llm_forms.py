"""Forms and fields of requests to the model."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from engine.interface import Completion, PolicyBackend
from engine.policy.tiny import TinyPolicy
from engine.routes import llm
from tests.support.engine.client import Driver, driving, wait_for
from tests.support.proxy.llm_forms import ASK_MESSAGES, bearer

pytestmark = pytest.mark.slow

BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "hi"}]},
    "/v1/responses": {"input": "hi"},
    "/v1/messages": ASK_MESSAGES,
}


@pytest.mark.parametrize("path", BODIES)
async def test_keys_and_bodies(d: Driver, path: str) -> None:
    episode = await d.claim()
    assert (await d.http.post(path, json=BODIES[path])).status_code == 401
    bad = await d.http.post(path, headers={"Authorization": "Bearer x"}, json=BODIES[path])
    assert (bad.status_code, set(bad.json())) == (401, {"detail"})
    headers = bearer(episode)
    broken = await d.http.post(path, headers=headers, content=b"{")
    assert (broken.status_code, "not JSON" in broken.text) == (400, True)
    wrong = await d.http.post(path, headers=headers, json={**BODIES[path], "top_p": 7})
    assert wrong.status_code == 422
    assert wrong.json()["detail"][0]["loc"] == ["body", "top_p"]
    deep = json.dumps(BODIES[path])[:-1] + ', "tools": [' + '{"a":' * 5000
    nested = await d.http.post(path, headers=headers, content=deep + "1" + "}" * 5000 + "]}")
    assert nested.status_code in (200, 400)
    slashes = await d.http.post(f"http://engine/{path}", headers=headers, json=BODIES[path])
    assert slashes.status_code == 200
    await d.post("/stop_engine")
    refused = await d.http.post(path, headers=headers, json=BODIES[path])
    assert (refused.status_code, "not in ENGINE.ROLLING" in refused.text) == (404, True)


@pytest.mark.parametrize("path", BODIES)
async def test_an_eval_call_is_sampled_as_it_asks(d: Driver, path: str) -> None:
    limit = {"/v1/responses": "max_output_tokens"}.get(path, "max_tokens")
    body = {**BODIES[path], "temperature": 0.25, "top_p": 0.5, limit: 2}
    for kind in ("eval", "train"):
        headers = bearer(await d.claim(kind=kind))
        assert (await d.http.post(path, headers=headers, json=body)).status_code == 200
    evaluated, trained = d.bench.params
    assert (evaluated.temperature, evaluated.top_p) == (0.25, 0.5)
    assert (trained.temperature, trained.top_p) == (1.0, 1.0)
    assert evaluated.max_tokens == trained.max_tokens == 2


@pytest.mark.parametrize("path", BODIES)
async def test_a_stream_that_cannot_begin_has_a_status(d: Driver, path: str) -> None:
    d.bench.sample_error = RuntimeError("worker died")
    headers = bearer(await d.claim())
    failed = await d.http.post(path, headers=headers, json={**BODIES[path], "stream": True})
    assert (failed.status_code, "worker died" in failed.text) == (500, True)


@pytest.mark.parametrize("path", BODIES)
async def test_a_stream_that_breaks_has_no_end(d: Driver, path: str) -> None:
    episode = await d.claim()
    policy = d.engine.policy_holder.policy
    assert policy is not None

    async def sample(prompt: Any, params: Any, on_text: Any = None) -> Completion:
        on_text("half")
        await asyncio.sleep(0)
        raise RuntimeError("worker died")

    policy.sample = sample  # type: ignore[method-assign]
    body = {**BODIES[path], "stream": True}
    answer = await d.http.post(path, headers=bearer(episode), json=body)
    assert answer.status_code == 200
    assert "half" in answer.text
    assert "worker died" in answer.text
    for end in ("[DONE]", "response.completed", "message_stop", 'finish_reason": "stop'):
        assert end not in answer.text
    assert (await d.http.post("/replay_latest_llm_call")).status_code == 404


@pytest.mark.parametrize("path", BODIES)
async def test_a_silent_stream_is_kept_alive(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llm, "KEEP_ALIVE_SECONDS", 0.01)
    async with driving() as d:
        await d.start()
        episode = await d.claim()
        d.bench.sample_gate = asyncio.Event()
        body = {**BODIES[path], "stream": True}
        text = ""
        async with asyncio.TaskGroup() as group:
            asking = group.create_task(d.http.post(path, headers=bearer(episode), json=body))
            await wait_for(lambda: d.bench.sampling)
            for _ in range(5):
                await asyncio.sleep(0.01)
            d.bench.sample_gate.set()
        text = asking.result().text
        alive = "event: ping" if path == "/v1/messages" else ": keepalive"
        assert text.count(alive) >= 2
        if path == "/v1/messages":
            assert '"text":""' in text, "for clients that do not count a ping"


@pytest.mark.parametrize("path", BODIES)
async def test_an_episode_that_goes_ends_its_stream(d: Driver, path: str) -> None:
    episode = await d.claim()
    policy = d.engine.policy_holder.policy
    assert policy is not None
    going = asyncio.Event()

    async def sample(prompt: Any, params: Any, on_text: Any = None) -> Completion:
        on_text("half")
        going.set()
        await asyncio.Event().wait()
        raise AssertionError

    policy.sample = sample  # type: ignore[method-assign]
    body = {**BODIES[path], "stream": True}
    async with asyncio.TaskGroup() as group:
        asking = group.create_task(d.http.post(path, headers=bearer(episode), json=body))
        await going.wait()
        await d.abort(episode)
    assert "not claimed any more" in asking.result().text
    assert d.engine.pool.claimed == []


async def test_strict_context_answers_400_as_real_servers_do() -> None:
    async with driving(strict_context=True) as d:
        await d.start()
        long = await d.chat(await d.claim(), "word " * 200)
        assert long.status_code == 400
        assert long.json()["detail"] == (
            "This model's maximum context length is 256 tokens. However, your prompt contains 1006 "
            "input tokens. Please reduce the length of the input prompt. (parameter=input_tokens, "
            "value=1006)"
        )
        prompts: tuple[str | list[int], ...] = ("x" * 250, [120] * 250)
        for prompt in prompts:
            bare = await d.chat(await d.claim(), "", ajetc_prompt=prompt, max_tokens=20)
            assert bare.status_code == 400
            assert bare.json()["detail"] == (
                "This model's maximum context length is 256 tokens. However, you requested 20 "
                "output tokens and your prompt contains at least 250 input tokens, for a total of "
                "at least 270 tokens. Please reduce the length of the input prompt or the number "
                "of requested output tokens. (parameter=input_tokens, value=250)"
            )
        assert (await d.chat(await d.claim(), "word")).status_code == 200


SKY = "Why is the sky blue?"


async def shipped(reset: bool) -> PolicyBackend:
    return TinyPolicy.open(None, reset=reset)


@pytest.fixture
async def driver() -> AsyncIterator[Driver]:
    async with driving(shipped) as value:
        await value.roll(batch=64, repeat=1)
        yield value


async def complete(driver: Driver, kind: str = "eval", **body: Any) -> Any:
    episode = await driver.claim(kind=kind)
    answer = await driver.chat(episode, SKY, **body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def text(answer: Any) -> str:
    result: str = answer["choices"][0]["message"]["content"]
    return result


async def test_parameters_honoured_for_eval_episodes(driver: Driver) -> None:
    same: tuple[dict[str, Any], ...] = (
        {"seed": 7},
        {"temperature": 0},
        {"top_p": 0.0001},
        {"top_k": 1},
        {"min_p": 1},
    )
    for fields in same:
        assert text(await complete(driver, **fields)) == text(await complete(driver, **fields))
    cut = await complete(driver, temperature=0, max_tokens=3)
    assert (cut["usage"]["completion_tokens"], cut["choices"][0]["finish_reason"]) == (3, "length")
    whole = text(await complete(driver, temperature=0))
    assert text(await complete(driver, temperature=0, repetition_penalty=9)) != whole
    stopped = text(await complete(driver, temperature=0, stop=[whole[8:14]]))
    assert stopped == whole[:8]


async def test_training_uses_the_sampling_of_the_job(driver: Driver) -> None:
    same = {"seed": 7, "temperature": 0, "top_p": 0.0001, "top_k": 1}
    assert len({text(await complete(driver, "train", **same)) for _ in range(8)}) > 1
    assert (await complete(driver, "train", max_tokens=3))["usage"]["completion_tokens"] == 3


async def test_ignored_parameters_change_nothing(driver: Driver) -> None:
    plain = await complete(driver, temperature=0)
    ignored: dict[str, Any] = {
        "n": 3,
        "top_logprobs": 2,
        "return_token_ids": True,
        "response_format": {"type": "json_object"},
        "structured_outputs": {"choice": ["a", "b"]},
        "reasoning_effort": "high",
        "logit_bias": {"5": -100},
        "min_tokens": 90,
        "ignore_eos": True,
        "bad_words": ["air"],
        "chat_template": "x",
        "parallel_tool_calls": False,
    }
    result = await complete(driver, temperature=0, **ignored)
    assert result["choices"] == plain["choices"]
    assert result["choices"][0]["logprobs"] is None
    assert result["usage"] == plain["usage"]


async def test_a_prefill_is_not_continued_and_images_are_left_out(driver: Driver) -> None:
    episode = await driver.claim(kind="eval")
    key = {"Authorization": f"Bearer {episode['openai_api_key']}"}

    async def of(*messages: Any, **more: Any) -> Any:
        body = {"messages": messages, "temperature": 0, **more}
        return (await driver.http.post("/v1/chat/completions", headers=key, json=body)).json()

    begun = {"role": "assistant", "content": "Scattered"}
    result = await of({"role": "user", "content": SKY}, begun, continue_final_message=True)
    assert not text(result).startswith((" light", "light"))
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    with_image = await of({"role": "user", "content": [{"type": "text", "text": SKY}, image]})
    assert (
        with_image["usage"]["prompt_tokens"]
        == (await of({"role": "user", "content": SKY}))["usage"]["prompt_tokens"]
    )


async def test_log_probs_are_returned_on_request_in_a_whole_answer(driver: Driver) -> None:
    completion = await complete(driver, temperature=0, max_tokens=4, logprobs=True, top_logprobs=5)
    entries = completion["choices"][0]["logprobs"]["content"]
    assert len(entries) == completion["usage"]["completion_tokens"]
    assert "".join(entry["token"] for entry in entries).startswith(text(completion))
    assert all(entry["logprob"] <= 0.0 and entry["top_logprobs"] == [] for entry in entries)
    for body in ({}, {"logprobs": False}, {"logprobs": 5}):
        plain = await complete(driver, **body)
        assert plain["choices"][0]["logprobs"] is None
