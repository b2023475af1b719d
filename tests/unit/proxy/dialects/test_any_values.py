"""Whole requests of every dialect in which one value, however deep, is any JSON at all."""

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.admission.conversations import Conversations
from proxy.admission.helper_calls import helper_of
from proxy.dialects.base import Dialect
from proxy.dialects.chat.completions import COMPLETIONS
from proxy.dialects.chat.request import CHAT
from proxy.dialects.messages.request import MESSAGES
from proxy.dialects.request import ChatRequest, deltas, public_answer
from proxy.dialects.responses.request import RESPONSES
from proxy.dialects.session_marks import session_of
from proxy.dialects.tool_constraints import apply_tool_choice
from proxy.http.errors import ApiError
from tests.unit.proxy.dialects.chat_forms import JSON, QUICK

pytestmark = pytest.mark.slow

_CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
_SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}
_FORM = {"type": "json_schema", "json_schema": {"name": "n", "schema": _SCHEMA}}
_META = {"session_id": "s", "user_id": "u_session_12345678"}
_SOURCE = {"type": "base64", "media_type": "image/png", "data": "AA=="}
FULL: dict[str, tuple[Dialect, dict[str, Any]]] = {
    "chat": (
        CHAT,
        {
            "model": "m",
            "messages": [
                {"role": "system", "content": [{"type": "text", "text": "a"}], "name": "n"},
                {
                    "role": "user",
                    "content": [{"type": "image_url", "image_url": {"url": "u"}}, "b"],
                },
                {"role": "assistant", "content": None, "tool_calls": [_CALL], "reasoning": "r"},
                {"role": "tool", "tool_call_id": "c1", "name": "f", "content": "c"},
            ],
            "tools": [
                {"type": "function", "function": {"name": "f", "parameters": _SCHEMA}},
            ],
            "tool_choice": {"type": "function", "function": {"name": "f"}},
            "response_format": _FORM,
            "stream": True,
            "stream_options": {"include_usage": True},
            "stop": ["x"],
            "reasoning_effort": "low",
            "logit_bias": {"5": 1},
            "metadata": _META,
            "prompt_cache_key": "session-12345678",
        },
    ),
    "completions": (
        COMPLETIONS,
        {"model": "m", "prompt": ["a", "b"], "stop": ["x"], "echo": True, "metadata": _META},
    ),
    "responses": (
        RESPONSES,
        {
            "model": "m",
            "instructions": "a",
            "input": [
                {"role": "developer", "content": "d"},
                {
                    "type": "message",
                    "role": "user",
                    "content": [{"type": "input_text", "text": "u"}],
                },
                {
                    "role": "user",
                    "content": [
                        {"type": "input_image", "image_url": "u", "detail": "low"},
                        {"type": "input_file", "file_id": "f", "filename": "n"},
                    ],
                },
                {
                    "type": "reasoning",
                    "id": "r",
                    "summary": [{"type": "summary_text", "text": "t"}],
                },
                {
                    "type": "message",
                    "role": "assistant",
                    "id": "m",
                    "status": "completed",
                    "content": [{"type": "output_text", "text": "t"}],
                },
                {
                    "type": "function_call",
                    "id": "i",
                    "new_call_id": "c",
                    "name": "f",
                    "arguments": "{}",
                },
                {
                    "type": "function_call_output",
                    "new_call_id": "c",
                    "output": [{"type": "input_text", "text": "t"}],
                },
                {"type": "custom_tool_call", "new_call_id": "d", "name": "g", "input": "x"},
                {"type": "custom_tool_call_output", "new_call_id": "d", "output": "x"},
                {"type": "shell_call", "new_call_id": "e", "action": {"type": "exec"}},
                {"type": "shell_call_output", "new_call_id": "e", "output": "x"},
                {"type": "web_search_call", "id": "w", "action": {"type": "search"}},
            ],
            "tools": [
                {"type": "function", "name": "f", "parameters": _SCHEMA},
                {"type": "custom", "name": "g", "format": {"type": "grammar", "definition": "d"}},
                {"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "h"}]},
                {"type": "web_search"},
            ],
            "tool_choice": {
                "type": "allowed_tools",
                "mode": "auto",
                "tools": [{"type": "function", "name": "f"}],
            },
            "text": {"format": {"type": "json_schema", "name": "n", "schema": _SCHEMA}},
            "reasoning": {"effort": "low", "summary": "auto"},
            "include": ["reasoning.encrypted_content"],
            "metadata": _META,
            "stream": True,
        },
    ),
    "messages": (
        MESSAGES,
        {
            "model": "m",
            "max_tokens": 9,
            "system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}],
            "messages": [
                {"role": "user", "content": [{"type": "image", "source": _SOURCE}]},
                {
                    "role": "assistant",
                    "content": [
                        {"type": "thinking", "thinking": "t", "signature": "s"},
                        {"type": "text", "text": "t"},
                        {"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}},
                    ],
                },
                {
                    "role": "user",
                    "content": [
                        {
                            "type": "tool_result",
                            "tool_use_id": "c",
                            "content": [
                                {"type": "text", "text": "t"},
                                {"type": "tool_reference", "tool_name": "f"},
                            ],
                        },
                        {"type": "document", "source": {"type": "text", "data": "d"}},
                    ],
                },
            ],
            "tools": [
                {"name": "f", "input_schema": _SCHEMA},
                {"type": "web_search_1", "name": "w"},
            ],
            "tool_choice": {"type": "tool", "name": "f"},
            "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": {}}},
            "stop_sequences": ["x"],
            "metadata": _META,
            "stream": True,
        },
    ),
}
UNHASHABLE: tuple[Any, ...] = ([], {}, ["a"], {"a": ["b"]}, [["text"]])
ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)
Place = tuple[str | int, ...]


