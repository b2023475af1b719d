"""The fake vLLM on a real socket, with the protocol it is served by."""

import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from core.settings import Settings
from proxy.api.handler import RequestHandler
from proxy.endpoint import create_app
from proxy.http.server import http_config
from tests.support.proxy.world import World, settings, world
from tests.support.scripted.swarm import ScriptedSwarm
from tests.support.served import client, served

ASKED = [{"role": "user", "content": "Say hello."}]
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"model": "tiny", "messages": ASKED},
    "/v1/completions": {"model": "tiny", "prompt": "Say hello."},
    "/v1/responses": {"model": "tiny", "input": "Say hello."},
    "/v1/messages": {"model": "tiny", "max_tokens": 64, "messages": ASKED},
}
"""A plain request for each route that answers one."""
FIRST = {
    "/v1/chat/completions": b'"delta":{"role":"assistant","content":""}',
    "/v1/completions": b'"object":"text_completion"',
    "/v1/responses": b"event: response.created",
    "/v1/messages": b"event: message_start",
}
"""Bytes at the beginning of a stream."""
LAST = {
    "/v1/chat/completions": b"data: [DONE]\n\n",
    "/v1/completions": b"data: [DONE]\n\n",
    "/v1/responses": b"event: response.completed",
    "/v1/messages": b"event: message_stop",
}
"""Bytes of its last event."""


@dataclass
class Front:
    """A proxy and a client of it."""

    world: World
    handler: RequestHandler
    url: str
    client: httpx.AsyncClient

    async def metrics(self) -> dict[str, float]:
        """The values of `/metrics`: name with labels -> value."""
        lines = (await self.client.get("/metrics")).text.splitlines()
        pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        return {name: float(value) for name, value in pairs}


@contextlib.asynccontextmanager
async def fronted(
    home: Path,
    swarm: ScriptedSwarm | None = None,
    configured: Settings | None = None,
    others: Mapping[str, ScriptedSwarm] | None = None,
    watched: bool = False,
) -> AsyncIterator[Front]:
    """A whole front on `swarm`, one of its own when not given, and on `others` by name.

    Args:
        watched: As of `world`.
    """
    configured = configured or settings()
    async with world(home, swarm, configured, others=others, watched=watched) as w:
        handler = RequestHandler(w.context, w.groups)
        app = create_app(w.context, w.groups, handler=handler)
        async with (
            served(app, http_config(configured.proxy, app)) as url,
            client(url) as http,
        ):
            yield Front(w, handler, url, http)


def sse(text: str) -> list[Any]:
    """The data of all events but the end marker."""
    data = (line[6:] for line in text.splitlines() if line.startswith("data: "))
    return [json.loads(line) for line in data if line != "[DONE]"]
