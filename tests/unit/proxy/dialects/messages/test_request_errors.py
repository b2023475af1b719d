"""Anthropic Messages requests that are refused, and that nothing breaks the reader."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.dialects.messages.request import MESSAGES, read_count, read_messages
from proxy.http.errors import ApiError, overloaded

JSON = {"content-type": "application/json"}
ASKED = {"model": "tiny", "max_tokens": 64, "messages": [{"role": "user", "content": "x"}]}
WEATHER = {"name": "get_weather", "input_schema": {"type": "object"}}


def refused(body: Any) -> dict[str, Any]:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    with pytest.raises(ApiError) as caught:
        read_messages(data, JSON)
    assert caught.value.status == 400
    values: dict[str, Any] = json.loads(MESSAGES.refusal(caught.value))
    return values


# --- errors --------------------------------------------------------------------------------------


def test_a_body_that_is_no_object_is_refused_as_in_the_other_dialects() -> None:
    assert refused(b'{"model": tiny') == {
        "error": {
            "message": "1 validation error:\n  {'type': 'json_invalid', 'loc': 'body.10', 'msg': "
            "'JSON decode error', 'input': '<dict of 0 items>', 'ctx': {'error': 'Expecting "
            "value'}}",
            "type": "Bad Request",
            "param": "body.10",
            "code": 400,
        }
    }
    for data in (b"", b"[]", b'"text"'):
        assert refused(data)["error"]["param"] == "body"
    assert refused(b'{"a": "\xff"}')["detail"]
    with pytest.raises(ApiError) as caught:
        read_messages(b"{}", {"content-type": "text/plain"})
    assert json.loads(MESSAGES.refusal(caught.value))["error"]["type"] == "Bad Request"


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"max_tokens": None}, "body.max_tokens"),
        ({"max_tokens": 0}, "max_tokens must be positive"),
        ({"max_tokens": "many"}, "body.max_tokens"),
        ({"messages": None}, "body.messages"),
        ({"messages": []}, "at least one message"),
        ({"messages": ["hi"]}, "body.messages.0"),
        ({"messages": [{"content": "x"}]}, "body.messages.0.role"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "body.messages.0.role"),
        ({"messages": [{"role": ["user"], "content": "x"}]}, "body.messages.0.role"),
        ({"messages": [{"role": "user"}]}, "body.messages.0.content"),
        ({"messages": [{"role": "user", "content": None}]}, "body.messages.0.content"),
        ({"messages": [{"role": "user", "content": ["x"]}]}, "body.messages.0.content.0"),
        (
            {"messages": [{"role": "user", "content": [{"type": "text", "text": 5}]}]},
            "body.messages.0.content.0.text",
        ),
        (
            {"messages": [{"role": "assistant", "content": [{"type": "tool_use", "input": 1}]}]},
            "body.messages.0.content.0.input",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "tool_result", "content": 1}]}]},
            "body.messages.0.content.0.content",
        ),
        ({"system": 5}, "body.system"),
        ({"model": 5}, "body.model"),
        ({"tools": {}}, "body.tools"),
        ({"tools": [{"name": "f"}]}, "body.tools.0.input_schema"),
        ({"tools": [{"name": 5, "input_schema": {}}]}, "body.tools.0.name"),
        ({"tools": [WEATHER], "tool_choice": "auto"}, "body.tool_choice"),
        ({"tools": [WEATHER], "tool_choice": {"type": "some"}}, "body.tool_choice.type"),
        ({"tools": [WEATHER], "tool_choice": {"type": "tool"}}, "body.tool_choice"),
        ({"tool_choice": {"type": "any"}}, "`tools` must be set"),
        ({"stop_sequences": "x"}, "body.stop_sequences"),
        ({"stop_sequences": [5]}, "body.stop_sequences.0"),
        ({"stream": "perhaps"}, "body.stream"),
        ({"temperature": "hot"}, "body.temperature"),
        ({"temperature": -1}, "temperature must be non-negative"),
        ({"top_p": 0}, "top_p must be in"),
        ({"top_k": 1.5}, "body.top_k"),
        ({"stop": 5}, "body.stop"),
        ({"n": "x"}, "body.n"),
    ],
)
def test_errors_have_anthropics_form(fields: dict[str, Any], word: str) -> None:
    result = refused({**ASKED, **fields})
    assert list(result) == ["type", "error"]
    assert result["type"] == "error"
    assert list(result["error"]) == ["type", "message"]
    assert result["error"]["type"] == "invalid_request_error"
    assert word in result["error"]["message"]


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (403, "permission_error"),
        (404, "not_found_error"),
        (413, "request_too_large"),
        (422, "invalid_request_error"),
        (429, "rate_limit_error"),
        (500, "api_error"),
        (502, "api_error"),
        (503, "overloaded_error"),
    ],
)
def test_each_status_has_its_error_type(status: int, kind: str) -> None:
    body = json.loads(MESSAGES.refusal(ApiError(status, None, "no")))
    assert body == {"type": "error", "error": {"type": kind, "message": "no"}}


def test_an_overload_is_an_overloaded_error() -> None:
    body = json.loads(MESSAGES.refusal(overloaded(2)))
    assert body["error"]["type"] == "overloaded_error"
    assert body["error"]["message"].startswith("The engine is currently busy")


# --- threads -------------------------------------------------------------------------------------

CREATED = {**ASKED, "thread": {"type": "create"}}
CONTINUED = {
    "model": "tiny",
    "max_tokens": 64,
    "messages": [
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "marmalade"}],
        }
    ],
    "thread": {"type": "continue", "previous_message_id": "chatcmpl-644ef8aa6ebca857"},
}
"""What the tool runner of Anthropic's JavaScript SDK asks first and then, where it is let."""


