"""A small steady load of clients of all dialects, some of whom leave; each request is accounted."""

import asyncio
import contextlib
import json
import random
from bisect import bisect_left
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from ajet_swarm.common.tasks import Tasks
from tests.support.proxy.front import LAST
from tests.support.wire import wire

AFTER = 3.0
"""Seconds after an outage in which a 503 is still no fault: the server has to be seen first."""
PATHS = tuple(LAST)


@dataclass
class SentRequest:
    """One request and its outcome."""

    path: str
    stream: bool
    began: float
    ended: float = 0.0
    how: str = "open"
    """answered, left, refused, cut (the connection broke) or hung."""
    status: int = 0
    """Status of the response; also that of an error event in a stream."""
    retry_after: bool = False
    text: str = ""


@dataclass
class Load:
    """Clients that send one request after the other until `_stop` is set.

    Args:
        url: Of the proxy; may change.
        rng: Decides who streams, who leaves and when.
        budget: Seconds in which each request must have ended.
        leave: Share of requests whose client leaves before the answer.
        untrained: Share of requests that ask not to be trained on: those have one candidate.
    """

    url: str
    rng: random.Random
    budget: float
    leave: float = 0.15
    untrained: float = 0.05
    requests: list[SentRequest] = field(default_factory=list)
    outages: list[tuple[float, float]] = field(default_factory=list)
    """From and to, on the loop's clock: no swarm server that could answer."""
    cuts: list[tuple[float, float]] = field(default_factory=list)
    """The same: no proxy."""
    too_long: list[tuple[float, float]] = field(default_factory=list)
    """The same: prompts do not fit."""
    unread: list[tuple[float, float]] = field(default_factory=list)
    """The same: the server refuses what it is asked, with 422."""
    _stop: bool = False

    # --- asking --------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def running(self, clients: int = 4) -> AsyncIterator[None]:
        """The load is on while the context is open; leaving waits for all requests to end."""
        async with Tasks("load") as tasks:
            works = [tasks.spawn(self._client(number), str(number)) for number in range(clients)]
            try:
                yield
            finally:
                self._stop = True
                _, late = await asyncio.wait(works, timeout=self.budget + 5.0)
            assert not late, "a client does not end"
            for work in works:
                work.result()

    async def _client(self, number: int) -> None:
        while not self._stop:
            request = await self.ask(number)
            if request.how in ("refused", "cut"):  # as clients do, and not to fill the log
                await asyncio.sleep(0.1)

    async def ask(self, number: int = 0) -> SentRequest:
        """One request to its end."""
        rng = self.rng
        path, stream = rng.choice(PATHS), rng.random() < 0.5
        now = asyncio.get_running_loop().time
        one = SentRequest(path, stream, now())
        self.requests.append(one)
        patience = rng.uniform(0.0, 0.4) if rng.random() < self.leave else None
        body = _body(path, f"question {len(self.requests)} of {number}")
        if rng.random() < 0.1:
            body["n"] = 1
        headers = {"x_ajet_train": "no"} if rng.random() < self.untrained else {}
        try:
            async with asyncio.timeout(self.budget), asyncio.timeout(patience) as leaving:
                await self._exchange(one, {**body, "stream": stream}, headers)
        except TimeoutError:
            one.how = "left" if leaving.expired() else "hung"
        except (OSError, EOFError, ValueError) as error:
            one.how, one.text = "cut", f"{type(error).__name__}: {error}"
        one.ended = now()
        return one

    async def _exchange(
        self, one: SentRequest, body: dict[str, Any], headers: dict[str, str]
    ) -> None:
        async with wire(self.url) as line:
            await line.ask("POST", one.path, body, **headers)
            answer = await line.answer(self.budget)
        one.status, one.text = answer.status, answer.body.decode(errors="replace")
        one.retry_after = "retry-after" in answer.headers
        if one.stream and one.status == 200:
            one.status = status_of_stream(one.path, one.text)
            one.retry_after = True  # its head was written before the fault
        one.how = "answered" if one.status == 200 else "refused"

    # --- figures -------------------------------------------------------------------------------

    def outage(self, *, proxy: bool = False) -> AbstractContextManager[None]:
        """Nothing can be answered for as long as the context is open."""
        return self.during(self.cuts if proxy else self.outages)

    @contextlib.contextmanager
    def during(self, periods: list[tuple[float, float]]) -> Iterator[None]:
        """Add the period in which the context is open to `periods`."""
        now = asyncio.get_running_loop().time
        began = now()
        periods.append((began, float("inf")))
        try:
            yield
        finally:
            periods[periods.index((began, float("inf")))] = (began, now())

    def answered(self, since: float = 0.0) -> int:
        """Requests begun since then that were answered."""
        first = bisect_left(self.requests, since, key=lambda request: request.began)
        return sum(request.how == "answered" for request in self.requests[first:])

    def tally(self) -> Counter[str]:
        """How they ended."""
        return Counter(request.how for request in self.requests)

    def faults(self) -> dict[str, list[SentRequest]]:
        """What no user should have met: 5xx outside of outages, broken connections, hangs."""
        values: dict[str, list[SentRequest]] = {"5xx": [], "4xx": [], "cut": [], "hung": []}
        for request in self.requests:
            if request.how in ("cut", "hung"):
                excused = request.how == "cut" and _within(request, self.cuts)
                if not excused:
                    values[request.how].append(request)
            elif request.how == "refused":
                busy = request.status == 503 and request.retry_after
                if 400 <= request.status < 500:
                    spans = {400: self.too_long + self.unread, 422: self.unread}
                    if not _within(request, spans.get(request.status, [])):
                        values["4xx"].append(request)
                elif not (busy and _within(request, self.outages + self.cuts)):
                    values["5xx"].append(request)
        return values


def _within(one: SentRequest, spans: list[tuple[float, float]]) -> bool:
    return any(one.began <= end + AFTER and one.ended >= begin for begin, end in spans)


def _body(path: str, text: str) -> dict[str, Any]:
    messages = [{"role": "user", "content": text}]
    if path == "/v1/completions":
        return {"model": "tiny", "prompt": text}
    if path == "/v1/responses":
        return {"model": "tiny", "input": text}
    if path == "/v1/messages":
        return {"model": "tiny", "max_tokens": 64, "messages": messages}
    return {"model": "tiny", "messages": messages}


def status_of_stream(path: str, text: str) -> int:
    """200, or the status of the error that ends it; 0 for a stream that just breaks off."""
    data = [line[6:] for line in text.splitlines() if line.startswith("data: ")]
    events = [json.loads(one) for one in data if one != "[DONE]"]
    last = events[-1] if events else {}
    if path == "/v1/messages" and last.get("type") == "error":
        kind = last["error"]["type"]
        return {"overloaded_error": 503, "invalid_request_error": 400}.get(kind, 500)
    if path == "/v1/responses" and last.get("type") == "response.failed":
        error = last["response"]["error"]
        unserved = ("shutting down", "is OFFLINE", "cannot be reached")
        later = error["code"] == "rate_limit_exceeded" or any(
            words in error["message"] for words in unserved
        )
        its_own = error["code"] in ("context_length_exceeded", "invalid_prompt")
        return 503 if later else 400 if its_own else 500
    if isinstance(last.get("error"), dict):
        return int(last["error"]["code"])
    return 200 if LAST[path].decode() in text else 0
