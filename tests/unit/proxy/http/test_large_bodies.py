"""Large bodies are parsed in a thread, where they block no request."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

import proxy.dialects.request
import proxy.http.exchange
from proxy.dialects.request import check_values
from proxy.http.exchange import LONG, parse
from tests.support.proxy.front import ASKED, BODIES, fronted


async def test_a_large_body_does_not_block_the_event_loop() -> None:
    loop_ran = threading.Event()

    def read(data: bytes) -> bool:
        return loop_ran.wait(20)

    asyncio.get_running_loop().call_later(0.01, loop_ran.set)
    assert await parse(b"x" * (LONG + 1), read)
    assert await parse(b"x", lambda _: threading.current_thread()) is threading.current_thread()


@pytest.mark.parametrize(
    ("path", "body"),
    [
        *BODIES.items(),
        ("/v1/messages/count_tokens", {"model": "tiny", "messages": ASKED}),
    ],
)
async def test_every_route_reads_large_bodies_in_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, body: dict[str, Any]
) -> None:
    readers: list[threading.Thread] = []
    check = check_values

    def checked(data: bytes) -> None:
        readers.append(threading.current_thread())
        check(data)

    monkeypatch.setattr(proxy.dialects.request, "check_values", checked)
    monkeypatch.setattr(proxy.http.exchange, "LONG", 1000)
    async with fronted(tmp_path) as front:
        for length in (10, 2000):
            answer = await front.client.post(path, json=body | {"user": "x" * length})
            assert answer.status_code == 200, answer.text
    assert [reader is threading.main_thread() for reader in readers] == [True, False]
