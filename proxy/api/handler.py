"""Handles a `/v1` request of any dialect: parse it, wait for its group, write the answer.

A stream opens at once and is kept alive by events of its own dialect. A client that disconnects is
noticed in every phase, and what was held for it is released.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from ajet_swarm.api.chat import LONG
from ajet_swarm.common.text import one_line
from ajet_swarm.runtime import Chance
from proxy.admission.registry import Groups
from proxy.api.context_window import ContextWindows
from proxy.api.metrics import RequestMetrics
from proxy.api.multi_prompt import MultiPromptWaiter, submit_parts
from proxy.api.prompt_tokens import PromptPrefix, TokenEstimator, prefixes_of
from proxy.context import ProxyContext
from proxy.dialects.base import Dialect
from proxy.dialects.chat.completions import EchoRefused
from proxy.dialects.common import request_id
from proxy.dialects.images import without_images
from proxy.dialects.request import ChatRequest, PublicAnswer, public_answer
from proxy.dialects.writer import Writer
from proxy.groups.answer import AnswerWaiter, Delta, FinalAnswer
from proxy.http.asgi import (
    CONNECTION,
    FAST_RESPONSE,
    ON_LEAVE,
    App,
    ClientLeft,
    ConnectionUse,
    Extra,
    Receive,
    Scope,
    Send,
    headers_of,
    parse_body,
    read_body,
    send_bytes,
    send_error,
    send_json,
    send_part,
    start_stream,
    wait_for_disconnect,
)
from proxy.http.body_budget import BODY_BYTES, BodyReservation
from proxy.http.errors import ApiError, EngineOffline, overloaded
from proxy.http.fast_response import SendWhole

log = logging.getLogger(__name__)

OnLeave = Callable[[Callable[[], None]], Callable[[], None]]
NO_TIMEOUT = 1e6
"""Timeout in seconds that never applies: the waiter's own deadline is shorter."""
WEIGHTS = b"x-ajet-weights"
"""Header of an answer: versions of the weights that produced it, see `core.state.weights`."""
SOON = 0.04
"""Seconds that a stream waits before it opens: an error by then gets its own HTTP status, while
many clients treat an error within a stream as a broken connection and retry.

It waits once more if generation is about to begin, which fixes the weights in the headers. Both
waits end before the 100 ms within which headers must leave; later the weights follow as a comment
at the end of the stream."""


