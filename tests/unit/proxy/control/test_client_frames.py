"""The client splits the feed into frames, whatever their texts and however the bytes arrive."""

from collections.abc import AsyncIterator

import httpx
import pytest

from core.events import GroupNoted, encode
from proxy.control.client import ControlClient, ControlLost

NOTES = (
    "plain",
    "line\u2028paragraph\u2029next\x85end",
    "two\nlines\r\nand a\ttab",
    "id: 7\n\nevent: x",
)


class Pieces(httpx.AsyncByteStream):
    """Some bytes, a few at a time."""

    def __init__(self, data: bytes, size: int) -> None:
        self._data, self._size = data, size

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for at in range(0, len(self._data), self._size):
            yield self._data[at : at + self._size]


@pytest.mark.parametrize("size", [1, 7, 100_000])
async def test_a_text_with_line_separators_is_one_event(size: int) -> None:
    """U+2028 and similar characters are unescaped in JSON; they end no line of the feed."""
    sent = [
        GroupNoted(seq=at, group_id="g1", note=note, run_id="r") for at, note in enumerate(NOTES, 1)
    ]
    data = b"event: ping\ndata: {}\n\n" + b"".join(
        b"id: %d\nevent: group_noted\ndata: %s\n\n" % (event.seq, encode(event)) for event in sent
    )
    transport = httpx.MockTransport(lambda _: httpx.Response(200, stream=Pieces(data, size)))
    objects: list[object] = []

    async def read() -> None:
        async with ControlClient("http://proxy", "token", transport) as client:
            async for event in client.events(0):
                objects.append(event)

    with pytest.raises(ControlLost):
        await read()
    assert objects == sent


async def test_a_request_over_a_closed_client_is_refused() -> None:
    transport = httpx.MockTransport(lambda _: httpx.Response(200))
    async with ControlClient("http://proxy", "token", transport) as client:
        pass
    with pytest.raises(ControlLost, match="was closed"):
        await client.snapshot()
    with pytest.raises(ControlLost, match="was closed"):
        await anext(client.events(0))
