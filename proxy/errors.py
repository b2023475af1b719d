"""What the fake vLLM says no with: the shapes and words of the real one.

Source: captures of a real server; see the user's guide on conformance. No text here ever carries a
traceback, a path or an upstream's address.
"""

from typing import Any

import msgspec

from core.errors import AjetError

_encode = msgspec.json.Encoder().encode

TYPES = {
    400: "BadRequestError",
    401: "AuthenticationError",
    404: "NotFoundError",
    408: "Request Timeout",
    413: "Request Entity Too Large",
    422: "Unprocessable Entity",
    429: "Too Many Requests",
    431: "Request Header Fields Too Large",
    500: "InternalServerError",
    502: "Bad Gateway",
    503: "Service Unavailable",
}
BUSY = (
    "The engine is currently busy and cannot accept new requests. Please try again later or on a "
    "different instance."
)


class NotNow(AjetError):
    """A command that cannot be carried out as things are."""


class Refusal(AjetError):
    """A request that is answered with an error.

    Attributes:
        status: HTTP status.
        retry_after: Seconds for the `Retry-After` header; None sends none.
        message: For the client.
        kind: vLLM's `type`.
        param: The field that is wrong, or None.
        details: What a dialect whose errors have details tells there; None for none.
    """

    def __init__(
        self,
        status: int,
        retry_after: int | None,
        message: str,
        *,
        kind: str = "",
        param: str | None = None,
        details: dict[str, Any] | None = None,
    ) -> None:
        self.status = status
        self.retry_after = retry_after
        self.message = message
        self.kind = kind or TYPES.get(status, "InternalServerError")
        self.param = param
        self.details = details
        super().__init__(message)

    def body(self) -> bytes:
        """The JSON of the whole answer, or of an error event in a stream."""
        said = {
            "message": self.message,
            "type": self.kind,
            "param": self.param,
            "code": self.status,
        }
        return _encode({"error": said})


class Stopping(Refusal):
    """The proxy is told to stop: no overload, a new one may be there in a moment."""

    def __init__(self) -> None:
        super().__init__(503, 5, "The server is shutting down. Please try again later.")


def busy(retry_after: int, message: str = BUSY) -> Refusal:
    """Overload, a pause or a stop: come back later."""
    return Refusal(503, retry_after, message)


def bad_request(message: str, param: str | None) -> Refusal:
    """A value vLLM itself refuses."""
    return Refusal(400, None, message, param=param)


def invalid(kind: str, param: str, message: str, given: Any, extra: str = "") -> Refusal:
    """A body that the framework in front of vLLM refuses."""
    text = (
        f"1 validation error:\n  {{'type': '{kind}', 'loc': '{param}', 'msg': '{message}', "
        f"'input': {_shown(given)}{extra}}}"
    )
    return Refusal(400, None, text, kind="Bad Request", param=param)


def _shown(given: Any) -> str:
    if isinstance(given, dict):
        return f"'<dict of {len(given)} items>'"
    if isinstance(given, list):
        return f"'<list of {len(given)} items>'"
    return repr(given[:100] if isinstance(given, str) else given)
