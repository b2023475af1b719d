"""Shared parts of all request parsers: decode JSON, identify senders, the request. No I/O.

Errors match those of a real vLLM, word for word where clients inspect the text.

The interface of a dialect: parse its requests, write its responses. No I/O.
"""

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from ajet_swarm.common.lenient_json import lenient
from ajet_swarm.common.text import content_text
from ajet_swarm.runtime import SYSTEM, Chance
from core.dialects.errors import ApiError, invalid
from core.dialects.fields import required
from core.dialects.writer import Writer
from proxy.dialects.agent_notes import own_words
from proxy.dialects.request import ChatRequest
from proxy.dialects.session_marks import session_of
from proxy.http.json_limits import check_fields, check_values


@dataclass(frozen=True, slots=True)
class Dialect:
    """One API format: its name, request parser, response writer and error format."""

    name: str
    read: Callable[[bytes, Mapping[str, str], str], ChatRequest]
    """(raw body, headers with lower-case names, client's address) -> request; raises `ApiError`."""
    writer: Callable[[ChatRequest, str, int], Writer]
    """(request, model name in the response, Unix seconds) -> writer."""
    refusal: Callable[[ApiError], bytes]
    """Return the JSON body of an error response."""


TRAIN_HEADER = "x-ajet-train"
UNREADABLE = "There was an error parsing the body"

_JSON = "application/json"
_UNPRINTABLE = re.compile(r"[^\x21-\x7e]+")
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


class RequestReader:
    """Parser of the requests of one dialect.

    Args:
        dialect: Name of the dialect.
        convert: (decoded body, id of the request) -> the chat completion that is sent upstream,
            and the fields of `ChatRequest` that the body does not determine in the usual way;
            raises `ApiError` for an invalid body.
        route: Requests of different routes are never retries of each other; the dialect by default.
    """

    def __init__(
        self,
        dialect: str,
        convert: Callable[[dict[str, Any], str], tuple[dict[str, Any], dict[str, Any]]],
        route: str = "",
    ) -> None:
        self._dialect = dialect
        self._convert = convert
        self._route = route or dialect

    def __call__(self, data: bytes, headers: Mapping[str, str], client: str = "") -> ChatRequest:
        """Parse and check one request.

        Args:
            data: The raw body.
            headers: The request's headers; names in lower case.
            client: The client's address; with key and session it identifies the sender.

        Raises:
            ApiError: The request is invalid (vLLM refuses it too), or not supported.
        """
        body = decode(data, headers.get("content-type", ""))
        name = request_id(headers)
        try:
            upstream, fields = self._convert(body, name)
        except RecursionError:
            raise Unreadable from None
        train = fields.setdefault("train", trains(headers))
        session = session_of(headers, body)
        messages = upstream["messages"]
        if "query" not in fields:
            fields["query"] = last_user_text(messages)
        return ChatRequest(
            dialect=self._dialect,
            request_id=name,
            body=upstream,
            messages=messages,
            model=body.get("model") or "",
            stream=fields.pop("stream", bool(body.get("stream"))),
            session=session,
            key=join_key(data, headers, client, session, train, self._route),
            address=client,
            headers=headers,
            **fields,
        )


def choice_fields(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a request that only dialects with choices and chunks have."""
    options = body.get("stream_options") or {}
    return {
        "include_usage": bool(options.get("include_usage")),
        "continuous_usage": bool(options.get("continuous_usage_stats")),
        "n": body.get("n") or 1,
    }


# --- the body -----------------------------------------------------------------------------------


def decode(data: bytes, content_type: str) -> dict[str, Any]:
    """Return the body as a JSON object; half surrogate pairs in it become U+FFFD.

    Raises:
        ApiError: The body is not a JSON object.
    """
    if content_type != _JSON and content_type.partition(";")[0].strip().lower() != _JSON:
        raise bad_type()
    if not data:
        raise required("body", None)
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
