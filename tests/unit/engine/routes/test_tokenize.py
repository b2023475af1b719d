"""`/tokenize` and `/detokenize`: vLLM's shapes, and the same lengths as a call's usage."""

from typing import Any

import pytest

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


def tiny() -> Any:
    from engine.policy.tiny import TinyPolicy

    async def factory(reset: bool) -> Any:
        return TinyPolicy.open(None, reset=reset)

    return factory


async def tokenize(driver: Driver, **body: Any) -> Any:
    answer = await driver.post("/tokenize", **body)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_a_conversation_is_as_long_as_in_the_usage_of_its_call() -> None:
    async with driving(tiny()) as driver:
        await driver.roll()
        for more in ({}, {"tools": TOOLS}, {"tools": TOOLS, "tool_choice": "none"}):
            episode = await driver.claim()
            body = {"messages": [{"role": "user", "content": "What is 2 + 3?"}], **more}
            result = await tokenize(driver, **body)
            call = await driver.chat(episode, "What is 2 + 3?", **more)
            assert result["count"] == call.json()["usage"]["prompt_tokens"]
            assert len(result["tokens"]) == result["count"]
            assert result["max_model_len"] == driver.engine.policy_holder.policy.context  # type: ignore[union-attr]
            assert result["token_strs"] is None
            assert result["truncated"] is False
        assert (await tokenize(driver, messages=body["messages"], tools=TOOLS))["count"] > result[
            "count"
        ]


async def test_a_conversation_over_the_window_is_what_is_left_of_it() -> None:
    async with driving(tiny()) as driver:
        await driver.roll()
        long = "word " * 3000
        result = await tokenize(driver, messages=[{"role": "user", "content": long}])
        assert result["truncated"] is True
        call = await driver.chat(await driver.claim(), long)
        assert result["count"] == call.json()["usage"]["prompt_tokens"]


@pytest.mark.parametrize("text", ["Hello, world", "x", "naïve ☕ 123\n", ""])
async def test_a_text_comes_back_from_its_ids(text: str) -> None:
    async with driving(tiny()) as driver:
        await driver.roll()
        result = await tokenize(driver, prompt=text, model="any", return_token_strs=True)
        assert len(result["token_strs"]) == result["count"] == len(result["tokens"])
        back = await driver.post("/detokenize", tokens=result["tokens"], model="any")
        assert back.json() == {"prompt": text}


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/tokenize", {}, 422),
        ("/tokenize", {"prompt": 3}, 422),
        ("/tokenize", {"messages": []}, 422),
        ("/tokenize", {"messages": "no"}, 422),
        ("/tokenize", {"prompt": "word " * 3000}, 400),
        ("/detokenize", {"tokens": [-1]}, 422),
        ("/detokenize", {"tokens": ["a"]}, 422),
        ("/detokenize", {}, 422),
    ],
)
async def test_input_that_cannot_be_counted_is_an_error(
    path: str, body: dict[str, Any], status: int
) -> None:
    async with driving(tiny()) as driver:
        await driver.roll()
        assert (await driver.post(path, **body)).status_code == status


async def test_without_a_policy_nothing_is_counted(d: Driver) -> None:
    answer = await d.post("/tokenize", prompt="a")
    assert answer.status_code == 404
    assert "OFFLINE" in answer.json()["detail"]


async def test_a_faithful_engine_has_no_such_route_and_a_strict_one_says_that_it_is() -> None:
    async with driving(faithful=True) as driver:
        assert "/tokenize" not in (await driver.get("/openapi.json"))["paths"]
    async with driving(strict_context=True) as driver:
        assert (await driver.get("/ajetc/info"))["strict_context"] is True
        assert "/detokenize" in (await driver.get("/openapi.json"))["paths"]
