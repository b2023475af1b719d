"""One row as a chat request: sent, tried again while the target is away or busy, read."""

import asyncio
import ipaddress
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

import httpx
import msgspec

from core.errors import AjetError
from core.text import content_text, one_line, redact
from core.tls import believing
from mock.dataset import Row
from mock.tally import Tally

HEADER = "X-Ajet-Row"
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
class Answer:
    """What became of a row that was asked."""

    text: str = ""
    error: str = ""
    """Why there is no answer; empty when there is one."""
    seconds: float = 0.0


class Asker:
    """Sends rows to one OpenAI-compatible address.

    Args:
        base_url: Where `/chat/completions` is below.
        model: Model name to ask for.
        api_key: Sent as a bearer token; none when empty.
        cert: File with a certificate to believe.
        timeout: Seconds one request may take.
        connections: Requests at the same time.
        transport: How requests travel; the network when left out.
    """

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
    ) -> None:
        self.url = base_url.rstrip("/") + "/chat/completions"
        self._model = model
        self._timeout = timeout
        self._any = False
        headers = {"content-type": "application/json"}
        if api_key:
            headers["authorization"] = f"Bearer {api_key}"
        self._http = httpx.AsyncClient(
            headers=headers,
            timeout=httpx.Timeout(timeout, connect=min(timeout, 10.0)),
            limits=httpx.Limits(max_connections=connections, keepalive_expiry=4.0),
            transport=transport,
            verify=believing(base_url, cert) if cert else True,
            trust_env=not _is_loopback(base_url),
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def ask(
        self,
        row: Row,
        sent_id: str,
        rest: Callable[[float], Awaitable[bool]],
        patience: float,
        tally: Tally,
    ) -> Answer | None:
        """Ask until there is an answer, yes or no.

        Args:
            row: What to ask.
            sent_id: Id of the row in its pass, sent as `X-Ajet-Row`.
            rest: Waits between two tries; True when the run was told to stop.
            patience: Seconds to try again while the target is busy or away.
            tally: Is told what is waited for.

        Returns:
            None when a stop came between two tries: the row was not asked.

        Raises:
            Unreachable: the target stayed away, or refuses every row.
        """
        body = msgspec.json.encode({"model": self._model, "messages": row.messages})
        began = time.monotonic()
        delay = _FIRST_DELAY
        while True:
            response: httpx.Response | None = None
            try:
                async with asyncio.timeout(self._timeout):
                    response = await self._http.post(
                        self.url, content=body, headers={HEADER: sent_id}
                    )
            except _AWAY as error:
                wait, why = delay, f"{self.url} does not answer ({_cause(error)})"
            except (httpx.TimeoutException, TimeoutError):
                return _failed(f"no answer within {self._timeout:g} s", began)
            except (httpx.UnsupportedProtocol, httpx.LocalProtocolError, httpx.InvalidURL) as error:
                raise Unreachable(
                    f"nothing can be sent: {_cause(error)}", self.url, "Check --base-url"
                ) from error
            except httpx.HTTPError as error:
                return _failed(_cause(error), began)
            else:
                if response.status_code not in _BUSY:
                    return self._read(response, began)
                wait = max(delay, _retry_after(response.headers))
                why = f"the target is busy ({response.status_code}): {_refusal(response)}"
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

    def _read(self, response: httpx.Response, began: float) -> Answer:
        if response.status_code != 200:
            cause = f"{response.status_code}: {_refusal(response)}"
            if response.status_code in _SYSTEMIC and not self._any:
                raise Unreachable(f"the target refuses: {cause}", self.url)
            return _failed(cause, began)
        text = _text(response.content)
        if text is None:
            return _failed("the answer is no chat completion", began)
        self._any = True
        return Answer(text=text, seconds=time.monotonic() - began)


def _is_loopback(url: str) -> bool:
    """Whether the environment's HTTP proxy has no business with it."""
    try:
        host = httpx.URL(url).host
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except (httpx.InvalidURL, ValueError):
        return False


def _failed(error: str, began: float) -> Answer:
    return Answer(error=error, seconds=time.monotonic() - began)


def _text(body: bytes) -> str | None:
    try:
        message = msgspec.json.decode(body)["choices"][0]["message"]
        text = content_text(message.get("content"))
        if not text and message.get("tool_calls"):
            text = json.dumps(message["tool_calls"], ensure_ascii=False)
    except (msgspec.MsgspecError, LookupError, TypeError, AttributeError):
        return None
    return text


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
