"""Requests of every dialect, and the chat completion that is sent upstream for each."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.dialects.errors import ApiError
from core.dialects.responses.tools import custom_arguments, custom_input
from proxy.dialects.chat.request import CHAT
from proxy.dialects.messages import count_body, read_count
from proxy.dialects.request import ChatRequest
from tests.unit.proxy.dialects.forms import BODIES, HELLO, JSON, read

FILE = Path(__file__).parents[4] / "tests/data/dialects/requests.jsonl"
PDF = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf"}}
CASES = list(map(json.loads, FILE.read_text().splitlines()))
"""`fields` replace or add fields of the dialect's body in `BODIES`."""


@pytest.mark.parametrize("case", CASES, ids=[case["what"] for case in CASES])
def test_the_upstream_gets_the_request_as_a_chat_completion(case: dict[str, Any]) -> None:
    name = case["dialect"]
    request = read(name, {**BODIES[name], **case["fields"]})
    assert json.loads(request.encoded()) == case["upstream"]
    assert request.messages == case["upstream"]["messages"]
    assert request.query == case["query"]
    assert request.dialect == name
    assert request.stream == bool(case["fields"].get("stream"))
    assert (request.model, request.train) == (case["upstream"].get("model", ""), True)


@pytest.mark.parametrize("name", BODIES)
def test_a_request_that_is_not_to_be_trained(name: str) -> None:
    body = {**BODIES[name], "seed": 1, "temperature": 0}
    request = read(name, body, x_ajet_train="No")
    assert not request.train
    assert (request.body["seed"], request.body["temperature"]) == (1, 0)


@pytest.mark.parametrize("name", BODIES)
def test_retries_have_equal_keys(name: str) -> None:
    body = BODIES[name]
    key = read(name, body).key
    assert read(name, body).key == key
    assert read(name, body, x_request_id="other").key == key  # a gateway makes one for each try
    assert read(name, {**body, "x": 1}).key != key
    for header in ("authorization", "x_api_key", "x_session_id", "x_ajet_row"):
        assert read(name, body, **{header: "a"}).key != key
    assert read(name, body, x_ajet_train="no").key != key
    assert CHAT.read(json.dumps(BODIES["chat"]).encode(), JSON, "10.0.0.1").key != key


@pytest.mark.parametrize("name", BODIES)
def test_ids_and_sessions(name: str) -> None:
    body = BODIES[name]
    assert read(name, body, x_request_id="my-id-1").request_id == "my-id-1"
    assert read(name, body, x_request_id="a\r\nb c\x7f").request_id == "abc"
    assert len(read(name, body).request_id) == 16
    assert read(name, body, session_id="s1").session == "s1"
    assert read(name, {**body, "session_id": "s2"}).session == "s2"


def test_unusual_valid_bodies_pass() -> None:
    roles = ("developer", "system", "tool", "made_up")
    messages = [{"role": role, "content": None} for role in roles]
    body = {"messages": messages, "temperature": "0.5", "max_tokens": 5.0, "unknown": [1]}
    request = read("chat", body, x_ajet_train="no")
    assert request.body["temperature"] == 0.5
    assert request.body["max_tokens"] == 5
    assert request.model == ""
    half = read("chat", b'{"messages": [{"role": "user", "content": "a\\ud800b"}], "x": NaN}')
    assert half.query == "a\ufffdb"
    assert half.encoded()
    huge = read(
        "chat",
        b'{"messages": [{"role": "user", "content": "a"}], "x": 1e999, "y": 1%s}' % (b"0" * 40),
    )
    assert huge.encoded()
    pair = read("chat", b'{"messages": [{"role": "user", "content": "\\ud83d\\ude00 \\ud83d"}]}')
    assert pair.query == "\U0001f600 \ufffd"


# --- messages ------------------------------------------------------------------------------------


def converted(*messages: dict[str, Any]) -> list[dict[str, Any]]:
    return read("messages", {**BODIES["messages"], "messages": list(messages)}).messages


@pytest.mark.parametrize(
    "content",
    [
        [PDF],
        [{"type": "document", "source": {"type": "url", "url": "https://x/a.pdf"}}],
        [
            {"type": "document", "source": {"type": "file", "file_id": "f"}},
            {"type": "text", "text": "Sum up."},
        ],
        [{"type": "image", "source": {"type": "file", "file_id": "f"}}],
        [{"type": "container_upload", "file_id": "f"}],
        [{"type": "tool_result", "tool_use_id": "c", "content": [PDF]}],
        [{"type": "document", "source": {"type": "content", "content": [{"type": "image"}]}}],
    ],
)
def test_a_file_of_the_newest_turn_is_refused_and_an_older_one_left_out(content: Any) -> None:
    asked = {"role": "user", "content": content}
    later = {"role": "user", "content": "And?"}
    with pytest.raises(ApiError, match="supported only as text") as caught:
        converted(asked, later)
    assert (caught.value.status, caught.value.kind) == (400, "Bad Request")
    assert caught.value.param.startswith("body.messages.0.content.")
    assert converted(asked, {"role": "assistant", "content": "No."}, later)[-1] == later
    with pytest.raises(ApiError, match="supported only as text"):
        converted(asked, {"role": "assistant", "content": "The beginning of the answer"})


