"""Client of an OpenAI-compatible API with limits on time and size; errors never contain the key.

The judge, the model that plays a user, and the mock's targets use it. They decide about retries and
the meaning of a failure.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Literal
from urllib.parse import urlsplit

import httpx
import msgspec

from ajet_swarm.runtime import SYSTEM
from core.openai.errors import error_text, hide
from core.runtime.sockets import is_loopback
from core.runtime.tls import verification_for

BODY_LIMIT = 4 << 20
"""Default maximum size of an answer in bytes."""

Failure = Literal["away", "late", "unsendable", "too_large", "broken"]
"""Reason for a missing answer: no connection, or it was lost; a timeout; a request that cannot be
sent, such as to an invalid address; an answer over the size limit; any other error."""
Form = Literal["schema", "object", "text"]
"""Requested form of a reply: a JSON schema, any JSON object, or free text."""

_AWAY = (httpx.NetworkError, httpx.RemoteProtocolError, httpx.ConnectTimeout, httpx.PoolTimeout)
_UNSENDABLE = (httpx.UnsupportedProtocol, httpx.LocalProtocolError, httpx.InvalidURL)
_REFUSALS = (400, 422, 500, 501)
"""Statuses that may mean that a field of the request is refused."""
_UNSUPPORTED = ("support", "unknown", "unrecognized", "unexpected", "not permitted", "not allowed")
_FORM_WORDS = (
    "response_format",
    "response format",
    "json_schema",
    "json_object",
    "json schema",
    "json mode",
    "structured",
    "guided",
    "grammar",
)


class CallFailed(Exception):
    """There is no answer.

    Attributes:
        kind: Kind of failure.
        text: The reason, without the key.
    """

    def __init__(self, kind: Failure, text: str) -> None:
        self.kind = kind
        self.text = text
        super().__init__(text)


class ApiAnswer(msgspec.Struct, frozen=True):
    """The answer to a call."""

    status: int
    headers: Mapping[str, str]
    """Header -> value; names are case-insensitive."""
    body: bytes
    message: str
    """The server's error message, without the key; empty for a success."""
    seconds: float
    """Duration of the call."""

    @property
    def fault(self) -> str:
        """Status and message of an error: `404: no such model`."""
        if str(self.status) in self.message:
            return self.message
        return f"{self.status}: {self.message}"

    @property
    def is_success(self) -> bool:
        """Whether the status is 200 to 299."""
        return 200 <= self.status < 300


class RequestShape(msgspec.Struct, frozen=True):
    """Fields that an endpoint accepts; a field that it refused is left out afterwards."""

    form: Form = "text"
    limit: str = "max_tokens"
    """Name of the token limit; newer models of OpenAI require `max_completion_tokens`."""
    temperature: bool = True
    seed: bool = False
    system: bool = True

    def without(self, refusal: str) -> "RequestShape | None":
        """Return the shape without the field that a refusal names; None when it names none."""
        text = refusal.lower()
        change: dict[str, Any] = {}
        refused = "max_tokens" in text and any(word in text for word in _UNSUPPORTED)
        if ("max_completion_tokens" in text or refused) and self.limit == "max_tokens":
            change = {"limit": "max_completion_tokens"}
        elif "seed" in text and self.seed:
            change = {"seed": False}
        elif "temperature" in text and self.temperature:
            change = {"temperature": False}
        elif "system" in text and "role" in text and self.system:
            change = {"system": False}
        elif self.form != "text" and any(word in text for word in _FORM_WORDS):
            change = {"form": "object" if self.form == "schema" else "text"}
        return msgspec.structs.replace(self, **change) if change else None


