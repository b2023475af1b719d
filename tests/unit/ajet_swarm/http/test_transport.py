"""The HTTP seam against real sockets."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from ajet_swarm.common.tasks import Tasks
from ajet_swarm.http import transport as module
from ajet_swarm.http.connection import PAUSE, PIECE, Connection
from ajet_swarm.http.interface import Request, ResponseFuture
from ajet_swarm.http.transport import HttpTransport, TimedOut, TooLarge, Unreachable
from tests.support.scripted.swarm import ScriptedSwarm

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


@asynccontextmanager
async def raw_server(serve: Serve) -> AsyncIterator[str]:
    """A bare socket server; it calls `serve` for every connection and then closes it."""
    open_now: set[asyncio.StreamWriter] = set()

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        open_now.add(writer)
        try:
            await serve(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(one, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/x"
    finally:
        server.close()
        for writer in open_now:
            writer.close()
        await server.wait_closed()


async def test_connections_are_kept_and_reused(
    server: ScriptedSwarm, transport: HttpTransport
) -> None:
    for _ in range(5):
        answer = await transport.request(Request("GET", server.url + "/health", timeout=60))
        assert (answer.status, answer.body) == (200, b'{"status": "ok"}')
        assert answer.headers["CONTENT-TYPE"].startswith("application/json")
    assert server.connections == 1


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


async def test_a_connection_that_answered_500_is_not_used_again(
    server: ScriptedSwarm, transport: HttpTransport
) -> None:
    """The server closes it without saying so; a claim sent on it would be lost."""
    for n in range(1, 6):
        server.fail_next("/claim_episode", 500)
        broken = await transport.request(
            Request("POST", server.url + "/claim_episode", body=b"", timeout=60)
        )
        assert (broken.status, broken.body) == (500, b"Internal Server Error")
        sound = await transport.request(
            Request("POST", server.url + "/get_episode_buffer", timeout=60)
        )
        assert sound.status == 200
        assert server.connections == n + 1


async def test_a_repeatable_request_is_sent_once_more_on_a_fresh_connection() -> None:
    requests = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal requests
        await reader.readuntil(b"\r\n\r\n")
        requests += 1
        if requests > 1:
            writer.write(OK)
            await writer.drain()

    async with raw_server(serve) as url, HttpTransport() as transport:
        answer = await transport.request(Request("POST", url, timeout=60, repeatable=True))
        assert answer.body == b"ok"
        assert requests == 2


async def test_any_other_request_is_sent_once() -> None:
    requests = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal requests
        await reader.readuntil(b"\r\n\r\n")
        requests += 1

    async with raw_server(serve) as url, HttpTransport() as transport:
        with pytest.raises(Unreachable) as caught:
            await transport.request(Request("POST", url, body=b"{}", timeout=60))
        assert caught.value.sent
        assert requests == 1


async def test_a_refused_connection_means_that_nothing_was_sent(transport: HttpTransport) -> None:
    with socket.socket() as held:  # bound and not listening: no answer on this port
        held.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{held.getsockname()[1]}/"
        with pytest.raises(Unreachable) as caught:
            await transport.request(Request("GET", url, timeout=60, repeatable=True))
    assert not caught.value.sent
    assert "no connection" in str(caught.value)


async def test_no_answer_in_time(server: ScriptedSwarm, transport: HttpTransport) -> None:
    server.freeze()
    with pytest.raises(TimedOut) as caught:
        await transport.request(
            Request("GET", server.url + "/health", timeout=0.05, repeatable=True)
        )
    assert caught.value.sent
    server.unfreeze()


@pytest.mark.parametrize("head", [b"content-length: 5000", b"connection: close"])
async def test_an_unbounded_answer_is_not_read_into_memory(head: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n\r\n" + b"x" * 5000)
        await writer.drain()

    async with raw_server(serve) as url, HttpTransport(largest=1000) as transport:
        with pytest.raises(TooLarge):
            await transport.request(Request("GET", url, timeout=60))


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 5000\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + b"2\r\nxy\r\n" * 2000,
        b"HTTP/1.1 100 Continue\r\n\r\n" * 20_000,
        b"HTTP/1.1 200 OK\r\nx: " + b"x" * 200_000,
    ],
    ids=["length", "small chunks", "interim answers", "head"],
)
async def test_an_answer_is_bounded_by_its_request(answer: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        await reader.read()

    async with raw_server(serve) as url, HttpTransport() as transport:
        with pytest.raises(TooLarge):
            await transport.request(Request("GET", url, timeout=60, most=1000))


async def test_all_answers_together_are_bounded_and_an_ended_one_does_not_count() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = (await reader.readuntil(b"\r\n\r\n")).split()[1]
        head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n"
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
        while not transport.held.used:
            await asyncio.sleep(0.005)
        with pytest.raises(TooLarge, match="together"):
            await transport.request(Request("GET", url, timeout=60))
        held.cancel()
        await asyncio.wait([held])
        assert transport.held.used == 0
        await transport.request(Request("GET", url, timeout=60))


async def test_a_body_of_megabytes_is_sent_without_warning() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        body = await reader.readexactly(length)
        text = str(len(body)).encode()
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(text), text))
        await writer.drain()

    async with raw_server(serve) as url, HttpTransport() as transport:
        answer = await transport.request(Request("POST", url, body=b"x" * 3_000_000, timeout=60))
        assert answer.body == b"3000000"


async def test_long_bodies_go_out_whole_while_others_have_their_turns() -> None:
    """A slow reader makes the socket full again and again; no piece is lost or out of order."""
    body = bytes(range(256)) * (5 * PAUSE // 256) + b"the end"
    bodies: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        bodies.append(await reader.readexactly(len(body)))
        writer.write(OK)
        await writer.drain()

    async with raw_server(serve) as url, HttpTransport() as transport:
        async with asyncio.TaskGroup() as group:
            for _ in range(3):
                group.create_task(transport.request(Request("POST", url, body=body, timeout=60)))
        assert bodies == [body] * 3


async def test_a_long_body_is_handed_over_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many go out at once, none holds up the loop for longer than a piece takes."""
    sizes: list[int] = []
    send_next_piece = Connection._send_next_piece

    def counted(connection: Connection) -> None:
        before = len(connection._unsent or b"")
        send_next_piece(connection)
        sizes.append(before - len(connection._unsent or b""))

    monkeypatch.setattr(Connection, "_send_next_piece", counted)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(2 * PAUSE)
        writer.write(OK)
        await writer.drain()

    async with raw_server(serve) as url, HttpTransport() as transport:
        answer = await transport.request(Request("POST", url, body=bytes(2 * PAUSE), timeout=60))
    assert answer.status == 200
    assert sum(sizes) == 2 * PAUSE
    assert max(sizes) == PIECE


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
        first = await transport.request(Request("POST", url, body=bytes(40 * PAUSE), timeout=60))
        assert first.status == 413
        second = await transport.request(Request("POST", url, body=b"{}", timeout=60))
        assert second.status == 200


