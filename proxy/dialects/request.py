"""One request of a user in the form that all dialects share, and how it is read. No I/O.

Errors match those of a real vLLM, word for word where clients inspect the text. The cost of a body
depends on its number of values, not on its bytes: a long string is cheap, while a list of a million
small values would block the event loop wherever it is traversed. So they are counted before the
body is parsed.
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
from core.dialects.errors import ApiError, bad_request, invalid
from core.dialects.request import DialectRequest
from core.dialects.validation import required
from core.dialects.writer import Writer
from proxy.dialects.client_marks import own_words, session_of
from proxy.http.connection_use import ConnectionUse

_encode = msgspec.json.Encoder().encode


class ChatRequest(DialectRequest, kw_only=True, frozen=True):
    """One user request in any dialect.

    The `request_id` is the client's own `X-Request-Id`, else 16 hex digits. The `body` goes
    upstream: no stream, one answer, in training the run's temperature, unknown fields unchanged.
    """

    query: str
    """Text of the last user message."""
    model: str
    """The requested model name; may be empty."""
    stream: bool
    train: bool = True
    """False: answer from one candidate, do not train on it."""
    helper: str = ""
    """Name of the rule that classified it as a helper call (a title, a summary); empty if none."""
    session: str = ""
    """The session the client names; empty when it names none."""
    address: str = ""
    """The client's address."""
    connection: ConnectionUse = msgspec.field(default_factory=lambda: ConnectionUse(None))
    """Its connection; without one it may not overtake."""
    headers: Mapping[str, str]
    """The request's headers; names in lower case."""
    shown: list[dict[str, Any]] | None = None
    """`messages` with a label in place of each image; None when they hold no image."""
    waits_for_votes: bool = False
    """It never ends a group that is open to a rater; the operator asked it."""
    parts: tuple["ChatRequest", ...] = ()
    """For a request with several prompts: one request per prompt, each with a group of its own."""

    @property
    def seeds(self) -> bool:
        """Return whether each candidate needs its own seed: with one seed all choices are equal."""
        return self.n > 1 and isinstance(self.body.get("seed"), int)

    def encoded(self, index: int = 0) -> bytes:
        """Return `body` as JSON for the candidate `index`.

        With several choices its seed is seed + index, as with vLLM.
        """
        return _encode(
            {**self.body, "seed": self.body["seed"] + index} if self.seeds else self.body
        )


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


MOST_VALUES = 100_000
"""Maximum number of JSON values in a body; 2,000 messages of an agent are about 50,000."""
MOST_FIELDS = 10_000
"""Maximum number of top-level fields: the body is copied for each of several prompts."""


def check_values(data: bytes, limit: int = MOST_VALUES) -> None:
    """Refuse a body with too many values, in a small part of the time it takes to parse it.

    Raises:
        ApiError: The body has more than `limit` values.
    """
    if len(data) > 2 * limit and has_more_values(data, limit):
        raise _too_many(limit, "JSON values")


def check_fields(body: Mapping[str, Any], limit: int = MOST_FIELDS) -> None:
    """Refuse a body with too many fields.

    Raises:
        ApiError: The body has more than `limit` fields.
    """
    if len(body) > limit:
        raise _too_many(limit, "fields")


def _too_many(limit: int, unit: str) -> ApiError:
    return bad_request(f"The request body holds more than {limit} {unit}.", None)


def has_more_values(data: bytes, limit: int) -> bool:
    """Return whether a JSON text has more than `limit` values; a key and its value count as one."""
    if _separators(data) <= limit:
        return False  # separators within strings are counted too
    compact = data
    if b"\\" in data:
        compact = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    if compact.count(b'"') > 4 * limit:  # a value has at most two strings: itself and its key
        return True
    return _separators(b"".join(compact.split(b'"')[::2])) > limit


def _separators(data: bytes) -> int:
    return data.count(b",") + data.count(b"[") + data.count(b"{")


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
