"""Requests of every dialect: what is read, what is refused, and how."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.dialects.errors import ApiError
from core.dialects.request import text_deltas, usage_of, valid_text
from core.dialects.responses.tools import custom_arguments, custom_input
from core.dialects.validation import flag, integer, number
from core.dialects.writer import apply_tool_choice
from proxy.dialects.chat.request import CHAT
from proxy.dialects.client_marks import session_of
from proxy.dialects.messages import MESSAGES, count_body, read_count, read_messages
from proxy.dialects.request import ChatRequest, decode, join_key, last_user_text, request_id, trains
from proxy.http.errors import overloaded
from tests.unit.proxy.dialects.forms import BODIES, DIALECTS, HELLO, JSON, TOOLS, chat, made, read

KIND = "application/json"


VALUES = {
    number: [(1, 1.0), (0.5, 0.5), ("0.5", 0.5), (True, 1.0), ("-1e3", -1000.0)],
    integer: [(1, 1), (2.0, 2), ("3", 3), (True, 1), ("-4", -4)],
    flag: [(True, True), (0, False), (1.0, True), ("Yes", True), ("off", False)],
}
WRONG: dict[Any, list[Any]] = {
    number: [None, [], {}, "a", "inf", "nan", "1e999", 10**400],
    integer: [None, [], 1.5, "1.5", math.inf, 2**63, -(2**63) - 1, 10**4000, "9" * 5000],
    flag: [None, 2, "", "maybe", [], {}],
}


@pytest.mark.parametrize(
    ("parse", "value", "expected"), [(kind, *row) for kind, rows in VALUES.items() for row in rows]
)
def test_values_are_parsed_also_from_text(parse: Any, value: Any, expected: Any) -> None:
    result = parse("x", value)
    assert result == expected
    assert parse is number or type(result) is type(expected)


@pytest.mark.parametrize(
    ("parse", "value"), [(kind, value) for kind, values in WRONG.items() for value in values]
)
def test_invalid_values_are_refused(parse: Any, value: Any) -> None:
    with pytest.raises(ApiError, match="Input should be ") as caught:
        parse("x", value)
    assert caught.value.param == "body.x"


def test_bodies_in_other_encodings() -> None:
    """As the framework reads them: a mark at the start, two bytes a character."""
    assert decode("{}".encode("utf-16"), KIND) == {}
    assert decode("\ufeff{}".encode(), KIND) == {}
    assert decode('{"a": "é"}'.encode("utf-16-le"), KIND) == {"a": "é"}


def test_lone_surrogates_and_huge_numbers_are_accepted() -> None:
    body = decode(b'{"a\\ud800": ["\\ud83d\\ude00", "\\ud83d", 1e999, NaN]}', KIND)
    assert body == {"a\ufffd": ["\U0001f600", "\ufffd", None, None]}


def test_headers_identify_the_sender() -> None:
    assert trains({})
    assert not any(trains({"x-ajet-train": word}) for word in ("no", " NO ", "false", "0", "off"))
    assert session_of({"session-id": "a", "x-session-id": "b"}, {}) == "b"
    assert session_of({"x-claude-code-session-id": "c"}, {"session_id": "d"}) == "c"
    assert session_of({}, {"session_id": "d" * 300}) == "d" * 200
    assert session_of({}, {"session_id": 1}) == ""
    assert request_id({"x-request-id": " a\u00e9b\n"}) == "ab"
    assert len(request_id({})) == 16
    assert last_user_text([]) == ""
    assert last_user_text([{"role": "system", "content": "a"}]) == "a"


def test_a_key_is_of_one_dialect() -> None:
    """The same bytes to another path are another request."""
    result = (b"{}", {}, "", "", True)
    assert join_key(*result) == join_key(*result)
    assert join_key(*result, "completions") != join_key(*result, "chat")


def test_a_public_answer_is_read_from_any_upstreams_completion() -> None:
    one = made({"content": [{"type": "text", "text": "a"}], "reasoning_content": "b"})
    assert (one.content, one.reasoning) == ("a", "b")
    assert one.usage == {
        "prompt_tokens": 17,
        "total_tokens": 40,
        "completion_tokens": 23,
        "prompt_tokens_details": None,
        "completion_tokens_details": None,
    }
    plain = made({"content": ""}, usage=None)
    assert plain.content is None
    assert plain.usage["completion_tokens_details"] == {"reasoning_tokens": 0}
    assert (plain.usage["prompt_tokens"], plain.finish_reason) == (0, "stop")
    assert made({"content": "\ud83d\ude00\ud83d"}).content == "\U0001f600\ufffd"


def test_call_ids_are_stable_and_unique() -> None:
    calls: list[Any] = [
        {"id": "a", "function": {"name": "f", "arguments": {"x": 1}}},
        {"id": "a", "function": {"name": "f", "arguments": ""}},
        {"function": None},
        "no call",
    ]
    request = chat(tools=TOOLS)
    (one,) = apply_tool_choice([made({"tool_calls": calls})], request)
    (again,) = apply_tool_choice([made({"tool_calls": calls})], request)
    ids = [call["id"] for call in one.tool_calls]
    assert ids[0] == "a"
    assert len(set(ids)) == 3
    assert ids == [call["id"] for call in again.tool_calls]
    result = [call["function"]["arguments"] for call in one.tool_calls]
    assert result == ['{"x":1}', "{}", "{}"]


def test_usage_of_several_choices() -> None:
    counted = {"prompt_tokens": 5, "completion_tokens": 3}
    details = {"completion_tokens_details": {"reasoning_tokens": 2}}
    some = [made({"content": "a", "reasoning": "b"}, usage={**counted, **details})] * 3
    result = usage_of(some)
    assert (result["prompt_tokens"], result["completion_tokens"], result["total_tokens"]) == (
        5,
        9,
        14,
    )
    assert result["completion_tokens_details"] == {"reasoning_tokens": 6}
    unknown = made({"content": "a", "reasoning": "b"}, usage=counted)
    assert usage_of([*some, unknown])["completion_tokens_details"] is None
    assert usage_of([])["total_tokens"] == 0


def test_the_deltas_of_the_texts() -> None:
    one = made({"content": "a", "reasoning": "b"})
    assert text_deltas(one) == [{"reasoning": "b"}, {"content": "a"}]
    assert valid_text("a\ud800") == "a\ufffd"


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


ROOT = Path(__file__).parents[4]


ROWS = [
    json.loads(line)
    for line in (ROOT / "tests/data/dialects/refusals.jsonl").read_text().splitlines()
]
"""Dialect, fields of the body, invalid field and, for a value that vLLM refuses, its words."""


def refused(name: str, body: Any) -> tuple[ApiError, dict[str, Any]]:
    """The error of a body, and the answer of its dialect."""
    with pytest.raises(ApiError) as caught:
        read(name, body)
    answer: dict[str, Any] = json.loads(DIALECTS[name].refusal(caught.value))
    return caught.value, answer


def blocks(*content: Any, role: str = "user") -> dict[str, Any]:
    return {"messages": [{"role": role, "content": list(content)}]}


@pytest.mark.parametrize(("name", "fields", "param"), [row for row in ROWS if len(row) == 3])
def test_invalid_types_are_refused_like_by_vllms_validation(
    name: str, fields: dict[str, Any], param: str
) -> None:
    refusal, answer = refused(name, {**BODIES[name], **fields})
    assert (refusal.status, refusal.kind) == (400, "Bad Request")
    assert refusal.param == param
    error = answer["error"]
    if name == "messages":
        assert (list(answer), list(error)) == (["type", "error"], ["type", "message"])
        assert (answer["type"], error["type"]) == ("error", "invalid_request_error")
    else:
        assert list(error) == ["message", "type", "param", "code"]
    assert f"'loc': '{param}'" in error["message"]


@pytest.mark.parametrize(
    ("name", "fields", "param", "words"), [row for row in ROWS if len(row) == 4]
)
def test_invalid_values_are_refused_like_by_vllm(
    name: str, fields: dict[str, Any], param: str | None, words: str
) -> None:
    refusal, answer = refused(name, {**BODIES[name], **fields})
    assert (refusal.status, refusal.kind, refusal.param) == (400, "BadRequestError", param)
    assert words in answer["error"]["message"] == refusal.message
    assert ("(parameter=" in refusal.message) == (param is not None)


@pytest.mark.parametrize(
    ("fields", "status", "param", "words"),
    [
        ({"background": True}, 400, "background", "does not support the background mode"),
        (
            *({"previous_response_id": "resp_1"}, 404, "response_id"),
            "Response with id 'resp_1' not found.",
        ),
        *(
            ({"conversation": past}, 404, "conversation", "Conversation with id 'c' not found.")
            for past in ("c", {"id": "c"})
        ),
        ({"input": [{"type": "item_reference", "id": "fc_1"}]}, 404, "input", "'fc_1' not found"),
        *(
            ({"input": [{"role": "user", "content": [part]}]}, 400, "input", "stores no files.")
            for part in (
                {"type": "input_image", "file_id": "file_1"},
                {"type": "input_file", "file_url": "https://x/a.pdf"},
            )
        ),
    ],
)
def test_what_a_response_without_a_store_cannot_have(
    fields: dict[str, Any], status: int, param: str, words: str
) -> None:
    refusal, _ = refused("responses", {**BODIES["responses"], **fields})
    assert (refusal.status, refusal.kind) == (status, "invalid_request_error")
    assert refusal.param == param
    assert words in refusal.message


# --- bodies that are no request ------------------------------------------------------------------


@pytest.mark.parametrize("name", DIALECTS)
def test_a_body_that_is_no_object_is_refused_in_vllms_form(name: str) -> None:
    """The first message is recorded from a real server."""
    assert refused(name, b'{"model": tiny')[1] == {
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
        assert refused(name, data)[1]["error"]["param"] == "body"
    assert refused(name, b"\xff\xfe")[1]["error"]["param"] == "body.0"
    with pytest.raises(ApiError, match="Only 'application/json' is allowed") as caught:
        DIALECTS[name].read(b"{}", {"content-type": "text/plain"}, "")
    answer = json.loads(DIALECTS[name].refusal(caught.value))
    assert answer["error"]["type"] == "Bad Request"
    kind = {"content-type": "Application/JSON; charset=utf-8"}
    DIALECTS[name].read(json.dumps(BODIES[name]).encode(), kind, "")


@pytest.mark.parametrize(
    "data",
    [b'{"a": "\xff"}', b"[" * 100_000, b'{"messages": [], "x": %s}' % (b"1" * 5000)],
    ids=["no text", "too deep", "too long a number"],
)
@pytest.mark.parametrize("name", DIALECTS)
def test_bodies_that_cannot_be_decoded_are_refused(name: str, data: bytes) -> None:
    answer = refused(name, data)[1]
    assert answer == {"detail": "There was an error parsing the body"}


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
    assert read("chat", {**BODIES["chat"], **fields}).body.items() >= fields.items()


# --- errors of Anthropic -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        *[(400, "invalid_request_error"), (401, "authentication_error"), (403, "permission_error")],
        *[(404, "not_found_error"), (413, "request_too_large"), (422, "invalid_request_error")],
        *[(429, "rate_limit_error"), (500, "api_error"), (502, "api_error")],
        (503, "overloaded_error"),
    ],
)
def test_each_status_has_its_error_type(status: int, kind: str) -> None:
    body = json.loads(MESSAGES.refusal(ApiError(status, None, "no")))
    assert body == {"type": "error", "error": {"type": kind, "message": "no"}}
    busy = json.loads(MESSAGES.refusal(overloaded(2)))["error"]
    assert busy["message"].startswith("The engine is currently busy")
    assert json.loads(CHAT.refusal(overloaded(2)))["error"]["code"] == 503


CONTINUED = {
    **BODIES["messages"],
    **blocks({"type": "tool_result", "tool_use_id": "t1", "content": "marmalade"}),
    "thread": {"type": "continue", "previous_message_id": "chatcmpl-644ef8aa6ebca857"},
}
"""What the tool runner of Anthropic's JavaScript SDK asks where it is let; first it creates one."""


@pytest.mark.parametrize("reader", [read_messages, read_count])
@pytest.mark.parametrize(
    "body",
    [
        *(CONTINUED, {**CONTINUED, "messages": []}, {**CONTINUED, "thread": {"type": "create"}}),
        *({**CONTINUED, "thread": thread} for thread in (5, "create", [], {}, False)),
    ],
)
def test_a_thread_is_refused_so_that_the_sdk_sends_the_whole_conversation(
    body: dict[str, Any], reader: Callable[..., Any]
) -> None:
    with pytest.raises(ApiError) as caught:
        reader(json.dumps(body).encode(), {**JSON, "anthropic-beta": "message-threads-2026-08-12"})
    assert caught.value.status == 400
    result = json.loads(MESSAGES.refusal(caught.value))
    assert result["error"].pop("message").startswith("thread: ")
    assert result == {
        "type": "error",
        "error": {
            "type": "invalid_request_error",
            "details": {"error_code": "thread_unsupported_request", "unsupported": ["thread"]},
        },
    }


def test_a_null_thread_is_accepted() -> None:
    bare, null = (
        read("messages", {**BODIES["messages"], **more}) for more in ({}, {"thread": None})
    )
    assert (null.body, null.messages) == (bare.body, bare.messages)
