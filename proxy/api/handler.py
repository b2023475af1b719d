"""Handles a `/v1` request of any dialect: parse it, wait for its group, write the answer.

A stream opens at once and is kept alive by events of its own dialect. A client that disconnects is
noticed in every phase, and what was held for it is released.
"""

import logging
import time
from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from ajet_swarm.common.text import one_line
from proxy.admission.registry import Groups
from proxy.api.context_window import ContextWindows
from proxy.api.metrics import COUNTED, RequestMetrics
from proxy.api.multi_prompt import MultiPromptWaiter, submit_parts
from proxy.api.prompt_tokens import PromptPrefix, TokenEstimator, prefixes_of
from proxy.context import ProxyContext
from proxy.dialects.base import Dialect, Writer
from proxy.dialects.common import request_id
from proxy.dialects.images import without_images
from proxy.dialects.request import ChatRequest, PublicAnswer, public_answer
from proxy.groups.waiter import AnswerWaiter, Delta, FinalAnswer
from proxy.http.asgi import (
    FAST_RESPONSE,
    IDLE,
    ON_LEAVE,
    App,
    ClientLeft,
    Extra,
    Receive,
    Scope,
    Send,
    headers_of,
    parse_body,
    read_body,
    send_error,
    send_json,
    send_part,
    start_stream,
    wait_for_disconnect,
)
from proxy.http.body_budget import BODY_BYTES, BodyReservation
from proxy.http.errors import ApiError, overloaded
from proxy.http.fast_response import SendWhole

log = logging.getLogger(__name__)

OnLeave = Callable[[Callable[[], None]], Callable[[], None]]
FOREVER = 1e6
"""Seconds; the deadline of the waiter comes first."""
SOON = 0.05
"""Seconds that a stream waits before it opens: an error by then has its own HTTP status, while many
clients take an error within a stream for a broken connection and retry."""


class RequestHandler:
    """Handles the requests of all dialects.

    Args:
        context: The shared parts of the proxy.
        groups: The registry that admits requests.

    Attributes:
        meter: Counts requests and answers.
        gauge: Learns from answered requests how long a prompt is in tokens.
    """

    def __init__(self, context: ProxyContext, groups: Groups) -> None:
        self.groups = groups
        self.meter = RequestMetrics()
        self.gauge = TokenEstimator()
        self.windows = ContextWindows(context, groups)
        context.bus.listen(self.meter.listen, *COUNTED)
        self.settings = context.settings.proxy
        self.largest = self.settings.max_body_mb << 20
        self._tasks = context.tasks
        self._waiting: set[AnswerWaiter | MultiPromptWaiter] = set()

    def endpoint(self, dialect: Dialect) -> App:
        """Return the ASGI application for the requests of one dialect."""

        async def answer(scope: Scope, receive: Receive, send: Send) -> None:
            self.meter.open += 1
            try:
                await self._answer(_Exchange(dialect, scope, send), receive)
            finally:
                self.meter.open -= 1

        return answer

    def expire_now(self) -> None:
        """End every wait because the proxy stops: with the provisional best, else with an error."""
        for waiter in self._waiting:
            waiter.expire_now()

    async def _answer(self, exchange: "_Exchange", receive: Receive) -> None:
        waiter: AnswerWaiter | MultiPromptWaiter | None = None
        unwatch: Callable[[], object] | None = None
        try:
            request = await self._read(exchange, receive)
            waiter = await self._admit(request)
            self._waiting.add(waiter)
            unwatch = self._watch(exchange, receive, waiter)
            if request.stream:
                await self._stream(exchange, request, waiter)
            else:
                await self._whole(exchange, request, waiter)
        except ClientLeft:
            pass
        except ApiError as refusal:
            await self._refuse(exchange, refusal)
        except Exception:  # nothing of ours may show in an answer, whatever went wrong
            log.exception("request %s failed", exchange.name or "without an id")
            text = "The request could not be completed."
            await self._refuse(exchange, ApiError(500, None, text))
        finally:
            if unwatch is not None:
                unwatch()
            if waiter is not None:
                self._waiting.discard(waiter)
                self.meter.keepalives += waiter.keepalives
                waiter.leave()

    async def _read(self, exchange: "_Exchange", receive: Receive) -> ChatRequest:
        """Read and parse the request; its bytes are not kept while it waits for its answer."""
        data = await read_body(exchange.headers, receive, self.largest, exchange.body_bytes)
        return await parse_body(data, partial(exchange.read, data))

    async def _admit(self, request: ChatRequest) -> AnswerWaiter | MultiPromptWaiter:
        request = await self.windows.prepared(request)
        for one in request.parts or (request,):
            await self.windows.check(one)
        if not request.parts:
            return await self.groups.submit(request)
        settings = self.settings
        return await submit_parts(
            self.groups, request, settings.stream_budget, settings.queue_limit
        )

    def _watch(
        self, exchange: "_Exchange", receive: Receive, waiter: AnswerWaiter | MultiPromptWaiter
    ) -> Callable[[], object]:
        """Watch for the client to disconnect; return the function that ends the watch."""

        def left() -> None:
            exchange.gone = True
            waiter.leave()

        async def watch() -> None:
            await wait_for_disconnect(receive)
            left()

        if exchange.on_leave is not None:
            return exchange.on_leave(left)
        return self._tasks.spawn(watch(), "listener").cancel

    async def _whole(
        self, exchange: "_Exchange", request: ChatRequest, waiter: AnswerWaiter | MultiPromptWaiter
    ) -> None:
        reply = await waiter.next(FOREVER)
        if not isinstance(reply, FinalAnswer):
            return
        winners = _winners(reply)
        writer = exchange.dialect.writer(request, self._model(request), int(time.time()))
        body = writer.body(winners)
        exchange.started = True
        if exchange.at_once is None or not exchange.at_once(body, exchange.more):
            await send_json(exchange.send, 200, body, exchange.more)
        self._told(exchange, request, winners, waiter)

    async def _stream(
        self, exchange: "_Exchange", request: ChatRequest, waiter: AnswerWaiter | MultiPromptWaiter
    ) -> None:
        if request.dialect == "messages":  # which tells the prompt's length first
            told = self.gauge.estimate(request, exchange.marks)
            request = msgspec.structs.replace(request, extra=told)
        elif request.include_usage and request.continuous_usage:
            told = self.gauge.estimate(request, exchange.marks)
            request = msgspec.structs.replace(request, prompt_tokens=told)
        writer = exchange.dialect.writer(request, self._model(request), int(time.time()))
        first = writer.opening()
        news = await _news(waiter, SOON)
        if isinstance(news, FinalAnswer):
            _winners(news)  # what is refused already is told by the status
        exchange.started, exchange.writer = True, writer
        await start_stream(exchange.send, exchange.more, first)
        while not isinstance(news, FinalAnswer):
            if news is not None and (data := writer.delta_events(news.delta)):
                await send_part(exchange.send, data)
            news = await _news(waiter, self.settings.keepalive)
            if news is None:
                waiter.count_keepalive()
                await send_part(exchange.send, writer.keepalive())
        winners = _winners(news)
        last = writer.finish(winners[0]) if waiter.has_streamed else writer.answer(winners)
        await send_part(exchange.send, last, more=False)
        self._told(exchange, request, winners, waiter)

    async def _refuse(self, exchange: "_Exchange", refusal: ApiError) -> None:
        """Send the error in the form of the dialect, before the answer or as the end of its
        stream."""
        log.log(
            logging.INFO if refusal.status < 500 else logging.WARNING,
            "request %s from %s: %s %d: %s",
            exchange.name or "without an id",
            exchange.client or "nowhere",
            exchange.path,
            refusal.status,
            one_line(refusal.message),
        )
        self.meter.refused[refusal.status] += 1
        if not exchange.started:
            body = exchange.dialect.refusal(refusal)
            await send_error(exchange.send, refusal, body, exchange.more)
        elif exchange.writer is not None:
            await send_part(exchange.send, exchange.writer.error(refusal), more=False)

    def _model(self, request: ChatRequest) -> str:
        return request.model or self.groups.models()[0]

    def _told(
        self,
        exchange: "_Exchange",
        request: ChatRequest,
        winners: Sequence[PublicAnswer],
        waiter: AnswerWaiter | MultiPromptWaiter,
    ) -> None:
        if not exchange.gone:
            waiter.confirm_delivery()
        self.meter.answered(winners, waiter.age)
        if request.dialect == "messages" or request.prompt_tokens:  # others do not ask for it
            self.gauge.learn(request, winners[0].usage["prompt_tokens"], exchange.marks)


