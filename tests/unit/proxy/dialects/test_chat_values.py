"""Chat completions: numbers out of range, in the words of those of vLLM that name no field."""

import json
from typing import Any

import pytest

from proxy.dialects.chat import read_request
from proxy.errors import Refusal
from tests.unit.proxy.dialects.chat_forms import chat

HELLO = [{"role": "user", "content": "Say hello."}]
JSON = {"content-type": "application/json"}


def read(body: Any) -> Any:
    return read_request(json.dumps(body).encode(), JSON)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"top_k": -7}, "top_k must be 0 (disable), or at least 1, got -7."),
        ({"min_p": 7}, "min_p must be in [0, 1], got 7.0."),
        (
            {"repetition_penalty": 0},
            "repetition_penalty must be greater than zero, got 0.0.",
        ),
        (
            {"min_tokens": -4},
            "min_tokens must be greater than or equal to 0, got -4.",
        ),
        (
            {"min_tokens": 9, "max_tokens": 8},
            "min_tokens must be less than or equal to max_tokens=8, got 9.",
        ),
        (
            {"logit_bias": {"a": 1}},
            "Found token_id `a` in logit_bias but token_id must be an integer or string "
            "representing an integer",
        ),
    ],
)
def test_of_these_vllm_names_no_field(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(Refusal) as caught:
        read({"messages": HELLO, **fields})
    said = json.loads(caught.value.body())["error"]
    assert (said["code"], said["type"], said["param"]) == (400, "BadRequestError", None)
    assert said["message"] == message


@pytest.mark.parametrize(
    "fields",
    [
        {"top_k": -1},
        {"top_k": 0},
        {"min_p": 1},
        {"min_tokens": 8, "max_tokens": 8},
        {"logit_bias": {"17": 2.5, "18": "-1"}},
        {"logit_bias": {}},
        {"reasoning_effort": "xhigh"},
    ],
)
def test_values_at_the_edge_pass(fields: dict[str, Any]) -> None:
    assert read({"messages": HELLO, **fields}).body.items() >= fields.items()


def test_a_bare_text_among_the_parts_is_a_part_of_type_text() -> None:
    image = {"type": "image_url", "image_url": {"url": "u"}}
    request = chat(messages=[{"role": "user", "content": ["hello", image]}])
    parts = [{"type": "text", "text": "hello"}, image]
    assert json.loads(request.encoded())["messages"] == [{"role": "user", "content": parts}]
    assert request.messages[0]["content"] == parts
    assert request.query.strip() == "hello"
