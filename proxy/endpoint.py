"""The fake vLLM's HTTP surface: chat completions, models, health.

A client's retry with the same bytes joins its first request as long as that is not answered; after
the answer it makes a new group, so nothing is trained on twice under one group. A request with
`n` above 1 gets one choice: the winner.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import msgspec
from fastapi import APIRouter, FastAPI
from starlette.responses import Response
from starlette.routing import Route

from core.tasks import Tasks
from core.version import version
from proxy.asgi import (
    ClientLeft,
    KeyGuard,
    Receive,
    Scope,
    Send,
    headers_of,
    read_body,
    send_json,
    send_refusal,
    start_stream,
    until_left,
)
from proxy.conversation import ChatRequest, winner
from proxy.dialects.chat import read_request
from proxy.dialects.chat_wire import ChunkWriter, completion_body
from proxy.errors import Refusal, busy
from proxy.groups import Groups
from proxy.models import model_card, model_list
from proxy.run import Ticket
from proxy.seat import Seat

log = logging.getLogger(__name__)

Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[Any]]
Extra = tuple[tuple[bytes, bytes], ...]


def create_app(
    seat: Seat, groups: Groups, control: APIRouter | None = None, lifespan: Lifespan | None = None
) -> FastAPI:
    """The application.

    Args:
        seat: The proxy's shared parts.
        groups: Where requests go.
        control: The routes of the control API.
        lifespan: What starts and stops around it.
    """
    app = FastAPI(
        title="ajet-console",
        version=version(),
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
    )
    chat = ChatEndpoint(seat, groups)
    app.router.routes.append(Route("/v1/chat/completions", chat, methods=["POST"]))
    app.include_router(_facts(seat, groups))
    if control is not None:
        app.include_router(control)
    app.add_middleware(KeyGuard, key=seat.settings.proxy.api_key)
    return app


def _facts(seat: Seat, groups: Groups) -> APIRouter:
    router = APIRouter()
    started = time.time()

    def card(name: str) -> dict[str, Any]:
        return model_card(name, started, groups.context_of(name))

    async def health() -> Response:
        """200 while a request would be queued and answered."""
        return Response(status_code=200 if groups.serving else 503)

    async def own_version() -> Response:
        """Of this program."""
        return _json(msgspec.json.encode({"version": version()}))

    async def models() -> Response:
        """What is served."""
        return _json(model_list([card(name) for name in groups.models()]))

    async def model(model_id: str) -> Response:
        """One of them."""
        names = groups.models()
        if model_id not in names:
            text = f"The model `{model_id}` does not exist. Valid aliases: {', '.join(names)}."
            return _json(Refusal(404, None, text, param="model").body(), 404)
        return _json(msgspec.json.encode(card(model_id)))

    router.add_api_route("/health", health, methods=["GET"])
    router.add_api_route("/ping", health, methods=["GET", "POST"], include_in_schema=False)
    router.add_api_route("/version", own_version, methods=["GET"])
    router.add_api_route("/v1/models", models, methods=["GET"])
    router.add_api_route("/v1/models/{model_id:path}", model, methods=["GET"])
    return router


def _json(body: bytes, status: int = 200) -> Response:
    return Response(body, status, media_type="application/json")


class ChatEndpoint:
    """`POST /v1/chat/completions`, on the bare protocol."""

    def __init__(self, seat: Seat, groups: Groups) -> None:
        self._groups = groups
        self._proxy = seat.settings.proxy
        self._largest = self._proxy.max_body_mb << 20
        self._tasks = seat.tasks

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        headers = headers_of(scope)
        named = headers.get("x-request-id")
        try:
            data = await read_body(headers, receive, self._largest)
            client = scope.get("client")
            request = read_request(data, headers, client[0] if client else "")
            if named:
                more: Extra = ((b"x-request-id", request.request_id.encode()),)
            else:
                more = ()
            ticket = await self._groups.submit(request)
        except ClientLeft:
            return
        except Refusal as refusal:
            await send_refusal(send, refusal)
            return
        except Exception:  # nothing of ours may show in an answer, whatever went wrong
            log.exception("a chat request failed")
            await send_refusal(send, Refusal(500, None, "The request could not be completed."))
            return
        await self._serve(request, ticket, receive, send, more)

    async def _serve(
        self, request: ChatRequest, ticket: Ticket, receive: Receive, send: Send, more: Extra
    ) -> None:
        watch: asyncio.Task[None] | None = None
        try:
            watch = _watch(self._tasks, receive, ticket)
            if request.stream:
                await self._stream(request, ticket, send, more)
            else:
                await self._whole(request, ticket, send, more)
        finally:
            if watch is not None:
                watch.cancel()
            ticket.leave()

    def _model(self, request: ChatRequest) -> str:
        return request.model or self._groups.models()[0]

    async def _whole(self, request: ChatRequest, ticket: Ticket, send: Send, more: Extra) -> None:
        reply = None
        while reply is None and not ticket.left:
            reply = await ticket.next(60.0)
        if reply is None:
            return
        if reply.answer is None:
            await send_refusal(send, reply.refusal or busy(2), more)
            return
        body = completion_body(
            winner(reply.answer.parsed),
            f"chatcmpl-{request.request_id}",
            int(time.time()),
            self._model(request),
        )
        await send_json(send, 200, body, more)

    async def _stream(self, request: ChatRequest, ticket: Ticket, send: Send, more: Extra) -> None:
        writer = ChunkWriter(
            f"chatcmpl-{request.request_id}",
            int(time.time()),
            self._model(request),
            include_usage=request.include_usage,
            continuous_usage=request.continuous_usage,
        )
        await start_stream(send, more, writer.role())
        while True:
            reply = await ticket.next(self._proxy.keepalive)
            if ticket.left:
                return
            if reply is not None:
                break
            await send(
                {"type": "http.response.body", "body": writer.keepalive(), "more_body": True}
            )
        if reply.answer is None:
            last = writer.error((reply.refusal or busy(2)).body())
        else:
            last = writer.answer(winner(reply.answer.parsed))
        await send({"type": "http.response.body", "body": last, "more_body": False})


def _watch(tasks: Tasks, receive: Receive, ticket: Ticket) -> asyncio.Task[None]:
    async def watch() -> None:
        await until_left(receive)
        ticket.leave()

    return tasks.spawn(watch(), "listener")
