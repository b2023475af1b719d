"""`/tokenize` and `/detokenize`: vLLM's checks of their bodies, and errors in vLLM's form."""

from collections.abc import Mapping
from typing import Any

import msgspec

from ajet_swarm.api.outcomes import read_json
from proxy.dialects.common import decode, integer
from proxy.dialects.validation import check_messages
from proxy.http.errors import ApiError, bad_request, invalid, overloaded


class _ModelField(msgspec.Struct):
    model: str = ""


def model_of(data: bytes) -> str:
    """Return the model that a body names; empty when it names none or is not valid."""
    try:
        return msgspec.json.decode(data, type=_ModelField).model
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return ""


def check_tokenize(path: str, data: bytes, content_type: str) -> None:
    """Check a body before it goes upstream.

    Args:
        path: `/tokenize` or `/detokenize`.
        data: The raw body.
        content_type: The `Content-Type` header.

    Raises:
        ApiError: The body is invalid; vLLM refuses it too.
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


def upstream_error(status: int, body: bytes) -> ApiError | None:
    """Convert the upstream's error to vLLM's form; None where it has that form already."""
    error = read_json(body)
    error = error if isinstance(error, dict) else {}
    if isinstance(error.get("error"), dict):
        return None
    if status == 404:  # the route exists, so the model is not loaded
        return overloaded(5)
    detail = error.get("detail")
    first = detail[0] if isinstance(detail, list) and detail else detail
    if isinstance(first, dict):
        where = ".".join(map(str, first.get("loc") or ["body"]))
        kind, text = str(first.get("type") or "value_error"), str(first.get("msg") or "")
        return invalid(kind, where, text, first.get("input"))
    return bad_request(first if isinstance(first, str) else "The upstream refused this.", None)
