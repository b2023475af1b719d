"""What the errors of an OpenAI-compatible upstream mean, for its candidates and for the user.

Errors that a request brought upon itself are passed on in the upstream's words, all others in ours:
they may name keys, organisations or addresses.
"""

import random
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any

import msgspec

from core.text import redact
from proxy.errors import Refusal
from swarm.answers import VLLM_OVERFLOW
from swarm.errors import ChatError, ChatErrorKind

THE_REQUESTS = frozenset({400, 413, 422})
"""Statuses of a request that is wrong whoever sends it."""
RETRY_AFTER = 5
"""Seconds, when the upstream does not say."""
LATER = frozenset({429, 503, 529})
"""Statuses that mean: not now."""
_AGAIN = frozenset({408, 409, 425})
_OVERFLOW_CODES = frozenset({"context_length_exceeded", "model_max_prompt_tokens_exceeded"})


class UpstreamFault(ChatError):
    """A call that the upstream answered with an error.

    Attributes:
        retry_after: Seconds it asks for; None when it does not.
        param: The field that is wrong, or None.
    """

    def __init__(
        self,
        kind: ChatErrorKind,
        text: str,
        status: int,
        *,
        retry_after: float | None = None,
        param: str | None = None,
    ) -> None:
        super().__init__(kind, text, status=status)
        self.retry_after = retry_after
        self.param = param


def fault(status: int, headers: Mapping[str, str], body: bytes, key: str = "") -> UpstreamFault:
    """The error behind an answer.

    Args:
        status: 400 and above.
        headers: Names compare without regard to case.
        body: In any of the usual shapes.
        key: Never to be found in the error's text.
    """
    told = _said(body)
    text = told.get("message")
    text = hide(text if isinstance(text, str) else "", key) or _phrase(status)
    param = told.get("param")
    code = told.get("code")
    if status in THE_REQUESTS:
        long = VLLM_OVERFLOW in text or code in _OVERFLOW_CODES
        kind = ChatErrorKind.OVERFLOW if long else ChatErrorKind.REFUSED
    elif status in (401, 403):
        kind = ChatErrorKind.UNAUTHORIZED
    elif status in LATER:
        kind = ChatErrorKind.LIMITED
    elif status < 500 and status not in _AGAIN:
        kind = ChatErrorKind.REFUSED
    else:
        kind = ChatErrorKind.UPSTREAM
    return UpstreamFault(
        kind,
        text,
        status,
        retry_after=seconds(headers.get("Retry-After", "")),
        param=param if isinstance(param, str) else None,
    )


def refusal_of(failures: Iterable[ChatError | None]) -> Refusal | None:
    """What the user is told when all candidates failed; None when no upstream said why."""
    found = [one for one in failures if isinstance(one, UpstreamFault)]
    for one in found:
        if one.status in THE_REQUESTS:
            return Refusal(one.status, None, one.text, param=one.param)
    for one in found:
        if one.kind is ChatErrorKind.LIMITED:
            wait = max(1, round(one.retry_after or RETRY_AFTER))
            if one.status == 429:
                text = "The upstream limits the rate of requests. Please try again later."
                return Refusal(429, wait, text, kind="Too Many Requests")
            return Refusal(503, wait, "The upstream is busy. Please try again later.")
    for one in found:
        if one.kind is ChatErrorKind.UNAUTHORIZED:
            return Refusal(502, None, "The upstream does not accept the key it is asked with.")
        if one.kind is ChatErrorKind.REFUSED:
            return Refusal(502, None, "The upstream does not know what it is asked for.")
    return None


def seconds(told: str) -> float | None:
    """The seconds of a `Retry-After` header; None without any, and for a date."""
    try:
        found = float(told)
    except ValueError:
        return None
    return found if 0 <= found < 86_400 else None


def spread(wait: float) -> float:
    """`wait` and a little more by chance: those that wait must not come back all at once."""
    return wait + random.uniform(0.0, 0.5)


def hide(text: str, key: str) -> str:
    """`text` without the key, or what looks like one."""
    return redact(text.replace(key, "[redacted]") if key else text)


def _said(body: bytes) -> Mapping[str, Any]:
    """`message`, `param` and `code` of `{"error": {...}}`, `{"error": "text"}`, `{"message": ...}`
    or `{"detail": ...}`."""
    try:
        parsed = msgspec.json.decode(body)
    except (msgspec.MsgspecError, RecursionError):
        return {}
    if not isinstance(parsed, dict):
        return {}
    error = parsed.get("error", parsed)
    if isinstance(error, str):
        return {"message": error}
    if not isinstance(error, dict):
        return {}
    if "message" not in error and isinstance(error.get("detail"), str):
        return {"message": error["detail"]}
    return error


def _phrase(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return f"HTTP {status}"
