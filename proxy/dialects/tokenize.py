"""`/tokenize` and `/detokenize`: vLLM's checks of their bodies, and errors in vLLM's form."""

from typing import Any

import msgspec

from ajet_swarm.api.chat import read_json
from core.dialects.errors import ApiError, bad_request, invalid
from core.dialects.validation import Messages, integer, typed
from proxy.dialects.request import decode
from proxy.http.errors import overloaded


class _ModelField(msgspec.Struct):
    model: str = ""


class _PromptField(msgspec.Struct):
    prompt: str


class _TokensField(msgspec.Struct):
    tokens: list[Any]


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
        for index, token in enumerate(typed(body, _TokensField, "body").tokens):
            if integer(f"tokens.{index}", token) < 0:
                text = "Input should be greater than or equal to 0"
                raise invalid("greater_than_equal", f"body.tokens.{index}", text, token)
    elif "messages" in body:
        typed(body, Messages, "body")
    else:
        typed(body, _PromptField, "body")


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
