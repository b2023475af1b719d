"""Limits on connections: their head, their age, their number, readers that stall."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

import msgspec
import pytest
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from core.dialects.errors import ApiError
from core.events import GroupOpened
from core.settings import ProxySettings
from proxy.dialects.client_marks import client_timeout
from proxy.http import protocol
from proxy.http.connection_use import IDLE, ConnectionUses
from proxy.http.exchange import (
    STREAM_HEADERS,
    ClientDisconnect,
    error_response,
    json_response,
    while_connected,
)
from proxy.http.middleware import Bodies
from proxy.http.server import http_config
from tests.support.proxy.world import World
from tests.support.served import served
from tests.support.wire import Wire, wire

GET = "GET / HTTP/1.1\r\nhost: x\r\n\r\n"


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    try:
        response = json_response(b"%d" % len(await Request(scope, receive).body()))
    except ApiError as refusal:
        response = error_response(refusal)
    await response(scope, receive, send)


@contextlib.asynccontextmanager
async def serving(app: Any = echo, **limits: Any) -> AsyncIterator[str]:
    settings = msgspec.convert(
        {"header_timeout": 0.3, "body_timeout": 0.3, **limits}, ProxySettings
    )
    config = http_config(settings, Bodies(app, settings))
    config.timeout_keep_alive = config.timeout_graceful_shutdown = 1
    async with served(app, config) as url:
        yield url


async def refused(one: Wire, status: int) -> str:
    answer = await one.answer()
    assert answer.status == status
    assert answer.headers["connection"] == "close"
    assert answer.json()["error"]["code"] == status
    assert await one.closed() == b""
    message: str = answer.json()["error"]["message"]
    return message


async def test_requests_in_turn_on_one_connection() -> None:
    async with serving() as url, wire(url) as one:
        for _ in range(3):
            await one.send(GET)
            assert (await one.answer()).status == 200
        await one.ask("POST", "/", b"x" * 300_000)
        assert (await one.answer()).body == b"300000"


async def test_pipelined_requests_are_answered_in_order() -> None:
    async with serving() as url, wire(url) as one:
        await one.send(GET * 3)
        assert [(await one.answer()).status for _ in range(3)] == [200] * 3


@pytest.mark.parametrize("result", ["", "GET / HT", "GET / HTTP/1.1\r\nhost: x\r\nx-a: b"])
async def test_an_incomplete_head_times_out(result: str) -> None:
    async with serving() as url, wire(url) as one:
        await one.send(result)
        if result:
            assert "in time" in await refused(one, 408)
        else:
            assert await one.closed(2.0) == b""


async def test_a_head_a_byte_at_a_time_gets_no_more_time() -> None:
    async with serving() as url, wire(url) as one:
        sent = 0

        async def drip() -> None:
            nonlocal sent
            for byte in b"GET / HTTP/1.1\r\n" + b"x-slow: y\r\n" * 100:
                await one.send(bytes([byte]))
                sent += 1
                await asyncio.sleep(0.02)

        with contextlib.suppress(ConnectionError):
            async with asyncio.TaskGroup() as tasks:
                dripping = tasks.create_task(drip())
                await refused(one, 408)
                dripping.cancel()
        assert sent < 100


async def test_a_stalled_body_times_out() -> None:
    async with serving() as url, wire(url) as one:
        await one.send("POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\nabc")
        await refused(one, 408)


async def test_a_slow_but_steady_body_is_accepted() -> None:
    async with serving(body_timeout=0.4) as url, wire(url) as one:
        await one.send("POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 6\r\n\r\n")
        for _ in range(6):
            await asyncio.sleep(0.15)
            await one.send("a")
        assert (await one.answer()).body == b"6"


async def test_a_body_that_trickles_forever_times_out() -> None:
    """Each byte arrives in time, the whole never would."""
    async with serving(body_timeout=0.1) as url, wire(url) as one:
        await one.send("POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 100000\r\n\r\n")

        async def drip() -> None:
            with contextlib.suppress(ConnectionError):
                while True:
                    await one.send("a")
                    await asyncio.sleep(0.03)

        async with asyncio.TaskGroup() as group:
            dripping = group.create_task(drip())
            await refused(one, 408)
            dripping.cancel()


async def test_a_body_after_a_long_response_has_its_own_time_limit() -> None:
    """Nothing of it is read until the answer before it is out, however long that takes."""

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/slow":
            await asyncio.sleep(1.5)  # more than a body may take in all
        await echo(scope, receive, send)

    size = 4_000_000
    async with serving(slow, body_timeout=0.1) as url, wire(url) as one:
        await one.send(
            "POST /slow HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n"
            f"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: {size}\r\n\r\n" + size * "a"
        )
        assert (await one.answer()).body == b"0"
        assert (await one.answer()).body == str(size).encode()


async def test_blank_lines_do_not_keep_a_connection_open() -> None:
    async with serving() as url, wire(url) as one:
        await one.send(GET)
        assert (await one.answer()).status == 200
        with contextlib.suppress(ConnectionError):
            for _ in range(100):
                await one.send("\r\n")
                await asyncio.sleep(0.02)
                if one.reader.at_eof():
                    break
        assert one.reader.at_eof() or one.reader.exception()  # closed, or reset while we wrote


async def test_an_idle_connection_is_closed_after_the_keep_alive_time() -> None:
    async with serving() as url, wire(url) as one:
        await one.send(GET)
        assert (await one.answer()).status == 200
        await asyncio.sleep(0.5)  # longer than a head may take, shorter than idling may last
        await one.send(GET)
        assert (await one.answer()).status == 200
        assert await one.closed(3.0) == b""


async def test_a_long_response_does_not_count_as_a_slow_request() -> None:
    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.sleep(0.8)
        await json_response(b"1")(scope, receive, send)

    async with serving(slow) as url, wire(url) as one:
        await one.send(GET + "GET / HT")  # the next one has begun already
        assert (await one.answer()).status == 200
        await one.send("TP/1.1\r\nhost: x\r\n\r\n")
        assert (await one.answer()).status == 200


@pytest.mark.parametrize("count", [1, 200])
async def test_a_head_over_the_limit_is_refused(count: int) -> None:
    async with serving() as url, wire(url) as one:
        line = "x-large: " + "a" * (192_000 // count) + "\r\n"
        await one.send("GET / HTTP/1.1\r\nhost: x\r\n" + line * count + "\r\n")
        assert "64 KiB" in await refused(one, 431)


async def test_an_endless_head_is_refused() -> None:
    async with serving(header_timeout=5.0) as url, wire(url) as one:
        await one.send("GET / HTTP/1.1\r\nx-large: ")
        with contextlib.suppress(ConnectionError):
            for _ in range(40):
                await one.send("a" * 16_000)
                await asyncio.sleep(0.005)
        await refused(one, 431)


async def test_invalid_http_is_refused() -> None:
    async with serving() as url:
        for value in (b"\x16\x03\x01\x02\x00\x01", b"HELO you\r\n\r\n", b"GET  / / /\r\n\r\n"):
            async with wire(url) as one:
                await one.send(value)
                await refused(one, 400)


async def held(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer when the client leaves; a request for `/now` at once."""
    with contextlib.suppress(ClientDisconnect):
        async with while_connected(receive):
            if scope["path"] != "/now":
                await asyncio.Event().wait()
    await json_response(b"1")(scope, receive, send)


