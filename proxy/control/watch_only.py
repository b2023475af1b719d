"""The parts of a watch-only proxy, which claims nothing, starts nothing and serves no requests.

Every request to a server goes through `ReadOnlyTransport`, which permits only reads.
"""

import contextlib
import logging
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import NoReturn
from urllib.parse import urlsplit

import msgspec
from starlette.responses import Response
from starlette.types import ASGIApp

from ajet_swarm.common.errors import AjetError
from ajet_swarm.http.interface import Request, Streamed, Transport
from ajet_swarm.http.interface import Response as SwarmResponse
from core.commands.plan import WATCH_ONLY_TODO
from core.dialects.errors import ApiError
from core.runtime.home import Home
from core.settings import Settings
from core.version import version
from proxy.context import ProxyContext
from proxy.control.dispatch import CommandHandler
from proxy.control.record_commands import RecordCommands
from proxy.http.app import ProxyApp
from proxy.http.exchange import json_response
from proxy.servers.slots import SlotsReader
from proxy.servers.watch import ServerWatch

log = logging.getLogger(__name__)

READ_ROUTES = frozenset({"/get_episode_buffer", "/replay_latest_llm_call"})
"""POST routes that only read; a server's other POST routes change something."""
REFUSAL = (
    "This proxy only watches (--watch-only): it claims no episodes and answers no requests. "
    "Start one without that flag to serve them."
)
_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")


class WatchOnlyRefused(AjetError):
    """A request would change something on a server that is only watched."""


class ReadOnlyTransport:
    """A transport that permits only requests that change nothing.

    Args:
        transport: The transport that sends them.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def request(self, request: Request) -> SwarmResponse:
        """See `Transport.request`.

        Raises:
            WatchOnlyRefused: the request could change something.
        """
        if (
            request.method != "GET"
            and urlsplit(request.url).path.rpartition("/")[2] not in _READ_NAMES
        ):
            _refuse(request.url)
        return await self._transport.request(request)

    def stream(self, request: Request) -> AbstractAsyncContextManager[Streamed]:
        """Refuse: only answers of models are streamed."""
        _refuse(request.url)


_READ_NAMES = frozenset(path.lstrip("/") for path in READ_ROUTES)


def _refuse(url: str) -> NoReturn:
    raise WatchOnlyRefused("nothing is changed here", urlsplit(url).path, WATCH_ONLY_TODO)


def watch_only_commands(context: ProxyContext) -> CommandHandler:
    """Return the commands of a watch-only proxy: none of them changes anything on a server."""
    return CommandHandler(context, RecordCommands(context).table)


def watch_app(settings: Settings, control: ASGIApp) -> ProxyApp:
    """Return the application: the control API, and a refusal for every other request."""
    app = ProxyApp(settings, control)
    app.add_api_route("/version", _version)
    for path in ("/v1", "/v1/{_:path}", "/health", "/ping", "/metrics", "/tokenize", "/detokenize"):
        app.add_api_route(path, _no_service, methods=[*_METHODS], include_in_schema=False)
    return app


async def _no_service() -> Response:
    raise ApiError(503, None, REFUSAL)


async def _version() -> Response:
    return json_response(msgspec.json.encode({"version": version()}))


@contextlib.asynccontextmanager
async def watch_servers(context: ProxyContext, home: Home) -> AsyncIterator[None]:
    """Watch all servers of a proxy while the context is open."""
    left_open = len(context.bus.state.open_groups())
    if left_open:
        log.warning("%d groups of an earlier proxy are open: they stay as they are", left_open)
    targets = context.settings.servers()
    for name, server in context.servers.items():
        watch = ServerWatch(context, server, home if targets[name] == "embedded" else None)
        context.tasks.spawn(watch.run(), f"watch:{name}")
        slots = SlotsReader(context, server)
        task = f"episodes of {name}"
        context.tasks.spawn(context.keep_running(slots.run, task), task)
    yield
