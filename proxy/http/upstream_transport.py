"""What goes over the wire to an upstream in observe mode: its address, its key, its errors."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from ajet_swarm.api.outcomes import Claimed
from ajet_swarm.common.errors import AjetError
from ajet_swarm.common.urls import web_address
from ajet_swarm.http.interface import Request, Response, Streamed, Transport
from core.settings import UpstreamSettings
from proxy.http.upstream_errors import fault, redirected

KIND = "observe"
"""Type of the episodes whose answers are compared; of helper calls it is `eval`."""
NO_KEY = "EMPTY"
"""A bearer token must not be empty, also where none is asked for."""


class UpstreamError(AjetError):
    """The upstream cannot be used as it was named."""


class ListedModel(msgspec.Struct, frozen=True):
    """One model that an upstream lists."""

    id: str = ""
    max_model_len: int | None = None
    context_length: int | None = None

    @property
    def window(self) -> int | None:
        """In tokens; None when it is not told."""
        return self.max_model_len or self.context_length


class ModelList(msgspec.Struct, frozen=True):
    """Answer of `/v1/models`."""

    data: list[ListedModel] = []


class ErrorMappingTransport:
    """The transport, with errors as what they mean to an upstream's client."""

    def __init__(self, transport: Transport, key: str) -> None:
        self._transport = transport
        self._key = key

    async def request(self, request: Request) -> Response:
        """See `Transport.request`."""
        answer = await self._transport.request(request)
        if answer.status >= 400:
            raise fault(answer.status, answer.headers, answer.body, self._key)
        if answer.status >= 300:
            raise redirected(answer.status, answer.headers, request.url, self._key)
        return answer

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[Streamed]:
        """See `Transport.stream`."""
        async with self._transport.stream(request) as answer:
            if answer.status >= 400:
                parts = []
                while part := await answer.read():
                    parts.append(part)
                raise fault(answer.status, answer.headers, b"".join(parts), self._key)
            if answer.status >= 300:
                raise redirected(answer.status, answer.headers, request.url, self._key)
            yield answer


def addresses(url: str) -> tuple[str, str]:
    """Base URL of the API, and the address that what is not under `/v1` is under.

    Raises:
        UpstreamError: `url` is not one, or carries a password.
    """
    parts = web_address(url)
    if parts is None:
        raise UpstreamError(
            "not the address of an upstream", "upstream.url", "Give it as http://HOST:PORT"
        )
    if parts.username or parts.password or parts.query or parts.fragment:
        raise UpstreamError(
            "the address of an upstream carries no key, password or query",
            "upstream.url",
            "Give the key with --upstream-key-file",
        )
    path = parts.path.rstrip("/")
    root = f"{parts.scheme}://{parts.netloc}"
    base = f"{root}{path or '/v1'}"
    return base, base.removesuffix("/v1")


def key_of(settings: UpstreamSettings) -> str:
    """The upstream's key; empty for none.

    Raises:
        UpstreamError: the file cannot be read, or the key cannot be sent.
    """
    key = settings.key
    where = "upstream.key"
    if settings.key_file:
        where = settings.key_file
        try:
            key = Path(settings.key_file).expanduser().read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UpstreamError(f"the upstream's key cannot be read: {error}", where) from error
    key = key.strip()
    if not key.isascii() or not key.isprintable() or " " in key:
        raise UpstreamError("the upstream's key holds what cannot be in a key", where)
    return key


def upstream_request(
    body: bytes | Mapping[str, Any],
    kind: str,
    models: tuple[str, ...],
    temperature: float | None,
) -> dict[str, Any]:
    """A request as the upstream gets it: of a model it has.

    Args:
        body: The chat completion that was asked for.
        kind: Type of the episode.
        models: What the upstream has, the default first; empty when that is not known.
        temperature: Of candidates that are compared, which then have no seed; None leaves both
            as the request has them.
    """
    told = dict(msgspec.json.decode(body) if isinstance(body, bytes) else body)
    if models and told.get("model") not in models:
        told["model"] = models[0]
    if kind == KIND and temperature is not None:
        told.pop("seed", None)
        told["temperature"] = temperature
    return told


def with_candidate_id(claimed: Claimed, headers: Mapping[str, str] | None) -> dict[str, str]:
    """The headers with a request id for each candidate: some upstreams refuse two of one id."""
    own = claimed.episode_uuid[:8]
    told = (headers or {}).items()
    return {key: f"{one}-{own}" if key.lower() == "x-request-id" else one for key, one in told}