class _Exchange:
    """One request and the progress of its answer."""

    __slots__ = (
        "at_once",
        "body_bytes",
        "client",
        "dialect",
        "gone",
        "headers",
        "idle",
        "marks",
        "more",
        "name",
        "on_leave",
        "path",
        "send",
        "started",
        "writer",
    )

    def __init__(self, dialect: Dialect, scope: Scope, send: Send) -> None:
        self.dialect = dialect
        self.send = send
        self.on_leave: OnLeave | None = scope.get(ON_LEAVE)
        # removed from the scope, which would refer to itself through the function
        self.at_once: SendWhole | None = scope.pop(FAST_RESPONSE, None)
        self.body_bytes: BodyReservation | None = scope.get(BODY_BYTES)
        self.headers = headers_of(scope)
        if session := scope.get("session"):
            self.headers["x-ajet-session"] = self.headers["x-session-id"] = session
        client = scope.get("client")
        self.client: str = client[0] if client else ""
        self.idle = IDLE in scope
        self.path: str = scope["path"]
        self.name = ""
        """The request id of the client; ours once the request is parsed."""
        self.more: Extra = ()
        if self.headers.get("x-request-id"):
            self.name = self.headers["x-request-id"] = request_id(self.headers)
            self.more = ((b"x-request-id", self.name.encode()),)
        self.started = False
        self.writer: Writer | None = None
        """Writer of a stream that has begun."""
        self.gone = False
        """The client has disconnected, or has its whole answer."""
        self.marks: Sequence[PromptPrefix] = ()
        """Prefixes of a prompt whose length in tokens is reported."""

    def read(self, data: bytes) -> ChatRequest:
        """Parse the request; raises `ApiError`."""
        request = self.dialect.read(data, self.headers, self.client)
        self.name = request.request_id
        if (shown := without_images(request.messages)) is not None:
            request = msgspec.structs.replace(request, shown=shown, query=request.query.strip())
        if request.dialect == "messages" or request.continuous_usage:
            self.marks = prefixes_of(request)
        return msgspec.structs.replace(request, idle=True) if self.idle else request


async def _news(
    waiter: AnswerWaiter | MultiPromptWaiter, seconds: float
) -> FinalAnswer | Delta | None:
    """Return the next delta or answer, or None after `seconds`; raise `ClientLeft` if the client is
    gone."""
    news = await waiter.next(seconds)
    if waiter.left:
        raise ClientLeft
    return news


def _winners(reply: FinalAnswer) -> list[PublicAnswer]:
    """Return the answers to write; raise the error instead if there are none."""
    if not reply.answers:
        raise reply.error or overloaded(2)
    return [public_answer(answer.parsed) for answer in reply.answers]
