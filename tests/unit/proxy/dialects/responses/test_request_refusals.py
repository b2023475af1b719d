"""Responses requests that are refused, and that nothing breaks the reader."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.dialects.responses.request import RESPONSES
from proxy.http.errors import ApiError

JSON = {"content-type": "application/json"}


def refused(body: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        RESPONSES.read(json.dumps(body).encode(), JSON, "")
    return caught.value


@pytest.mark.parametrize(
    ("body", "status", "kind", "param"),
    [
        ([], 400, "Bad Request", "body"),
        ({}, 400, "Bad Request", "body.input"),
        ({"input": 5}, 400, "Bad Request", "body.input"),
        ({"input": [5]}, 400, "Bad Request", "body.input.0"),
        ({"input": [{"type": "message"}]}, 400, "Bad Request", "body.input.0.role"),
        ({"input": [{"role": "user", "content": 5}]}, 400, "Bad Request", "body.input.0.content"),
        ({"input": "x", "model": 5}, 400, "Bad Request", "body.model"),
        ({"input": "x", "instructions": 5}, 400, "Bad Request", "body.instructions"),
        ({"input": "x", "temperature": "hot"}, 400, "Bad Request", "body.temperature"),
        ({"input": "x", "temperature": -1}, 400, "BadRequestError", "temperature"),
        ({"input": "x", "top_p": 2}, 400, "BadRequestError", "top_p"),
        ({"input": "x", "max_output_tokens": 0}, 400, "BadRequestError", "max_output_tokens"),
        ({"input": "x", "top_logprobs": 21}, 400, "BadRequestError", "top_logprobs"),
        ({"input": "x", "text": 5}, 400, "Bad Request", "body.text"),
        ({"input": "x", "text": {"format": 5}}, 400, "Bad Request", "body.text.format"),
        ({"input": "x", "reasoning": "low"}, 400, "Bad Request", "body.reasoning"),
        ({"input": "x", "include": "all"}, 400, "Bad Request", "body.include"),
        ({"input": "x", "stream": "maybe"}, 400, "Bad Request", "body.stream"),
        ({"input": "x", "prompt": {"id": "p"}}, 400, "BadRequestError", "prompt"),
        ({"input": "x", "background": True}, 400, "invalid_request_error", "background"),
        ({"input": "x", "background": True, "store": False}, 400, "Bad Request", "body"),
        ({"input": "x", "previous_response_id": "r"}, 404, "invalid_request_error", "response_id"),
        ({"input": "x", "conversation": "c"}, 404, "invalid_request_error", "conversation"),
        ({"input": "x", "reasoning": {"effort": 5}}, 400, "Bad Request", "body.reasoning.effort"),
        ({"input": "x", "top_k": -7}, 400, "BadRequestError", None),
        (
            {"input": "x", "tools": [{"type": "function", "name": "f", "parameters": "x"}]},
            400,
            "Bad Request",
            "body.tools.0.parameters",
        ),
    ],
)
def test_invalid_requests_are_refused(body: Any, status: int, kind: str, param: str | None) -> None:
    no = refused(body)
    assert (no.status, no.kind, no.param) == (status, kind, param)
    result = json.loads(RESPONSES.refusal(no))["error"]
    assert list(result) == ["message", "type", "param", "code"]


@pytest.mark.parametrize(
    ("form", "where"),
    [
        ({}, "type"),
        ({"type": "nope"}, "type"),
        ({"type": ["text"]}, "type"),
        ({"type": "json_schema", "name": "n"}, "schema"),
        ({"type": "json_schema", "name": "n", "schema": "x"}, "schema"),
    ],
)
def test_an_invalid_format_is_refused(form: dict[str, Any], where: str) -> None:
    no = refused({"input": "x", "text": {"format": form}})
    assert (no.status, no.param) == (400, f"body.text.format.{where}")


@pytest.mark.parametrize("past", ["conv_1", {"id": "conv_1"}])
def test_a_conversation_is_refused_as_a_past_response_is(past: Any) -> None:
    no = refused({"input": "x", "conversation": past})
    assert no.message == "Conversation with id 'conv_1' not found."


def test_a_past_response_is_refused_with_vllms_text() -> None:
    no = refused({"input": "x", "previous_response_id": "resp_1"})
    assert no.message == "Response with id 'resp_1' not found."


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
names = st.sampled_from(
    ["type", "role", "content", "text", "id", "call_id", "name", "output", "arguments", "status"]
) | st.sampled_from(
    ["namespace", "tools", "function", "format", "input", "action", "image_url", "summary"]
)
words = (
    st.sampled_from(
        [
            "message",
            "reasoning",
            "function_call",
            "function_call_output",
            "custom_tool_call",
            "user",
        ]
    )
    | st.sampled_from(
        ["assistant", "developer", "input_text", "output_text", "input_image", "input_file"]
    )
    | st.sampled_from(
        ["item_reference", "shell_call", "shell_call_output", "custom", "function", "namespace"]
    )
    | st.sampled_from(["allowed_tools", "json_schema", "in_progress"])
)
values = st.recursive(
    scalars | words,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=5),
    max_leaves=12,
)
fields = (
    st.sampled_from(
        ["model", "instructions", "tools", "tool_choice", "text", "reasoning", "include", "stream"]
    )
    | st.sampled_from(
        ["temperature", "top_p", "max_output_tokens", "metadata", "background", "store", "stop"]
    )
    | st.sampled_from(
        ["previous_response_id", "parallel_tool_calls", "service_tier", "user", "truncation"]
    )
)
items = st.lists(st.dictionaries(names, words | values, max_size=6) | values, max_size=5)


def status_of(data: bytes) -> int:
    """The status of the reader; a request that passes can be forwarded and answered."""
    try:
        request = RESPONSES.read(data, JSON, "")
    except ApiError as no:
        return no.status
    assert request.encoded()
    assert all(isinstance(message["role"], str) for message in request.messages)
    assert RESPONSES.writer(request, "tiny", 1).opening()
    return 200


@pytest.mark.slow
@given(st.dictionaries(fields, values, max_size=4), items | scalars)
def test_any_body_is_answered_or_refused(body: dict[str, Any], input_value: Any) -> None:
    data = json.dumps({"input": input_value} | body).encode()
    assert status_of(data) in (200, 400, 404)


@given(st.binary(max_size=60))
def test_any_bytes_are_parsed_or_refused(data: bytes) -> None:
    assert status_of(data) == 400


def test_deep_nesting_is_refused_or_answered() -> None:
    deep = b'{"input": [{"type": "function_call", "arguments": %s}]}'
    result = {
        status_of(deep % (b"[" * depth + b"]" * depth))
        for depth in (10, 100, 800, 850, 900, 920, 940, 960, 980, 1000, 5000, 200_000)
    }
    assert result == {200, 400}