class OpenAIApi:
    """The API at one address.

    Args:
        base_url: Address with `/v1`.
        key: Bearer token; empty for none.
        headers: Additional headers of every request.
        connections: Maximum number of concurrent requests.
        connect_seconds: Time limit of a connection; None for that of the call.
        cert: File with an additional trusted certificate; empty for none.
        body_limit: Maximum size of an answer in bytes.
        shape: Fields of the first request; a refusal reduces them.
        transport: Transport of the requests; the network by default.
        clock: Returns monotonic seconds.
    """

    def __init__(
        self,
        base_url: str,
        *,
        key: str = "",
        headers: Mapping[str, str] | None = None,
        connections: int = 3,
        connect_seconds: float | None = None,
        cert: str = "",
        body_limit: int = BODY_LIMIT,
        shape: RequestShape | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
        clock: Callable[[], float] = SYSTEM.clock.monotonic,
    ) -> None:
        self.base_url = base_url.rstrip("/")
        self.shape = shape or RequestShape()
        self._key = key
        self._body_limit = body_limit
        self._clock = clock
        self._http = httpx.AsyncClient(
            headers={**({"authorization": f"Bearer {key}"} if key else {}), **(headers or {})},
            timeout=httpx.Timeout(None, connect=connect_seconds),  # `call` limits the total time
            limits=httpx.Limits(max_connections=connections, keepalive_expiry=4.0),
            transport=transport,
            # loading certificates is slow; skip it without TLS
            verify=verification_for(base_url, cert) if cert else base_url.startswith("https:"),
            trust_env=not is_loopback(_host(base_url)),
        )

    async def close(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    async def call(
        self,
        method: str,
        url: str,
        body: bytes | None,
        *,
        seconds: float,
        headers: Mapping[str, str] | None = None,
        is_whole: Callable[[bytearray], bool] | None = None,
    ) -> ApiAnswer:
        """Make one call and return the answer, whatever its status.

        Args:
            method: HTTP method.
            url: Path below the base URL, such as `/models`, or an absolute URL.
            body: JSON; None for no body.
            seconds: Time limit of the call.
            headers: Additional headers.
            is_whole: Called with the data of a success after each piece; returns True when the rest
                can be left unread.

        Raises:
            CallFailed: There is no answer.
        """
        url = self.base_url + url if url.startswith("/") else url
        sent = {"content-type": "application/json"} if body is not None else {}
        received = bytearray()
        began = self._clock()
        try:
            async with (
                asyncio.timeout(seconds),
                self._http.stream(
                    method, url, content=body, headers={**sent, **(headers or {})}
                ) as answer,
            ):
                async for piece in answer.aiter_bytes():
                    received += piece
                    if len(received) > self._body_limit:
                        size = f"{self._body_limit >> 20} MiB"
                        raise CallFailed("too_large", f"the answer is larger than {size}")
                    if is_whole is not None and answer.is_success and is_whole(received):
                        break
        except _AWAY as error:
            raise CallFailed("away", self._cause(error)) from error
        except (httpx.TimeoutException, TimeoutError) as error:
            raise CallFailed("late", f"no answer within {seconds:g} s") from error
        except _UNSENDABLE as error:
            raise CallFailed("unsendable", self._cause(error)) from error
        except httpx.HTTPError as error:
            raise CallFailed("broken", self._cause(error)) from error
        data = bytes(received)
        message = "" if answer.is_success else error_text(answer.status_code, data, self._key)
        seconds = self._clock() - began
        return ApiAnswer(answer.status_code, answer.headers, data, message, seconds)

    async def adapt(
        self, make: Callable[[RequestShape], Any], path: str, *, seconds: float
    ) -> ApiAnswer:
        """Post a request; repeat it without each field that the endpoint refuses by name.

        Args:
            make: Returns the request for a shape.
            path: Path below the base URL.
            seconds: Time limit of each call.

        Raises:
            CallFailed: There is no answer.
        """
        while True:
            shape = self.shape
            answer = await self.call(
                "POST", path, msgspec.json.encode(make(shape)), seconds=seconds
            )
            reduced = shape.without(answer.message) if answer.status in _REFUSALS else None
            if reduced is None:
                return answer
            if self.shape == shape:  # a concurrent call may have reduced it already
                self.shape = reduced

    def hide(self, text: str) -> str:
        """Return `text` without the key and without anything that looks like one."""
        return hide(text, self._key)

    def _cause(self, error: Exception) -> str:
        return self.hide(str(error)) or type(error).__name__


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""
