"""Whose conversation a request belongs to: by the marks clients send, else by what it says.

A mark is what agents really send: the end of the address (`/sessions/ID/v1`), headers, fields of
the body, or an API key of the form `sk-ajet-session-NAME`. The first one found in `HEADERS`, then
in the body, then in the key counts.

Without a mark a conversation is known by its content: see `matching`.
"""

import hashlib
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
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

MINUTE = 60.0
_LONGEST = 200
_UNPRINTABLE = re.compile(r"[^\x21-\x7e]+")
_UNIQUE = re.compile(
    r"(?i)[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
    r"|^(?:ses|sess|session|thread|conv|chat)[-_:].{6}"
)
_USER_ID = re.compile(r"_session_([0-9A-Za-z-]{8,})$")
_TRACE = re.compile(r"^[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")

_decode = msgspec.json.Decoder().decode


# --- marks --------------------------------------------------------------------------------------


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


# --- caps ---------------------------------------------------------------------------------------

SESSIONS = 4096


class Runaway(Exception):
    """A session is over its cap.

    Attributes:
        retry_after: Whole seconds after which it may go on.
        limit: Which cap, in words.
    """

    def __init__(self, limit: str, retry_after: int) -> None:
        super().__init__(limit)
        self.limit = limit
        self.retry_after = retry_after


class _Session(msgspec.Struct, eq=False):
    calls: list[float] = []
    """When its newest requests came, as many as the cap looks at."""
    open: int = 0
    turn: int = 0
    tools: bool = False


class Sessions:
    """What sessions do: how many of their requests are open, and how many came in a minute.

    Args:
        cap: Requests open at once; 0 is no cap.
        calls: Requests in a minute; 0 is no cap.
        clock: Seconds that only go forward.
        limit: Sessions that are remembered.
    """

    def __init__(
        self,
        cap: int,
        calls: int,
        clock: Callable[[], float] = time.monotonic,
        limit: int = SESSIONS,
    ) -> None:
        self._cap = cap
        self._calls = calls
        self._clock = clock
        self._limit = limit
        self._sessions: OrderedDict[str, _Session] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, session: str, *, helper: bool = False, tools: bool = False) -> int:
        """One request more; pair with `close`.

        Args:
            session: Its name.
            helper: It is a helper call, no turn of the conversation.
            tools: It offers tools: an agent's.

        Returns:
            Which turn of the session it is, from 1; 0 for a helper call.

        Raises:
            Runaway: a cap is reached; the request does not count.
        """
        one = self._sessions.get(session)
        if one is None:
            one = self._sessions[session] = _Session()
        self._sessions.move_to_end(session)
        self._check(one)
        one.calls.append(self._clock())
        if len(one.calls) > self._calls:
            del one.calls[0]
        one.open += 1
        one.tools = one.tools or tools
        one.turn += not helper
        self._prune()
        return 0 if helper else one.turn

    def close(self, session: str) -> None:
        """A request of the session is over."""
        if (one := self._sessions.get(session)) is not None:
            one.open -= 1

    def has_tools(self, session: str) -> bool:
        """Whether the session has sent requests with tools."""
        one = self._sessions.get(session)
        return one is not None and one.tools

    def _check(self, one: _Session) -> None:
        if self._cap and one.open >= self._cap:
            raise Runaway(f"{self._cap} open requests", 2)
        if self._calls and len(one.calls) >= self._calls:
            left = one.calls[0] + MINUTE - self._clock()
            if left > 0:
                raise Runaway(f"{self._calls} requests a minute", int(left) + 1)

    def _prune(self) -> None:
        """Forget what was unused for longest, but nothing that is open."""
        over = len(self._sessions) - self._limit
        if over > 0:
            idle = (name for name, one in self._sessions.items() if not one.open)
            for name in [next(idle, "") for _ in range(over)]:
                self._sessions.pop(name, None)
