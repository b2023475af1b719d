"""Errors of the client library.

SwarmError
├── TransportError          no usable HTTP response
│   ├── Unreachable         no connection, or it was lost
│   ├── TimedOut            connected, but no response in time
│   └── TooLarge            a response beyond the limit
├── ServerRefusal           an HTTP error response (status, text)
├── ChatError               a chat call without a usable answer (kind)
├── ClaimTimedOut           no group of episodes before the deadline
├── GaveUp                  a wait exceeded its timeout
├── EngineOff               the engine is OFFLINE, or went OFFLINE during a wait
│   └── TrainingFinished    it is OFFLINE because all steps of its job are trained
├── EpisodeLost             an episode could not be ended (outcome)
├── DatasetError            a dataset cannot be read
└── WrongUse                an argument that is wrong in itself
"""

from enum import StrEnum

from ajet_swarm.common.errors import AjetError, UsageError


class SwarmError(AjetError):
    """A request to a swarm server failed."""


class TransportError(SwarmError):
    """There is no usable HTTP response.

    Attributes:
        sent: False when the request certainly never reached the server, else True.
    """

    def __init__(self, what: str, where: str = "", todo: str = "", *, sent: bool = True) -> None:
        super().__init__(what, where, todo)
        self.sent = sent


class Unreachable(TransportError):
    """No connection could be made, or it was lost before the answer."""


class TimedOut(TransportError):
    """The server accepted the request and did not answer in time."""


class TooLarge(TransportError):
    """The answer is larger than the transport accepts."""


class ServerRefusal(SwarmError):
    """The server answered that it will not; `text` is its own reason.

    Attributes:
        status: HTTP status; 200 for `success: false`.
    """

    def __init__(self, status: int, text: str, where: str = "", todo: str = "") -> None:
        super().__init__(f"the server refused ({status}): {text or 'no reason given'}", where, todo)
        self.status = status
        self.text = text


class ChatErrorKind(StrEnum):
    """Why a chat call gave no answer."""

    LOST_EPISODE = "lost_episode"
    """404: the record is gone or the engine moved on. Abort locally, do not call again."""
    OVERFLOW = "overflow"
    """The conversation exceeds the model's window."""
    UNAUTHORIZED = "unauthorized"
    """The key was not accepted."""
    UPSTREAM = "upstream"
    """Any other response that is not a completion."""
    REFUSED = "refused"
    """The request is wrong; a retry would be refused again."""
    LIMITED = "limited"
    """Too many requests at the moment."""
    BROKEN = "broken"
    """A stream ended before its answer was complete, without a cause; the episode may be gone, as
    with `LOST_EPISODE`."""
    OVERSIZED = "oversized"
    """The answer is larger than the call may hold; a retry would be, too."""
    TIMED_OUT = "timed_out"
    UNREACHABLE = "unreachable"


class ChatError(SwarmError):
    """A chat call without a usable answer.

    Attributes:
        kind: What it means for the episode.
        status: HTTP status; 0 when there was none.
        text: The server's text, at most 2,000 characters.
    """

    def __init__(self, kind: ChatErrorKind, text: str, *, where: str = "", status: int = 0) -> None:
        self.kind = kind
        self.status = status
        self.text = text[:2000]
        shown = f"{kind.value} ({status})" if status else kind.value
        super().__init__(f"the episode gave no answer, {shown}: {self.text}", where)


class ClaimTimedOut(SwarmError):
    """The episodes of a group were not free together before the deadline.

    Attributes:
        cause: The last refusal's kind, the engine's state, or `no answer to the claim`.
        best: Largest number of episodes that were free at once.
    """

    def __init__(self, n: int, best: int, cause: str, where: str = "") -> None:
        self.n = n
        self.best = best
        self.cause = cause
        super().__init__(
            f"{n} episodes were not free together in time (at most {best} were; last: {cause})",
            where,
            "Wait for the engine to roll, or allow it more episodes",
        )


class GaveUp(SwarmError):
    """A wait exceeded its timeout."""


class EngineOff(SwarmError):
    """The engine is OFFLINE and no one starts it, or it went OFFLINE during a wait."""


class TrainingFinished(EngineOff):
    """The engine is OFFLINE because all `total_training_steps` of its job are trained.

    Executors and `run_episodes` retry nothing after it, until the engine is started again.
    """

    exit_code = 0


class WrongUse(SwarmError, UsageError):
    """An argument of a script is wrong in itself; executors do not retry after it."""


class EpisodeLost(SwarmError, RuntimeError):
    """An episode could not be ended: its sample does not count.

    Attributes:
        kind: The `EndKind` of its end.
    """

    def __init__(self, kind: str, text: str, where: str = "") -> None:
        self.kind = kind
        super().__init__(f"the episode could not be ended ({kind}): {text or 'no reason'}", where)


class DatasetError(UsageError, SwarmError):
    """A dataset cannot be read; the error names the file, the line and the field."""
