"""Chat requests: what is refused, and what goes upstream."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.dialects.chat import read_request
from proxy.errors import Refusal

JSON = {"content-type": "application/json"}
HELLO = [{"role": "user", "content": "Say hello."}]


def read(body: Any, **headers: str) -> Any:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return read_request(data, {**JSON, **{k.replace("_", "-"): v for k, v in headers.items()}})


def refused(body: Any, **headers: str) -> dict[str, Any]:
    with pytest.raises(Refusal) as caught:
        read(body, **headers)
    said: dict[str, Any] = json.loads(caught.value.body())["error"]
    assert said["code"] == caught.value.status
    assert list(said) == ["message", "type", "param", "code"]
    return said


# --- reading ------------------------------------------------------------------------------------


def test_errors_in_the_words_of_vllm() -> None:
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
        (b"\xff\xfe", "body"),
        (b'{"a": "\xed\xa0\x80"}', "body"),
        (b"[" * 100_000, "body"),
        ({"messages": "hi"}, "body.messages"),
        ({"messages": ["hi"]}, "body.messages.0"),
        ({"messages": [{"content": "hi"}]}, "body.messages.0.role"),
        ({"messages": [{"role": 1}]}, "body.messages.0.role"),
        ({"messages": [{"role": "user", "content": 5}]}, "body.messages.0.content"),
        ({"messages": HELLO, "model": 5}, "body.model"),
        ({"messages": HELLO, "max_tokens": "many"}, "body.max_tokens"),
        ({"messages": HELLO, "max_tokens": 1.5}, "body.max_tokens"),
        ({"messages": HELLO, "stream": "perhaps"}, "body.stream"),
        ({"messages": HELLO, "tools": {}}, "body.tools"),
        ({"messages": HELLO, "stream": True, "stream_options": 1}, "body.stream_options"),
    ],
)
def test_what_the_framework_refuses(body: Any, param: str) -> None:
    said = refused(body)
    assert (said["code"], said["type"], said["param"]) == (400, "Bad Request", param)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": []}, "messages"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_completion_tokens": 0}, "max_completion_tokens"),
        ({"n": 0}, "n"),
        ({"temperature": -1}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"tool_choice": "auto"}, "tool_choice"),
    ],
)
def test_what_vllm_itself_refuses(fields: dict[str, Any], param: str) -> None:
    said = refused({"messages": HELLO, **fields})
    assert (said["code"], said["type"], said["param"]) == (400, "BadRequestError", param)


def test_the_content_type_must_be_json() -> None:
    with pytest.raises(Refusal, match="Only 'application/json' is allowed") as caught:
        read_request(b"{}", {"content-type": "text/plain"})
    assert caught.value.kind == "Bad Request"
    read_request(
        json.dumps({"messages": HELLO}).encode(),
        {"content-type": "Application/JSON; charset=utf-8"},
    )


def test_training_drops_what_would_make_equal_answers() -> None:
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
        "top_p": 0.9,
        "metadata": {"made": "up"},
    }
    assert (request.stream, request.include_usage, request.train) == (True, True, True)
    untrained = read(body, x_ajet_train="No")
    assert not untrained.train
    assert untrained.body["temperature"] == 0.0
    assert untrained.body["seed"] == 1


def test_odd_but_valid_bodies_pass() -> None:
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


def test_the_query_is_the_last_users_text() -> None:
    blocks = [{"type": "text", "text": "one"}, {"type": "image_url"}, {"type": "text", "text": "2"}]
    messages = [
        {"role": "user", "content": "first"},
        {"role": "user", "content": blocks},
        {"role": "assistant", "content": "x"},
        {"role": "tool", "content": "y"},
    ]
    assert read({"messages": messages}).query == "one\n\n2"


def test_equal_keys_mean_the_same_request_sent_again() -> None:
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


@given(
    st.dictionaries(
        st.sampled_from(
            [
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
            ]
        ),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(st.sampled_from(["role", "content", "text"]), inner, max_size=3)
            ),
            max_leaves=8,
        ),
    )
)
def test_no_body_breaks_the_reader(body: dict[str, Any]) -> None:
    status = 200
    try:
        assert read(body).encoded()
    except Refusal as refusal:
        status = refusal.status
    assert status in (200, 400)
