"""The interface of a dialect: parse its requests, write its responses. No I/O."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from proxy.dialects.request import ChatRequest, PublicAnswer
from proxy.http.errors import ApiError


class Writer(Protocol):
    """Writer of the response to one request; one object per client connection.

    Either `body`, or a stream: `opening`, any number of `keepalive`, then `answer`; or, when the
    answer is forwarded as it is generated, `delta_events` for each delta and a `finish`. `error`
    ends a stream at any point after `opening`. All methods return the bytes to send: complete
    events only.
    """

    def body(self, winners: Sequence[PublicAnswer]) -> bytes:
        """Return the JSON body of a response that is not streamed; one winner per choice."""
        ...

    def opening(self) -> bytes:
        """Return the first events, sent at admission."""
        ...

    def keepalive(self) -> bytes:
        """Return an event without content that keeps the client's read timeout from expiring."""
        ...

    def delta_events(self, delta: Mapping[str, Any]) -> bytes:
        """Return the events of one delta of choice 0.

        Args:
            delta: In the form of a chat stream: any of `reasoning`, `content`, `tool_calls` (index,
                id, type, function.name; then index, function.arguments).

        Returns:
            A keepalive if the delta has nothing that this dialect transmits.
        """
        ...

    def finish(self, winner: PublicAnswer) -> bytes:
        """Return the end of a stream of deltas: closing events, finish reason, usage.

        Without any `delta_events` before it, return all events of `winner`.
        """
        ...

    def answer(self, winners: Sequence[PublicAnswer]) -> bytes:
        """Return the complete answer after `opening`: all deltas of all choices and the end."""
        ...

    def error(self, refusal: ApiError) -> bytes:
        """Return the end of a stream that cannot be finished."""
        ...


@dataclass(frozen=True, slots=True)
class Dialect:
    """One API format: its name, request parser, response writer and error format."""

    name: str
    read: Callable[[bytes, Mapping[str, str], str], ChatRequest]
    """(raw body, headers with lower-case names, client's address) -> request; raises `ApiError`."""
    writer: Callable[[ChatRequest, str, int], Writer]
    """(request, model name in the response, Unix seconds) -> writer."""
    refusal: Callable[[ApiError], bytes]
    """Return the JSON body of an error response."""
