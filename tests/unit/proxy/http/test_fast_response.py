"""A whole answer in one step is the answer the long way gives, byte for byte."""

from typing import Any

import pytest

from proxy.http.asgi import (
    FAST_RESPONSE,
    Extra,
    Receive,
    Scope,
    Send,
    headers_of,
    read_body,
    send_json,
)
from tests.support.proxy.front import BODIES, fronted
from tests.support.proxy.world import settings
from tests.support.wire import wire
from tests.unit.proxy.http.test_protocol import serving

CHAT = "/v1/chat/completions"


class Echo:
    """Answers in one step where it can; notes which way each answer took."""

    def __init__(self, more: Extra = ()) -> None:
        self.more = more
        self.ways: list[str] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await read_body(headers_of(scope), receive, 1 << 24)
        step: Any = scope.get(FAST_RESPONSE) if scope["path"] == "/short" else None
        if step is not None and step(body, self.more):
            self.ways.append("short")
            return
        self.ways.append("long")
        await send_json(send, 200, body, self.more)


async def both(app: Echo, **headers: str) -> list[bytes]:
    """The bytes of an answer each way, without the date's line."""
    result = []
    async with serving(app) as url, wire(url) as one:
        for path in ("/short", "/long"):
            await one.ask("POST", path, b'{"a": 1}', **headers)
            head = await one.reader.readuntil(b"\r\n\r\n")
            body = await one.reader.readexactly(8)
            lines = [line for line in head.split(b"\r\n") if not line.startswith(b"date:")]
            result.append(b"\r\n".join([*lines, body]))
    return result


async def test_fast_and_normal_responses_have_the_same_bytes() -> None:
    app = Echo(((b"x-request-id", b"one"),))
    short, long = await both(app)
    assert short == long
    assert app.ways == ["short", "long"]


async def test_requests_in_a_row_and_pipelined_are_answered_in_order() -> None:
    app = Echo()
    async with serving(app) as url, wire(url) as one:
        for text in (b"1", b"2"):
            await one.ask("POST", "/short", text)
            assert (await one.answer()).body == text
        result = b"".join(
            b"POST /%b HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1\r\n\r\n%b" % (path, text)
            for path, text in ((b"short", b"3"), (b"long", b"4"), (b"short", b"5"))
        )
        await one.send(result)
        assert [(await one.answer()).body for _ in range(3)] == [b"3", b"4", b"5"]
    assert app.ways == ["short", "short", "short", "long", "short"]


async def test_a_closing_connection_gets_a_normal_response() -> None:
    app = Echo()
    async with serving(app) as url, wire(url) as one:
        await one.ask("POST", "/short", b"12", connection="close")
        answer = await one.answer()
        assert (answer.body, answer.headers["connection"]) == (b"12", "close")
        assert await one.closed() == b""
    assert app.ways == ["long"]


async def test_an_http_1_0_client_gets_a_normal_response() -> None:
    app = Echo()
    async with serving(app) as url, wire(url) as one:
        await one.send("POST /short HTTP/1.0\r\ncontent-length: 2\r\n\r\nhi")
        assert (await one.answer()).body == b"hi"
        assert await one.closed() == b""
    assert app.ways == ["long"]


@pytest.mark.parametrize("bad", [b"a\r\nset-cookie: b", b"a\nb", b"a\rb"])
async def test_a_line_end_in_a_header_is_never_written(bad: bytes) -> None:
    app = Echo(((b"x-request-id", bad),))
    async with serving(app) as url, wire(url) as one:
        await one.ask("POST", "/short", b"12")
        assert await one.closed() == b""
    assert app.ways == ["long"]


async def test_an_allowed_web_page_gets_its_cors_headers(tmp_path: Any) -> None:
    named = settings(proxy={"cors_origins": "https://chat.example"})
    async with fronted(tmp_path, configured=named) as f, wire(f.url) as one:
        await one.ask("POST", CHAT, BODIES[CHAT], origin="https://chat.example")
        answer = await one.answer()
        assert answer.status == 200
        assert answer.headers["access-control-allow-origin"] == "https://chat.example"
        await one.ask("POST", CHAT, BODIES[CHAT])
        assert (await one.answer()).status == 200
