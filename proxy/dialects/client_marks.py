"""What clients and agents put into a request beside their user's words. No I/O.

Agents name their session in the URL (`/sessions/ID/v1`), in headers, in fields of the body, or in
an API key of the form `sk-ajet-session-NAME`. Headers take precedence in the order of `HEADERS`,
then the body, then the key. For requests without a session, `proxy.admission.sessions` matches the
content.

Notes that agents insert into a message are removed only from the text that identifies a request
(its query), never from the messages that go upstream. The same holds for the text that OpenClaw
adds to a message: a timestamp in front of it, a line about its runtime behind it.
"""

import hashlib
import re
from collections.abc import Mapping
from typing import Any

import msgspec

HEADERS = (
    "x-ajet-session",  # this project's own, also set for `/sessions/ID/v1`
    "x-session-id",  # opencode; also read by vLLM
    "session-id",  # Codex
    "session_id",  # Codex before 0.6x
    "thread-id",
    "x-claude-code-session-id",
    "x-session-affinity",  # opencode
    "x-openwebui-chat-id",
    "x-litellm-session-id",
)
_HEADERS = frozenset(HEADERS)
FIELDS = ("session_id", "litellm_session_id")
_MARKED = frozenset((*FIELDS, "client_metadata", "metadata", "prompt_cache_key"))
INNER = ("session_id", "session-id", "thread_id", "thread-id", "conversation_id", "chat_id")
"""Fields of `client_metadata` and `metadata` that name a session."""
KEY_PREFIX = "sk-ajet-session-"

_LONGEST = 200
_UNPRINTABLE = re.compile(r"[^\x21-\x7e]+")
_UNIQUE = re.compile(
    r"(?i)[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
    r"|^(?:ses|sess|session|thread|conv|chat)[-_:].{6}"
)
_USER_ID = re.compile(r"_session_([0-9A-Za-z-]{8,})$")
_TRACE_PARENT = re.compile(
    r"^(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?=$|-)"
)
_TRACE_STATE = re.compile(r"[\x20-\x7e]*")

_decode = msgspec.json.Decoder().decode


def session_of(headers: Mapping[str, str], body: Mapping[str, Any]) -> str:
    """Return the session that a request names; empty when it names none.

    Args:
        headers: The request's headers; names in lower case.
        body: The request's body, in any dialect.
    """
    if not _HEADERS.isdisjoint(headers):
        for name in HEADERS:
            if mark := headers.get(name):
                return _clean(mark)
    if _MARKED.isdisjoint(body):
        return _session_of_key(headers)
    for name in FIELDS:
        if isinstance(mark := body.get(name), str) and mark:
            return _clean(mark)
    for name in ("client_metadata", "metadata"):
        fields = body.get(name)
        if fields and isinstance(fields, dict) and (mark := _session_field(fields)):
            return _clean(mark)
    key = body.get("prompt_cache_key")  # a constant key is not a session
    if isinstance(key, str) and _UNIQUE.search(key):
        return _clean(key)
    return _session_of_key(headers)


def trace_context_of(headers: Mapping[str, str]) -> tuple[str, str]:
    """Return `traceparent` and `tracestate` of W3C Trace Context; both empty without a valid one.

    A `tracestate` over 512 characters, or with a character it cannot have, is left out.
    """
    parent = headers.get("traceparent")
    if not parent or not (match := _TRACE_PARENT.match(parent)):
        return "", ""
    state = headers.get("tracestate") or ""
    return match[0], "" if len(state) > 512 or not _TRACE_STATE.fullmatch(state) else state


def sender_of(headers: Mapping[str, str]) -> str:
    """Return the credentials that identify the sender; empty without any."""
    return headers.get("authorization") or headers.get("x-api-key") or ""


def key_of(headers: Mapping[str, str]) -> str:
    """Return a hash that identifies the request's API key; empty without a key.

    All keys that name a session have the same hash.
    """
    key = _key(headers)
    if key.startswith(KEY_PREFIX):
        key = KEY_PREFIX
    return hashlib.blake2b(key.encode(errors="replace"), digest_size=8).hexdigest() if key else ""


def _clean(text: str) -> str:
    return _UNPRINTABLE.sub("", text[: 2 * _LONGEST])[:_LONGEST]


