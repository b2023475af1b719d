"""Counting tokens without a tokenizer."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.api.prompt_tokens import (
    BYTES_PER_TOKEN,
    IMAGE_TOKENS,
    MAX_EXACT,
    MAX_SAMPLES,
    TokenEstimator,
)
from proxy.dialects.messages import read_count, read_messages
from proxy.dialects.request import ChatRequest

pytestmark = pytest.mark.slow

JSON = {"content-type": "application/json"}


def chat_request(*texts: str, **more: Any) -> ChatRequest:
    roles = ("user", "assistant")
    messages = [{"role": roles[n % 2], "content": text} for n, text in enumerate(texts)]
    body = {"max_tokens": 5, "messages": messages, **more}
    return read_messages(json.dumps(body).encode(), JSON)


def counted(*texts: str, **more: Any) -> ChatRequest:
    request = chat_request(*texts, **more)
    body = {"messages": request.messages, **more}
    return read_count(json.dumps(body).encode(), JSON)


def test_a_recently_answered_prompt_is_counted_exactly() -> None:
    tool = {"name": "f", "input_schema": {"type": "object"}}
    gauge = TokenEstimator()
    request = chat_request("Say hello.", tools=[tool], model="a", temperature=0.5)
    assert not gauge.is_exact(counted("Say hello.", tools=[tool]))
    gauge.learn(request, 17)
    assert gauge.is_exact(counted("Say hello.", tools=[tool]))
    assert gauge.estimate(counted("Say hello.", tools=[tool], model="b")) == 17
    assert not gauge.is_exact(counted("Say hello."))
    assert not gauge.is_exact(counted("Say hello!", tools=[tool]))
    gauge.learn(request, 18)  # the server has another model now
    assert gauge.estimate(request) == 18


def test_a_continued_prompt_estimates_only_its_new_part() -> None:
    gauge = TokenEstimator()
    gauge.learn(chat_request("x" * 4000), 5000)
    longer = chat_request("x" * 4000, "answer", "next")
    added = gauge.estimate(longer) - 5000
    assert 0 < added < 200
    assert not gauge.is_exact(longer)


def test_the_initial_ratio_applies_before_the_first_answer() -> None:
    estimate = TokenEstimator().estimate(chat_request("x" * 35_000))
    assert abs(estimate - 35_000 / BYTES_PER_TOKEN) < 100


def test_the_ratio_is_learned_and_implausible_samples_are_ignored() -> None:
    gauge = TokenEstimator()
    for n in range(20):
        gauge.learn(chat_request(f"{n}" + "x" * 10_000), 5_000)
    gauge.learn(chat_request("cut to fit" * 5_000), 100)  # not plausible
    gauge.learn(chat_request("y" * 9_000), 800)  # plausible, but alone
    gauge.learn(chat_request("z" * 9_000), 0)  # without a count
    estimate = gauge.estimate(chat_request("a" * 8_000))
    assert 3_900 < estimate < 4_200


def test_the_ratio_comes_from_prompts_of_similar_length() -> None:
    """A template's fixed part weighs more in them."""
    gauge = TokenEstimator()
    for n in range(10):
        gauge.learn(chat_request(f"{n:04}"), 40)
        gauge.learn(chat_request(f"{n}" + "x" * 20_000), 5_000)
    assert 35 <= gauge.estimate(chat_request("ping")) <= 45
    assert 4_900 <= gauge.estimate(chat_request("y" * 20_000)) <= 5_100


def test_images_count_apart() -> None:
    image = {"type": "image", "source": {"type": "base64", "data": "A" * 100_000}}
    body = {"max_tokens": 5, "messages": [{"role": "user", "content": [image]}]}
    request = read_messages(json.dumps(body).encode(), JSON)
    gauge = TokenEstimator()
    assert IMAGE_TOKENS <= gauge.estimate(request) < IMAGE_TOKENS + 100
    gauge.learn(request, 300)
    assert gauge.estimate(request) == 300
    assert abs(gauge.estimate(chat_request("x" * 3500)) - 1000) < 50  # nothing learned from it


def test_what_is_remembered_is_bounded() -> None:
    gauge = TokenEstimator()
    for n in range(MAX_EXACT + 5):
        gauge.learn(chat_request(str(n)), 10)
    assert not gauge.is_exact(chat_request("0"))
    assert gauge.is_exact(chat_request(str(MAX_EXACT + 4)))
    assert len(gauge._exact) == MAX_EXACT
    assert len(gauge._samples) == MAX_SAMPLES


@given(st.lists(st.tuples(st.text(max_size=50), st.integers(-5, 1000)), max_size=20), st.text())
def test_an_estimate_is_always_at_least_one(pairs: list[tuple[str, int]], text: str) -> None:
    gauge = TokenEstimator()
    for value, tokens in pairs:
        gauge.learn(chat_request(value), tokens)
    assert gauge.estimate(chat_request(text)) >= 1
