"""One request of a user, in the form that all dialects share. No I/O."""

from collections.abc import Mapping
from typing import Any

import msgspec

from core.dialects.request import DialectRequest
from proxy.http.connection_use import ConnectionUse

_encode = msgspec.json.Encoder().encode


class ChatRequest(DialectRequest, kw_only=True, frozen=True):
    """One user request in any dialect.

    The `request_id` is the client's own `X-Request-Id`, else 16 hex digits. The `body` goes
    upstream: no stream, one answer, in training the run's temperature, unknown fields unchanged.
    """

    query: str
    """Text of the last user message."""
    model: str
    """The requested model name; may be empty."""
    stream: bool
    train: bool = True
    """False: answer from one candidate, do not train on it."""
    helper: str = ""
    """Name of the rule that classified it as a helper call (a title, a summary); empty if none."""
    session: str = ""
    """The session the client names; empty when it names none."""
    address: str = ""
    """The client's address."""
    connection: ConnectionUse = msgspec.field(default_factory=lambda: ConnectionUse(None))
    """Its connection; without one it may not overtake."""
    headers: Mapping[str, str]
    """The request's headers; names in lower case."""
    shown: list[dict[str, Any]] | None = None
    """`messages` with a label in place of each image; None when they hold no image."""
    parts: tuple["ChatRequest", ...] = ()
    """For a request with several prompts: one request per prompt, each with a group of its own."""

    @property
    def seeds(self) -> bool:
        """Return whether each candidate needs its own seed: with one seed all choices are equal."""
        return self.n > 1 and isinstance(self.body.get("seed"), int)

    def body_of(self, index: int) -> dict[str, Any]:
        """Return `body` for the candidate `index`; with several choices seed + index, like vLLM."""
        return {**self.body, "seed": self.body["seed"] + index} if self.seeds else self.body

    def encoded(self, index: int = 0) -> bytes:
        """Return `body_of` as JSON bytes."""
        return _encode(self.body_of(index))
