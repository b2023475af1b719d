"""What the user says, brought to a target and its answer brought back.

A `Target` is whatever takes a question. `OpenAITarget` is one OpenAI-compatible address: one
chat request a question, sent again while the address is away or busy.
"""

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import httpx
import msgspec

from ajet_swarm.common.errors import AjetError
from ajet_swarm.common.text import one_line
from core.openai.api import ApiAnswer, CallFailed, OpenAIApi
from core.openai.errors import retry_after
from mock.tally import RunCounters
from mock.targets.dialects import CHAT, Dialect, read

HEADER = "X-Ajet-Row"
SESSION = "X-Ajet-Session"
TRAIN = "X-Ajet-Train"
RETRY_AFTER_CAP = 60.0
"""Seconds of a `Retry-After` that are obeyed at most."""
_BUSY = (429, 502, 503)
"""Answers that may be another one soon; 502 is an application whose own upstream restarts."""
_SYSTEMIC = (401, 403, 404)
"""Answers that every further row would get too."""
CONNECT_SECONDS = 10.0
"""A connection may take; beyond it the address is away."""
_FIRST_DELAY = 0.2
_LAST_DELAY = 10.0


class Unreachable(AjetError):
    """The target does not answer, or answers everybody no."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One thing the user says."""

    query: str
    messages: Sequence[Mapping[str, Any]]
    """The conversation up to it, itself included."""
    sent_id: str
    """Id of the row in its pass, and of the turn."""
    session: str = ""
    """What the turns of one conversation have in common; empty for a single question."""
    turn: int = 1
    """Which question of its conversation it is."""
    train: bool = True
    """False: nothing is to be learnt from it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What became of a row that was asked."""

    text: str = ""
    error: str = ""
    """Why there is no answer; empty when there is one."""
    seconds: float = 0.0


class Target(Protocol):
    """Where questions go."""

    name: str
    """As people know it: an address, a command."""
    in_session: bool
    """Each of its conversations needs a session, by which the proxy knows the row."""

    async def ask(
        self,
        question: Question,
        rest: Callable[[float], Awaitable[bool]],
        patience: float,
        tally: RunCounters,
    ) -> Answer | None:
        """Ask until there is an answer, yes or no.

        Args:
            question: What to ask.
            rest: Waits between two tries; True when the run was told to stop.
            patience: Seconds to try again while the target is busy or away.
            tally: Is told what is waited for.

        Returns:
            None when a stop came between two tries: the question was not taken.

        Raises:
            Unreachable: the target stayed away, or refuses every question.
        """

    async def end_conversation(self, session: str) -> None:
        """No further question of a conversation will come."""

    async def close(self) -> None:
        """Let go of what it holds."""