async def test_redirects_are_not_followed() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 302 F\r\nlocation: /elsewhere\r\ncontent-length: 0\r\n\r\n")
        await writer.drain()

    async with raw_server(serve) as url, HttpTransport() as transport:
        assert (await transport.request(Request("GET", url, timeout=60))).status == 302


async def test_a_request_after_close_is_an_error(server: ScriptedSwarm) -> None:
    transport = HttpTransport()
    await transport.request(Request("GET", server.url + "/health", timeout=60))
    await transport.close()
    with pytest.raises(Unreachable, match="closed"):
        await transport.request(Request("GET", server.url + "/health", timeout=60))


async def test_a_stream_is_read_as_it_comes_and_closed_when_left(
    transport: HttpTransport,
) -> None:
    closed = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n")
        assert not await reader.read()
        closed.set()

    async with raw_server(serve) as url, asyncio.timeout(100):
        async with transport.stream(Request("GET", url, timeout=60)) as answer:
            assert answer.status == 200
            assert await answer.read() == b"ok"
        await closed.wait()


async def test_a_stream_that_breaks_or_never_comes(transport: HttpTransport) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n")
        await writer.drain()

    async with (
        raw_server(serve) as url,
        transport.stream(Request("GET", url, timeout=60)) as answer,
    ):
        assert await answer.read() == b"ok"
        with pytest.raises(Unreachable):
            await answer.read()

    async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with raw_server(mute) as url:
        with pytest.raises(TimedOut):
            async with transport.stream(Request("GET", url, timeout=0.05)):
                raise AssertionError("there is no answer")
    await transport.close()
    with pytest.raises(Unreachable) as caught:
        async with transport.stream(Request("GET", url, timeout=60)):
            raise AssertionError("it is closed")
    assert not caught.value.sent


