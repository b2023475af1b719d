"""`/tokenize` and `/detokenize`: vLLM's shapes, and the same lengths as a call's usage."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from engine.interface import PolicyBackend
from engine.policy.tiny import TinyPolicy
from tests.support.engine.client import Driver, driving

pytestmark = pytest.mark.slow

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "look_up",
            "parameters": {"type": "object", "properties": {"word": {"type": "string"}}},
        },
    }
]


@pytest.fixture
async def driver() -> AsyncIterator[Driver]:
    async def factory(reset: bool) -> PolicyBackend:
        return TinyPolicy.open(None, reset=reset)

    async with driving(factory) as opened:
        await opened.roll()
        yield opened


async def tokenize(driver: Driver, **body: Any) -> Any:
    answer = await driver.post("/tokenize", **body)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_a_conversation_is_as_long_as_in_the_usage_of_its_call(driver: Driver) -> None:
    policy, counts = driver.engine.policy_holder.policy, []
    assert policy is not None
    for more in ({}, {"tools": TOOLS, "tool_choice": "none"}, {"tools": TOOLS}):
        text = "What is 2 + 3?"
        result = await tokenize(driver, messages=[{"role": "user", "content": text}], **more)
        call = await driver.chat(await driver.claim(), text, **more)
        counts.append(call.json()["usage"]["prompt_tokens"])
        assert result["count"] == len(result["tokens"]) == counts[-1]
        assert (result["max_model_len"], result["token_strs"]) == (policy.context, None)
        assert result["truncated"] is False
    assert counts[0] == counts[1] < counts[2]


async def test_a_conversation_over_the_window_is_what_is_left_of_it(driver: Driver) -> None:
    long = "word " * 3000
    result = await tokenize(driver, messages=[{"role": "user", "content": long}])
    assert result["truncated"] is True
    call = await driver.chat(await driver.claim(), long)
    assert result["count"] == call.json()["usage"]["prompt_tokens"]


async def test_a_text_comes_back_from_its_ids(driver: Driver) -> None:
    for text in ("Hello, world", "x", "naïve ☕ 123\n", ""):
        result = await tokenize(driver, prompt=text, model="any", return_token_strs=True)
        assert len(result["token_strs"]) == result["count"] == len(result["tokens"])
        back = await driver.post("/detokenize", tokens=result["tokens"], model="any")
        assert back.json() == {"prompt": text}


async def test_input_that_cannot_be_counted_is_an_error(driver: Driver) -> None:
    for path, body, status in (
        ("/tokenize", {}, 422),
        ("/tokenize", {"prompt": 3}, 422),
        ("/tokenize", {"messages": []}, 422),
        ("/tokenize", {"messages": "no"}, 422),
        ("/tokenize", {"prompt": "word " * 3000}, 400),
        ("/detokenize", {"tokens": [-1]}, 422),
        ("/detokenize", {"tokens": ["a"]}, 422),
        ("/detokenize", {}, 422),
    ):
        assert (await driver.post(path, **body)).status_code == status, (path, body)


async def test_without_a_policy_nothing_is_counted(idle: Driver) -> None:
    answer = await idle.post("/tokenize", prompt="a")
    assert (answer.status_code, "OFFLINE" in answer.json()["detail"]) == (404, True)


async def test_a_faithful_engine_has_no_such_route_and_a_strict_one_says_that_it_is() -> None:
    async with driving(faithful=True) as driver:
        assert "/tokenize" not in (await driver.get("/openapi.json"))["paths"]
    async with driving(strict_context=True) as driver:
        assert (await driver.get("/ajetc/info"))["strict_context"] is True
        assert "/detokenize" in (await driver.get("/openapi.json"))["paths"]
