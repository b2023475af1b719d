"""What the readers of all dialects share: JSON in, fields checked, senders told apart. No I/O.

Errors are those of a real vLLM, word for word where clients look at the words.
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
from core.ids import hex_id
from proxy.dialects.agent_notes import own_words
from proxy.http.errors import ApiError, invalid
from proxy.http.json_limits import check_fields, check_values

TRAIN_HEADER = "x-ajet-train"
UNREADABLE = "There was an error parsing the body"

_UNPRINTABLE = re.compile(r"[^\x21-\x7e]+")
_WORDS = {"true", "false", "yes", "no", "on", "off", "1", "0", "t", "f", "y", "n"}
_decode = msgspec.json.Decoder().decode


class Unreadable(ApiError):
    """A body that is no text, or nested beyond reason: vLLM's answer has a form of its own."""

    def __init__(self) -> None:
        super().__init__(400, None, UNREADABLE, kind="Bad Request")

    def body(self) -> bytes:
        """The JSON of the whole answer."""
        return b'{"detail":"%s"}' % UNREADABLE.encode()


def refusal_body(refusal: ApiError) -> bytes:
    """The JSON of an error, each kind in its own form."""
    return refusal.body()


# --- the sender ---------------------------------------------------------------------------------


def trains(headers: Mapping[str, str]) -> bool:
    """Whether the sender lets its request be trained on."""
    return headers.get(TRAIN_HEADER, "").strip().lower() not in ("no", "false", "0", "off")


def request_id(headers: Mapping[str, str]) -> str:
    """The client's own `X-Request-Id` without what cannot be printed, else 16 hex digits."""
    named = _UNPRINTABLE.sub("", headers.get("x-request-id", ""))[:128]
    return named or hex_id(8)


def join_key(
    data: bytes,
    headers: Mapping[str, str],
    client: str,
    session: str,
    train: bool,
    dialect: str = "chat",
) -> str:
    """Equal for a request that is sent again: same sender, same session, same bytes."""
    sender = headers.get("authorization") or headers.get("x-api-key", "")
    facts = (sender, client, session, headers.get("x-ajet-row", ""), str(train), dialect)
    digest = hashlib.blake2b(data, digest_size=16)
    digest.update(b"\0" + "\0".join(facts).encode(errors="replace"))
    return digest.hexdigest()


def last_user_text(messages: list[dict[str, Any]]) -> str:
    """The last words of the user's own, else the text of the last message."""
    for message in reversed(messages):
        if message.get("role") == "user":
            text = content_text(message.get("content"))
            if (words := own_words(text)) or not text:
                return words
    return content_text(messages[-1].get("content")) if messages else ""


# --- the body -----------------------------------------------------------------------------------


def decode(data: bytes, content_type: str) -> dict[str, Any]:
    """The body as a JSON object; half surrogate pairs in it become U+FFFD.

    Raises:
        ApiError: it is not one.
    """
    if content_type.partition(";")[0].strip().lower() != "application/json":
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
    """The answer to a body that does not say it is JSON."""
    text = "Unsupported Media Type: Only 'application/json' is allowed"
    return ApiError(400, None, text, kind="Bad Request")


def _decode_slowly(data: bytes) -> Any:
    """What the quick reader refuses: half surrogate pairs and huge numbers are no errors."""
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
    """A finite number, also from its text.

    Args:
        name: The field, as the error names it.
        value: As it came.

    Raises:
        ApiError: it is none.
    """
    where = f"body.{name}"
    if isinstance(value, str):
        try:
            found = float(value)
        except ValueError:
            text = "Input should be a valid number, unable to parse string as a number"
            raise invalid("float_parsing", where, text, value) from None
        if not math.isfinite(found):
            raise invalid("finite_number", where, "Input should be a finite number", value)
        return found
    if not isinstance(value, int | float):
        raise invalid("float_type", where, "Input should be a valid number", value)
    if abs(value) > sys.float_info.max:
        raise invalid("finite_number", where, "Input should be a finite number", str(value))
    return float(value) if isinstance(value, bool) else value


def integer(name: str, value: Any) -> int:
    """A whole number, also from its text or from a float without a fraction.

    Raises:
        ApiError: it is none, or one beyond 64 bits.
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
    """True or false, also from the words for them.

    Raises:
        ApiError: it is neither.
    """
    if isinstance(value, bool):
        return value
    if value in (0, 1) and isinstance(value, int | float):
        return bool(value)
    if isinstance(value, str) and value.lower() in _WORDS:
        return value.lower() in ("true", "yes", "on", "1", "t", "y")
    text = "Input should be a valid boolean, unable to interpret input"
    raise invalid("bool_parsing", f"body.{name}", text, value)
