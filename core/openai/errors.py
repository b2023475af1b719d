"""Error answers of OpenAI-compatible APIs: the message without any key, and the time of a retry."""

from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any

import msgspec

from ajet_swarm.api.chat import violations
from ajet_swarm.common.secrets import redact
from ajet_swarm.runtime import SYSTEM

_A_DAY = 86_400
_LONGEST = 16_000
"""Maximum length of an error message in characters, since it may repeat a large request."""


def error_fields(body: bytes) -> Mapping[str, Any]:
    """Return `message`, `param` and `code` of an error's body; empty when it has none of them.

    Reads `{"error": {...}}`, `{"error": "text"}`, `{"message": ...}` and `{"detail": ...}`.
    """
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
    detail = error.get("detail")
    if "message" not in error:
        return {**error, "message": detail if isinstance(detail, str) else violations(detail)}
    return error


def error_text(status: int, body: bytes, key: str = "") -> str:
    """Return a server's error message, without the key.

    A body that is not JSON is itself the message, unless it is markup. Without a message the status
    is returned.

    Args:
        status: HTTP status.
        body: Body of the answer.
        key: API key to remove; empty for none.
    """
    text = error_fields(body).get("message")
    if not isinstance(text, str) or not text:
        text = body.decode(errors="replace").strip()
        text = "" if text.startswith("<") else text
    return hide(text[:_LONGEST], key) or phrase(status)


def hide(text: str, key: str) -> str:
    """Return `text` without the key and without anything that looks like one."""
    return redact(text.replace(key, "[redacted]") if key else text)


def retry_after(
    headers: Mapping[str, str], wall: Callable[[], float] = SYSTEM.clock.wall
) -> float | None:
    """Return the seconds of a `Retry-After` of less than a day; None without one.

    Args:
        headers: Headers with case-insensitive or lower-case names.
        wall: Returns Unix seconds.
    """
    text = headers.get("retry-after", "").strip()
    try:
        wait = float(text)
    except ValueError:
        try:
            wait = max(0.0, parsedate_to_datetime(text).timestamp() - wall())
        except ValueError:
            return None
    return wait if 0 <= wait < _A_DAY else None


def phrase(status: int) -> str:
    """Return a status with its reason phrase: `404 Not Found`."""
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return f"HTTP {status}"
