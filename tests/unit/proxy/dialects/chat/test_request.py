"""Chat requests: what is refused, and what is sent upstream."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.dialects.chat.request import CHAT, read_request
from proxy.dialects.request import public_answer
from proxy.http.errors import ApiError
from tests.unit.proxy.dialects.chat_forms import QUICK, TOOLS, made

JSON = {"content-type": "application/json"}
HELLO = [{"role": "user", "content": "Say hello."}]


def read(body: Any, **headers: str) -> Any:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return read_request(data, {**JSON, **{k.replace("_", "-"): v for k, v in headers.items()}})


def refused(body: Any, **headers: str) -> dict[str, Any]:
    with pytest.raises(ApiError) as caught:
        read(body, **headers)
    values: dict[str, Any] = json.loads(caught.value.body())["error"]
    assert values["code"] == caught.value.status
    assert list(values) == ["message", "type", "param", "code"]
    return values


# --- reading ------------------------------------------------------------------------------------


def test_errors_have_vllms_text() -> None:
    """Recorded from a real server, whole messages."""
    assert refused(b'{"model": tiny') == {
        "message": "1 validation error:\n  {'type': 'json_invalid', 'loc': 'body.10', 'msg': "
        "'JSON decode error', 'input': '<dict of 0 items>', 'ctx': {'error': 'Expecting value'}}",
        "type": "Bad Request",
        "param": "body.10",
        "code": 400,
    }
    assert refused({"model": "tiny"}) == {
        "message": "1 validation error:\n  {'type': 'missing', 'loc': 'body.messages', 'msg': "
        "'Field required', 'input': '<dict of 1 items>'}",
        "type": "Bad Request",
        "param": "body.messages",
        "code": 400,
    }
    assert refused({"model": "tiny", "messages": HELLO, "temperature": "hot"}) == {
        "message": "1 validation error:\n  {'type': 'float_parsing', 'loc': 'body.temperature', "
        "'msg': 'Input should be a valid number, unable to parse string as a number', 'input': "
        "'hot'}",
        "type": "Bad Request",
        "param": "body.temperature",
        "code": 400,
    }


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b"", "body"),
        (b"[]", "body"),
        (b'"text"', "body"),
        (b"\xff\xfe", "body.0"),
        (b'{"a": "\xed\xa0\x80"}', "body.messages"),
        ({"messages": "hi"}, "body.messages"),
        ({"messages": ["hi"]}, "body.messages.0"),
        ({"messages": [{"content": "hi"}]}, "body.messages.0.role"),
        ({"messages": [{"role": 1}]}, "body.messages.0.role"),
        ({"messages": [{"role": "user", "content": 5}]}, "body.messages.0.content"),
        ({"messages": HELLO, "model": 5}, "body.model"),
        ({"messages": HELLO, "max_tokens": "many"}, "body.max_tokens"),
        ({"messages": HELLO, "max_tokens": 1.5}, "body.max_tokens"),
        ({"messages": HELLO, "stream": "perhaps"}, "body.stream"),
        ({"messages": [{"role": "user", "content": [5]}]}, "body.messages.0.content.0"),
        ({"messages": [{"role": "x", "tool_calls": 1}]}, "body.messages.0.tool_calls"),
        ({"messages": [{"role": "x", "tool_calls": [1]}]}, "body.messages.0.tool_calls.0"),
        ({"messages": HELLO, "temperature": "nan"}, "body.temperature"),
        ({"messages": HELLO, "max_tokens": 1e300}, "body.max_tokens"),
        ({"messages": HELLO, "stop": {}}, "body.stop"),
        ({"messages": HELLO, "stop": ["a", 1]}, "body.stop.1"),
        ({"messages": HELLO, "response_format": "json"}, "body.response_format"),
        ({"messages": HELLO, "logit_bias": []}, "body.logit_bias"),
        ({"messages": HELLO, "tools": {}}, "body.tools"),
        ({"messages": HELLO, "tools": ["f"]}, "body.tools.0"),
        ({"messages": HELLO, "tools": [{}]}, "body.tools.0.function"),
        ({"messages": HELLO, "tools": [{"function": 1}]}, "body.tools.0.function"),
        ({"messages": HELLO, "tools": [{"function": {}}]}, "body.tools.0.function.name"),
        (
            {"messages": HELLO, "tools": [{"function": {"name": 1}}]},
            "body.tools.0.function.name",
        ),
        ({"messages": HELLO, "stream": True, "stream_options": 1}, "body.stream_options"),
        ({"messages": HELLO, "logit_bias": {"1": "x"}}, "body.logit_bias.1"),
        ({"messages": HELLO, "reasoning_effort": 5}, "body.reasoning_effort"),
        (
            {"messages": HELLO, "response_format": {"type": "json_schema", "json_schema": "x"}},
            "body.response_format.json_schema",
        ),
    ],
)
def test_invalid_types_are_refused_like_by_vllms_validation(body: Any, param: str) -> None:
    result = refused(body)
    assert (result["code"], result["type"], result["param"]) == (400, "Bad Request", param)


@pytest.mark.parametrize(
    ("fields", "param", "message"),
    [
        ({"messages": []}, "messages", "messages must contain at least one message."),
        ({"max_tokens": 0}, "max_tokens", "max_tokens must be at least 1, got 0."),
        (
            {"max_completion_tokens": 0},
            "max_completion_tokens",
            "max_completion_tokens must be at least 1, got 0.",
        ),
        ({"n": 0}, "n", "n must be at least 1, got 0."),
        ({"n": 1000}, "n", "n must be at most 128, got 1000."),
        ({"temperature": -1}, "temperature", "temperature must be non-negative, got -1.0."),
        ({"top_p": 0}, "top_p", "top_p must be in (0, 1], got 0.0."),
        (
            {"presence_penalty": 3},
            "presence_penalty",
            "presence_penalty must be in [-2, 2], got 3.0.",
        ),
        (
            {"top_logprobs": 2},
            "top_logprobs",
            "when using `top_logprobs`, `logprobs` must be set to true.",
        ),
        (
            {"logprobs": True, "top_logprobs": 21},
            "top_logprobs",
            "Requested sample logprobs of 21, which is greater than max allowed: 20",
        ),
        (
            {"logprobs": True, "top_logprobs": -2},
            "top_logprobs",
            "`top_logprobs` must be a positive value or -1.",
        ),
        (
            {"stream_options": {"include_usage": True}},
            "stream_options",
            "Stream options can only be defined when `stream=True`.",
        ),
        (
            {"tool_choice": "auto"},
            "tool_choice",
            "When using `tool_choice`, `tools` must be set.",
        ),
        (
            {"tool_choice": "any", "tools": TOOLS},
            "tool_choice",
            'Invalid value for `tool_choice`: any! Only named tools, "none", "auto" or '
            '"required" are supported.',
        ),
        (
            {"tool_choice": {"type": "function", "function": {"name": "h"}}, "tools": TOOLS},
            "tool_choice",
            "The tool specified in `tool_choice` does not match any of the specified `tools`",
        ),
        (
            {"tool_choice": {}, "tools": TOOLS},
            "tool_choice",
            "The tool specified in `tool_choice` does not match any of the specified `tools`",
        ),
        (
            {"prompt_logprobs": 21},
            "prompt_logprobs",
            "Requested prompt logprobs of 21, which is greater than max allowed: 20",
        ),
        (
            {"prompt_logprobs": -1},
            "prompt_logprobs",
            "`prompt_logprobs` must be a positive value.",
        ),
        (
            {"response_format": {"type": "json_schema"}},
            "response_format",
            "When response_format type is 'json_schema', the 'json_schema' field must be provided.",
        ),
    ],
)
def test_invalid_values_are_refused_like_by_vllm(
    fields: dict[str, Any], param: str, message: str
) -> None:
    """Its own errors name field and value after their words, as in its captured answers."""
    result = refused({"messages": HELLO, **fields})
    assert (result["code"], result["type"], result["param"]) == (400, "BadRequestError", param)
    value = fields[param]
    if param in ("temperature", "top_p", "presence_penalty"):
        value = float(value)
    actual = (
        f", value={value}" if isinstance(value, int | float) and "when using" not in message else ""
    )
    assert result["message"] == f"{message} (parameter={param}{actual})"


@pytest.mark.parametrize(
    "data",
    [b'{"a": "\xff"}', b"[" * 100_000, b'{"messages": [], "x": %s}' % (b"1" * 5000)],
    ids=["no text", "too deep", "too long a number"],
)
def test_bodies_that_cannot_be_decoded_are_refused(data: bytes) -> None:
    with pytest.raises(ApiError) as caught:
        read(data)
    assert caught.value.status == 400
    assert CHAT.refusal(caught.value) == b'{"detail":"There was an error parsing the body"}'


def test_the_content_type_must_be_json() -> None:
    with pytest.raises(ApiError, match="Only 'application/json' is allowed") as caught:
        read_request(b"{}", {"content-type": "text/plain"})
    assert caught.value.kind == "Bad Request"
    read_request(
        json.dumps({"messages": HELLO}).encode(),
        {"content-type": "Application/JSON; charset=utf-8"},
    )


def test_the_upstream_request_is_for_one_unstreamed_answer() -> None:
    body = {
        "model": "m",
        "messages": HELLO,
        "stream": True,
        "stream_options": {"include_usage": True},
        "n": 3,
        "seed": 1,
        "temperature": 0.0,
        "top_p": 0.9,
        "metadata": {"made": "up"},
    }
    request = read(body)
    assert request.body == {
        "model": "m",
        "messages": HELLO,
        "seed": 1,
        "temperature": 0.0,
        "top_p": 0.9,
        "metadata": {"made": "up"},
    }
    assert (request.stream, request.include_usage, request.train) == (True, True, True)
    assert (request.dialect, request.n, request.helper) == ("chat", 3, "")
    assert not read(body, x_ajet_train="No").train


def test_unusual_valid_bodies_pass() -> None:
    roles = ("developer", "system", "tool", "made_up")
    messages = [{"role": role, "content": None} for role in roles]
    body = {"messages": messages, "temperature": "0.5", "max_tokens": 5.0, "unknown": [1]}
    request = read(body, x_ajet_train="no")
    assert request.body["temperature"] == 0.5
    assert request.body["max_tokens"] == 5
    assert request.model == ""
    half = read(b'{"messages": [{"role": "user", "content": "a\\ud800b"}], "x": NaN}')
    assert half.query == "a\ufffdb"
    assert half.encoded()
    huge = read(
        b'{"messages": [{"role": "user", "content": "a"}], "x": 1e999, "y": 1%s}' % (b"0" * 40)
    )
    assert huge.encoded()
    pair = read(b'{"messages": [{"role": "user", "content": "\\ud83d\\ude00 \\ud83d"}]}')
    assert pair.query == "\U0001f600 \ufffd"


def test_the_history_passes_unchanged() -> None:
    """Both names of the reasoning, ids, arguments and blocks of any kind."""
    call = {"id": "x", "type": "function", "function": {"name": "f", "arguments": "{ }"}}
    messages = [
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "u"}}, {"b": 1}]},
        {"role": "assistant", "content": None, "reasoning": "a", "tool_calls": [call]},
        {"role": "tool", "content": [{"type": "text", "text": "1"}], "tool_call_id": "x"},
        {"role": "assistant", "content": "", "reasoning_content": "b"},
    ]
    fields = {"continue_final_message": True, "add_generation_prompt": False, "stop": ["How"]}
    fields["structured_outputs"] = {"choice": ["a"]}
    request = read({"messages": messages, "tools": TOOLS, **fields})
    assert request.body == {"messages": messages, "tools": TOOLS, **fields}
    assert json.loads(request.encoded()) == request.body


def test_the_query_is_the_last_users_text() -> None:
    blocks = [{"type": "text", "text": "one"}, {"type": "image_url"}, {"type": "text", "text": "2"}]
    messages = [
        {"role": "user", "content": "first"},
        {"role": "user", "content": blocks},
        {"role": "assistant", "content": "x"},
        {"role": "tool", "content": "y"},
    ]
    assert read({"messages": messages}).query == "one\n\n2"


def test_retries_have_equal_keys() -> None:
    body = {"messages": HELLO}
    key = read(body).key
    assert read(body).key == key
    assert read(body, x_request_id="other").key == key  # a gateway makes a new one for each try
    assert read({"messages": HELLO, "x": 1}).key != key
    for header in ("authorization", "x_session_id", "x_ajet_row"):
        assert read(body, **{header: "a"}).key != key
    assert read(body, x_ajet_train="no").key != key
    assert read_request(json.dumps(body).encode(), JSON, "10.0.0.1").key != key


def test_ids_and_sessions() -> None:
    body = {"messages": HELLO}
    assert read(body, x_request_id="my-id-1").request_id == "my-id-1"
    assert read(body, x_request_id="a\r\nb c\x7f").request_id == "abc"
    assert len(read(body).request_id) == 16

    assert read(body, session_id="s1").session == "s1"
    assert read({**body, "session_id": "s2"}).session == "s2"


FIELDS = [
    "model",
    "messages",
    "temperature",
    "n",
    "stream",
    "tools",
    "tool_choice",
    "top_p",
    "max_tokens",
    "stream_options",
    "logprobs",
    "top_logprobs",
    "session_id",
    "seed",
    "stop",
    "response_format",
    "return_token_ids",
    "parallel_tool_calls",
]
KEYS = ["role", "content", "text", "function", "name", "type", "id", "tool_calls", "include_usage"]
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=3)
    ),
    max_leaves=8,
)
messages = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "assistant", "tool", "x"])},
        optional={"content": anything, "tool_calls": anything, "reasoning": anything},
    ),
    max_size=3,
)


@pytest.mark.slow
@QUICK
@given(st.dictionaries(st.sampled_from(FIELDS), anything), st.none() | messages)
def test_any_body_is_answered_or_refused(body: dict[str, Any], some: Any) -> None:
    if some is not None:
        body["messages"] = some
    status, refused = 200, b"1"
    try:
        request = read(body)
        assert request.encoded()
        writer = CHAT.writer(request, "m", 5)
        call = {"id": None, "function": {"name": "f", "arguments": "{}"}}
        answer = made({"content": "a", "tool_calls": [call]}, "tool_calls")
        assert json.loads(writer.body([answer]))
        assert writer.opening() + writer.answer([answer])
    except ApiError as refusal:
        status = refusal.status
        refused = CHAT.refusal(refusal)
    assert status in (200, 400)
    assert json.loads(refused)


@pytest.mark.slow
@QUICK
@given(st.binary(max_size=40) | st.text(max_size=40).map(str.encode))
def test_any_bytes_are_parsed_or_refused(data: bytes) -> None:
    with pytest.raises(ApiError) as caught:
        read(data)
    assert caught.value.status == 400
    assert json.loads(CHAT.refusal(caught.value))


@pytest.mark.slow
@QUICK
@given(anything, anything, anything, anything)
def test_any_completion_can_be_written(content: Any, calls: Any, logprobs: Any, usage: Any) -> None:
    """A message of an upstream may contain anything."""
    message = {"content": content, "tool_calls": calls, "reasoning": content}
    choice = {"message": message, "logprobs": logprobs, "finish_reason": usage}
    answer = public_answer({"id": calls, "choices": [choice], "usage": usage})
    request = read({"messages": HELLO, "logprobs": True, "stream": True})
    writer = CHAT.writer(request, "m", 5)
    assert json.loads(writer.body([answer]))
    assert writer.answer([answer])
