"""Which session, trace, sender and API key a request names.

Agents mark their session in the address (`/sessions/ID/v1`), in headers, in fields of the body, or
in an API key of the form `sk-ajet-session-NAME`. The first mark in `HEADERS` counts, then the body,
then the key. The session of an unmarked request follows from its content: see
`proxy.admission.conversations`.
"""

import hashlib
import re
from collections.abc import Mapping
from typing import Any

import msgspec

HEADERS = (
    "x-ajet-session",  # ours, also set for `/sessions/ID/v1`
    "x-session-id",  # opencode; what vLLM itself reads
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
"""Fields of `client_metadata` and `metadata`."""
KEY_PREFIX = "sk-ajet-session-"

_LONGEST = 200
_UNPRINTABLE = re.compile(r"[^\x21-\x7e]+")
_UNIQUE = re.compile(
    r"(?i)[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
    r"|^(?:ses|sess|session|thread|conv|chat)[-_:].{6}"
)
_USER_ID = re.compile(r"_session_([0-9A-Za-z-]{8,})$")
_TRACE = re.compile(r"^[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")

_decode = msgspec.json.Decoder().decode


def session_of(headers: Mapping[str, str], body: Mapping[str, Any]) -> str:
    """The session a client says it is in; empty when it does not.

    Args:
        headers: Lower-case names.
        body: In any dialect.
    """
    if not _HEADERS.isdisjoint(headers):
        for name in HEADERS:
            if found := headers.get(name):
                return _clean(found)
    if _MARKED.isdisjoint(body):
        return _by_key(headers)
    for name in FIELDS:
        if isinstance(found := body.get(name), str) and found:
            return _clean(found)
    for name in ("client_metadata", "metadata"):
        if (inner := body.get(name)) and isinstance(inner, dict) and (found := _inner(inner)):
            return _clean(found)
    key = body.get("prompt_cache_key")  # a constant one is no session
    if isinstance(key, str) and _UNIQUE.search(key):
        return _clean(key)
    return _by_key(headers)


def trace_of(headers: Mapping[str, str]) -> str:
    """The trace a request is part of (W3C `traceparent`): a weak mark, empty when there is none."""
    told = headers.get("traceparent")
    found = _TRACE.match(told) if told else None
    return found[1] if found else ""


def sender_of(headers: Mapping[str, str]) -> str:
    """What tells senders apart: their key."""
    return headers.get("authorization") or headers.get("x-api-key") or ""


def key_of(headers: Mapping[str, str]) -> str:
    """A name for the API key of a request, which does not show it; empty without a key.

    All keys that name a session are one.
    """
    key = headers.get("x-api-key") or ""
    if authorization := headers.get("authorization"):
        scheme, _, rest = authorization.partition(" ")
        key = rest.strip() if scheme.lower() == "bearer" else authorization
    if key.startswith(KEY_PREFIX):
        key = KEY_PREFIX
    return hashlib.blake2b(key.encode(errors="replace"), digest_size=8).hexdigest() if key else ""


def _clean(text: str) -> str:
    return _UNPRINTABLE.sub("", text[: 2 * _LONGEST])[:_LONGEST]


def _inner(fields: Mapping[str, Any]) -> str:
    for name in INNER:
        if isinstance(found := fields.get(name), str) and found:
            return found
    user = fields.get("user_id")
    if not isinstance(user, str):
        return ""
    if user.startswith("{"):  # Claude Code since 2.1: JSON
        try:
            told = _decode(user)
        except msgspec.DecodeError:
            return ""
        found = told.get("session_id") if isinstance(told, dict) else None
        return found if isinstance(found, str) else ""
    part = _USER_ID.search(user)
    return part[1] if part else ""


def _by_key(headers: Mapping[str, str]) -> str:
    key = headers.get("x-api-key") or ""
    if told := headers.get("authorization"):
        scheme, _, rest = told.partition(" ")
        key = rest.strip() if scheme.lower() == "bearer" else key
    return _clean(key.removeprefix(KEY_PREFIX)) if key.startswith(KEY_PREFIX) else ""