async def test_names_are_resolved_without_the_executor(
    server: ScriptedSwarm, transport: HttpTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script's threads may still run when its interpreter accepts no more work for executors."""

    def refuse(*_: object) -> None:
        raise RuntimeError("cannot schedule new futures after shutdown")

    loop = asyncio.get_running_loop()
    monkeypatch.setattr(loop, "run_in_executor", refuse)
    monkeypatch.setattr("ajet_swarm.http.transport.KEEP_ALIVE", 0.0)
    for host in ("localhost", "127.0.0.1"):
        url = f"http://{host}:{server.port}/health"
        for _ in range(2):
            assert (await transport.request(Request("GET", url, timeout=60))).status == 200


@pytest.mark.parametrize(
    "error", [socket.gaierror(-2, "Name or service not known"), RuntimeError("no thread"), None]
)
async def test_a_name_without_an_address_means_that_nothing_was_sent(
    transport: HttpTransport, monkeypatch: pytest.MonkeyPatch, error: Exception | None
) -> None:
    if error is not None:

        def fail(*_: object, flags: int = 0, **__: object) -> None:
            raise socket.gaierror if flags else error

        monkeypatch.setattr(socket, "getaddrinfo", fail)
    with pytest.raises(Unreachable, match="no connection: ") as caught:
        await transport.request(Request("GET", f"http://{'a' * 64}/", timeout=60))
    assert not caught.value.sent


async def test_unreadable_certificates_mean_that_nothing_was_sent(
    transport: HttpTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> None:
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr("ssl.create_default_context", missing)
    with pytest.raises(Unreachable, match="No such file") as caught:
        await transport.request(Request("GET", "https://127.0.0.1:1/", timeout=60))
    assert not caught.value.sent


async def test_a_listener_that_raises_ends_no_other_timeout(
    transport: HttpTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK)
        await reader.read()

    def broken(_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(module, "EXACT", 0.0)
    monkeypatch.setattr(module, "SCAN", 0.01)
    async with raw_server(serve) as url:
        request = Request("GET", url, timeout=60)
        await asyncio.gather(*(transport.request(request) for _ in range(2)))
        silent = [transport.start(Request("GET", url, timeout=0.01)) for _ in range(2)]
        for pending in silent:
            assert isinstance(pending, ResponseFuture)
            pending.listener = broken
        for pending in silent:
            assert pending is not None
            with pytest.raises(TimedOut):
                await pending


@pytest.mark.parametrize("coding", ["gzip, chunked", "gzip", "chunked\r\ntransfer-encoding: gzip"])
async def test_a_compressed_transfer_is_refused(transport: HttpTransport, coding: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = f"HTTP/1.1 200 OK\r\ntransfer-encoding: {coding}\r\n\r\n"
        writer.write(head.encode() + b"2\r\nok\r\n0\r\n\r\n")
        await writer.drain()

    async with raw_server(serve) as url:
        with pytest.raises(Unreachable, match="unsupported transfer coding"):
            await transport.request(Request("GET", url, timeout=60))