class PatientCaller:
    """Repeats a call while its address is away or busy, and reads the answer.

    Args:
        url: Of the calls, for errors.
        called: What people call what is there.
    """

    def __init__(self, url: str, called: str = "the target") -> None:
        self.url = url
        self._called = called
        self.has_answered = False

    async def ask(
        self,
        call: Callable[[], Awaitable[ApiAnswer]],
        read_text: Callable[[ApiAnswer], str],
        rest: Callable[[float], Awaitable[bool]],
        patience: float,
        tally: RunCounters,
    ) -> Answer | None:
        """Call until there is an answer, yes or no; see `Target.ask`.

        Args:
            call: One call; raises `CallFailed`.
            read_text: Returns the text of a success; raises ValueError with why there is none.
            rest: See `Target.ask`.
            patience: See `Target.ask`.
            tally: See `Target.ask`.
        """
        began = time.monotonic()
        delay = _FIRST_DELAY
        while True:
            answer: ApiAnswer | None = None
            try:
                answer = await call()
            except CallFailed as failure:
                if failure.kind == "unsendable":
                    what = f"nothing can be sent: {failure.text}"
                    raise Unreachable(what, self.url, "Check the address") from failure
                if failure.kind != "away":
                    return _failed(failure.text, began)
                wait, why = delay, f"{self.url} does not answer ({failure.text})"
            else:
                if answer.status not in _BUSY:
                    return self._read(answer, read_text, began)
                asked = min(retry_after(answer.headers) or 0.0, RETRY_AFTER_CAP)
                # an engine that is off may be started at any moment, whatever it asks for
                wait = max(delay, asked if answer.status == 429 else min(asked, _LAST_DELAY))
                why = f"{self._called} answers {one_line(answer.fault, 300)}"
            if time.monotonic() + wait - began > patience:
                if answer is not None:
                    return _failed(why, began)
                raise Unreachable(
                    f"no answer for {patience:g} s ({why})",
                    self.url,
                    "Start it again, then the mock",
                )
            tally.waiting = why
            if await rest(wait):
                return None
            delay = min(delay * 2, _LAST_DELAY)

    def _read(
        self, answer: ApiAnswer, read_text: Callable[[ApiAnswer], str], began: float
    ) -> Answer:
        if not answer.is_success:
            cause = one_line(answer.fault, 300)
            if answer.status in _SYSTEMIC and not self.has_answered:
                raise Unreachable(f"{self._called} refuses: {cause}", self.url)
            return _failed(cause, began)
        try:
            text = read_text(answer)
        except ValueError as error:
            return _failed(str(error), began)
        self.has_answered = True
        return Answer(text=text, seconds=time.monotonic() - began)


class OpenAITarget:
    """Sends questions to one OpenAI-compatible address.

    Args:
        base_url: Where `/chat/completions` is below.
        model: Model name to ask for.
        api_key: Sent as a bearer token; none when empty.
        cert: File with a certificate to believe.
        timeout: Seconds one request may take.
        connections: Requests at the same time.
        transport: How requests travel; the network when left out.
        name: What people call it; the address when empty.
        form: How a question is put.
        headers: Further headers.
        params: Further fields of a request.
    """

    in_session = False

    def __init__(
        self,
        base_url: str,
        *,
        model: str = "ajet",
        api_key: str = "",
        cert: str = "",
        timeout: float = 300.0,
        connections: int = 3,
        transport: httpx.AsyncBaseTransport | None = None,
        name: str = "",
        form: Dialect = CHAT,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, Any] | None = None,
    ) -> None:
        self.name = name or base_url
        self._model = model
        self._form = form
        self._params = dict(params or {})
        self._timeout = timeout
        self._api = OpenAIApi(
            base_url,
            key=api_key,
            headers=headers,
            connections=connections,
            connect_seconds=min(timeout, CONNECT_SECONDS),
            cert=cert,
            transport=transport,
        )
        self._caller = PatientCaller(self._api.base_url + form.path)

    async def end_conversation(self, session: str) -> None:
        """Nothing is kept of a conversation."""

    async def close(self) -> None:
        """Close the connections."""
        await self._api.close()

    async def ask(
        self,
        question: Question,
        rest: Callable[[float], Awaitable[bool]],
        patience: float,
        tally: RunCounters,
    ) -> Answer | None:
        """See `Target.ask`."""
        body = self._form.body(self._model, question.messages) | self._params
        data = msgspec.json.encode(body)

        def call() -> Awaitable[ApiAnswer]:
            return self._api.call(
                "POST", self._form.path, data, seconds=self._timeout, headers=marks(question)
            )

        return await self._caller.ask(call, self._text, rest, patience, tally)

    def _text(self, answer: ApiAnswer) -> str:
        text = read(self._form, answer.body)
        if text is None:
            raise ValueError(f"the answer is no {self._form.called}")
        return text


def marks(question: Question) -> dict[str, str]:
    """Headers by which the proxy knows a question, where the way there lets them through."""
    found = {HEADER: question.sent_id}
    if question.session:
        found[SESSION] = question.session
    if not question.train:
        found[TRAIN] = "no"
    return found


def _failed(error: str, began: float) -> Answer:
    return Answer(error=error, seconds=time.monotonic() - began)
