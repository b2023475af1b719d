"""Error responses in the form and wording of a real vLLM.

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
        is_overload: A status of 429 or 503 means that the same request succeeds later.
        fault: The error in FastAPI's form if the shape of the body is wrong; else None.
    """

    is_overload = True
    fault: dict[str, Any] | None = None

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
    error = ApiError(400, None, text, kind="Bad Request", param=param)
    keys = [int(key) if key.isdecimal() else key for key in param.split(".")]
    error.fault = {"type": kind, "loc": keys, "msg": message, "input": value}
    return error


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return f"'<dict of {len(value)} items>'"
    if isinstance(value, list):
        return f"'<list of {len(value)} items>'"
    return repr(value[:100] if isinstance(value, str) else value)
