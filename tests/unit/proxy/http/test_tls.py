"""Connections as they are taken: under TLS they count before the handshake, which has a limit."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from ajet_swarm.common.tasks import Tasks
from core.dialects.errors import ApiError
from core.runtime.sockets import bind
from core.settings import ProxySettings
from proxy.http import middleware
from proxy.http.exchange import error_response, json_response
from proxy.http.middleware import Bodies
from proxy.http.server import HttpServer, http_config
from tests.support.served import served
from tests.support.tls import certificate
from tests.support.wire import Wire, wire

GET = "GET / HTTP/1.1\r\nhost: x\r\n\r\n"


async def where_from(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with the client's address and the scheme."""
    try:
        await Request(scope, receive).body()
        response = json_response(msgspec.json.encode([scope["client"][0], scope["scheme"]]))
    except ApiError as refusal:
        response = error_response(refusal)
    await response(scope, receive, send)


def config(**more: Any) -> Any:
    settings = msgspec.convert(more, ProxySettings)
    return http_config(settings, Bodies(where_from, settings))


@contextlib.asynccontextmanager
async def secured(folder: Path, **more: Any) -> AsyncIterator[int]:
    """Gives the port of the proxy's own server, under TLS."""
    cert, key = certificate(folder)
    settings = msgspec.convert({"tls_cert": cert, "tls_key": key, **more}, ProxySettings)
    server = HttpServer(settings, Bodies(where_from, settings))
    with bind("127.0.0.1", 0) as sock:
        async with Tasks("server") as tasks:
            serving = tasks.spawn(server.serve(sockets=[sock]), "http")
            try:
                yield sock.getsockname()[1]
            finally:
                server.should_exit = True
                await serving


@contextlib.asynccontextmanager
async def connected(port: int, tls: bool = False) -> AsyncIterator[Wire]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if tls else None
    if context is not None:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    try:
        yield Wire(reader, writer)
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def answered(port: int) -> Any:
    async with connected(port, tls=True) as one:
        await one.send(GET)
        return (await one.answer()).json()


async def test_a_silent_client_has_the_time_limit_of_a_head(tmp_path: Path) -> None:
    async with secured(tmp_path, header_timeout=0.2) as port, connected(port) as silent:
        assert await silent.closed(20.0) == b""  # a loop's own limit is 60 s
        assert await answered(port) == ["127.0.0.1", "https"]


async def test_a_client_without_tls_is_disconnected(tmp_path: Path) -> None:
    async with secured(tmp_path, header_timeout=1000.0) as port, connected(port) as plain:
        await plain.send(GET)
        await plain.closed(20.0)


async def test_a_handshake_takes_the_place_of_the_oldest_silent_connection(tmp_path: Path) -> None:
    async with (
        secured(tmp_path, header_timeout=1000.0, max_connections=8) as port,
        contextlib.AsyncExitStack() as stack,
    ):
        silent = [await stack.enter_async_context(connected(port)) for _ in range(4)]
        for number in range(3):
            one = await stack.enter_async_context(connected(port, tls=True))
            await one.send(GET)
            assert (await one.answer()).status == 200
            assert await silent[number].closed(20.0) == b""
        assert not silent[3].reader.at_eof()


async def test_ten_handshakes_side_by_side(tmp_path: Path) -> None:
    async with secured(tmp_path) as port, asyncio.TaskGroup() as tasks:
        requests = [tasks.create_task(answered(port)) for _ in range(10)]
    assert [request.result() for request in requests] == [["127.0.0.1", "https"]] * 10


async def test_a_client_cannot_forge_its_address() -> None:
    async with served(where_from, config()) as url, wire(url) as one:
        await one.ask("GET", "/", x_forwarded_for="10.1.2.3", x_forwarded_proto="https")
        assert (await one.answer()).json() == ["127.0.0.1", "http"]


async def test_no_100_continue_for_a_body_over_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(middleware, "DRAIN", 1000.0)
    head = "POST / HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: {}\r\n\r\n"
    async with served(where_from, config()) as url:
        async with wire(url) as one:
            await one.send(head.format(1 << 30))
            answer = await one.answer(20.0)
            assert (answer.status, answer.headers["connection"]) == (413, "close")
            assert await one.closed(20.0) == b""
        async with wire(url) as one:
            await one.send(head.format(2))
            async with asyncio.timeout(20):
                assert await one.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            await one.send("{}")
            assert (await one.answer()).status == 200
