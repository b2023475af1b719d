"""What can go wrong with a swarm server.

SwarmError
├── TransportError          no usable HTTP answer
│   ├── Unreachable         no connection, or it was lost
│   ├── TimedOut            connected, but no answer in time
│   └── TooLarge            an answer beyond the bound
├── ServerRefusal           an HTTP error response (status, text)
├── ChatError               a chat call without a usable answer (kind)
├── ClaimTimedOut           no group of episodes before the deadline
├── GaveUp                  what was waited for did not come in time
├── EngineOff               the engine is OFFLINE, or stopped while it was waited for
│   └── TrainingFinished    it is OFFLINE because all steps of its job are trained
├── EpisodeLost             an episode could not be ended (outcome)
└── WrongUse                what a script gave can never be taken
"""

from enum import StrEnum
from typing import TYPE_CHECKING

from ajet_swarm.common.errors import AjetError, UsageError
from ajet_swarm.common.renamed import renamed


class SwarmError(AjetError):
    """A swarm server could not do what was asked."""


class TransportError(SwarmError):
    """There is no usable HTTP answer.

    Attributes:
        sent: False when the request surely never reached the server; True when it may have.
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
    """Any other answer that is not a completion."""
    REFUSED = "refused"
    """The request is wrong; asked again it would be refused again."""
    LIMITED = "limited"
    """Too many requests for now."""
    BROKEN = "broken"
    """A stream that ended before its answer was whole, without a cause: as with `LOST_EPISODE`, the
    episode may be gone."""
    TIMED_OUT = "timed_out"
    UNREACHABLE = "unreachable"


class ChatError(SwarmError):
    """A chat call without a usable answer.

    Attributes:
        kind: What it means for the episode.
        status: HTTP status; 0 when there was none.
        text: The server's own words, at most 2,000 characters.
    """

    def __init__(self, kind: ChatErrorKind, text: str, *, where: str = "", status: int = 0) -> None:
        self.kind = kind
        self.status = status
        self.text = text[:2000]
        shown = f"{kind.value} ({status})" if status else kind.value
        super().__init__(f"the episode gave no answer, {shown}: {self.text}", where)


class ClaimTimedOut(SwarmError):
    """The episodes of a group could not be had before the deadline.

    Attributes:
        cause: The last refusal's kind, the engine's state, or `no answer to the claim`.
        best: The most episodes that were free at once.
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
    """What was waited for did not come within the time that was given."""


class EngineOff(SwarmError):
    """The engine is OFFLINE and nobody starts it, or it went off while it was waited for."""


class TrainingFinished(EngineOff):
    """The engine is OFFLINE because all `total_training_steps` of its job are trained.

    Executors and `run_episodes` try nothing again after it. It is over when the engine is started.
    """

    exit_code = 0


class WrongUse(SwarmError, UsageError):
    """What a script gave can never be taken, however often it is tried: executors do not."""


class EpisodeLost(SwarmError, RuntimeError):
    """An episode could not be ended: its sample does not count.

    Attributes:
        kind: `EndKind` of what became of it.
    """

    def __init__(self, kind: str, text: str, where: str = "") -> None:
        self.kind = kind
        super().__init__(f"the episode could not be ended ({kind}): {text or 'no reason'}", where)


if not TYPE_CHECKING:
    __getattr__ = renamed(__name__, {"Refusal": "ServerRefusal"})
