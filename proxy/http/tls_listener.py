"""The proxy's HTTP server and TLS listener, which counts connections before their handshake.

uvicorn notices a TLS connection only after its handshake. A client that connects and sends nothing
would occupy a file descriptor for a minute without being counted by any limit.
"""

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Callable, Generator

import uvicorn

from ajet_swarm.common.tasks import Tasks

log = logging.getLogger(__name__)

PAUSE = 0.5
"""Seconds until the next attempt after a system error such as too many open files."""


class TlsListener:
    """Acceptor of TLS connections on one socket, up to a limit. Starts in the constructor.

    Args:
        sock: A listening, non-blocking socket; the caller closes it.
        protocol: Factory of the protocol of one connection.
        context: Certificate and key.
        handshake_timeout: Seconds a client has for its handshake.
        has_room: (handshakes in progress) -> whether one more connection is allowed.
    """

    def __init__(
        self,
        sock: socket.socket,
        protocol: Callable[[], asyncio.Protocol],
        context: ssl.SSLContext,
        handshake_timeout: float,
        has_room: Callable[[int], bool],
    ) -> None:
        self._sock = sock
        self._protocol = protocol
        self._context = context
        self._handshake_timeout = handshake_timeout
        self._has_room = has_room
        self._loop = asyncio.get_running_loop()
        self._tasks = Tasks("tls")
        self._accept_task = self._tasks.spawn(self._accept_loop(), "accept")

    def close(self) -> None:
        """Accept no more connections; handshakes in progress continue."""
        self._accept_task.cancel()

    async def wait_closed(self) -> None:
        """Wait until all its tasks have ended."""
        await self._tasks.close()

    async def _accept_loop(self) -> None:
        while True:
            try:
                connection, _ = await self._loop.sock_accept(self._sock)
            except ConnectionError:  # it was reset before it was accepted
                continue
            except OSError as error:
                log.warning("cannot accept a connection: %s", error.strerror or error)
                await asyncio.sleep(PAUSE)
                continue
            if self._has_room(len(self._tasks) - 1):  # this task is one of them
                self._tasks.spawn(self._handshake(connection), "handshake")
            else:
                connection.close()

    async def _handshake(self, connection: socket.socket) -> None:
        # OSError: disconnect, timeout, or no TLS. The event loop closes the connection then.
        with contextlib.suppress(OSError):
            await self._loop.connect_accepted_socket(
                self._protocol,
                connection,
                ssl=self._context,
                ssl_handshake_timeout=self._handshake_timeout,
            )


class HttpServer(uvicorn.Server):
    """uvicorn's server without its signal handlers, and with `TlsListener` for TLS.

    Args:
        config: uvicorn's configuration.
        handshake_timeout: Seconds a client has for its TLS handshake.
        max_connections: Over twice this number, TLS connections are closed unanswered.
    """

    def __init__(
        self, config: uvicorn.Config, handshake_timeout: float, max_connections: int
    ) -> None:
        super().__init__(config)
        self._handshake_timeout = handshake_timeout
        self._max_connections = max_connections

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to listen."""
        context = self.config.ssl
        if context is None or not sockets:
            await super().startup(sockets=sockets)
            return
        await self.lifespan.startup()
        self.servers = [
            TlsListener(sock, self._protocol, context, self._handshake_timeout, self._has_room)  # type: ignore[misc]  # uvicorn only uses `close` and `wait_closed`
            for sock in sockets
        ]
        self.started = True

    def _protocol(self) -> asyncio.Protocol:
        return self.config.http_protocol_class(  # type: ignore[call-arg]  # as in the base
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )

    def _has_room(self, handshakes: int) -> bool:
        return handshakes + len(self.server_state.connections) < 2 * self._max_connections

    def close_after_responses(self) -> None:
        """Close each busy connection after its response."""
        for connection in tuple(self.server_state.connections):
            if callable(close := getattr(connection, "close_after_response", None)):
                close()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Leave all signal handlers unchanged."""
        yield
