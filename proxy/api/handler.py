"""Handles a `/v1` request of any dialect: parse it, wait for its group, write the answer.

A stream opens at once and is kept alive by events of its own dialect. A client that disconnects
cancels the wait in every phase, and what was held for it is released.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from msgspec.structs import replace
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ajet_swarm.api.chat import LONG
from ajet_swarm.common.text import one_line
from ajet_swarm.runtime import Chance
from core.dialects.errors import ApiError
from core.dialects.request import PublicAnswer, public_answer
from core.dialects.writer import Writer
from proxy.admission.registry import Groups
from proxy.api.context_window import ContextWindows
from proxy.api.metrics import RequestMetrics
from proxy.api.multi_prompt import MultiPromptWaiter, submit_parts
from proxy.api.prompt_tokens import PromptPrefix, TokenEstimator, prefixes_of
from proxy.context import ProxyContext
from proxy.dialects.chat.completions import EchoRefused
from proxy.dialects.images import without_images
from proxy.dialects.request import ChatRequest, Dialect, request_id
from proxy.groups.answer import AnswerWaiter, FinalAnswer
from proxy.http.connection_use import ConnectionUses
from proxy.http.errors import EngineOffline, overloaded
from proxy.http.exchange import (
    STREAM_HEADERS,
    error_response,
    json_response,
    read_body,
    while_connected,
)

log = logging.getLogger(__name__)

Waiter = AnswerWaiter | MultiPromptWaiter
NO_TIMEOUT = 1e6
"""Timeout in seconds that never applies: the waiter's own deadline is shorter."""
WEIGHTS = "x-ajet-weights"
"""Header of an answer: versions of the weights that produced it, see `core.state.server`."""
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
        windows: Checks of the lengths of prompts.
        uses: The last uses of the clients' connections.
        waiting: Those who wait for an answer.
    """

    def __init__(self, context: ProxyContext, groups: Groups) -> None:
        self.context = context
        self.groups = groups
        self.settings = context.settings.proxy
        self.metrics = RequestMetrics(context, groups)
        self.token_estimator = TokenEstimator()
        self.windows = ContextWindows(context)
        self.uses = ConnectionUses(context.runtime.clock.monotonic)
        self.waiting: set[Waiter] = set()

    def endpoint(self, dialect: Dialect) -> Callable[[Request], Awaitable[Response]]:
        """Return the route of one dialect."""

        async def answer(request: Request) -> Response:
            return _Reply(self, dialect, request)

        return answer

    def expire_now(self) -> None:
        """End every wait because the proxy stops: with the provisional best, else with an error."""
        for waiter in self.waiting:
            waiter.expire_now()

    async def admit(self, request: ChatRequest) -> Waiter:
        """Open a group for a request, or one for each of its prompts.

        Raises:
            ApiError: It is refused.
        """
        if request.dialect == "completions":
            request = await self.windows.prepared(request)
        for part in request.parts or (request,):
            await self.windows.check(part)
        if not request.parts:
            return self.groups.admission.admit(request)
        settings = self.settings
        return await submit_parts(
            self.groups, request, settings.stream_budget, settings.queue_limit
        )


class _Reply(Response):
    """The response to one request, which waits for its group and writes the answer or an error."""

    def __init__(self, handler: RequestHandler, dialect: Dialect, request: Request) -> None:
        super().__init__()
        self._handler = handler
        self._dialect = dialect
        self._request = request
        self._chance: Chance = handler.context.runtime.chance
        self._fields = dict(request.headers.items())
        """Headers of the request; names in lower case, of a repeated one the last value."""
        if session := request.scope.get("session"):
            self._fields["x-ajet-session"] = self._fields["x-session-id"] = session
        own = self._fields.get("x-request-id")
        self._name = self._fields["x-request-id"] = request_id(self._fields, self._chance)
        self._more = {"x-request-id": self._name} if own else {}
        """Additional headers of the response."""
        self._use = handler.uses.begin(request.client)
        self._writer: Writer | None = None
        """Writer of a stream that has begun."""
        self._prefixes: Sequence[PromptPrefix] = ()
        """Prefixes of a prompt whose length in tokens is reported."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the request; an unexpected error does not reach the client."""
        handler = self._handler
        handler.metrics.open += 1
        try:
            await self._answer(scope, receive, send)
        except ClientDisconnect:
            pass
        except ApiError as refusal:
            await self._refuse(refusal, scope, receive, send)
        except Exception:
            log.exception("request %s failed", self._name)
            failed = ApiError(500, None, "The request could not be completed.")
            await self._refuse(failed, scope, receive, send)
        finally:
            handler.metrics.open -= 1
            handler.uses.end(self._request.client, self._use)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        handler = self._handler
        waiter: Waiter | None = None
        request = await read_body(self._request, self._read)
        if not isinstance(request, ChatRequest):
            async with while_connected(receive):
                status, body = await handler.windows.passed_on(*request)
            kind = "text/event-stream" if body.startswith((b"data:", b":")) else "application/json"
            await Response(body, status, self._more, kind)(scope, receive, send)
            return
        try:
            async with while_connected(receive):
                waiter = await handler.admit(request)
                handler.waiting.add(waiter)
                if request.stream:
                    winners, last = await self._stream(request, waiter, send)
                else:
                    winners, last = await self._whole(request, waiter)
            if self._writer is not None:
                await _send_part(send, last, more=False)
            else:
                await json_response(last, headers=self._more)(scope, receive, send)
            waiter.confirm_delivery()
            handler.metrics.count_answer(winners, waiter.age)
            if self._prefixes:  # only these need estimates
                prompt_tokens = winners[0].usage["prompt_tokens"]
                handler.token_estimator.learn(request, prompt_tokens, self._prefixes)
        finally:
            if waiter is not None:
                handler.waiting.discard(waiter)
                handler.metrics.keepalives += waiter.keepalives
                waiter.leave()

    def _read(self, data: bytes) -> ChatRequest | tuple[bytes, EchoRefused]:
        """Parse the request; return one that only the upstream's own route can answer unread."""
        client = self._request.client
        try:
            request = self._dialect.read(data, self._fields, client.host if client else "")
        except EchoRefused as refusal:
            return data, refusal
        if (shown := without_images(request.messages)) is not None:
            request = replace(request, shown=shown, query=request.query.strip())
        if request.dialect == "messages" or request.continuous_usage:
            self._prefixes = prefixes_of(request)
        return replace(request, connection=self._use)

    async def _whole(
        self, request: ChatRequest, waiter: Waiter
    ) -> tuple[Sequence[PublicAnswer], bytes]:
        """Return the answers and the body of the response."""
        while not isinstance(reply := await waiter.next(NO_TIMEOUT), FinalAnswer):
            pass
        winners = self._winners(reply)
        self._add_weights(reply.weights)
        return winners, await _written(self._new_writer(request).body, reply, winners)

    async def _stream(
        self, request: ChatRequest, waiter: Waiter, send: Send
    ) -> tuple[Sequence[PublicAnswer], bytes]:
        """Send a stream up to its end; return the answers and the last events."""
        if request.dialect == "messages":  # its first event has the prompt's length
            estimate = self._handler.token_estimator.estimate(request, self._prefixes)
            request = replace(request, extra=estimate)
        elif request.include_usage and request.continuous_usage:
            estimate = self._handler.token_estimator.estimate(request, self._prefixes)
            request = replace(request, prompt_tokens=estimate)
        writer = self._new_writer(request)
        first = writer.opening()
        update = await waiter.next(SOON)
        if update is None and waiter.weights is None:
            update = await waiter.next(SOON)
        if isinstance(update, FinalAnswer):
            self._winners(update)  # an error by now gets its own HTTP status
        self._writer, announced = writer, waiter.weights
        self._add_weights(announced)
        headers = [(name.encode(), text.encode()) for name, text in self._more.items()]
        await send(
            {"type": "http.response.start", "status": 200, "headers": [*STREAM_HEADERS, *headers]}
        )
        await _send_part(send, first)
        while not isinstance(update, FinalAnswer):
            if update is not None and (data := writer.delta_events(update.delta)):
                await _send_part(send, data)
            update = await waiter.next(self._handler.settings.keepalive)
            if update is None:
                waiter.count_keepalive()
                await _send_part(send, writer.keepalive())
        winners = self._winners(update)
        if waiter.has_streamed:
            last = writer.finish(winners[0])
        else:
            last = await _written(writer.answer, update, winners)
        if update.weights and update.weights != announced:
            last = weights_comment(update.weights) + last
        return winners, last

    async def _refuse(self, refusal: ApiError, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the error in the form of the dialect, before the answer or as the end of its
        stream."""
        client = self._request.client
        log.log(
            logging.INFO if refusal.status < 500 else logging.WARNING,
            "request %s from %s: %s %d: %s",
            self._name,
            client.host if client else "an unknown address",
            scope["path"],
            refusal.status,
            one_line(refusal.message),
        )
        handler = self._handler
        if isinstance(refusal, EngineOffline):
            agent = self._fields.get("user-agent", "")
            refusal = refusal.for_client(agent)
        handler.metrics.refused[refusal.status] += 1
        if self._writer is not None:
            await _send_part(send, self._writer.error(refusal), more=False)
        else:
            body = self._dialect.refusal(refusal)
            await error_response(refusal, body, self._more)(scope, receive, send)

    def _new_writer(self, request: ChatRequest) -> Writer:
        handler = self._handler
        model = request.model or handler.groups.models()[0]
        return self._dialect.writer(request, model, int(handler.context.clock()))

    def _add_weights(self, weights: str | None) -> None:
        if weights:
            self._more = {**self._more, WEIGHTS: weights}

    def _winners(self, reply: FinalAnswer) -> list[PublicAnswer]:
        """Return the answers to write; raise the final error if there are none."""
        if not reply.answers:
            raise reply.error or overloaded(2)
        return [public_answer(answer.parsed) for answer in reply.answers]


async def _send_part(send: Send, data: bytes, more: bool = True) -> None:
    """Send a part of a stream; `more=False` ends it."""
    await send({"type": "http.response.body", "body": data, "more_body": more})


def weights_comment(weights: str) -> bytes:
    """Return the comment of an event stream that states the weights after its headers."""
    return f": {WEIGHTS}: {weights}\n\n".encode()


async def _written(
    write: Callable[[Sequence[PublicAnswer]], bytes],
    reply: FinalAnswer,
    winners: Sequence[PublicAnswer],
) -> bytes:
    """Write an answer; a long one in a thread, as it would hold up the loop."""
    if any(len(answer.body) > LONG for answer in reply.answers):
        return await asyncio.to_thread(write, winners)
    return write(winners)