class RequestHandler:
    """Handles the requests of all dialects.

    Args:
        context: The shared parts of the proxy.
        groups: The registry that admits requests.

    Attributes:
        metrics: Counters of requests and answers.
        token_estimator: Estimator of the number of tokens of a prompt.
    """

    def __init__(self, context: ProxyContext, groups: Groups) -> None:
        self.groups = groups
        self.metrics = RequestMetrics(context, groups)
        self.token_estimator = TokenEstimator()
        self.windows = ContextWindows(context)
        self.settings = context.settings.proxy
        self.max_body_bytes = self.settings.max_body_mb << 20
        self._tasks = context.tasks
        self._clock = context.clock
        self._chance = context.runtime.chance
        self._waiting: set[AnswerWaiter | MultiPromptWaiter] = set()

    def endpoint(self, dialect: Dialect) -> App:
        """Return the ASGI application for the requests of one dialect."""

        async def answer(scope: Scope, receive: Receive, send: Send) -> None:
            self.metrics.open += 1
            try:
                await self._answer(_Exchange(dialect, scope, send, self._chance), receive)
            finally:
                self.metrics.open -= 1

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
            if request is None:
                return
            waiter = await self._admit(request)
            self._waiting.add(waiter)
            unwatch = self._watch_disconnect(exchange, receive, waiter)
            if request.stream:
                await self._stream(exchange, request, waiter)
            else:
                await self._send_whole(exchange, request, waiter)
        except ClientLeft:
            pass
        except ApiError as refusal:
            await self._refuse(exchange, refusal)
        except Exception:  # an unexpected error must not reach the client
            log.exception("request %s failed", exchange.name or "without an id")
            text = "The request could not be completed."
            await self._refuse(exchange, ApiError(500, None, text))
        finally:
            if unwatch is not None:
                unwatch()
            if waiter is not None:
                self._waiting.discard(waiter)
                self.metrics.keepalives += waiter.keepalives
                waiter.leave()

    async def _read(self, exchange: "_Exchange", receive: Receive) -> ChatRequest | None:
        """Read and parse the request; its bytes are released before the wait for its answer.

        A request that only the upstream's own route can answer is passed on: None.
        """
        data = await read_body(exchange.headers, receive, self.max_body_bytes, exchange.body_bytes)
        try:
            return await parse_body(data, partial(exchange.read, data))
        except EchoRefused as refusal:
            status, body = await self.windows.passed_on(data, refusal)
        is_stream = body.startswith((b"data:", b":"))
        kind = b"text/event-stream; charset=utf-8" if is_stream else b"application/json"
        await send_bytes(exchange.send, status, kind, body, exchange.extra_headers)
        return None

    async def _admit(self, request: ChatRequest) -> AnswerWaiter | MultiPromptWaiter:
        if request.dialect == "completions":
            request = await self.windows.prepared(request)
        if not request.parts:
            await self.windows.check(request)
            return self.groups.admission.admit(request)
        for part in request.parts:
            await self.windows.check(part)
        settings = self.settings
        return await submit_parts(
            self.groups, request, settings.stream_budget, settings.queue_limit
        )

    def _watch_disconnect(
        self, exchange: "_Exchange", receive: Receive, waiter: AnswerWaiter | MultiPromptWaiter
    ) -> Callable[[], object]:
        """Watch for the client to disconnect; return the function that ends the watch."""

        def left() -> None:
            exchange.disconnected = True
            waiter.leave()

        async def watch() -> None:
            await wait_for_disconnect(receive)
            left()

        if exchange.on_disconnect is not None:
            return exchange.on_disconnect(left)
        return self._tasks.spawn(watch(), "listener").cancel

    async def _send_whole(
        self, exchange: "_Exchange", request: ChatRequest, waiter: AnswerWaiter | MultiPromptWaiter
    ) -> None:
        reply = await waiter.next(NO_TIMEOUT)
        if not isinstance(reply, FinalAnswer):
            return
        winners = _winners(reply, self._chance)
        writer = exchange.dialect.writer(request, self._model(request), int(self._clock()))
        body = await _written(writer.body, reply, winners)
        exchange.started = True
        extra = exchange.headers_with(reply.weights)
        if exchange.send_fast is None or not exchange.send_fast(body, extra):
            await send_json(exchange.send, 200, body, extra)
        self._confirm(exchange, request, winners, waiter)

    async def _stream(
        self, exchange: "_Exchange", request: ChatRequest, waiter: AnswerWaiter | MultiPromptWaiter
    ) -> None:
        if request.dialect == "messages":  # its first event has the prompt's length
            estimate = self.token_estimator.estimate(request, exchange.prefixes)
            request = msgspec.structs.replace(request, extra=estimate)
        elif request.include_usage and request.continuous_usage:
            estimate = self.token_estimator.estimate(request, exchange.prefixes)
            request = msgspec.structs.replace(request, prompt_tokens=estimate)
        writer = exchange.dialect.writer(request, self._model(request), int(self._clock()))
        first = writer.opening()
        update = await _next_update(waiter, SOON)
        if update is None and waiter.weights is None:
            update = await _next_update(waiter, SOON)
        if isinstance(update, FinalAnswer):
            _winners(update, self._chance)  # an error by now gets its own HTTP status
        exchange.started, exchange.writer = True, writer
        announced = waiter.weights
        await start_stream(exchange.send, exchange.headers_with(announced), first)
        while not isinstance(update, FinalAnswer):
            if update is not None and (data := writer.delta_events(update.delta)):
                await send_part(exchange.send, data)
            update = await _next_update(waiter, self.settings.keepalive)
            if update is None:
                waiter.count_keepalive()
                await send_part(exchange.send, writer.keepalive())
        winners = _winners(update, self._chance)
        if waiter.has_streamed:
            last = writer.finish(winners[0])
        else:
            last = await _written(writer.answer, update, winners)
        if update.weights and update.weights != announced:
            last = weights_comment(update.weights) + last
        await send_part(exchange.send, last, more=False)
        self._confirm(exchange, request, winners, waiter)

    async def _refuse(self, exchange: "_Exchange", refusal: ApiError) -> None:
        """Send the error in the form of the dialect, before the answer or as the end of its
        stream."""
        log.log(
            logging.INFO if refusal.status < 500 else logging.WARNING,
            "request %s from %s: %s %d: %s",
            exchange.name or "without an id",
            exchange.client or "an unknown address",
            exchange.path,
            refusal.status,
            one_line(refusal.message),
        )
        if isinstance(refusal, EngineOffline):
            agent = exchange.headers.get("user-agent", "")
            refusal = refusal.for_client(agent)
        self.metrics.refused[refusal.status] += 1
        if not exchange.started:
            body = exchange.dialect.refusal(refusal)
            await send_error(exchange.send, refusal, body, exchange.extra_headers)
        elif exchange.writer is not None:
            await send_part(exchange.send, exchange.writer.error(refusal), more=False)

    def _model(self, request: ChatRequest) -> str:
        return request.model or self.groups.models()[0]

    def _confirm(
        self,
        exchange: "_Exchange",
        request: ChatRequest,
        winners: Sequence[PublicAnswer],
        waiter: AnswerWaiter | MultiPromptWaiter,
    ) -> None:
        if not exchange.disconnected:
            waiter.confirm_delivery()
        self.metrics.count_answer(winners, waiter.age)
        if request.dialect == "messages" or request.prompt_tokens:  # only these need estimates
            prompt_tokens = winners[0].usage["prompt_tokens"]
            self.token_estimator.learn(request, prompt_tokens, exchange.prefixes)


