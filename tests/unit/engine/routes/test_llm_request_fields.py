"""How the embedded engine treats a request's fields, as docs/guide/upstreams.md states it."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from engine.interface import PolicyBackend
from engine.policy.tiny import TinyPolicy
from tests.support.engine.client import Driver, driving

pytestmark = pytest.mark.slow

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
