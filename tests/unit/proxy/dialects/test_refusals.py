"""Requests that are refused, in every dialect: which field, which kind of error, which words."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from core.dialects.errors import ApiError
from proxy.dialects.chat.request import CHAT
from proxy.dialects.messages import MESSAGES, read_count, read_messages
from proxy.http.errors import overloaded
from tests.unit.proxy.dialects.forms import BODIES, DIALECTS, JSON, read

ROOT = Path(__file__).parents[4]
ROWS = [
    json.loads(line)
    for line in (ROOT / "tests/data/dialects/refusals.jsonl").read_text().splitlines()
]
"""Dialect, fields of the body, invalid field and, for a value that vLLM refuses, its words."""
NO_PROMPT = "Either prompt or prompt_embeds must be provided and non-empty."


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


def test_errors_have_vllms_text() -> None:
    """Recorded from a real server, whole messages."""
    assert refused("chat", {"model": "tiny"})[1]["error"] == {
        "message": "1 validation error:\n  {'type': 'missing', 'loc': 'body.messages', 'msg': "
        "'Field required', 'input': '<dict of 1 items>'}",
        "type": "Bad Request",
        "param": "body.messages",
        "code": 400,
    }
    assert refused("chat", {**BODIES["chat"], "temperature": "hot"})[1]["error"] == {
        "message": "1 validation error:\n  {'type': 'float_parsing', 'loc': 'body.temperature', "
        "'msg': 'Input should be a valid number, unable to parse string as a number', 'input': "
        "'hot'}",
        "type": "Bad Request",
        "param": "body.temperature",
        "code": 400,
    }
    assert refused("completions", {})[0].message.startswith(NO_PROMPT)
    assert refused("responses", {})[0].param == "body.input"


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
