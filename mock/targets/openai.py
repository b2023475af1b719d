"""What the user says, brought to a target and its answer brought back.

A `Target` is whatever takes a question. `OpenAITarget` is the one for OpenAI-compatible addresses:
one chat request a question, sent again while the address is away or busy.
"""

import asyncio
import ipaddress
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, Protocol

import httpx
import msgspec

from ajet_swarm.common.errors import AjetError
from ajet_swarm.common.text import one_line, redact
from core.runtime.tls import verification_for
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
_AWAY = (httpx.NetworkError, httpx.RemoteProtocolError, httpx.ConnectTimeout, httpx.PoolTimeout)
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

    async def over(self, session: str) -> None:
        """No further question of a conversation will come."""

    async def close(self) -> None:
        """Let go of what it holds."""


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
    called = "the target"
    """What people call it in the cause of a failure."""

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
        self.url = base_url.rstrip("/") + form.path
        self._model = model
        self._key = api_key
        self._form = form
        self._params = dict(params or {})
        self._timeout = timeout
        self._any = False
        sent = {"content-type": "application/json"}
        if api_key:
            sent["authorization"] = f"Bearer {api_key}"
        self._http = httpx.AsyncClient(
            headers=sent | dict(headers or {}),
            timeout=httpx.Timeout(timeout, connect=min(timeout, 10.0)),
            limits=httpx.Limits(max_connections=connections, keepalive_expiry=4.0),
            transport=transport,
            verify=verification_for(base_url, cert) if cert else True,
            trust_env=not _is_loopback(base_url),
        )

    async def over(self, session: str) -> None:
        """Nothing is kept of a conversation."""

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def ask(
        self,
        question: Question,
        rest: Callable[[float], Awaitable[bool]],
        patience: float,
        tally: RunCounters,
    ) -> Answer | None:
        """See `Target.ask`."""
        began = time.monotonic()
        delay = _FIRST_DELAY
        while True:
            response: httpx.Response | None = None
            try:
                async with asyncio.timeout(self._timeout):
                    response = await self._post(question)
            except _AWAY as error:
                wait, why = delay, f"{self.url} does not answer ({_cause(error)})"
            except (httpx.TimeoutException, TimeoutError):
                return _failed(f"no answer within {self._timeout:g} s", began)
            except (httpx.UnsupportedProtocol, httpx.LocalProtocolError, httpx.InvalidURL) as error:
                raise Unreachable(
                    f"nothing can be sent: {_cause(error)}", self.url, "Check the address"
                ) from error
            except httpx.HTTPError as error:
                return _failed(_cause(error), began)
            else:
                if response.status_code not in _BUSY:
                    return self._read(response, question, began)
                status = response.status_code
                asked = _retry_after(response.headers)
                # an engine that is off may be started at any moment, whatever it asks for
                wait = max(delay, asked if status == 429 else min(asked, _LAST_DELAY))
                why = f"{self.called} answers {status}: {self._refusal(response)}"
            if time.monotonic() + wait - began > patience:
                if response is not None:
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

    async def _post(self, question: Question) -> httpx.Response:
        """Ask once."""
        body = self._form.body(self._model, question.messages) | self._params
        return await self._http.post(
            self.url, content=msgspec.json.encode(body), headers=marks(question)
        )

    def _text(self, response: httpx.Response, question: Question) -> str:
        """The answer in what came back; raises ValueError with the cause when there is none."""
        text = read(self._form, response.content)
        if text is None:
            raise ValueError(f"the answer is no {self._form.called}")
        return text

    def _read(self, response: httpx.Response, question: Question, began: float) -> Answer:
        if not response.is_success:
            cause = f"{response.status_code}: {self._refusal(response)}"
            if response.status_code in _SYSTEMIC and not self._any:
                raise Unreachable(f"{self.called} refuses: {cause}", self.url)
            return _failed(cause, began)
        try:
            text = self._text(response, question)
        except ValueError as error:
            return _failed(str(error), began)
        self._any = True
        return Answer(text=text, seconds=time.monotonic() - began)

    def _refusal(self, response: httpx.Response) -> str:
        """The server's own words, without the key."""
        told = _refusal(response)
        return told.replace(self._key, "[hidden]") if self._key else told


def marks(question: Question) -> dict[str, str]:
    """Headers by which the proxy knows a question, where the way there lets them through."""
    found = {HEADER: question.sent_id}
    if question.session:
        found[SESSION] = question.session
    if not question.train:
        found[TRAIN] = "no"
    return found


def _is_loopback(url: str) -> bool:
    """Whether the environment's HTTP proxy has no business with it."""
    try:
        host = httpx.URL(url).host
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except (httpx.InvalidURL, ValueError):
        return False


def _failed(error: str, began: float) -> Answer:
    return Answer(error=error, seconds=time.monotonic() - began)


def _refusal(response: httpx.Response) -> str:
    """The server's own words."""
    try:
        found: Any = msgspec.json.decode(response.content)
    except msgspec.MsgspecError:
        found = response.text
    if isinstance(found, Mapping):
        inner = found.get("error", found.get("detail", found))
        found = inner.get("message", inner) if isinstance(inner, Mapping) else inner
    return one_line(redact(str(found)), 300) or response.reason_phrase


def _retry_after(headers: Mapping[str, str]) -> float:
    text = headers.get("retry-after", "").strip()
    try:
        wait = float(text) if text else 0.0
    except ValueError:
        try:
            wait = parsedate_to_datetime(text).timestamp() - time.time()
        except ValueError:
            return 0.0
    return min(max(wait, 0.0), RETRY_AFTER_CAP) if wait == wait else 0.0


def _cause(error: Exception) -> str:
    return str(error) or type(error).__name__