@pytest.mark.parametrize("reader", [read_messages, read_count])
@pytest.mark.parametrize("body", [CREATED, CONTINUED, {**CONTINUED, "messages": []}])
def test_a_thread_is_refused_so_that_the_sdk_sends_the_whole_conversation(
    body: dict[str, Any], reader: Callable[..., Any]
) -> None:
    with pytest.raises(ApiError) as caught:
        reader(json.dumps(body).encode(), {**JSON, "anthropic-beta": "message-threads-2026-08-12"})
    assert caught.value.status == 400
    result = json.loads(MESSAGES.refusal(caught.value))
    text = result["error"].pop("message")
    assert text.startswith("thread: ")
    assert result == {
        "type": "error",
        "error": {
            "type": "invalid_request_error",
            "details": {"error_code": "thread_unsupported_request", "unsupported": ["thread"]},
        },
    }


@pytest.mark.parametrize("thread", [5, "create", [], {}, False])
def test_any_value_of_thread_is_refused(thread: Any) -> None:
    result = refused({**ASKED, "thread": thread})
    assert result["error"]["details"]["error_code"] == "thread_unsupported_request"


def test_a_null_thread_is_accepted() -> None:
    bare = read_messages(json.dumps(ASKED).encode(), JSON)
    result = read_messages(json.dumps({**ASKED, "thread": None}).encode(), JSON)
    assert result.body == bare.body
    assert result.messages == bare.messages


# --- anything ------------------------------------------------------------------------------------

LEAF = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
KINDS = st.sampled_from(
    ["text", "image", "document", "tool_use", "tool_result", "thinking", "tool", "any", "custom"]
)
NAMES = [
    *("type", "role", "content", "text", "source", "data", "url", "id", "tool_use_id", "name"),
    *("input", "thinking", "input_schema", "is_error", "effort", "format", "schema"),
]
ROLES = st.sampled_from(["user", "assistant", "system"])
ANY = st.recursive(
    LEAF | KINDS | ROLES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4)
        | st.fixed_dictionaries({"type": KINDS, "content": inner, "source": inner})
    ),
    max_leaves=12,
)
TURN = st.fixed_dictionaries({"role": ROLES, "content": ANY | st.lists(ANY, max_size=3)})
FIELDS = [
    *("model", "system", "tools", "tool_choice", "stop_sequences", "temperature", "top_p"),
    *("top_k", "stream", "output_config", "metadata", "thinking", "max_tokens", "session_id"),
    *("thread", "safeguards"),
]


@pytest.mark.slow
@given(
    st.dictionaries(st.sampled_from(FIELDS), ANY, max_size=4),
    ANY | st.lists(TURN, max_size=3),
)
def test_any_body_is_parsed_or_refused(fields: dict[str, Any], messages: Any) -> None:
    body = {"max_tokens": 5, **fields, "messages": messages}
    data = json.dumps(body).encode()
    for reader in (read_messages, read_count):
        result, request = None, None
        try:
            request = reader(data, JSON)
        except ApiError as caught:
            result, request = caught, None
        if request is None:
            assert result is not None
            assert result.status == 400
            assert json.loads(MESSAGES.refusal(result))["error"]
        else:
            assert json.loads(request.encoded())["messages"] == request.messages
            roles = {one["role"] for one in request.messages}
            assert roles <= {"system", "user", "assistant", "tool"}


@given(st.binary(max_size=60))
def test_any_bytes_are_parsed_or_refused(data: bytes) -> None:
    with pytest.raises(ApiError):
        read_messages(data, JSON)
