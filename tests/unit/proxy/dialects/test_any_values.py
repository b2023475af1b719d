"""Whole requests of every dialect in which one value, however deep, is any JSON at all."""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.dialects.errors import ApiError
from core.dialects.request import public_answer
from core.dialects.writer import apply_tool_choice
from proxy.admission.admit import helper_of
from proxy.admission.sessions import Conversations
from proxy.dialects.client_marks import session_of
from proxy.dialects.request import ChatRequest, Dialect
from tests.unit.proxy.dialects.forms import BODIES, DIALECTS, JSON, QUICK, deltas

pytestmark = pytest.mark.slow

_CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
FILE = Path(__file__).parents[4] / "tests/data/dialects/full.json"
FULL: dict[str, tuple[Dialect, dict[str, Any]]] = {
    name: (DIALECTS[name], body) for name, body in json.loads(FILE.read_text()).items()
}
"""A body of each dialect with fields and blocks of every kind."""
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
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    try:
        return dialect.read(data, JSON, "")
    except ApiError as no:
        return no


def exchange(dialect: Dialect, body: Any) -> None:
    """Read, match and answer a request, or refuse it in the dialect's form."""
    request = reading(dialect, body)
    if isinstance(request, ApiError):
        assert request.status in (400, 404)
        assert json.loads(dialect.refusal(request))
        return
    for part in request.parts or (request,):
        assert part.encoded()
        session_of(part.headers, part.body)
        helper_of(part.body, part.query)
        known = Conversations()
        known.add_answer(known.match(part.messages).session, {"content": "a"})
    answer(dialect, request)


def answer(dialect: Dialect, request: ChatRequest) -> None:
    message = {"content": "a", "reasoning": "b", "tool_calls": [_CALL]}
    result = public_answer({"id": "x", "choices": [{"message": message, "finish_reason": "stop"}]})
    winners = apply_tool_choice([result] * max(1, len(request.parts)), request)
    assert all(list(deltas(winner)) for winner in winners)
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
    entry = {"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": [{"token": "b"}]}
    choice = {"index": 0, "message": message, "finish_reason": "stop", "stop_reason": None}
    choice["logprobs"] = {"content": [entry]}
    result: Any = copy.deepcopy({"id": "x", "usage": {"prompt_tokens": 1}, "choices": [choice]})
    actual = [at for at in places(result) if len(at) > 2 and at != ("choices", 0, "message")]
    put(result, data.draw(st.sampled_from(actual)), data.draw(ANY))
    for dialect, full in FULL.values():
        request = dialect.read(json.dumps(full).encode(), JSON, "")
        winners = apply_tool_choice([public_answer(result)] * max(1, len(request.parts)), request)
        assert dialect.writer(request, "m", 5).body(winners)
        assert dialect.writer(request, "m", 5).answer(winners)


# --- bodies made up ------------------------------------------------------------------------------

WORDS = st.sampled_from(
    [
        *("user", "assistant", "system", "developer", "tool", "text", "image", "document"),
        *("tool_use", "tool_result", "thinking", "any", "custom", "message", "reasoning"),
        *("function_call", "function_call_output", "custom_tool_call", "input_text"),
        *("output_text", "input_image", "input_file", "item_reference", "shell_call"),
        *("shell_call_output", "function", "namespace", "allowed_tools", "json_schema"),
        *("in_progress", "auto", "none", "required"),
    ]
)
KEYS = st.sampled_from(
    [
        *("role", "content", "text", "function", "name", "type", "id", "tool_calls", "url", "data"),
        *("include_usage", "source", "tool_use_id", "input", "thinking", "input_schema", "effort"),
        *("is_error", "format", "schema", "call_id", "output", "arguments", "status", "namespace"),
        *("tools", "action", "image_url", "summary"),
    ]
)
FIELDS = st.sampled_from(
    [
        *("model", "temperature", "top_p", "n", "stream", "stream_options", "tools", "tool_choice"),
        *("max_tokens", "logprobs", "top_logprobs", "session_id", "seed", "stop", "text", "echo"),
        *("response_format", "return_token_ids", "parallel_tool_calls", "suffix", "system"),
        *("stop_sequences", "output_config", "metadata", "thinking", "thread", "instructions"),
        *("reasoning", "include", "max_output_tokens", "background", "store", "truncation", "user"),
        *("previous_response_id", "service_tier", "safeguards", "messages", "input", "prompt"),
    ]
)
MADE_UP = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | WORDS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(KEYS, inner, max_size=4)
        | st.fixed_dictionaries({"type": WORDS, "content": inner, "source": inner})
    ),
    max_leaves=12,
)
ITEMS = st.lists(
    st.fixed_dictionaries(
        {"role": WORDS, "content": MADE_UP},
        optional={"type": WORDS, "tool_calls": MADE_UP, "arguments": MADE_UP, "summary": MADE_UP},
    )
    | MADE_UP,
    max_size=3,
)
CONVERSATION = {"chat": "messages", "messages": "messages", "responses": "input"}


@pytest.mark.parametrize("name", DIALECTS)
@QUICK
@given(st.dictionaries(FIELDS, MADE_UP, max_size=4), ITEMS)
def test_any_body_is_answered_or_refused(name: str, fields: dict[str, Any], items: Any) -> None:
    exchange(DIALECTS[name], {**BODIES[name], CONVERSATION.get(name, "x"): items, **fields})


@pytest.mark.parametrize("name", DIALECTS)
@QUICK
@given(st.binary(max_size=60) | st.text(max_size=40).map(str.encode))
def test_any_bytes_are_refused(name: str, data: bytes) -> None:
    refusal = reading(DIALECTS[name], data)
    assert refusal.status == 400


@pytest.mark.parametrize("depth", [10, 100, *range(800, 1001, 20), 5000, 200_000])
def test_deep_nesting_is_refused_or_answered(depth: int) -> None:
    nested = b"[" * depth + b"]" * depth
    items = b'[{"type": "function_call", "arguments": %s}]' % nested
    blocks = b'[{"role": "assistant", "content": [{"type": "tool_use", "input": {"a": %s}}]}]'
    for name, field, value in (("responses", "input", items), ("messages", "messages", blocks)):
        data = b'{"max_tokens": 5, "%s": %s}' % (field.encode(), value.replace(b"%s", nested))
        request = reading(DIALECTS[name], data)
        if isinstance(request, ApiError):
            assert request.status == 400
            assert depth > 100
        else:
            assert request.encoded()
            assert depth < 5000