def test_what_claude_code_sends() -> None:
    kept = {"cache_control": {"type": "ephemeral"}}
    rules = {"v": 1, "permission_mode": "auto", "home_dir": "/home/somebody"}
    body = {
        **BODIES["messages"],
        "max_tokens": 32000,
        "stream": True,
        "system": [{"type": "text", "text": "S", **kept}],
        "messages": [*HELLO, {"role": "system", "content": "Note."}],
        "tools": [{"name": "f", "input_schema": {"type": "object"}, "defer_loading": True, **kept}],
        "thinking": {"type": "adaptive"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "output_config": {"effort": "medium"},
        "metadata": {"user_id": "user_0_account__session_5b0e"},
        # in auto mode
        "safeguards": [{"type": "dangerous_tool_use", "classifier_context": rules}],
    }
    beta = "claude-code-20250219,made-up"
    request = read("messages", body, x_claude_code_session_id="5b0e", anthropic_beta=beta)
    assert request.session == "5b0e"
    assert list(request.body) == [
        *["model", "max_tokens", "messages", "tools", "tool_choice", "reasoning_effort"]
    ]


def test_counting_parses_the_same_prompt_without_max_tokens() -> None:
    tools = [{"name": "f", "input_schema": {"type": "object"}}]
    body = {"model": "tiny", "messages": HELLO, "system": "S", "tools": tools}
    counted = read_count(json.dumps(body).encode(), JSON)
    request = read("messages", {**body, "max_tokens": 5})
    assert counted.messages == request.messages
    assert counted.body["tools"] == request.body["tools"]
    assert (counted.train, counted.stream) == (False, False)
    assert counted.key != read_count(json.dumps(BODIES["messages"]).encode(), JSON).key
    with pytest.raises(ApiError, match=r"body\.messages"):
        read_count(b"{}", JSON)


def test_the_answer_to_counting() -> None:
    """Recorded from a real server."""
    body = b'{"input_tokens":17,"context_management":{"original_input_tokens":17}}'
    assert count_body(17) == body


# --- responses -----------------------------------------------------------------------------------


def echo(request: ChatRequest) -> dict[str, Any]:
    """The fields that the response repeats."""
    return {key: json.loads(bytes(value)) for key, value in request.extra.echo.items()}


def test_the_response_repeats_fields_of_the_request() -> None:
    fields = {"metadata": {"m": "1"}, "truncation": "auto", "max_tool_calls": 3}
    repeated = echo(read("responses", {"input": "x", "temperature": 0, **fields}))
    assert repeated.items() >= fields.items()
    assert (repeated["temperature"], repeated["top_p"]) == (0.0, 1.0)
    request = read("responses", {"input": "x"}, x_request_id="my-id-1")
    assert request.extra.response_id == "resp_my-id-1"
    assert read("responses", {"input": "x", "request_id": "resp_9"}).extra.response_id == "resp_9"
    assert len(read("responses", {"input": "x"}).extra.response_id) == len("resp_") + 16


def test_tools_are_repeated_with_all_their_keys_in_vllms_order() -> None:
    kinds = ["function", "custom", "namespace", "web_search", "local_shell", "made_up"]
    tools = [{"type": kind, "name": "n"} for kind in kinds]
    repeated = echo(read("responses", {"input": "x", "tools": tools}))["tools"]
    assert [tool["type"] for tool in repeated] == kinds
    assert list(repeated[0]) == [
        *["name", "parameters", "strict", "type", "allowed_callers", "async", "defer_loading"],
        *["description", "output_schema"],
    ]
    assert repeated[-1] == tools[-1]


@pytest.mark.slow
@given(st.text())
def test_the_text_of_a_custom_call_comes_back(text: str) -> None:
    assert custom_input(custom_arguments(text)) == text


@pytest.mark.parametrize("arguments", ["", "{", "[1]", '{"input": 5}', "*** Begin Patch"])
def test_arguments_that_hold_no_input_are_the_text(arguments: str) -> None:
    assert custom_input(arguments) == arguments
