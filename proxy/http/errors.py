"""What the fake vLLM says no with: the shapes and words of the real one.

Source: captures of a real server; see the user's guide on conformance. No text here ever carries a
traceback, a path or an upstream's address.
"""

from http import HTTPStatus
from typing import Any

import msgspec

from ajet_swarm.common.errors import AjetError

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


_PHRASES = {
    413: "Request Entity Too Large",
    416: "Requested Range Not Satisfiable",
    422: "Unprocessable Entity",
}
"""Those that Python 3.13 words in another way."""


def reason_phrase(status: int) -> str:
    """The words of an HTTP status, the same under every version of Python.

    Raises:
        ValueError: the status has no name.
    """
    return _PHRASES.get(status) or HTTPStatus(status).phrase


class NotNow(AjetError):
    """A command that cannot be carried out as things are."""


class ApiError(AjetError):
    """A request that is answered with an error.

    Attributes:
        status: HTTP status.
        retry_after: Seconds for the `Retry-After` header; None sends none.
        message: For the client.
        kind: vLLM's `type`.
        param: The field that is wrong, or None.
        details: What a dialect whose errors have details tells there; None for none.
        closes: The connection is closed after the answer: the request's body was not read.
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
        self.closes = status == 413
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


class ProxyStopping(ApiError):
    """The proxy is told to stop: no overload, a new one may be there in a moment."""

    def __init__(self) -> None:
        super().__init__(503, 5, "The server is shutting down. Please try again later.")


class EngineOffline(ApiError):
    """The engine is off and stays off until somebody starts it: to try again at once is in vain."""

    def __init__(self, engine: str) -> None:
        """Args:
        engine: What is off, as the client may call it.
        """
        text = (
            f"{engine} is OFFLINE: it answers no request until the operator of this server starts "
            "it (`ajet-console engine-start`). This is no overload."
        )
        super().__init__(503, 60, text)


def overloaded(retry_after: int, message: str = BUSY) -> ApiError:
    """Overload, a pause or a stop: come back later."""
    return ApiError(503, retry_after, message)


def bad_request(message: str, param: str | None) -> ApiError:
    """A value vLLM itself refuses."""
    return ApiError(400, None, message, param=param)


def invalid(kind: str, param: str, message: str, given: Any, extra: str = "") -> ApiError:
    """A body that the framework in front of vLLM refuses."""
    text = (
        f"1 validation error:\n  {{'type': '{kind}', 'loc': '{param}', 'msg': '{message}', "
        f"'input': {_shown(given)}{extra}}}"
    )
    return ApiError(400, None, text, kind="Bad Request", param=param)


def _shown(given: Any) -> str:
    if isinstance(given, dict):
        return f"'<dict of {len(given)} items>'"
    if isinstance(given, list):
        return f"'<list of {len(given)} items>'"
    return repr(given[:100] if isinstance(given, str) else given)
