"""Shared parts of all request parsers: decode JSON, check fields, identify senders. No I/O.

Errors match those of a real vLLM, word for word where clients inspect the text.
"""

import hashlib
import json
import math
import re
import sys
from collections.abc import Mapping
from typing import Any

import msgspec

from ajet_swarm.common.lenient_json import lenient
from ajet_swarm.common.text import content_text
from ajet_swarm.runtime import SYSTEM, Chance
from proxy.dialects.agent_notes import own_words
from proxy.http.errors import ApiError, invalid
from proxy.http.json_limits import check_fields, check_values

TRAIN_HEADER = "x-ajet-train"
UNREADABLE = "There was an error parsing the body"

_JSON = "application/json"
_UNPRINTABLE = re.compile(r"[^\x21-\x7e]+")
_WORDS = {"true", "false", "yes", "no", "on", "off", "1", "0", "t", "f", "y", "n"}
_decode = msgspec.json.Decoder().decode


class Unreadable(ApiError):
    """Error for a body that is not text or is nested too deeply, in vLLM's special form."""

    def __init__(self) -> None:
        super().__init__(400, None, UNREADABLE, kind="Bad Request")

    def body(self) -> bytes:
        return b'{"detail":"%s"}' % UNREADABLE.encode()


def refusal_body(refusal: ApiError) -> bytes:
    """Return the JSON body of an error response."""
    return refusal.body()


# --- the sender ---------------------------------------------------------------------------------


def trains(headers: Mapping[str, str]) -> bool:
    """Return whether the request may be used for training: all unless `TRAIN_HEADER` denies it."""
    value = headers.get(TRAIN_HEADER)
    return value is None or value.strip().lower() not in ("no", "false", "0", "off")


def request_id(headers: Mapping[str, str], chance: Chance = SYSTEM.chance) -> str:
    """Return the client's own `X-Request-Id`, printable characters only, else 16 hex digits."""
    own = headers.get("x-request-id")
    printable = _UNPRINTABLE.sub("", own)[:128] if own else ""
    return printable or chance.token(8)


def join_key(
    data: bytes,
    headers: Mapping[str, str],
    client: str,
    session: str,
    train: bool,
    dialect: str = "chat",
) -> str:
    """Return a key that equals that of a retry: same sender, same session, same bytes.

    Args:
        data: The raw body.
        headers: Lower-case names.
        client: The client's address.
        session: The session the request names; empty for none.
        train: Whether the request may be used for training.
        dialect: Name of the dialect.
    """
    sender = headers.get("authorization") or headers.get("x-api-key", "")
    parts = (sender, client, session, headers.get("x-ajet-row", ""), str(train), dialect)
    digest = hashlib.blake2b(data, digest_size=16)
    digest.update(b"\0" + "\0".join(parts).encode(errors="replace"))
    return digest.hexdigest()


def last_user_text(messages: list[dict[str, Any]]) -> str:
    """Return the last user message's text without agents' notes, else that of the last message."""
    for message in reversed(messages):
        if message.get("role") == "user":
            text = content_text(message.get("content"))
            if (query := own_words(text)) or not text:
                return query
    return content_text(messages[-1].get("content")) if messages else ""


# --- the body -----------------------------------------------------------------------------------


def decode(data: bytes, content_type: str) -> dict[str, Any]:
    """Return the body as a JSON object; half surrogate pairs in it become U+FFFD.

    Raises:
        ApiError: The body is not a JSON object.
    """
    if content_type != _JSON and content_type.partition(";")[0].strip().lower() != _JSON:
        raise bad_type()
    if not data:
        raise invalid("missing", "body", "Field required", None)
    check_values(data)
    try:
        body = _decode(data)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        body = _decode_slowly(data)
    if not isinstance(body, dict):
        text = "Input should be a valid dictionary or object to extract fields from"
        raise invalid("model_attributes_type", "body", text, body)
    check_fields(body)
    return body


def bad_type() -> ApiError:
    """Return the error for a body whose content type is not JSON."""
    text = "Unsupported Media Type: Only 'application/json' is allowed"
    return ApiError(400, None, text, kind="Bad Request")


def _decode_slowly(data: bytes) -> Any:
    """Decode what the fast decoder rejects: accept half surrogate pairs and huge numbers."""
    try:
        return lenient(data)
    except json.JSONDecodeError as error:
        where = f"body.{error.pos}"
        extra = f", 'ctx': {{'error': {error.msg!r}}}"
        raise invalid("json_invalid", where, "JSON decode error", {}, extra) from None
    except (ValueError, RecursionError):
        raise Unreadable from None


# --- single fields ------------------------------------------------------------------------------


def number(name: str, value: Any) -> float:
    """Return a finite number, also from its text.

    Args:
        name: The field, for the error message.
        value: The decoded JSON value.

    Raises:
        ApiError: The value is not a finite number.
    """
    where = f"body.{name}"
    if isinstance(value, str):
        try:
            parsed = float(value)
        except ValueError:
            text = "Input should be a valid number, unable to parse string as a number"
            raise invalid("float_parsing", where, text, value) from None
        if not math.isfinite(parsed):
            raise invalid("finite_number", where, "Input should be a finite number", value)
        return parsed
    if not isinstance(value, int | float):
        raise invalid("float_type", where, "Input should be a valid number", value)
    if abs(value) > sys.float_info.max:
        raise invalid("finite_number", where, "Input should be a finite number", str(value))
    return float(value) if isinstance(value, bool) else value


def integer(name: str, value: Any) -> int:
    """Return an integer, also from its text or from a float without a fraction.

    Raises:
        ApiError: The value is not an integer or does not fit into 64 bits.
    """
    where = f"body.{name}"
    if isinstance(value, str):
        try:
            value = int(value)
        except ValueError:
            text = "Input should be a valid integer, unable to parse string as an integer"
            raise invalid("int_parsing", where, text, value) from None
    if isinstance(value, float):
        if not value.is_integer():
            text = "Input should be a valid integer, got a number with a fractional part"
            raise invalid("int_from_float", where, text, value)
        value = int(value)
    if not isinstance(value, int):
        raise invalid("int_type", where, "Input should be a valid integer", value)
    if value < -(1 << 63):
        text = f"Input should be greater than or equal to {-(1 << 63)}"
        raise invalid("greater_than_equal", where, text, str(value))
    if value >= 1 << 63:
        text = f"Input should be less than or equal to {(1 << 63) - 1}"
        raise invalid("less_than_equal", where, text, str(value))
    return int(value)


def flag(name: str, value: Any) -> bool:
    """Return a boolean, also from 0, 1 or a word like "yes" or "off".

    Raises:
        ApiError: The value is none of these.
    """
    if isinstance(value, bool):
        return value
    if value in (0, 1) and isinstance(value, int | float):
        return bool(value)
    if isinstance(value, str) and value.lower() in _WORDS:
        return value.lower() in ("true", "yes", "on", "1", "t", "y")
    text = "Input should be a valid boolean, unable to interpret input"
    raise invalid("bool_parsing", f"body.{name}", text, value)
