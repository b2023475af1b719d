"""What a dialect is: how its requests are read and its answers written. No I/O."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from proxy.dialects.request import ChatRequest, PublicAnswer
from proxy.http.errors import ApiError


class Writer(Protocol):
    """Writes the answer to one request; one object for one listener.

    Either `whole`, or a stream: `opening`, any number of `keepalive`, then `answer`; or, where the
    answer is told as it comes, `piece` after `piece` and a `finish`. `error` ends a stream at any
    point after `opening`. All of them return the bytes to send, complete events only.
    """

    def whole(self, winners: Sequence[PublicAnswer]) -> bytes:
        """The JSON body of an answer that is not streamed; one winner for each choice."""
        ...

    def opening(self) -> bytes:
        """The first events, sent at admission."""
        ...

    def keepalive(self) -> bytes:
        """An event of the dialect's own kind that changes nothing."""
        ...

    def piece(self, delta: Mapping[str, Any]) -> bytes:
        """One delta of choice 0 in the form of a chat stream: any of `reasoning`, `content`,
        `tool_calls` (index, id, type, function.name; then index, function.arguments). A delta
        that tells this dialect's client nothing is a keepalive."""
        ...

    def finish(self, winner: PublicAnswer) -> bytes:
        """The end after all pieces: what is still open is closed, finish reason, usage; with no
        piece before it the whole answer."""
        ...

    def answer(self, winners: Sequence[PublicAnswer]) -> bytes:
        """A whole answer after `opening`: all pieces of all choices and the end."""
        ...

    def error(self, refusal: ApiError) -> bytes:
        """The end of a stream that cannot be finished."""
        ...


@dataclass(frozen=True, slots=True)
class Dialect:
    """One form of asking and answering."""

    name: str
    read: Callable[[bytes, Mapping[str, str], str], ChatRequest]
    """(raw body, headers with lower-case names, client's address) -> request. Raises `ApiError`."""
    writer: Callable[[ChatRequest, str, int], Writer]
    """(request, model name to tell, Unix seconds) -> writer."""
    refusal: Callable[[ApiError], bytes]
    """The JSON body of an error before anything was sent."""