NOW = "GET /now HTTP/1.1\r\nhost: x\r\n\r\n"


@pytest.mark.parametrize("begun", ["", "GET / HT"], ids=["silent", "in its head"])
async def test_a_new_connection_takes_the_place_of_the_oldest_silent_one(begun: str) -> None:
    async with (
        serving(held, max_connections=8, header_timeout=1000.0) as url,
        contextlib.AsyncExitStack() as stack,
    ):
        oldest, busy, idle, other = [await stack.enter_async_context(wire(url)) for _ in range(4)]
        await oldest.send(begun)
        await busy.send(GET)
        for one in (idle, other):
            await one.send(NOW)
            assert (await one.answer()).status == 200
        for closed in (oldest, idle):  # the fifth and sixth: an address has half of the places
            new = await stack.enter_async_context(wire(url))
            await new.send(NOW)
            assert (await new.answer()).status == 200
            assert await closed.closed() == b""
        await other.send(NOW)
        assert (await other.answer()).status == 200
        assert not busy.reader.at_eof()


async def test_a_connection_is_refused_while_all_are_in_use() -> None:
    async with serving(held, max_connections=4, header_timeout=1000.0) as url:
        async with wire(url) as first, wire(url) as second:
            for one in (first, second):
                await one.send(GET)
            async with wire(url) as third:
                await third.send(NOW)
                answer = await third.answer()
                assert answer.status == 503
                assert answer.headers["retry-after"]
                assert await third.closed() == b""
        async with wire(url) as again:
            await again.send(NOW)
            assert (await again.answer()).status == 200


