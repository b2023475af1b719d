"""Interface of targets, and the calls of those at an address, which are repeated while it is busy
or unreachable."""

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ajet_swarm.common.errors import AjetError
from ajet_swarm.common.text import one_line
from core.openai.api import ApiAnswer, CallFailed
from core.openai.errors import retry_after
from mock.tally import RunCounters

HEADER = "X-Ajet-Row"
SESSION = "X-Ajet-Session"
TRAIN = "X-Ajet-Train"
RETRY_AFTER_CAP = 60.0
"""Longest obeyed `Retry-After` in seconds."""
_BUSY = (429, 502, 503)
"""Statuses worth a retry; 502 comes from an application whose own upstream restarts."""
_SYSTEMIC = (401, 403, 404)
"""Statuses that every further row would get, too."""
CONNECT_SECONDS = 10.0
"""Time limit of a connection in seconds; after it the address counts as unreachable."""
_FIRST_DELAY = 0.2
_LAST_DELAY = 10.0


class Unreachable(AjetError):
    """The target does not respond, or refuses every request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One message of the user."""

    query: str
    messages: Sequence[Mapping[str, Any]]
    """The conversation up to and including this message."""
    tools: Sequence[Mapping[str, Any]] = ()
    """Tools of the row, in the form of chat completions."""
    sent_id: str
    """Id of the row, its pass and the turn."""
    session: str = ""
    """Common id of the turns of one conversation; empty for a single question."""
    turn: int = 1
    """Number of the question in its conversation, from 1."""
    train: bool = True
    """Whether the proxy may train on it."""


NOTHING = Question(query="", messages=(), sent_id="")
"""No question, for templates that need none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Result of a question."""

    text: str = ""
    error: str = ""
    """Why there is no answer; empty when there is one."""
    seconds: float = 0.0
    """Duration of the question, with its retries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How a question is sent again while its target is busy or unreachable."""

    rest: Callable[[float], Awaitable[bool]]
    """Waits for the given seconds between two attempts; returns True on a stop."""
    seconds: float
    """Seconds after which the target counts as unreachable."""
    counters: RunCounters
    """Counts each retry with its reason."""


class Target(Protocol):
    """The application that answers questions."""

    name: str
    """Display name: an address or a command."""
    in_session: bool
    """Whether each conversation needs a session, by which the proxy finds its row."""

    async def ask(self, question: Question, patience: Patience) -> Answer | None:
        """Send a question, with retries, and return its answer or failure.

        Args:
            question: The question.
            patience: How long to retry.

        Returns:
            None when the run was stopped between two attempts: the question has no result.

        Raises:
            Unreachable: the target stayed unreachable, or refuses every question.
        """

    async def end_conversation(self, session: str) -> None:
        """End a conversation: release what belongs to it."""

    async def close(self) -> None:
        """Release all resources."""


class PatientCaller:
    """Repeats a call while its address is unreachable or busy.

    Args:
        url: Address of the calls, for errors.
        label: Name of the called side in errors.
        hide: Returns a reason for a retry without secrets.
    """

    def __init__(
        self,
        url: str,
        label: str = "the target",
        hide: Callable[[str], str] = lambda text: text,
    ) -> None:
        self.url = url
        self._label = label
        self._hide = hide
        self.has_answered = False
        """True after the first success."""

    async def ask(
        self,
        call: Callable[[], Awaitable[ApiAnswer]],
        read_text: Callable[[ApiAnswer], str],
        patience: Patience,
    ) -> Answer | None:
        """Call, with retries, and return the answer or failure; see `Target.ask`.

        Args:
            call: Makes one call; raises `CallFailed`.
            read_text: Extracts the text of a success; raises ValueError with the reason when there
                is none.
            patience: See `Target.ask`.
        """
        began = time.monotonic()
        delay = _FIRST_DELAY
        while True:
            answer: ApiAnswer | None = None
            try:
                answer = await call()
            except CallFailed as failure:
                if failure.kind == "unsendable":
                    what = f"requests cannot be sent: {failure.text}"
                    raise Unreachable(what, self.url, "Check the address") from failure
                if failure.kind != "away":
                    return _failed(failure.text, began)
                wait, why = delay, f"{self.url} does not answer ({failure.text})"
            else:
                if answer.status not in _BUSY:
                    return self._read(answer, read_text, began)
                requested = min(retry_after(answer.headers) or 0.0, RETRY_AFTER_CAP)
                # a stopped engine may start at any moment, so do not wait as long as it requests
                if answer.status != 429:
                    requested = min(requested, _LAST_DELAY)
                wait = max(delay, requested)
                why = f"{self._label} answers {one_line(answer.fault, 300)}"
            if time.monotonic() + wait - began > patience.seconds:
                if answer is not None:
                    return _failed(why, began)
                raise Unreachable(
                    f"no answer for {patience.seconds:g} s ({why})",
                    self.url,
                    "Start it again, then the mock",
                )
            patience.counters.retry(self._hide(why))
            if await patience.rest(wait):
                return None
            delay = min(delay * 2, _LAST_DELAY)

    def _read(
        self, answer: ApiAnswer, read_text: Callable[[ApiAnswer], str], began: float
    ) -> Answer:
        if not answer.is_success:
            cause = one_line(answer.fault, 300)
            if answer.status in _SYSTEMIC and not self.has_answered:
                raise Unreachable(f"{self._label} refuses: {cause}", self.url)
            return _failed(cause, began)
        try:
            text = read_text(answer)
        except ValueError as error:
            return _failed(str(error), began)
        self.has_answered = True
        return Answer(text=text, seconds=time.monotonic() - began)


def marks(question: Question) -> dict[str, str]:
    """Return the headers by which the proxy identifies a question, if they reach it."""
    headers = {HEADER: question.sent_id}
    if question.session:
        headers[SESSION] = question.session
    if not question.train:
        headers[TRAIN] = "no"
    return headers


def _failed(error: str, began: float) -> Answer:
    return Answer(error=error, seconds=time.monotonic() - began)
