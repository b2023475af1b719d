"""A chat request as it came and as the upstream gets it: parsing and checking, no I/O.

Errors are those of a real vLLM, word for word where clients look at the words.
"""

import hashlib
import json
import math
import re
import secrets
from collections.abc import Mapping
from typing import Any

import msgspec

from core.text import content_text
from proxy.conversation import ChatRequest
from proxy.errors import Refusal, bad_request, invalid

TRAIN_HEADER = "x-ajet-train"
SESSION_HEADERS = ("x-session-id", "session-id", "x-claude-code-session-id")

_NOT_UPSTREAM = frozenset({"stream", "stream_options", "n"})
_NOT_IN_TRAINING = _NOT_UPSTREAM | {"seed", "temperature"}
"""In training the run's own temperature holds; a seed would make N equal answers."""

_UNPRINTABLE = re.compile(r"[^\x21-\x7e]+")


def read_request(data: bytes, headers: Mapping[str, str], client: str = "") -> ChatRequest:
    """Parse and check one request.

    Args:
        data: The raw body.
        headers: Lower-case names.
        client: Where it comes from; with key and session it tells senders apart.

    Raises:
        Refusal: vLLM would refuse it too.
    """
    body = decode(data, headers.get("content-type", ""))
    check(body)
    train = headers.get(TRAIN_HEADER, "").strip().lower() not in ("no", "false", "0", "off")
    dropped = _NOT_IN_TRAINING if train else _NOT_UPSTREAM
    options = body.get("stream_options") or {}
    session = session_of(headers, body)
    messages = body["messages"]
    return ChatRequest(
        request_id=_request_id(headers),
        body={key: value for key, value in body.items() if key not in dropped},
        messages=messages,
        query=last_user_text(messages),
        model=body.get("model") or "",
        stream=bool(body.get("stream")),
        include_usage=bool(options.get("include_usage")),
        continuous_usage=bool(options.get("continuous_usage_stats")),
        train=train,
        session=session,
        key=_join_key(data, headers, client, session, train),
        headers=headers,
    )


def session_of(headers: Mapping[str, str], body: Mapping[str, Any]) -> str:
    """The conversation an agent says it is in; empty when it does not."""
    for name in SESSION_HEADERS:
        if found := headers.get(name):
            return found[:200]
    named = body.get("session_id")
    return named[:200] if isinstance(named, str) else ""


def last_user_text(messages: list[dict[str, Any]]) -> str:
    """Text of the last message of the user, else of the last message."""
    for message in reversed(messages):
        if message.get("role") == "user":
            return content_text(message.get("content"))
    return content_text(messages[-1].get("content")) if messages else ""


def _request_id(headers: Mapping[str, str]) -> str:
    named = _UNPRINTABLE.sub("", headers.get("x-request-id", ""))[:128]
    return named or secrets.token_hex(8)


def _join_key(
    data: bytes, headers: Mapping[str, str], client: str, session: str, train: bool
) -> str:
    digest = hashlib.blake2b(data, digest_size=16)
    sender = headers.get("authorization") or headers.get("x-api-key", "")
    for fact in (sender, client, session, headers.get("x-ajet-row", ""), str(train)):
        digest.update(b"\0" + fact.encode(errors="replace"))
    return digest.hexdigest()


# --- reading -----------------------------------------------------------------------------------


def decode(data: bytes, content_type: str) -> dict[str, Any]:
    """The body as a JSON object; half surrogate pairs in it become U+FFFD.

    Raises:
        Refusal: it is not one.
    """
    if content_type.partition(";")[0].strip().lower() != "application/json":
        raise bad_type()
    if not data:
        raise invalid("missing", "body", "Field required", None)
    try:
        body = msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        body = _decode_slowly(data)
    if not isinstance(body, dict):
        text = "Input should be a valid dictionary or object to extract fields from"
        raise invalid("model_attributes_type", "body", text, body)
    return body


def bad_type() -> Refusal:
    """The answer to a body that does not say it is JSON."""
    text = "Unsupported Media Type: Only 'application/json' is allowed"
    return Refusal(400, None, text, kind="Bad Request")


