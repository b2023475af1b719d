"""What the errors of an upstream mean, for its candidates and for the user.

Errors that a request brought upon itself are passed on in the upstream's words, all others in ours:
they may name keys, organisations or addresses. Also of the words that are passed on is nothing left
that is the upstream's own: see `passed_on`.
"""

import random
import re
from collections.abc import Iterable, Mapping
from urllib.parse import urljoin, urlsplit

from ajet_swarm.api.outcomes import THE_REQUESTS, VLLM_OVERFLOW
from ajet_swarm.common.text import one_line, plain, redact
from ajet_swarm.protocol.errors import ChatError, ChatErrorKind
from core.openai.errors import error_fields, hide
from proxy.http.errors import ApiError, reason_phrase

RETRY_AFTER = 5
"""Seconds, when the upstream does not say."""
LATER = frozenset({429, 503, 529})
"""Statuses that mean: not now."""
LONGEST = 1000
"""Characters of an upstream's words that are passed on."""
LOOKED = 16 * LONGEST
"""Characters of them that are looked at: they may repeat all of a large prompt."""
_TRACEBACK = "Traceback (most recent call last)"
_HOST = re.compile(r"(?<![\w.-])[\w.-]+:\d{2,5}\b")  # begins once in a run: long ones cost no more
_PRIVATE = (
    (re.compile(r"(?i)\b[a-z][a-z0-9+.-]{1,15}://[^\s'\"<>]+"), "[address]"),
    (re.compile(r"\b(?:\d{1,3}\.){3}\d{1,3}(?::\d{1,5})?\b"), "[address]"),
    (re.compile(r"(?<![\w.:/])(?:/[\w.@+-]+){2,}/?"), "[path]"),
    (re.compile(r"\b[A-Za-z]:\\[^\s'\"]+"), "[path]"),
)
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
    told = error_fields(body)
    text = told.get("message")
    text = hide(text if isinstance(text, str) else "", key) or phrase(status)
    param = told.get("param")
    code = told.get("code")
    if status in THE_REQUESTS:
        long = VLLM_OVERFLOW in text or (isinstance(code, str) and code in _OVERFLOW_CODES)
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


def redirected(status: int, headers: Mapping[str, str], url: str, key: str = "") -> UpstreamFault:
    """The error behind an answer that points elsewhere: it is not followed, for it gets the key.

    Args:
        status: 300 to 399.
        headers: Where to; of that no more than scheme, host and port is told.
        url: What was asked.
        key: Never to be found in the error's text.
    """
    try:
        asked, told = urlsplit(url), urlsplit(urljoin(url, headers.get("Location", "")))
        host = f"[{told.hostname}]" if ":" in (told.hostname or "") else told.hostname or ""
        port = f":{told.port}" if told.port else ""
        same = (asked.scheme, asked.netloc) == (told.scheme, told.netloc)
    except ValueError:
        same, host = False, ""
    if same:
        there = "to another path of its own"
    else:
        there = f"to {one_line(f'{told.scheme}://{host}{port}', 120)}" if host else "elsewhere"
    text = f"it redirects {there} (HTTP {status}): the base URL is wrong"
    return UpstreamFault(ChatErrorKind.REFUSED, hide(text, key), status)


def refusal_of(failures: Iterable[ChatError | None]) -> ApiError | None:
    """What the user is told when all candidates failed; None when no upstream said why."""
    failed = [one for one in failures if one is not None]
    found = [one for one in failed if isinstance(one, UpstreamFault)]
    for one in failed:
        if one.status in THE_REQUESTS and (one.kind is ChatErrorKind.REFUSED or one in found):
            param = one.param if isinstance(one, UpstreamFault) else None
            return ApiError(one.status, None, passed_on(one.text, one.status), param=param)
    for one in found:
        if one.kind is ChatErrorKind.LIMITED:
            wait = max(1, round(one.retry_after or RETRY_AFTER))
            if one.status == 429:
                text = "The upstream limits the rate of requests. Please try again later."
                return ApiError(429, wait, text, kind="Too Many Requests")
            return ApiError(503, wait, "The upstream is busy. Please try again later.")
    for one in found:
        if one.kind is ChatErrorKind.UNAUTHORIZED:
            return ApiError(502, None, "The upstream does not accept the key it is asked with.")
        if one.kind is ChatErrorKind.REFUSED:
            return ApiError(502, None, "The upstream does not know what it is asked for.")
    return None


def passed_on(text: str, status: int) -> str:
    """An upstream's words as its user may read them: without keys, addresses, paths, a traceback,
    or what is no text; a page of markup is the status in words."""
    if len(text) > LOOKED:  # not in the middle of a word, that could not be told for what it is
        text = text[: text.rfind(" ", 0, LOOKED) + 1]
    text = redact(text).partition(_TRACEBACK)[0]
    if text.lstrip().startswith("<"):
        text = ""
    text = _HOST.sub(_address, text)
    for pattern, instead in _PRIVATE:
        text = pattern.sub(instead, text)
    return plain(text).strip()[:LONGEST] or phrase(status)


def _address(found: re.Match[str]) -> str:
    """Instead of a name with a port; numbers and single words with a colon stay."""
    name = found[0].rpartition(":")[0].strip(".-")
    private = name.lower() == "localhost" or ("." in name and not name.replace(".", "").isdecimal())
    return "[address]" if private else found[0]


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


def phrase(status: int) -> str:
    """A status in words."""
    try:
        return f"{status} {reason_phrase(status)}"
    except ValueError:
        return f"HTTP {status}"
