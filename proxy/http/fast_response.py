"""A whole answer written in one step, past what the web server does for answers in parts.

The web server takes head and body one after the other and looks through each header anew. Most
answers are whole, of one kind, on a connection that stays; these need none of it.
"""

from collections.abc import Callable
from functools import lru_cache

from uvicorn.protocols.http.httptools_impl import (
    HEADER_VALUE_RE,
    STATUS_LINE,
    RequestResponseCycle,
)

from proxy.http.asgi import Extra

SendWhole = Callable[[bytes, Extra], bool]
"""Takes the body of a 200 in JSON and more headers; False when it has to go the long way."""


@lru_cache(maxsize=4)
def _opening(headers: tuple[tuple[bytes, bytes], ...]) -> bytes:
    """All of a head before the length; the same for a second, for it has the date."""
    lines = [*headers, (b"content-type", b"application/json")]
    told = b"".join([name + b": " + value + b"\r\n" for name, value in lines])
    return STATUS_LINE[200] + told + b"content-length: "


def whole_of(cycle: RequestResponseCycle) -> SendWhole:
    """What answers this exchange in one step."""

    def whole(body: bytes, more: Extra) -> bool:
        plain = cycle.keep_alive and type(cycle) is RequestResponseCycle
        begun = cycle.response_started or cycle.disconnected
        if not plain or begun or cycle.flow.write_paused or cycle.access_log:
            return False
        if any([HEADER_VALUE_RE.search(value) for _, value in more]):
            return False  # as a line end in it: the web server refuses it
        extra = b"".join([b"\r\n" + name + b": " + value for name, value in more])
        opening = _opening(tuple(cycle.default_headers))
        cycle.response_started = True
        cycle.waiting_for_100_continue = cycle.chunked_encoding = False
        cycle.transport.write(b"%b%d%b\r\n\r\n%b" % (opening, len(body), extra, body))
        cycle.response_complete = True
        cycle.message_event.set()
        cycle.on_response()
        return True

    return whole
