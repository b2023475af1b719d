"""Complete JSON responses written in one step, bypassing uvicorn's code for responses in parts.

uvicorn sends head and body separately and checks each header again. Most responses are complete,
JSON, and on a persistent connection, and do not need this.
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
"""(JSON body, additional headers) -> False if the 200 was not sent and must use ASGI's `send`."""


@lru_cache(maxsize=4)
def _opening(headers: tuple[tuple[bytes, bytes], ...]) -> bytes:
    """Return the head up to the content length; cached, as it changes only with the date."""
    lines = [*headers, (b"content-type", b"application/json")]
    header_lines = b"".join([name + b": " + value + b"\r\n" for name, value in lines])
    return STATUS_LINE[200] + header_lines + b"content-length: "


def fast_responder(cycle: RequestResponseCycle) -> SendWhole:
    """Return the function that answers this request in one step."""

    def send(body: bytes, extra: Extra) -> bool:
        plain = cycle.keep_alive and type(cycle) is RequestResponseCycle
        started = cycle.response_started or cycle.disconnected
        if not plain or started or cycle.flow.write_paused or cycle.access_log:
            return False
        if any([HEADER_VALUE_RE.search(value) for _, value in extra]):
            return False  # invalid, such as a line end: uvicorn refuses it
        extra_lines = b"".join([b"\r\n" + name + b": " + value for name, value in extra])
        opening = _opening(tuple(cycle.default_headers))
        cycle.response_started = True
        cycle.waiting_for_100_continue = cycle.chunked_encoding = False
        cycle.transport.write(b"%b%d%b\r\n\r\n%b" % (opening, len(body), extra_lines, body))
        cycle.response_complete = True
        cycle.message_event.set()
        cycle.on_response()
        return True

    return send