def _decode_slowly(data: bytes) -> Any:
    """What the quick reader refuses: half surrogate pairs and huge numbers are no errors."""
    try:
        return _clean(json.loads(data.decode()))
    except json.JSONDecodeError as error:
        where = f"body.{error.pos}"
        extra = f", 'ctx': {{'error': {error.msg!r}}}"
        raise invalid("json_invalid", where, "JSON decode error", {}, extra) from None
    except UnicodeDecodeError:
        text = "There was an error parsing the body"
        raise invalid("json_invalid", "body", text, None) from None
    except RecursionError:
        text = "The body is nested too deeply"
        raise invalid("json_invalid", "body", text, None) from None


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_clean(item) for item in value]
    if isinstance(value, dict):
        return {_clean(key): _clean(item) for key, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


# --- checking ----------------------------------------------------------------------------------

_NUMBERS = ("temperature", "top_p", "presence_penalty", "frequency_penalty", "min_p")
_INTEGERS = ("max_tokens", "max_completion_tokens", "n", "seed", "top_logprobs", "top_k")
_FLAGS = ("stream", "logprobs", "parallel_tool_calls")
_LISTS = ("tools",)
_OBJECTS = ("stream_options",)
_WORDS = {"true", "false", "yes", "no", "on", "off", "1", "0", "t", "f", "y", "n"}


def check(body: dict[str, Any]) -> None:
    """Refuse what vLLM refuses; unknown fields and roles pass.

    Raises:
        Refusal: names the field.
    """
    _check_messages(body)
    model = body.get("model")
    if model is not None and not isinstance(model, str):
        raise invalid("string_type", "body.model", "Input should be a valid string", model)
    for name in _NUMBERS:
        if (value := body.get(name)) is not None:
            body[name] = _number(name, value)
    for name in _INTEGERS:
        if (value := body.get(name)) is not None:
            body[name] = _integer(name, value)
    for name in _FLAGS:
        if (value := body.get(name)) is not None:
            body[name] = _flag(name, value)
    for name in _LISTS:
        if (value := body.get(name)) is not None and not isinstance(value, list):
            raise invalid("list_type", f"body.{name}", "Input should be a valid list", value)
    for name in _OBJECTS:
        if (value := body.get(name)) is not None and not isinstance(value, dict):
            text = "Input should be a valid dictionary"
            raise invalid("dict_type", f"body.{name}", text, value)
    _check_values(body)


def _check_messages(body: Mapping[str, Any]) -> None:
    if "messages" not in body:
        raise invalid("missing", "body.messages", "Field required", body)
    messages = body["messages"]
    if not isinstance(messages, list):
        raise invalid("list_type", "body.messages", "Input should be a valid list", messages)
    for index, message in enumerate(messages):
        where = f"body.messages.{index}"
        if not isinstance(message, dict):
            raise invalid("dict_type", where, "Input should be a valid dictionary", message)
        role = message.get("role")
        if role is None:
            raise invalid("missing", f"{where}.role", "Field required", message)
        if not isinstance(role, str):
            raise invalid("string_type", f"{where}.role", "Input should be a valid string", role)
        content = message.get("content")
        if content is not None and not isinstance(content, str | list):
            text = "Input should be a valid string"
            raise invalid("string_type", f"{where}.content", text, content)


def _number(name: str, value: Any) -> float:
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            text = "Input should be a valid number, unable to parse string as a number"
            raise invalid("float_parsing", f"body.{name}", text, value) from None
    if not isinstance(value, int | float):
        raise invalid("float_type", f"body.{name}", "Input should be a valid number", value)
    return value


def _integer(name: str, value: Any) -> int:
    where = f"body.{name}"
    if isinstance(value, str):
        try:
            return int(value)
        except ValueError:
            text = "Input should be a valid integer, unable to parse string as an integer"
            raise invalid("int_parsing", where, text, value) from None
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, float):
        text = "Input should be a valid integer, got a number with a fractional part"
        raise invalid("int_from_float", where, text, value)
    if not isinstance(value, int):
        raise invalid("int_type", where, "Input should be a valid integer", value)
    return value


def _flag(name: str, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if value in (0, 1) and isinstance(value, int | float):
        return bool(value)
    if isinstance(value, str) and value.lower() in _WORDS:
        return value.lower() in ("true", "yes", "on", "1", "t", "y")
    text = "Input should be a valid boolean, unable to interpret input"
    raise invalid("bool_parsing", f"body.{name}", text, value)


def _check_values(body: Mapping[str, Any]) -> None:
    if not body["messages"]:
        raise bad_request("messages must contain at least one message.", "messages")
    for name in ("max_tokens", "max_completion_tokens", "n"):
        if (value := body.get(name)) is not None and value < 1:
            raise bad_request(f"{name} must be at least 1, got {value}.", name)
    if (value := body.get("temperature")) is not None and value < 0:
        raise bad_request(f"temperature must be non-negative, got {value}.", "temperature")
    if (value := body.get("top_p")) is not None and not 0 < value <= 1:
        raise bad_request(f"top_p must be in (0, 1], got {value}.", "top_p")
    if (value := body.get("top_logprobs")) is not None:
        if value and not body.get("logprobs"):
            text = "when using `top_logprobs`, `logprobs` must be set to true."
            raise bad_request(text, "top_logprobs")
        if value < -1 or value > 20:
            text = f"Requested sample logprobs of {value}, which is greater than max allowed: 20"
            raise bad_request(text, "top_logprobs")
    if body.get("stream_options") is not None and not body.get("stream"):
        text = "Stream options can only be defined when `stream=True`."
        raise bad_request(text, "stream_options")
    if body.get("tool_choice") not in (None, "none") and body.get("tools") is None:
        raise bad_request("When using `tool_choice`, `tools` must be set.", "tool_choice")
