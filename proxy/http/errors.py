"""Error responses of the fake vLLM, in the form and wording of the real one.

Source: captures of a real server; see the user guide on conformance. No text here contains a
traceback, a path or the address of an upstream.
"""

from http import HTTPStatus
from typing import Any

import msgspec

from ajet_swarm.common.errors import AjetError

_encode = msgspec.json.Encoder().encode

_NAMES = {
    400: "BadRequestError",
    401: "AuthenticationError",
    404: "NotFoundError",
    500: "InternalServerError",
}
"""The `type` of an error; of other statuses it is the reason phrase."""
BUSY = (
    "The engine is currently busy and cannot accept new requests. Please try again later or on a "
    "different instance."
)


_PHRASES = {
    413: "Request Entity Too Large",
    416: "Requested Range Not Satisfiable",
    422: "Unprocessable Entity",
}
"""Reason phrases that differ in Python 3.13."""


def reason_phrase(status: int) -> str:
    """Return the reason phrase of an HTTP status, the same under every version of Python.

    Raises:
        ValueError: The status is unknown.
    """
    return _PHRASES.get(status) or HTTPStatus(status).phrase


class ApiError(AjetError):
    """A request that is answered with an error.

    Attributes:
        status: HTTP status.
        retry_after: Seconds for the `Retry-After` header; None sends none.
        message: For the client.
        kind: The `type` of vLLM.
        param: The invalid field, or None.
        details: Details for a dialect whose errors have some; None for none.
        repeatable: The SDKs may send the request again by themselves.
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
        repeatable: bool = True,
    ) -> None:
        self.status = status
        self.repeatable = repeatable
        self.retry_after = retry_after
        self.message = message
        self.kind = kind or _NAMES.get(status) or reason_phrase(status)
        self.param = param
        self.details = details
        super().__init__(message)

    def body(self) -> bytes:
        """Return the JSON of the whole answer, or of an error event in a stream."""
        error = {
            "message": self.message,
            "type": self.kind,
            "param": self.param,
            "code": self.status,
        }
        return _encode({"error": error})


_SILENT_AGENTS = ("codex", "claude-cli/", "opencode/", "QwenCode/")
"""Beginnings of the `User-Agent` of agents that show nothing for minutes while they retry a 503."""


class ProxyStopping(ApiError):
    """The proxy is stopping; unlike at an overload, a new one may start at once."""

    def __init__(self) -> None:
        super().__init__(503, 5, "The server is shutting down. Please try again later.")


class AnswerTimedOut(ApiError):
    """The candidates take too long: the same request would take as long again."""

    def __init__(self) -> None:
        text = "No candidate answered in time. Stream the answer, or ask for fewer tokens."
        super().__init__(504, None, text, repeatable=False)


class EngineOffline(ApiError):
    """The engine is off until the operator starts it, so an immediate retry is pointless."""

    def __init__(self, engine: str, *, settled: bool = False) -> None:
        """Args:
        engine: Name of the engine, for the client.
        settled: It has been off for a while: no restart or other client turns it on again.
        """
        text = (
            f"{engine} is OFFLINE: it answers no request until the operator of this server starts "
            "it (`ajet-console engine-start`). This is no overload."
        )
        self.settled = settled
        super().__init__(503, 60, text, repeatable=False)

    def for_client(self, user_agent: str) -> ApiError:
        """Return the error for a client: agents that retry a 503 in silence get a 400."""
        if not (self.settled and user_agent.startswith(_SILENT_AGENTS)):
            return self
        return ApiError(400, None, self.message)


def overloaded(retry_after: int, message: str = BUSY) -> ApiError:
    """Return the 503 for an overload, a pause or a stop."""
    return ApiError(503, retry_after, message)


def bad_request(message: str, param: str | None) -> ApiError:
    """Return the 400 for a value that vLLM itself refuses."""
    return ApiError(400, None, message, param=param)


def invalid(kind: str, param: str, message: str, value: Any, extra: str = "") -> ApiError:
    """Return the 400 for a body that vLLM's request validation refuses.

    Args:
        kind: The kind of error, such as `string_type`.
        param: Path of the invalid value, such as `body.model`.
        message: What is wrong.
        value: The invalid value; only its beginning or its size is shown.
        extra: Further text in the form of vLLM's `ctx`.
    """
    text = (
        f"1 validation error:\n  {{'type': '{kind}', 'loc': '{param}', 'msg': '{message}', "
        f"'input': {_shown(value)}{extra}}}"
    )
    return ApiError(400, None, text, kind="Bad Request", param=param)


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return f"'<dict of {len(value)} items>'"
    if isinstance(value, list):
        return f"'<list of {len(value)} items>'"
    return repr(value[:100] if isinstance(value, str) else value)
