"""Classify the errors of an upstream, and convert them for the client.

The client gets the upstream's text only for errors that its own request caused; all other errors
get a text of this module, as the upstream's may name keys, organisations or addresses. Private
parts of a text are removed in any case: see `public_text`.
"""

import re
from collections.abc import Iterable, Mapping
from urllib.parse import urljoin, urlsplit

from ajet_swarm.api.chat import INVALID_REQUEST, VLLM_OVERFLOW
from ajet_swarm.common.secrets import redact
from ajet_swarm.common.text import one_line, plain
from ajet_swarm.protocol.errors import ChatError, ChatErrorKind
from ajet_swarm.runtime import Chance
from core.dialects.errors import ApiError, reason_phrase
from core.openai.errors import error_fields, hide

RETRY_AFTER = 5
"""Seconds, if the upstream does not give any."""
LATER = frozenset({429, 503, 529})
"""Statuses upon which a later retry may succeed."""
MAX_TEXT_CHARS = 1000
"""Characters of an upstream's text that a client gets, at most."""
MAX_SCANNED_CHARS = 16 * MAX_TEXT_CHARS
"""Characters that are searched for private parts: the text may repeat a large prompt."""
_TRACEBACK = "Traceback (most recent call last)"
_HOST = re.compile(r"(?<![\w.-])[\w.-]+:\d{2,5}\b")
"""A host with a port; the lookbehind avoids quadratic time on long runs of letters."""
_PRIVATE = (
    (re.compile(r"(?i)\b[a-z][a-z0-9+.-]{1,15}://[^\s'\"<>]+"), "[address]"),
    (re.compile(r"\b(?:\d{1,3}\.){3}\d{1,3}(?::\d{1,5})?\b"), "[address]"),
    (re.compile(r"(?<![\w.:/])(?:/[\w.@+-]+){2,}/?"), "[path]"),
    (re.compile(r"\b[A-Za-z]:\\[^\s'\"]+"), "[path]"),
)
_RETRYABLE = frozenset({408, 409, 425})
_OVERFLOW_CODES = frozenset({"context_length_exceeded", "model_max_prompt_tokens_exceeded"})


