"""The HTTP client against real sockets: what it sends, accepts, refuses, keeps and repeats."""

import asyncio
import gzip
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import psutil
import pytest

from ajet_swarm.common.tasks import Tasks
from ajet_swarm.http import transport as module
from ajet_swarm.http.interface import Request
from ajet_swarm.http.transport import PIECE, HttpTransport
from ajet_swarm.protocol.errors import TimedOut, TooLarge, TransportError, Unreachable
from tests.support.scripted.swarm import ScriptedSwarm

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

LINE = b"HTTP/1.1 200 OK\r\n"
OK = LINE + b"content-length: 2\r\n\r\nok"
CHUNKED = LINE + b"transfer-encoding: chunked\r\n\r\n"
ZIPPED = gzip.compress(b"text")


@asynccontextmanager
async def raw_server(serve: Serve) -> AsyncIterator[str]:
    """A socket server; it calls `serve` for every connection and then closes it."""
    open_now: set[asyncio.StreamWriter] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        open_now.add(writer)
        try:
            await serve(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/x"
    finally:
        server.close()
        for writer in open_now:
            writer.close()
        await server.wait_closed()


class Answering:
    """Answers each request with the next of some byte strings, then closes the connection."""

    def __init__(self, *answers: bytes, keep: bool = False) -> None:
        self.answers = list(answers)
        self.heads: list[str] = []
        self.connections = 0
        self.keep = keep
        """Wait for the client to close the connection."""

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        while self.answers:
            self.heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
            writer.write(self.answers.pop(0))
            await writer.drain()
            if not self.keep:
                return
        await reader.read()


# --- responses ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "status", "body"),
    [
        (OK, 200, b"ok"),
        (CHUNKED + b"1\r\no\r\n1\r\nk\r\n0\r\n\r\n", 200, b"ok"),
        (LINE + b"\r\nok", 200, b"ok"),
        (LINE + b"Transfer-Encoding: Chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", 200, b"ok"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + OK, 200, b"ok"),
        (b"HTTP/1.1 204 No\r\n\r\n", 204, b""),
        (b"HTTP/1.1 500 No\r\ncontent-length: 2\r\n\r\nok", 500, b"ok"),
        (b"HTTP/1.1 302 F\r\nlocation: /y\r\ncontent-length: 0\r\n\r\n", 302, b""),
        (
            LINE + b"content-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(ZIPPED) + ZIPPED,
            200,
            ZIPPED,
        ),
        (LINE + b"x: %b\r\ncontent-length: 2\r\n\r\nok" % (b"x" * 20_000), 200, b"ok"),
    ],
    ids=[
        "length",
        "chunks",
        "to the end of the connection",
        "any case",
        "informational",
        "no content",
        "error",
        "redirect",
        "compressed",
        "long header",
    ],
)
async def test_a_response_is_returned_as_it_was_sent(
    answer: bytes, status: int, body: bytes
) -> None:
    server = Answering(answer)
    async with raw_server(server) as url, HttpTransport() as transport:
        response = await transport.request(Request("GET", url, timeout=60))
    assert (response.status, response.body) == (status, body)
    assert len(server.heads) == 1