async def test_a_client_that_does_not_read_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "STALL", 0.3)
    left = asyncio.Event()

    async def flood(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        try:
            async with while_connected(receive):
                while True:
                    part = {"type": "http.response.body", "body": b"x" * 65_536, "more_body": True}
                    await send(part)
                    await asyncio.sleep(0)
        except ClientDisconnect:
            left.set()

    async with serving(flood) as url, wire(url) as one:
        await one.send(GET)
        async with asyncio.timeout(30):
            await left.wait()


class Waits:
    """An application that answers a request when its client has left."""

    def __init__(self) -> None:
        self.read, self.left = asyncio.Event(), asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        await Request(scope, receive).body()
        self.read.set()
        try:
            async with while_connected(receive):
                await asyncio.Event().wait()
        except ClientDisconnect:
            self.left.set()


@pytest.mark.parametrize("size", [0, 60_000, 300_000, 500_000, 3_000_000])
async def test_a_disconnect_is_noticed_however_large_the_body(size: int) -> None:
    app = Waits()
    async with serving(app, body_timeout=30.0) as url:
        async with wire(url) as one:
            await one.ask("POST", "/", b"x" * size)
            await app.read.wait()
            assert not app.left.is_set()
        async with asyncio.timeout(30.0):
            await app.left.wait()


@pytest.mark.parametrize("ahead", [1, 3])
async def test_a_disconnect_is_noticed_after_pipelined_requests(ahead: int) -> None:
    app = Waits()
    async with serving(app) as url:
        async with wire(url) as one:
            await one.ask("POST", "/", b"x")
            await app.read.wait()
            for _ in range(ahead):
                await one.send(GET)
        async with asyncio.timeout(30.0):
            await app.left.wait()


async def test_an_offer_of_http_2_is_ignored() -> None:
    offer = {"connection": "Upgrade, HTTP2-Settings", "upgrade": "h2c", "http2_settings": "AAM"}
    async with serving() as url, wire(url) as one:
        for _ in range(2):
            await one.ask("POST", "/", b"12345", **offer)
            answer = await one.answer()
            assert (answer.status, answer.body) == (200, b"5")


async def streamed(scope: Scope, receive: Receive, send: Send) -> None:
    await Request(scope, receive).body()
    await send({"type": "http.response.start", "status": 200, "headers": [*STREAM_HEADERS]})
    for part in (b"data: 1\n\n", b"data: 2\n\n", b""):
        await send({"type": "http.response.body", "body": part, "more_body": bool(part)})


@pytest.mark.parametrize("more", ["", "connection: keep-alive\r\n"])
async def test_an_http_1_0_client_gets_a_stream_without_chunks(more: str) -> None:
    async with serving(streamed) as url, wire(url) as one:
        await one.send(f"POST / HTTP/1.0\r\ncontent-length: 2\r\n{more}\r\n{{}}")
        answer = await one.answer()
        assert (answer.status, answer.body) == (200, b"data: 1\n\ndata: 2\n\n")
        assert "transfer-encoding" not in answer.headers
        assert answer.headers["connection"] == "close"
        assert await one.closed() == b""


async def test_an_http_1_0_client_gets_no_100_continue() -> None:
    async with serving() as url, wire(url) as one:
        await one.send("POST / HTTP/1.0\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n")
        await one.send("ab")
        assert (await one.answer()).status == 200


async def test_an_http_1_0_client_gets_the_content_length() -> None:
    async with serving() as url, wire(url) as one:
        await one.send("POST / HTTP/1.0\r\ncontent-length: 2\r\n\r\n{}")
        answer = await one.answer()
        assert (answer.headers["content-length"], answer.body) == ("1", b"2")
        assert await one.closed() == b""


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, 0.0),
        ({"x-stainless-timeout": "60"}, 60.0),
        ({"x-stainless-read-timeout": "12.5"}, 12.5),
        ({"x-stainless-read-timeout": "600", "x-stainless-timeout": "20"}, 20.0),
        ({"x-stainless-timeout": "60000"}, 0.0),  # milliseconds
        ({"x-stainless-timeout": "NOT_GIVEN"}, 0.0),
        ({"x-stainless-timeout": "nan"}, 0.0),
        ({"x-stainless-timeout": "inf"}, 0.0),
        ({"x-stainless-timeout": "-1"}, 0.0),
    ],
)
def test_the_headers_of_the_sdks_are_read(headers: Mapping[str, str], seconds: float) -> None:
    assert client_timeout(headers, stream=False) == seconds


def test_keep_alives_outlast_the_timeout_of_a_stream() -> None:
    assert client_timeout({"x-stainless-timeout": "60"}, stream=True) == 0.0


async def test_the_timeout_is_stored_with_the_group(w: World) -> None:
    ticket = await w.ask("q", {"x-stainless-timeout": "30"})
    await w.reply(ticket)
    (opened,) = w.kinds(GroupOpened)
    assert opened.client_timeout == 30.0
    assert w.context.bus.state.groups[ticket.group_id].client_timeout == 30.0


CLIENT = ("127.0.0.1", 1)


@pytest.mark.parametrize(
    ("pause", "waited", "lag"),
    [(0.5, False, IDLE - 0.5), (0.5, True, None), (IDLE, False, 0.0), (IDLE, True, 0.0)],
)
def test_a_request_may_overtake_unless_the_one_before_it_waited(
    pause: float, waited: bool, lag: float | None
) -> None:
    now = 100.0
    uses = ConnectionUses(lambda: now)
    first = uses.begin(CLIENT)
    assert first.lag == 0.0
    first.waited = waited
    now += 60.0
    uses.end(CLIENT, first)
    now += pause
    assert uses.begin(("127.0.0.1", 2)).lag == 0.0  # of another connection
    assert uses.begin(CLIENT).lag == lag


def test_uses_are_forgotten() -> None:
    now = 0.0
    uses = ConnectionUses(lambda: now)
    for port in range(1000):
        uses.end(("127.0.0.1", port), uses.begin(("127.0.0.1", port)))
        now += 0.1
        assert len(uses) <= IDLE / 0.1 + 1
