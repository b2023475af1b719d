"""How one swarm server is asked: its address, who we are, requests and answers in JSON."""

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any, TypeVar

import msgspec

from ajet_swarm.api.outcomes import decoded, refusal
from ajet_swarm.common.urls import web_address
from ajet_swarm.http.interface import EagerTransport, Response, Transport
from ajet_swarm.protocol.errors import SwarmError
from ajet_swarm.protocol.schemas import Verdict

T = TypeVar("T")

GENERAL = 30.0
"""Seconds for a route that changes something."""
QUICK = 10.0
"""Seconds for a route that tells something."""
ENGINE = 600.0
"""Seconds for starting and stopping: the server may freeze meanwhile."""
JSON = {"Content-Type": "application/json"}

encode = msgspec.json.Encoder().encode


class ServerRequests:
    """Single requests to one server.

    Args:
        url: `http://host:port`, a path below it and a trailing slash are tolerated.
        transport: How requests travel; shared with other clients and closed by its owner.
        client_uuid: Who we are to the server. Keep it over restarts: only the client that claimed
            an episode may end it.
        name: What to call the server, for people; its url when empty.

    Raises:
        SwarmError: `url` is not one.
    """

    def __init__(self, url: str, transport: Transport, client_uuid: str, *, name: str = "") -> None:
        parts = web_address(url)
        if parts is None:
            raise SwarmError("not the address of a server", url, "Give it as http://host:port")
        self.url = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
        self.transport = transport
        self.client_uuid = client_uuid
        self.name = name or self.url
        self.stopped_at = 0.0
        """Unix seconds at which this client last stopped the engine; 0 when it never did."""
        self._start = (
            partial(transport.start, "POST")
            if isinstance(transport, EagerTransport)
            else _cannot_start
        )

    async def _get(self, path: str, kind: type[T], timeout: float) -> T:
        url = self.url + path
        return decoded(
            await self.transport.request("GET", url, timeout=timeout, repeatable=True), kind, url
        )

    async def _send(
        self,
        path: str,
        body: bytes | Mapping[str, Any],
        timeout: float,
        *,
        repeatable: bool = False,
    ) -> Response:
        return await self.transport.request(
            "POST",
            self.url + path,
            body=body if isinstance(body, bytes) else encode(body),
            headers=JSON,
            timeout=timeout,
            repeatable=repeatable,
        )

    async def _do(self, path: str, body: Mapping[str, Any], timeout: float) -> Verdict:
        response = await self._send(path, body, timeout)
        told = decoded(response, Verdict, self.url + path)
        if told.success is False:
            raise refusal(response, self.url + path)
        return told


def _cannot_start(
    url: str, *, body: bytes, headers: Mapping[str, str], timeout: float
) -> "asyncio.Future[Response] | None":
    """Of a transport that is no `EagerTransport`."""
    return None