def _session_field(fields: Mapping[str, Any]) -> str:
    for name in INNER:
        if isinstance(value := fields.get(name), str) and value:
            return value
    user = fields.get("user_id")
    if not isinstance(user, str):
        return ""
    if user.startswith("{"):  # Claude Code since 2.1: JSON
        try:
            decoded = _decode(user)
        except msgspec.DecodeError:
            return ""
        value = decoded.get("session_id") if isinstance(decoded, dict) else None
        return value if isinstance(value, str) else ""
    match = _USER_ID.search(user)
    return match[1] if match else ""


def _session_of_key(headers: Mapping[str, str]) -> str:
    for key in (_key(headers), headers.get("x-api-key") or ""):
        if key.startswith(KEY_PREFIX):
            return _clean(key.removeprefix(KEY_PREFIX))
    return ""


def _key(headers: Mapping[str, str]) -> str:
    authorization = headers.get("authorization")
    if not authorization:
        return headers.get("x-api-key") or ""
    scheme, _, rest = authorization.partition(" ")
    return rest.strip() if scheme.lower() == "bearer" else authorization


# --- notes in a text -----------------------------------------------------------------------------

ASIDES = (
    ("<system-reminder>", "</system-reminder>"),  # Claude Code, qwen-code, AgentScope
    ("<environment_context>", "</environment_context>"),  # Codex
    ("<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>", "<<<END_OPENCLAW_INTERNAL_CONTEXT>>>"),
)

MOST_ASIDES = 1000
"""Notes of one kind that are removed from one text, at most."""

_STAMP = re.compile(
    r"\[(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) \d{4}-\d\d-\d\d \d\d:\d\d [\w:/+-]{1,40}\] "
)
_RUNTIME = "Runtime: agent="


def own_words(text: str) -> str:
    """Return `text` without notes, timestamp and runtime line; empty if nothing else remains."""
    text_only = without_asides(text)
    stamp = _STAMP.match(text_only)
    trimmed = text_only[stamp.end() :] if stamp else text_only
    line = trimmed.rstrip()
    begin = line.rfind("\n") + 1
    if line.startswith(_RUNTIME, begin):  # a last line in which OpenClaw describes its runtime
        trimmed = line[:begin]
    return text_only if trimmed is text_only else trimmed.strip()


def without_asides(text: str) -> str:
    """Return `text` without tagged notes; unchanged without any, empty if nothing else remains.

    OpenClaw's timestamp and runtime line stay: they are equal when a message is sent again, and
    they distinguish conversations that begin with the same words.
    """
    result = text
    for begin, end in ASIDES:
        if begin in result:
            result = _without(result, begin, end)
    return text if result is text else result.strip()


def query_of(text: str, before: str | None) -> str | None:
    """Return the user's query after one more message.

    Args:
        text: Text of the message.
        before: The query after the previous messages; None without any.

    Returns:
        The message without notes; `before` if it consists of notes only.
    """
    words = own_words(text)
    return words if words or not text else before


def _without(text: str, begin: str, end: str) -> str:
    """Cut out all notes between the two tags; keep an unclosed one: it may be the user's text."""
    pieces: list[str] = []
    position = 0
    while (
        len(pieces) < MOST_ASIDES
        and (start := text.find(begin, position)) >= 0
        and (stop := text.find(end, start)) >= 0
    ):
        pieces.append(text[position:start])
        position = stop + len(end)
    return text if not position else "".join((*pieces, text[position:]))


# --- the client's timeout ------------------------------------------------------------------------

TIMEOUTS = ("x-stainless-timeout", "x-stainless-read-timeout")
"""The client's own timeout in seconds, as the SDKs of OpenAI and Anthropic send it."""
_TIMEOUTS = frozenset(TIMEOUTS)
MAX_TIMEOUT = 7200.0
"""Seconds above which a value is ignored: some SDKs send milliseconds."""


def client_timeout(headers: Mapping[str, str], stream: bool) -> float:
    """Return the seconds after which the client gives up; 0 if unknown.

    For a stream it limits the time between two events, which the keep-alives always stay below.
    """
    if stream or _TIMEOUTS.isdisjoint(headers):
        return 0.0
    timeouts = [_seconds(headers.get(name, "")) for name in TIMEOUTS]
    return min((seconds for seconds in timeouts if 0 < seconds <= MAX_TIMEOUT), default=0.0)


def _seconds(value: str) -> float:
    try:
        return float(value)
    except ValueError:
        return 0.0
