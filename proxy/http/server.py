"""The web server: uvicorn with the limits of the settings, which under TLS accepts by itself.

uvicorn notices a TLS connection only after its handshake. A client that connects and sends nothing
would not be counted by any limit.
"""

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Iterator
from functools import partial
from typing import cast

import uvicorn
from starlette.types import ASGIApp

from ajet_swarm.common.tasks import Tasks
from core.runtime.tls import absolute_path
from core.settings import ProxySettings
from proxy.http.protocol import BoundedProtocol, Connections

log = logging.getLogger(__name__)

KEEP_ALIVE = 120
"""Seconds that an idle connection stays open: longer than most clients keep theirs."""
PAUSE = 0.5
"""Seconds until the next attempt after a system error such as too many open files."""


def http_config(settings: ProxySettings, app: ASGIApp) -> uvicorn.Config:
    """Return uvicorn's configuration for the application."""
    protocol = partial(BoundedProtocol, settings, Connections(settings.max_connections))
    return uvicorn.Config(
        app,
        http=cast("type[asyncio.Protocol]", protocol),  # uvicorn calls it only
        ws="none",
        log_config=None,
        access_log=False,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=2,
        server_header=False,
        proxy_headers=False,  # a client could forge its address, which identifies the sender
        lifespan="off",
    )


class HttpServer(uvicorn.Server):
    """The server, without uvicorn's signal handlers.

    Args:
        settings: Limits, certificate and key.
        app: The application.
    """

    def __init__(self, settings: ProxySettings, app: ASGIApp) -> None:
        super().__init__(http_config(settings, app))
        self._settings = settings
        self._tasks = Tasks("tls")

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to listen."""
        if not self._settings.tls_cert:
            await super().startup(sockets)
            return
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        cert, key = self._settings.tls_cert, self._settings.tls_key
        tls.load_cert_chain(absolute_path(cert), absolute_path(key))
        await super().startup([])
        for sock in sockets or ():
            self._tasks.spawn(self._accept(sock, tls), "accept")

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no more connections, and end those that are open."""
        await self._tasks.close()
        await super().shutdown(sockets)

    async def _accept(self, sock: socket.socket, tls: ssl.SSLContext) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, address = await loop.sock_accept(sock)
            except OSError as error:
                log.warning("cannot accept a connection: %s", error.strerror or error)
                await asyncio.sleep(PAUSE)
                continue
            protocol: BoundedProtocol = self.config.http_protocol_class(  # type: ignore[call-arg, assignment]  # as in the base
                config=self.config, server_state=self.server_state, app_state=self.lifespan.state
            )
            task = self._tasks.spawn(self._handshake(connection, protocol, tls), "handshake")
            protocol.enter(address[0], task.cancel)

    async def _handshake(
        self, connection: socket.socket, protocol: BoundedProtocol, tls: ssl.SSLContext
    ) -> None:
        opened = False
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: protocol,
                connection,
                ssl=tls,
                ssl_handshake_timeout=self._settings.header_timeout,
            )
            opened = True
        except OSError:  # disconnect, timeout, or no TLS
            pass
        finally:
            if not opened:
                protocol.leave()

    def close_after_responses(self) -> None:
        """Close each busy connection after its response."""
        for connection in tuple(self.server_state.connections):
            if isinstance(connection, BoundedProtocol) and connection.answered:
                connection.shutdown()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave all signal handlers unchanged."""
        yield