@pytest.mark.parametrize(
    ("answer", "error", "text"),
    [
        (LINE + b"content-length: 5000\r\n\r\n", TooLarge, "larger than 1000 bytes"),
        (LINE + b"content-length: 5000\r\n\r\n" + b"x" * 5000, TooLarge, "larger than 1000"),
        (LINE + b"connection: close\r\n\r\n" + b"x" * 5000, TooLarge, "larger than 1000"),
        (CHUNKED + b"2\r\nxy\r\n" * 2000, TooLarge, "larger than 1000"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" * 20_000, TooLarge, "informational"),
        (LINE + b"x: " + b"x" * 200_000, TooLarge, "head"),
        (LINE + b"".join(b"x%d: x\r\n" % n for n in range(1000)), TooLarge, "head"),
        (LINE + b"transfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n", Unreachable, "coding"),
        (LINE + b"transfer-encoding: gzip\r\n\r\nok", Unreachable, "coding"),
        (
            LINE + b"transfer-encoding: chunked\r\ntransfer-encoding: gzip\r\n\r\n0\r\n\r\n",
            Unreachable,
            "connection was lost|coding",
        ),
        (LINE + b"content-length: 5\r\n\r\nok", Unreachable, "connection was lost"),
        (CHUNKED + b"2\r\nok\r\n", Unreachable, "connection was lost"),
        (CHUNKED + b"x\r\n", Unreachable, "connection was lost"),
        (b"not HTTP\r\n\r\n", Unreachable, "connection was lost"),
        (b"", Unreachable, "connection was lost"),
    ],
    ids=[
        "length",
        "length and body",
        "no length",
        "small chunks",
        "informational",
        "long header",
        "many headers",
        "compressed transfer",
        "only compressed",
        "two codings",
        "short body",
        "no last chunk",
        "no chunk",
        "no HTTP",
        "nothing",
    ],
)
async def test_a_response_that_is_too_large_or_broken_is_an_error(
    answer: bytes, error: type[TransportError], text: str
) -> None:
    async with (
        raw_server(Answering(answer, keep=error is TooLarge)) as url,
        HttpTransport() as transport,
    ):
        with pytest.raises(error, match=text) as caught:
            await transport.request(Request("GET", url, timeout=60, most=1000))
        assert caught.value.sent
        assert transport.held == 0


async def test_the_limit_of_the_transport_holds_for_each_request() -> None:
    async with (
        raw_server(Answering(LINE + b"content-length: 5000\r\n\r\n", keep=True)) as url,
        HttpTransport(largest=1000) as transport,
    ):
        with pytest.raises(TooLarge, match="1000"):
            await transport.request(Request("GET", url, timeout=60, most=10_000))


@pytest.mark.parametrize("answer", [b"", LINE, CHUNKED + b"2\r\nxy\r\n"])
async def test_a_response_that_does_not_end_in_time(answer: bytes) -> None:
    async with raw_server(Answering(answer, keep=True)) as url, HttpTransport() as transport:
        with pytest.raises(TimedOut) as caught:
            await transport.request(Request("GET", url, timeout=0.05, repeatable=True))
        assert caught.value.sent


async def test_all_answers_together_are_bounded_and_an_ended_one_does_not_count() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = (await reader.readuntil(b"\r\n\r\n")).split()[1]
        head = CHUNKED.removesuffix(b"\r\n") + b"connection: close\r\n\r\n"
        writer.write(head + b"320\r\n" + b"x" * 800 + b"\r\n")
        await writer.drain()
        if path.endswith(b"held"):
            await reader.read()
        writer.write(b"0\r\n\r\n")

    async with (
        raw_server(serve) as url,
        HttpTransport(most_held=1500) as transport,
        Tasks("calls") as tasks,
    ):
        for _ in range(3):
            await transport.request(Request("GET", url, timeout=60))
        work = transport.request(Request("GET", f"{url}/held", timeout=60))
        held = tasks.spawn(work, "held")
        while not transport.held:
            await asyncio.sleep(0.005)
        with pytest.raises(TooLarge, match="together"):
            await transport.request(Request("GET", url, timeout=60))
        held.cancel()
        await asyncio.wait([held])
        assert transport.held == 0
        await transport.request(Request("GET", url, timeout=60))


# --- requests -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "body", "headers", "lines"),
    [
        ("GET", None, None, {"GET /x%2Fy?a=%20b HTTP/1.1"}),
        ("POST", None, None, {"POST /x%2Fy?a=%20b HTTP/1.1", "Content-Length: 0"}),
        ("POST", b"{}", {"X-Own": "1"}, {"Content-Length: 2", "X-Own: 1"}),
        ("POST", bytes(5 * PIECE + 7), None, {f"Content-Length: {5 * PIECE + 7}"}),
    ],
    ids=["get", "empty post", "post", "long post"],
)
async def test_a_request_is_sent_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    body: bytes | None,
    headers: dict[str, str] | None,
    lines: set[str],
) -> None:
    """No proxy of the environment, no cookie of an earlier response, no header of its own."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    server = Answering(LINE + b"set-cookie: a=b\r\ncontent-length: 2\r\n\r\nok", OK, keep=True)
    async with raw_server(server) as url, HttpTransport() as transport:
        await transport.request(Request("GET", url, timeout=60))
        await transport.request(
            Request(method, f"{url}%2Fy?a=%20b", body=body, headers=headers, timeout=60)
        )
    sent = set(server.heads[1].splitlines())
    assert lines <= sent
    names = {line.partition(":")[0] for line in sent if ": " in line}
    own = {"Host", "User-Agent", "Accept", "Accept-Encoding", *(headers or ())}
    assert names == own | ({"Content-Length"} if method == "POST" else set())
    assert {"Accept-Encoding: identity", "User-Agent: ajet-console"} <= sent


@pytest.mark.parametrize(
    ("url", "headers", "text"),
    [
        ("ftp://127.0.0.1/", None, "not a usable address"),
        ("http://", None, "not a usable address"),
        ("http://[::1", None, "not a usable address"),
        ("http://h:99999/", None, "not a usable address"),
        ("127.0.0.1:80", None, "not a usable address"),
        ("", None, "not a usable address"),
        (f"http://{'a' * 64}/", None, "no connection"),
        ("http://no-such-name.invalid/", None, "no connection"),
        ("http://127.0.0.1:{closed}/", None, "no connection: refused"),
        ("http://127.0.0.1:{open}/", {"X": "a\r\nb: c"}, "no connection"),
    ],
)
async def test_what_certainly_was_not_sent(
    server: ScriptedSwarm,
    transport: HttpTransport,
    url: str,
    headers: dict[str, str] | None,
    text: str,
) -> None:
    with socket.socket() as held:  # bound and not listening: no answer on this port
        held.bind(("127.0.0.1", 0))
        url = url.replace("{closed}", str(held.getsockname()[1]))
        url = url.replace("{open}", str(server.port))
        with pytest.raises(Unreachable, match=text) as caught:
            await transport.request(Request("GET", url, headers=headers, timeout=60))
    assert not caught.value.sent
    assert not server.requests


@pytest.mark.parametrize(
    "error", [socket.gaierror(-2, "Name or service not known"), RuntimeError("no thread")]
)
async def test_a_name_that_cannot_be_resolved_means_that_nothing_was_sent(
    transport: HttpTransport, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    with pytest.raises(Unreachable, match=f"no connection: .*{error.args[-1]}") as caught:
        await transport.request(Request("GET", "http://name/", timeout=60))
    assert not caught.value.sent


@pytest.mark.parametrize(("connect_timeout", "timeout"), [(0.05, 60.0), (60.0, 0.05)])
async def test_a_connection_that_is_not_made_in_time_means_that_nothing_was_sent(
    monkeypatch: pytest.MonkeyPatch, connect_timeout: float, timeout: float
) -> None:
    found = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found.wait(60) and [])
    async with HttpTransport(connect_timeout=connect_timeout) as transport:
        with pytest.raises(Unreachable, match="too long") as caught:
            await transport.request(Request("GET", "http://name/", timeout=timeout))
    found.set()
    assert not caught.value.sent


async def test_names_are_resolved_without_the_executor_for_each_connection(
    server: ScriptedSwarm, transport: HttpTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script's threads may still run when its interpreter accepts no more work for executors."""

    def refuse(*_: object) -> None:
        raise RuntimeError("cannot schedule new futures after shutdown")

    resolved: list[Any] = []
    resolve = socket.getaddrinfo

    def counted(*arguments: Any, **options: Any) -> Any:
        resolved.append(arguments[0])
        return resolve(*arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", counted)
    monkeypatch.setattr(asyncio.get_running_loop(), "run_in_executor", refuse)
    for host in ("localhost", "127.0.0.1"):
        url = f"http://{host}:{server.port}/fails"
        for _ in range(2):
            server.fail_next("/fails", 500)  # the connection is not used again
            assert (await transport.request(Request("GET", url, timeout=60))).status == 500
    assert resolved == ["localhost", "localhost"]


async def test_long_bodies_arrive_whole(recwarn: pytest.WarningsRecorder) -> None:
    """A slow reader makes the socket full again and again; no piece is lost or out of order."""
    body = bytes(range(256)) * (20 * PIECE // 256) + b"the end"
    bodies: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        bodies.append(await reader.readexactly(len(body)))
        writer.write(OK)
        await writer.drain()

    async with raw_server(serve) as url, HttpTransport() as transport:
        request = Request("POST", url, body=body, timeout=60)
        await asyncio.gather(*(transport.request(request) for _ in range(3)))
    assert bodies == [body] * 3
    assert not recwarn.list
    pieces = [piece async for piece in module._pieces(body)]
    assert b"".join(pieces) == body
    assert max(map(len, pieces)) == PIECE  # none blocks the loop for longer than a piece takes


@pytest.mark.parametrize(
    ("method", "repeatable", "times"),
    [("POST", True, 2), ("GET", True, 2), ("POST", False, 1), ("GET", False, 1)],
)
async def test_only_a_repeatable_request_is_sent_once_more(
    method: str, repeatable: bool, times: int
) -> None:
    server = Answering(b"", b"", b"", b"")
    async with raw_server(server) as url, HttpTransport() as transport:
        with pytest.raises(Unreachable) as caught:
            await transport.request(Request(method, url, timeout=60, repeatable=repeatable))
    assert caught.value.sent
    assert (len(server.heads), server.connections) == (times, times)


async def test_a_request_after_close_is_an_error(server: ScriptedSwarm) -> None:
    transport = HttpTransport()
    await transport.request(Request("GET", server.url + "/health", timeout=60))
    await transport.close()
    with pytest.raises(Unreachable, match="closed") as caught:
        await transport.request(Request("GET", server.url + "/health", timeout=60))
    assert not caught.value.sent


async def test_an_open_request_fails_when_the_transport_is_closed(server: ScriptedSwarm) -> None:
    transport = HttpTransport()
    server.freeze()
    async with Tasks("calls") as tasks:
        request = Request("GET", server.url + "/health", timeout=60)
        work = tasks.spawn(transport.request(request), "call")
        await server.until(lambda: server.connections)
        await transport.close()
        with pytest.raises(Unreachable):
            await work
    server.unfreeze()


# --- connections --------------------------------------------------------------------------------


async def test_connections_are_kept_and_reused(
    server: ScriptedSwarm, transport: HttpTransport
) -> None:
    for _ in range(5):
        answer = await transport.request(Request("GET", server.url + "/health", timeout=60))
        assert (answer.status, answer.body) == (200, b'{"status": "ok"}')
        assert answer.headers["CONTENT-TYPE"].startswith("application/json")
    assert server.connections == 1


async def test_an_idle_connection_is_closed_before_the_server_does_it(
    server: ScriptedSwarm, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert module.KEEP_ALIVE < 5.0  # uvicorn's
    monkeypatch.setattr(module, "KEEP_ALIVE", 0.0)
    async with HttpTransport() as transport:
        for _ in range(3):
            await transport.request(Request("GET", server.url + "/health", timeout=60))
    assert server.connections == 3


@pytest.mark.slow
async def test_many_requests_at_once_are_not_limited(
    server: ScriptedSwarm, transport: HttpTransport
) -> None:
    server.freeze()
    async with asyncio.TaskGroup() as group:
        requests = [
            group.create_task(transport.request(Request("GET", server.url + "/health", timeout=20)))
            for _ in range(150)
        ]
        await server.until(lambda: server.connections == 150)
        server.unfreeze()
    assert {task.result().status for task in requests} == {200}


@pytest.mark.parametrize(
    ("first", "connections"),
    [
        (OK, 1),
        (OK.replace(b"200 OK", b"404 No"), 1),
        (OK.replace(b"200 OK", b"500 No"), 2),
        (CHUNKED.replace(b"200 OK", b"503 No") + b"2\r\nok\r\n0\r\n\r\n", 2),
        (OK.replace(b"content", b"connection: close\r\ncontent"), 2),
        (OK.replace(b"HTTP/1.1", b"HTTP/1.0"), 2),
        (OK + OK, 2),
    ],
    ids=["ok", "client error", "server error", "chunks", "close", "1.0", "an answer too many"],
)
async def test_which_connection_is_used_again(first: bytes, connections: int) -> None:
    """After a 5xx the server closes it without notice; a claim sent on it would be lost."""
    server = Answering(first, OK, keep=True)
    async with raw_server(server) as url, HttpTransport() as transport:
        for _ in range(2):
            response = await transport.request(Request("POST", url, body=b"", timeout=60))
            assert response.body == b"ok"
    assert server.connections == connections


async def test_a_response_to_no_request_ends_its_connection() -> None:
    late = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK)
        await late.wait()
        writer.write(OK.replace(b"ok", b"no"))
        await reader.read()

    async with raw_server(serve) as url, HttpTransport() as transport:
        await transport.request(Request("POST", url, timeout=60))
        assert transport._session is not None
        connector = transport._session.connector
        assert connector is not None
        ((protocol, _),) = next(iter(connector._conns.values()))
        late.set()
        while not protocol.should_close:
            await asyncio.sleep(0.001)
        with pytest.raises(Unreachable, match="no request") as caught:
            await transport.request(Request("POST", url, timeout=60))
        assert not caught.value.sent
        assert (await transport.request(Request("POST", url, timeout=60))).body == b"ok"


async def test_an_answer_before_the_end_of_a_long_body_ends_the_connection() -> None:
    """A server that refuses it need not read the rest; the next request would follow in it."""
    heads = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal heads
        await reader.readuntil(b"\r\n\r\n")
        heads += 1
        if heads > 1:
            await reader.readexactly(2)
        writer.write(OK if heads > 1 else OK.replace(b"200 OK", b"413 Content Too Large"))
        await writer.drain()
        await reader.read()

    async with raw_server(serve) as url, HttpTransport() as transport:
        first = await transport.request(Request("POST", url, body=bytes(160 * PIECE), timeout=60))
        assert first.status == 413
        second = await transport.request(Request("POST", url, body=b"{}", timeout=60))
        assert second.status == 200


def test_a_request_that_the_server_does_not_read_closes_its_connection() -> None:
    async def ask(port: int) -> None:
        url = f"http://127.0.0.1:{port}/"
        async with HttpTransport() as transport:
            with pytest.raises(TimedOut):
                await transport.request(Request("POST", url, body=bytes(160 * PIECE), timeout=0.2))

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        asyncio.run(ask(port))
        remote = [found.raddr for found in psutil.Process().net_connections("tcp4")]
        assert ("127.0.0.1", port) not in remote


async def test_a_cancelled_request_closes_its_connection(transport: HttpTransport) -> None:
    begun, closed = asyncio.Event(), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        begun.set()
        assert not await reader.read()
        closed.set()

    async with raw_server(serve) as url, asyncio.timeout(100), Tasks("calls") as tasks:
        work = tasks.spawn(transport.request(Request("GET", url, timeout=60)), "call")
        await begun.wait()
        work.cancel()
        await closed.wait()


# --- streams ------------------------------------------------------------------------------------


async def test_a_stream_is_read_as_it_comes_and_closed_when_left(
    transport: HttpTransport,
) -> None:
    closed = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(CHUNKED + b"2\r\nok\r\n")
        assert not await reader.read()
        closed.set()

    async with raw_server(serve) as url, asyncio.timeout(100):
        async with transport.stream(Request("GET", url, timeout=60)) as answer:
            assert answer.status == 200
            assert await answer.read() == b"ok"
        await closed.wait()


async def test_a_stream_that_breaks_or_never_comes(transport: HttpTransport) -> None:
    async with (
        raw_server(Answering(CHUNKED + b"2\r\nok\r\n")) as url,
        transport.stream(Request("GET", url, timeout=60)) as answer,
    ):
        assert await answer.read() == b"ok"
        with pytest.raises(Unreachable):
            await answer.read()

    async with raw_server(Answering(b"", keep=True)) as url:
        with pytest.raises(TimedOut):
            async with transport.stream(Request("GET", url, timeout=0.05)):
                raise AssertionError("there is no answer")
    await transport.close()
    with pytest.raises(Unreachable) as caught:
        async with transport.stream(Request("GET", url, timeout=60)):
            raise AssertionError("it is closed")
    assert not caught.value.sent