class _Exchange:
    """One request and the progress of its answer."""

    __slots__ = (
        "body_bytes",
        "client",
        "connection",
        "dialect",
        "disconnected",
        "extra_headers",
        "headers",
        "name",
        "on_disconnect",
        "path",
        "prefixes",
        "send",
        "send_fast",
        "started",
        "writer",
    )

    def __init__(self, dialect: Dialect, scope: Scope, send: Send, chance: Chance) -> None:
        self.dialect = dialect
        self.send = send
        self.on_disconnect: OnLeave | None = scope.get(ON_LEAVE)
        # removed from the scope, which would refer to itself through the function
        self.send_fast: SendWhole | None = scope.pop(FAST_RESPONSE, None)
        self.body_bytes: BodyReservation | None = scope.get(BODY_BYTES)
        self.headers = headers_of(scope)
        if session := scope.get("session"):
            self.headers["x-ajet-session"] = self.headers["x-session-id"] = session
        client = scope.get("client")
        self.client: str = client[0] if client else ""
        self.connection: ConnectionUse | None = scope.get(CONNECTION)
        self.path: str = scope["path"]
        self.name = ""
        """The client's request id; the generated one once the request is parsed."""
        self.extra_headers: Extra = ()
        own = self.headers.get("x-request-id")
        name = self.headers["x-request-id"] = request_id(self.headers, chance)
        if own:
            self.name, self.extra_headers = name, ((b"x-request-id", name.encode()),)
        self.started = False
        self.writer: Writer | None = None
        """Writer of a stream that has begun."""
        self.disconnected = False
        """The client has disconnected."""
        self.prefixes: Sequence[PromptPrefix] = ()
        """Prefixes of a prompt whose length in tokens is reported."""

    def headers_with(self, weights: str | None) -> Extra:
        """Return the additional headers of an answer."""
        return (*self.extra_headers, (WEIGHTS, weights.encode())) if weights else self.extra_headers

    def read(self, data: bytes) -> ChatRequest:
        """Parse the request; raises `ApiError`."""
        request = self.dialect.read(data, self.headers, self.client)
        self.name = request.request_id
        if (shown := without_images(request.messages)) is not None:
            request = msgspec.structs.replace(request, shown=shown, query=request.query.strip())
        if request.dialect == "messages" or request.continuous_usage:
            self.prefixes = prefixes_of(request)
        if (use := self.connection) is None:
            return request
        return msgspec.structs.replace(request, connection=use, lag=use.lag)


async def _next_update(
    waiter: AnswerWaiter | MultiPromptWaiter, seconds: float
) -> FinalAnswer | Delta | None:
    """Return the next delta or the answer; None after `seconds`.

    Raises:
        ClientLeft: The client has disconnected.
    """
    update = await waiter.next(seconds)
    if waiter.left:
        raise ClientLeft
    return update


def weights_comment(weights: str) -> bytes:
    """Return the comment of an event stream that states the weights after its headers."""
    return b": %s: %s\n\n" % (WEIGHTS, weights.encode())


async def _written(
    write: Callable[[Sequence[PublicAnswer]], bytes],
    reply: FinalAnswer,
    winners: Sequence[PublicAnswer],
) -> bytes:
    """Write an answer; a long one in a thread, as it would hold up the loop."""
    for answer in reply.answers:
        if len(answer.body) > LONG:
            return await asyncio.to_thread(write, winners)
    return write(winners)


def _winners(reply: FinalAnswer, chance: Chance) -> list[PublicAnswer]:
    """Return the answers to write; raise the final error if there are none."""
    if not reply.answers:
        raise reply.error or overloaded(2)
    return [public_answer(answer.parsed, chance) for answer in reply.answers]