class UpstreamFault(ChatError):
    """A call that the upstream answered with an error.

    Attributes:
        retry_after: The `Retry-After` in seconds; None without one.
        param: The invalid field, or None.
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


def upstream_fault(
    status: int, headers: Mapping[str, str], body: bytes, key: str = ""
) -> UpstreamFault:
    """Return the error of a response.

    Args:
        status: HTTP status, 400 or above.
        headers: The response's headers; case-insensitive.
        body: The response's body, in any of the common error formats.
        key: The upstream's key, which is masked in the error's text.
    """
    error = error_fields(body)
    text = error.get("message")
    text = hide(text if isinstance(text, str) else "", key) or status_text(status)
    param = error.get("param")
    code = error.get("code")
    if status in INVALID_REQUEST:
        long = VLLM_OVERFLOW in text or (isinstance(code, str) and code in _OVERFLOW_CODES)
        kind = ChatErrorKind.OVERFLOW if long else ChatErrorKind.REFUSED
    elif status in (401, 403):
        kind = ChatErrorKind.UNAUTHORIZED
    elif status in LATER:
        kind = ChatErrorKind.LIMITED
    elif status < 500 and status not in _RETRYABLE:
        kind = ChatErrorKind.REFUSED
    else:
        kind = ChatErrorKind.UPSTREAM
    return UpstreamFault(
        kind,
        text,
        status,
        retry_after=retry_after_seconds(headers.get("Retry-After", "")),
        param=param if isinstance(param, str) else None,
    )


def redirect_fault(
    status: int, headers: Mapping[str, str], url: str, key: str = ""
) -> UpstreamFault:
    """Return the error of a redirect, which is not followed: the target would get the key.

    Args:
        status: HTTP status, 300 to 399.
        headers: The response's headers; the error shows scheme, host and port of `Location`.
        url: The requested URL.
        key: The upstream's key, which is masked in the error's text.
    """
    try:
        requested, target = urlsplit(url), urlsplit(urljoin(url, headers.get("Location", "")))
        host = f"[{target.hostname}]" if ":" in (target.hostname or "") else target.hostname or ""
        port = f":{target.port}" if target.port else ""
        same = (requested.scheme, requested.netloc) == (target.scheme, target.netloc)
    except ValueError:
        same, host = False, ""
    if same:
        destination = "to another path of its own"
    else:
        address = one_line(f"{target.scheme}://{host}{port}", 120) if host else ""
        destination = f"to {address}" if host else "elsewhere"
    text = f"it redirects {destination} (HTTP {status}): the base URL is wrong"
    return UpstreamFault(ChatErrorKind.REFUSED, hide(text, key), status)


def refusal_of(failures: Iterable[ChatError | None]) -> ApiError | None:
    """Return the error for the client when all candidates failed; None without a known cause."""
    known = [failure for failure in failures if failure is not None]
    faults = [failure for failure in known if isinstance(failure, UpstreamFault)]
    for failure in known:
        refused = failure.kind is ChatErrorKind.REFUSED or failure in faults
        if refused and failure.status in INVALID_REQUEST:
            param = failure.param if isinstance(failure, UpstreamFault) else None
            text = public_text(failure.text, failure.status)
            return ApiError(failure.status, None, text, param=param)
    for failure in faults:
        if failure.kind is ChatErrorKind.LIMITED:
            delay = max(1, round(failure.retry_after or RETRY_AFTER))
            if failure.status == 429:
                text = "The upstream limits the rate of requests. Please try again later."
                return ApiError(429, delay, text, kind="Too Many Requests")
            return ApiError(503, delay, "The upstream is busy. Please try again later.")
    for failure in faults:
        if failure.kind is ChatErrorKind.UNAUTHORIZED:
            return ApiError(502, None, "The upstream does not accept the configured key.")
        if failure.kind is ChatErrorKind.REFUSED:
            text = "The upstream does not support the requested route or model."
            return ApiError(502, None, text)
    return None


def public_text(text: str, status: int) -> str:
    """Return an upstream's text without keys, addresses, paths, tracebacks and control characters.

    A page of markup is replaced by the status.
    """
    if len(text) > MAX_SCANNED_CHARS:  # cut between words, so that no private part is cut in two
        text = text[: text.rfind(" ", 0, MAX_SCANNED_CHARS) + 1]
    text = redact(text).partition(_TRACEBACK)[0]
    if text.lstrip().startswith("<"):
        text = ""
    text = _HOST.sub(_address, text)
    for pattern, replacement in _PRIVATE:
        text = pattern.sub(replacement, text)
    return plain(text).strip()[:MAX_TEXT_CHARS] or status_text(status)


def _address(match: re.Match[str]) -> str:
    """Mask a host name with a port; keep numbers and single words with a colon."""
    name = match[0].rpartition(":")[0].strip(".-")
    private = name.lower() == "localhost" or ("." in name and not name.replace(".", "").isdecimal())
    return "[address]" if private else match[0]


def retry_after_seconds(header: str) -> float | None:
    """Return the seconds of a `Retry-After` header; None without any, or for a date."""
    try:
        seconds = float(header)
    except ValueError:
        return None
    return seconds if 0 <= seconds < 86_400 else None


def with_jitter(seconds: float, chance: Chance) -> float:
    """Return `seconds` plus a random part, so that waiting clients do not retry all at once."""
    return seconds + chance.uniform(0.0, 0.5)


def status_text(status: int) -> str:
    """Return a status with its reason phrase."""
    try:
        return f"{status} {reason_phrase(status)}"
    except ValueError:
        return f"HTTP {status}"
