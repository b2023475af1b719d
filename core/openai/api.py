"""Caller of an OpenAI-compatible API: one answer within a time and a size, errors without the key.

Used by the judge, by the model that plays a user, and by the mock's targets. How often a call is
repeated, and what its failure means, is theirs.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any, Literal
from urllib.parse import urlsplit

import httpx
import msgspec

from core.openai.errors import error_text, hide
from core.runtime.sockets import is_loopback
from core.runtime.tls import verification_for

BODY_LIMIT = 4 << 20
"""Bytes of an answer, unless the caller sets another limit."""

Failure = Literal["away", "late", "unsendable", "too_large", "broken"]
"""Why there is no answer: no connection, or it was lost; none in time; a request that cannot be
sent, as to a wrong address; more than the limit; anything else."""
Form = Literal["schema", "object", "text"]
"""How the form of a reply is asked for: by a JSON schema, as any JSON object, or not at all."""

_AWAY = (httpx.NetworkError, httpx.RemoteProtocolError, httpx.ConnectTimeout, httpx.PoolTimeout)
_UNSENDABLE = (httpx.UnsupportedProtocol, httpx.LocalProtocolError, httpx.InvalidURL)
_REFUSALS = (400, 422, 500, 501)
"""Statuses of an answer that may be about a field of the request."""
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
        kind: Why.
        text: The same in words, without the key.
    """

    def __init__(self, kind: Failure, text: str) -> None:
        self.kind = kind
        self.text = text
        super().__init__(text)


class ApiAnswer(msgspec.Struct, frozen=True):
    """What came back."""

    status: int
    headers: Mapping[str, str]
    """Names compare without regard to case."""
    body: bytes
    words: str
    """The server's own words about an error, without the key; empty for a success."""
    seconds: float

    @property
    def fault(self) -> str:
        """Status and words of an error: `404: no such model`."""
        return self.words if str(self.status) in self.words else f"{self.status}: {self.words}"

    @property
    def is_success(self) -> bool:
        """Whether the status is 200 to 299."""
        return 200 <= self.status < 300


class RequestShape(msgspec.Struct, frozen=True):
    """What an endpoint is known to take; each field it refuses is left out from then on."""

    form: Form = "text"
    limit: str = "max_tokens"
    """Name of the field; newer models of OpenAI want `max_completion_tokens`."""
    temperature: bool = True
    seed: bool = False
    system: bool = True

    def without(self, refusal: str) -> "RequestShape | None":
        """Return the shape without what a refusal names; None when it names nothing of it."""
        text = refusal.lower()
        change: dict[str, Any] = {}
        named = "max_tokens" in text and any(word in text for word in _UNSUPPORTED)
        if ("max_completion_tokens" in text or named) and self.limit == "max_tokens":
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
        base_url: With its `/v1`.
        key: Sent as a bearer token; none when empty.
        headers: Further headers of every request.
        connections: Requests at the same time.
        connect_seconds: A connection may take; None for the time of the call.
        cert: File with a certificate to believe.
        body_limit: Bytes of an answer that are read.
        shape: What the endpoint takes until it refuses a part of it.
        transport: How requests travel; the network when left out.
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
    ) -> None:
        self.base_url = base_url.rstrip("/")
        self.shape = shape or RequestShape()
        self._key = key
        self._body_limit = body_limit
        self._http = httpx.AsyncClient(
            headers={**({"authorization": f"Bearer {key}"} if key else {}), **(headers or {})},
            timeout=httpx.Timeout(None, connect=connect_seconds),  # each call has its own, over all
            limits=httpx.Limits(max_connections=connections, keepalive_expiry=4.0),
            transport=transport,
            # without TLS no certificates are read
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
        """Return one answer, whatever its status.

        Args:
            method: As POST.
            url: A path below the base URL, as `/models`, or a whole URL.
            body: JSON; None sends none.
            seconds: The call may take.
            headers: Further ones.
            is_whole: Asked after each piece of a success: whether the rest can be left unread.

        Raises:
            CallFailed: There is none.
        """
        url = self.base_url + url if url.startswith("/") else url
        sent = {"content-type": "application/json"} if body is not None else {}
        received = bytearray()
        began = time.monotonic()
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
        words = "" if answer.is_success else error_text(answer.status_code, data, self._key)
        seconds = time.monotonic() - began
        return ApiAnswer(answer.status_code, answer.headers, data, words, seconds)

    async def adapt(
        self, make: Callable[[RequestShape], Any], path: str, *, seconds: float
    ) -> ApiAnswer:
        """Post a request, again without each field that the endpoint refuses by name.

        Args:
            make: Makes the request of a shape.
            path: Below the base URL.
            seconds: One call may take.

        Raises:
            CallFailed: There is no answer.
        """
        while True:
            shape = self.shape
            answer = await self.call(
                "POST", path, msgspec.json.encode(make(shape)), seconds=seconds
            )
            other = shape.without(answer.words) if answer.status in _REFUSALS else None
            if other is None:
                return answer
            if self.shape == shape:  # else another call has learnt it meanwhile
                self.shape = other

    def hide(self, text: str) -> str:
        """Return `text` without the key, or what looks like one."""
        return hide(text, self._key)

    def _cause(self, error: Exception) -> str:
        return self.hide(str(error)) or type(error).__name__


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""
