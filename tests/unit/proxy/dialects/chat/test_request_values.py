"""Chat completions: numbers out of range, in the words of those of vLLM that name no field."""

import json
from typing import Any

import pytest

from proxy.dialects.chat.request import read_request
from proxy.http.errors import ApiError
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
            {"structured_outputs": {"regex": "a", "json": {}}},
            "You can only use one kind of constraints for structured outputs ('json', 'regex' or "
            "'choice').",
        ),
        (
            {"structured_outputs": {"regex": "a", "grammar": "b"}},
            "You can only use one kind of structured outputs constraint but multiple are specified",
        ),
        (
            {"structured_outputs": {"whitespace_pattern": "a"}},
            "You must use one kind of structured outputs constraint but none are specified",
        ),
        (
            {
                "structured_outputs": {"regex": "a"},
                "tools": [{"type": "function", "function": {"name": "f"}}],
                "tool_choice": {"type": "function", "function": {"name": "f"}},
            },
            "You can only either use constraints for structured outputs or tools, not both.",
        ),
    ],
)
def test_errors_without_a_field_like_vllms(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ApiError) as caught:
        read({"messages": HELLO, **fields})
    body = json.loads(caught.value.body())["error"]
    assert (body["code"], body["type"], body["param"]) == (400, "BadRequestError", None)
    assert body["message"] == message


def test_each_bad_key_of_logit_bias_is_named() -> None:
    with pytest.raises(ApiError) as caught:
        read({"messages": HELLO, "logit_bias": {"bad1": 50, "7": 1, "bad2": 20}})
    body = json.loads(caught.value.body())["error"]
    assert (body["code"], body["type"], body["param"]) == (400, "BadRequestError", "logit_bias")
    assert body["message"] == (
        "logit_bias contains key(s) that cannot be converted to integer token IDs: "
        "['bad1', 'bad2'] (parameter=logit_bias, value=['bad1', 'bad2'])"
    )


@pytest.mark.parametrize(
    ("wanted", "param"),
    [
        ("a", ""),
        ({"regex": {"1": "Python"}}, ".regex"),
        ({"grammar": 1}, ".grammar"),
        ({"json": 1}, ".json"),
        ({"choice": "a"}, ".choice"),
        ({"choice": ["a", 1]}, ".choice.1"),
    ],
)
def test_structured_outputs_of_wrong_types_are_refused(wanted: Any, param: str) -> None:
    with pytest.raises(ApiError) as caught:
        read({"messages": HELLO, "structured_outputs": wanted})
    body = json.loads(caught.value.body())["error"]
    assert (body["code"], body["type"]) == (400, "Bad Request")
    assert body["param"] == f"body.structured_outputs{param}"


@pytest.mark.parametrize(
    "fields",
    [
        {"structured_outputs": {"regex": "a+"}},
        {"structured_outputs": {"choice": ["a", "b"], "disable_any_whitespace": True}},
        {"structured_outputs": {"json": {"type": "object"}}},
        {"structured_outputs": {"json": "{}"}},
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
