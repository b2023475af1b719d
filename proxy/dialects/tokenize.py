"""`/tokenize`, `/detokenize`: what vLLM refuses of them, and an upstream's errors in its shape."""

from collections.abc import Mapping
from typing import Any

import msgspec

from ajet_swarm.api.outcomes import read_json
from proxy.dialects.common import decode, integer
from proxy.dialects.validation import check_messages
from proxy.http.errors import ApiError, bad_request, invalid, overloaded


class _Named(msgspec.Struct):
    model: str = ""


def model_of(data: bytes) -> str:
    """The model that a body names; empty when it names none, or is no such body."""
    try:
        return msgspec.json.decode(data, type=_Named).model
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return ""


def check_tokenizing(path: str, data: bytes, content_type: str) -> None:
    """Look at a body before the upstream does.

    Raises:
        ApiError: vLLM would refuse it too.
    """
    body = decode(data, content_type)
    if path == "/detokenize":
        _check_tokens(body)
    elif "messages" in body:
        check_messages(body)
    elif "prompt" not in body:
        raise invalid("missing", "body.prompt", "Field required", body)
    elif not isinstance(prompt := body["prompt"], str):
        raise invalid("string_type", "body.prompt", "Input should be a valid string", prompt)


def _check_tokens(body: Mapping[str, Any]) -> None:
    if "tokens" not in body:
        raise invalid("missing", "body.tokens", "Field required", body)
    tokens = body["tokens"]
    if not isinstance(tokens, list):
        raise invalid("list_type", "body.tokens", "Input should be a valid list", tokens)
    for index, token in enumerate(tokens):
        if integer(f"tokens.{index}", token) < 0:
            text = "Input should be greater than or equal to 0"
            raise invalid("greater_than_equal", f"body.tokens.{index}", text, token)


def refused(status: int, body: bytes) -> ApiError | None:
    """The upstream's error in vLLM's shape; None where it has that already."""
    told = read_json(body)
    told = told if isinstance(told, dict) else {}
    if isinstance(told.get("error"), dict):
        return None
    if status == 404:  # the route is there: what is not is the policy
        return overloaded(5)
    detail = told.get("detail")
    first = detail[0] if isinstance(detail, list) and detail else detail
    if isinstance(first, dict):
        where = ".".join(map(str, first.get("loc") or ["body"]))
        kind, text = str(first.get("type") or "value_error"), str(first.get("msg") or "")
        return invalid(kind, where, text, first.get("input"))
    return bad_request(first if isinstance(first, str) else "The upstream refused this.", None)
