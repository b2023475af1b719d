"""Where the proxy takes connections. Under TLS a connection counts from its first packet.

A web server learns of a TLS connection when its handshake is over. One that says nothing before
would hold a file and a minute, and no limit would see it.
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
"""Seconds until the next try where the system gives no more: too many files are open."""


class TlsListener:
    """Takes TLS connections on one socket, within bounds. Begins at once.

    Args:
        sock: Listens already, and does not block. It stays its owner's.
        protocol: Makes what serves one connection.
        context: Certificate and key.
        patience: Seconds a client has for its handshake.
        has_room: (handshakes under way) -> whether one more connection may be.
    """

    def __init__(
        self,
        sock: socket.socket,
        protocol: Callable[[], asyncio.Protocol],
        context: ssl.SSLContext,
        patience: float,
        has_room: Callable[[int], bool],
    ) -> None:
        self._sock = sock
        self._protocol = protocol
        self._context = context
        self._patience = patience
        self._has_room = has_room
        self._loop = asyncio.get_running_loop()
        self._tasks = Tasks("tls")
        self._taking = self._tasks.spawn(self._take(), "accept")

    def close(self) -> None:
        """Take no more; handshakes under way may still end."""
        self._taking.cancel()

    async def wait_closed(self) -> None:
        """Until nothing of it is at work."""
        await self._tasks.close()

    async def _take(self) -> None:
        while True:
            try:
                connection, _ = await self._loop.sock_accept(self._sock)
            except ConnectionError:  # it left before we looked
                continue
            except OSError as error:
                log.warning("no connection can be taken: %s", error.strerror or error)
                await asyncio.sleep(PAUSE)
                continue
            if self._has_room(len(self._tasks) - 1):  # this task is one of them
                self._tasks.spawn(self._shake(connection), "handshake")
            else:
                connection.close()

    async def _shake(self, connection: socket.socket) -> None:
        # An error: it left, said nothing, or speaks something else. The loop closes it then.
        with contextlib.suppress(OSError):
            await self._loop.connect_accepted_socket(
                self._protocol,
                connection,
                ssl=self._context,
                ssl_handshake_timeout=self._patience,
            )


class HttpServer(uvicorn.Server):
    """uvicorn's, which leaves the signals to the process and takes TLS connections as above."""

    def __init__(self, config: uvicorn.Config, patience: float, most: int) -> None:
        """See `TlsListener` for `patience`; over twice `most` connections are closed unheard."""
        super().__init__(config)
        self._patience = patience
        self._most = most

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen."""
        context = self.config.ssl
        if context is None or not sockets:
            await super().startup(sockets=sockets)
            return
        await self.lifespan.startup()
        self.servers = [
            TlsListener(sock, self._protocol, context, self._patience, self._has_room)  # type: ignore[misc]  # all that is asked of one
            for sock in sockets
        ]
        self.started = True

    def _protocol(self) -> asyncio.Protocol:
        return self.config.http_protocol_class(  # type: ignore[call-arg]  # as in the base
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )

    def _has_room(self, shaking: int) -> bool:
        return shaking + len(self.server_state.connections) < 2 * self._most

    def answer_no_more(self) -> None:
        """Close each busy connection after its answer."""
        for connection in tuple(self.server_state.connections):
            if callable(last := getattr(connection, "last_answer", None)):
                last()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """None of them."""
        yield
