"""HTTP calls to an upstream in observe mode: address, key, request body, errors."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from ajet_swarm.common.errors import AjetError
from ajet_swarm.common.urls import web_address
from ajet_swarm.http.interface import Request, Response, Streamed, Transport
from ajet_swarm.protocol.schemas import Claimed
from core.settings import UpstreamSettings
from core.whole_file import read_small
from proxy.upstream.errors import redirect_fault, upstream_fault

KIND = "observe"
"""Type of the episodes whose answers are compared; that of helper calls is `eval`."""
NO_KEY = "EMPTY"
"""Placeholder for an upstream without a key: a bearer token must not be empty."""


class UpstreamError(AjetError):
    """The configured address or key of the upstream is invalid."""


class ListedModel(msgspec.Struct, frozen=True):
    """One model that an upstream lists."""

    id: str = ""
    max_model_len: int | None = None
    context_length: int | None = None

    @property
    def window(self) -> int | None:
        """Return the context window in tokens; None if unknown."""
        return self.max_model_len or self.context_length


class ModelList(msgspec.Struct, frozen=True):
    """Response of `/v1/models`."""

    data: list[ListedModel] = []


class UpstreamTransport:
    """A transport that authenticates the proxy, and replaces models that the upstream lacks.

    Args:
        transport: The transport that sends the requests.
        key: The upstream's key; empty for none.
        models: Returns the upstream's models, the default first; empty if unknown.
    """

    def __init__(
        self, transport: Transport, key: str, models: Callable[[], tuple[str, ...]]
    ) -> None:
        self._transport = transport
        self._authorization = {"Authorization": f"Bearer {key or NO_KEY}"}
        self._models = models

    async def request(self, request: Request) -> Response:
        body = request.body
        return await self._transport.request(
            msgspec.structs.replace(
                request,
                headers={**(request.headers or {}), **self._authorization},
                body=body and _with_known_model(body, self._models()),
            )
        )

    def stream(self, request: Request) -> AbstractAsyncContextManager[Streamed]:
        return self._transport.stream(request)


def _with_known_model(data: bytes, models: tuple[str, ...]) -> bytes:
    try:
        body = msgspec.json.decode(data, type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError):
        return data  # the upstream returns the error
    if not models or body.get("model") in (None, *models):
        return data
    return msgspec.json.encode({**body, "model": models[0]})


class ErrorMappingTransport:
    """A transport that raises error responses as `UpstreamFault`."""

    def __init__(self, transport: Transport, key: str) -> None:
        self._transport = transport
        self._key = key

    async def request(self, request: Request) -> Response:
        answer = await self._transport.request(request)
        if answer.status >= 400:
            raise upstream_fault(answer.status, answer.headers, answer.body, self._key)
        if answer.status >= 300:
            raise redirect_fault(answer.status, answer.headers, request.url, self._key)
        return answer

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[Streamed]:
        async with self._transport.stream(request) as answer:
            if answer.status >= 400:
                body = (await answer.whole()).body
                raise upstream_fault(answer.status, answer.headers, body, self._key)
            if answer.status >= 300:
                raise redirect_fault(answer.status, answer.headers, request.url, self._key)
            yield answer


def addresses(url: str) -> tuple[str, str]:
    """Return the base URL of the API, and the root URL of the routes outside `/v1`.

    Raises:
        UpstreamError: `url` is invalid, or has a password or a query.
    """
    parts = web_address(url)
    if parts is None:
        raise UpstreamError(
            "not the address of an upstream", "upstream.url", "Give it as http://HOST:PORT"
        )
    if parts.username or parts.password or parts.query or parts.fragment:
        raise UpstreamError(
            "the address of an upstream must not contain a key, password or query",
            "upstream.url",
            "Pass the key with --upstream-key-file",
        )
    path = parts.path.rstrip("/")
    root = f"{parts.scheme}://{parts.netloc}"
    base = f"{root}{path or '/v1'}"
    return base, base.removesuffix("/v1")


def key_of(settings: UpstreamSettings) -> str:
    """Return the upstream's key; empty for none.

    Raises:
        UpstreamError: The key file cannot be read, or the key has invalid characters.
    """
    key = settings.key
    where = "upstream.key"
    if settings.key_file:
        where = settings.key_file
        try:
            key = read_small(Path(settings.key_file).expanduser()).decode()
        except (OSError, UnicodeDecodeError) as error:
            raise UpstreamError(f"the upstream's key cannot be read: {error}", where) from error
    key = key.strip()
    if not key.isascii() or not key.isprintable() or " " in key:
        raise UpstreamError("the upstream's key contains invalid characters", where)
    return key


def upstream_request(
    body: bytes | Mapping[str, Any],
    kind: str,
    models: tuple[str, ...],
    temperature: float | None,
) -> dict[str, Any]:
    """Return the request body for the upstream.

    Args:
        body: The client's chat completion.
        kind: Type of the episode.
        models: The upstream's models, the default first; empty if unknown. An unknown model of the
            request is replaced by the default.
        temperature: Temperature of candidates that are compared, whose seed is removed; None keeps
            both as in the request.
    """
    request = dict(msgspec.json.decode(body) if isinstance(body, bytes) else body)
    if models and request.get("model") not in models:
        request["model"] = models[0]
    if kind == KIND and temperature is not None:
        request.pop("seed", None)
        request["temperature"] = temperature
    return request


def with_candidate_id(claimed: Claimed, headers: Mapping[str, str] | None) -> dict[str, str]:
    """Make `X-Request-Id` unique per candidate: some upstreams refuse a repeated id."""
    candidate = claimed.episode_uuid[:8]
    items = (headers or {}).items()
    return {
        key: f"{value}-{candidate}" if key.lower() == "x-request-id" else value
        for key, value in items
    }
