"""The end of a server in the test's own loop, without half-open connections.

asyncio's own `close` leaves a connection open that was accepted in the iteration before: its
transport is built after the close, and fails. A test that ends at that moment gets the error.
"""

import asyncio
from asyncio.trsock import TransportSocket
from socket import socket
from typing import Protocol

from aiohttp import web


class Listening(Protocol):
    """A server of asyncio's."""

    @property
    def sockets(self) -> tuple[socket | TransportSocket, ...]:
        """The listening sockets; none once it is closed."""


async def stop_accepting(*servers: Listening | None) -> None:
    """Accept no further connection, and finish the setup of those already accepted."""
    loop = asyncio.get_running_loop()
    for server in servers:
        for sock in server.sockets if server is not None else ():
            loop.remove_reader(sock.fileno())
    for _ in range(5):
        await asyncio.sleep(0)


async def end_site(runner: web.AppRunner) -> None:
    """End what `runner` serves."""
    await stop_accepting(*(getattr(site, "_server", None) for site in runner.sites))
    await runner.cleanup()
