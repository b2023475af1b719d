"""JSON requests to one swarm server."""

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from ajet_swarm.api.outcomes import decoded, refusal
from ajet_swarm.common.urls import web_address
from ajet_swarm.http.interface import Request, Response, Transport
from ajet_swarm.protocol.errors import WrongUse
from ajet_swarm.protocol.schemas import Verdict
from ajet_swarm.runtime import SYSTEM, Runtime

T = TypeVar("T")

GENERAL = 30.0
"""Timeout in seconds of a route that changes state."""
RUNNER = 310.0
"""Timeout in seconds of an end or an abort. A server waits up to 300 s until the runner
acknowledges it, and shows the episode as claimed meanwhile."""
QUICK = 10.0
"""Timeout in seconds of a route that only reads."""
ENGINE = 600.0
"""Timeout in seconds of a start or a stop, during which the server may freeze."""
JSON = {"Content-Type": "application/json"}

encode = msgspec.json.Encoder().encode


class ServerRequests:
    """JSON requests to one server.

    Args:
        url: `http://host:port`, optionally with a path and a trailing slash.
        transport: Sends the requests. It may be shared; its owner closes it.
        client_uuid: Identity of this client. Keep it across restarts: only the client that claimed
            an episode may end it.
        name: Name of the server in messages; default its URL.
        runtime: Source of times and ids.

    Raises:
        WrongUse: `url` is not an address, or contains a user or a password.
    """

    def __init__(
        self,
        url: str,
        transport: Transport,
        client_uuid: str,
        *,
        name: str = "",
        runtime: Runtime = SYSTEM,
    ) -> None:
        parts = web_address(url)
        if parts is None:
            raise WrongUse("not the address of a server", url, "Give it as http://host:port")
        if "@" in parts.netloc:
            where = parts.netloc.rpartition("@")[2]
            todo = "Leave them out: the swarm protocol has no login"
            raise WrongUse("the address of a server contains a user or a password", where, todo)
        self.url = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
        self.transport = transport
        self.client_uuid = client_uuid
        self.name = name or self.url
        self.stopped_at = 0.0
        """Unix seconds at which this client last stopped the engine; 0 if it never did."""
        self._wall = runtime.clock.wall
        self._chance = runtime.chance

    async def _get(self, path: str, kind: type[T], timeout: float) -> T:
        url = self.url + path
        return decoded(
            await self.transport.request(Request("GET", url, timeout=timeout, repeatable=True)),
            kind,
            url,
        )

    async def _send(
        self,
        path: str,
        body: Mapping[str, Any],
        timeout: float,
        *,
        repeatable: bool = False,
    ) -> Response:
        return await self.transport.request(
            Request(
                "POST",
                self.url + path,
                body=encode(body),
                headers=JSON,
                timeout=timeout,
                repeatable=repeatable,
            )
        )

    async def _do(self, path: str, body: Mapping[str, Any], timeout: float) -> Verdict:
        response = await self._send(path, body, timeout)
        verdict = decoded(response, Verdict, self.url + path)
        if verdict.success is False:
            raise refusal(response, self.url + path)
        return verdict