def places(value: Any, at: Place = ()) -> Iterator[Place]:
    """The place of a value, and of each value within it."""
    if at:
        yield at
    if isinstance(value, dict | list):
        for key, one in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(one, (*at, key))


def put(body: Any, at: Place, value: Any) -> None:
    for key in at[:-1]:
        body = body[key]
    body[at[-1]] = value


def reading(dialect: Dialect, body: Any) -> ChatRequest | ApiError:
    try:
        return dialect.read(json.dumps(body).encode(), JSON, "")
    except ApiError as no:
        return no


def exchange(dialect: Dialect, body: Any) -> None:
    """Read, match and answer a request, or refuse it in the dialect's form."""
    request = reading(dialect, body)
    if isinstance(request, ApiError):
        assert request.status in (400, 404)
        assert json.loads(dialect.refusal(request))
        return
    for one in request.parts or (request,):
        assert one.encoded()
        session_of(one.headers, one.body)
        helper_of(one.body, one.query)
        known = Conversations()
        known.add_answer(known.match(one.messages).session, {"content": "a"})
    answer(dialect, request)


def answer(dialect: Dialect, request: ChatRequest) -> None:
    message = {"content": "a", "reasoning": "b", "tool_calls": [_CALL]}
    result = public_answer({"id": "x", "choices": [{"message": message, "finish_reason": "stop"}]})
    winners = apply_tool_choice([result] * max(1, len(request.parts)), request)
    assert all(list(deltas(one)) for one in winners)
    assert dialect.writer(request, "m", 5).body(winners)
    writer = dialect.writer(request, "m", 5)
    assert writer.opening() + writer.answer(winners)


@pytest.mark.parametrize("name", FULL)
def test_every_value_may_be_unhashable(name: str) -> None:
    dialect, full = FULL[name]
    exchange(dialect, full)
    for at in places(full):
        for value in UNHASHABLE:
            body = copy.deepcopy(full)
            put(body, at, value)
            try:
                exchange(dialect, body)
            except Exception as error:
                raise AssertionError(f"{at} as {value!r}") from error


@pytest.mark.parametrize("name", FULL)
@QUICK
@given(st.data())
def test_any_two_values_may_be_anything(name: str, data: st.DataObject) -> None:
    dialect, full = FULL[name]
    body = copy.deepcopy(full)
    for _ in range(2):
        put(body, data.draw(st.sampled_from(list(places(body)))), data.draw(ANY))
    exchange(dialect, body)


@QUICK
@given(st.data())
def test_an_upstream_may_send_anything(data: st.DataObject) -> None:
    message = {"role": "assistant", "content": "a", "reasoning": "b", "tool_calls": [dict(_CALL)]}
    choice = {"index": 0, "message": message, "finish_reason": "stop", "stop_reason": None}
    result: Any = copy.deepcopy({"id": "x", "usage": {"prompt_tokens": 1}, "choices": [choice]})
    actual = [at for at in places(result) if len(at) > 2 and at != ("choices", 0, "message")]
    put(result, data.draw(st.sampled_from(actual)), data.draw(ANY))
    for dialect, full in FULL.values():
        request = dialect.read(json.dumps(full).encode(), JSON, "")
        winners = apply_tool_choice([public_answer(result)] * max(1, len(request.parts)), request)
        assert dialect.writer(request, "m", 5).body(winners)
        assert dialect.writer(request, "m", 5).answer(winners)
