"""LLM routes of an episode's key: `/v1/chat/completions`, `/v1/responses`, `/v1/messages`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec
from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from core.dialects import schemas
from engine.interface import Completion
from engine.llm import real_server_quirks
from engine.llm.calls import CLIENT_LEFT, CallStarter, LiveCall
from engine.llm.chat import (
    ChatEncoder,
    ChatRequest,
    checked,
    choice_logprobs,
    parse_json,
    read_chat,
)
from engine.llm.forms import (
    BlockEncoder,
    MessagesEncoder,
    ResponsesEncoder,
    read_messages,
    read_responses,
)
from engine.server.episode_keys import parse_key
from engine.server.lifecycle import Engine, EngineError

KEEP_ALIVE_SECONDS = 5.0
"""Longest silence of a stream, in seconds."""

_STREAM_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}

AnswerEncoder = ChatEncoder | BlockEncoder


@dataclass(frozen=True)
class Form:
    """One of the three API forms."""

    path: str
    body: type[msgspec.Struct]
    """Fields of a request, for the OpenAPI document."""
    read: Callable[[Mapping[str, Any]], ChatRequest]
    """Returns checked fields as a chat request; raises `ApiError` and `EngineError`."""
    encoder: Callable[[str, ChatRequest, Mapping[str, Any]], AnswerEncoder]
    """Creates the encoder of an answer from the policy's name, the request and its fields."""
    headers: tuple[str, ...] = ("authorization",)
    """Headers that may have the key."""


_CHAT = Form("/v1/chat/completions", schemas.ChatCompletionRequest, read_chat, ChatEncoder)
_FORMS = (
    _CHAT,
    Form("/v1/responses", schemas.ResponsesRequest, read_responses, ResponsesEncoder),
    Form(
        "/v1/messages",
        schemas.MessagesRequest,
        read_messages,
        MessagesEncoder,
        ("authorization", "x-api-key"),
    ),
)


def chat_routes(engine: Engine) -> APIRouter:
    """Return the LLM routes; bodies are parsed by hand because the key is checked first."""
    router = APIRouter()
    calls = CallStarter(engine)
    for form in _FORMS:
        _add_route(router, calls, form)
    return router


def _add_route(router: APIRouter, calls: CallStarter, form: Form) -> None:
    @router.post(form.path, openapi_extra=schemas.streamed(form.body))
    async def call(request: Request) -> Response:
        """Answer one call of an episode; a stream sends the text while it is sampled."""
        values = (request.headers.get(name) for name in form.headers)
        try:
            key = parse_key(next(filter(None, values), None))
        except EngineError as error:
            if calls.engine.faithful and form is _CHAT:
                return JSONResponse(real_server_quirks.unauthorized(str(error)))
            raise
        raw, fields, chat = _read(form, await request.body())
        encoder = form.encoder(calls.model, chat, fields)
        live = calls.begin(key, chat, partial(until_disconnected, request))
        scored = chat.logprobs is True and form is _CHAT
        logprobs = scored and not (chat.stream or calls.engine.faithful)
        streamed = StreamingAnswer(calls, live, encoder, raw, logprobs=logprobs)
        try:
            if chat.stream and not calls.engine.faithful:
                await streamed.begin()
                return streamed
            completion = await live.answer()
        except BaseException:
            live.close()
            raise
        live.close()
        if chat.stream:
            content = encoder.compact_stream(completion)
            streamed.record(completion)
            return Response(content, media_type="text/event-stream", headers=_STREAM_HEADERS)
        return JSONResponse(streamed.record(completion))


async def until_disconnected(request: Request) -> None:
    """Wait until the client has disconnected; the body must be read before."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _read(form: Form, body: bytes) -> tuple[Any, dict[str, Any], ChatRequest]:
    """Return the raw JSON of a request, its checked fields and its chat form."""
    try:
        raw = parse_json(body)
        fields = checked(raw)
        return raw, fields, form.read(fields)
    except RecursionError as error:
        raise EngineError(400, "The request body is nested too deeply") from error


class StreamingAnswer(Response):
    """An answer that is sent while it is sampled.

    An error before the first piece is an HTTP status; a later one is an event, and the stream ends
    without its last event.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        calls: CallStarter,
        live: LiveCall,
        encoder: AnswerEncoder,
        raw: Any,
        *,
        logprobs: bool = False,
    ) -> None:
        super().__init__(headers=_STREAM_HEADERS)
        del self.headers["content-length"]
        self._calls, self._live, self._encoder, self._raw = calls, live, encoder, raw
        self._logprobs = logprobs
        self._next: str | None = None

    async def begin(self) -> None:
        """Wait for the first piece of text, at most `KEEP_ALIVE_SECONDS`.

        Raises:
            EngineError: there will be no answer.
        """
        self._next = await self._live.piece(KEEP_ALIVE_SECONDS)
        if self._next is None and self._live.failed:
            await self._live.answer()

    def record(self, completion: Completion) -> dict[str, Any]:
        """Return the encoded answer; store it and the request for the replay route."""
        policy = self._calls.engine.policy_holder.policy
        whole = self._encoder.whole(completion)
        if self._logprobs and policy is not None:
            whole["choices"][0]["logprobs"] = choice_logprobs(completion, policy.token_texts)
        latest = {"input": self._raw, "output": whole}
        self._calls.engine.latest_call = (
            {**latest, "format": self._encoder.format} if self._encoder.format else latest
        )
        return whole

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream."""

        async def send_chunk(content: bytes, more: bool = True) -> None:
            await send({"type": "http.response.body", "body": content, "more_body": more})

        with self._live:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await send_chunk(self._encoder.opening())
            while self._next is not None:
                await send_chunk(
                    self._encoder.piece(self._next) if self._next else self._encoder.idle()
                )
                self._next = await self._live.piece(KEEP_ALIVE_SECONDS)
            try:
                completion = await self._live.answer()
                end = self._encoder.closing(completion)
                self.record(completion)
            except EngineError as error:
                disconnected = error.status == CLIENT_LEFT
                end = b"" if disconnected else self._encoder.failure(error.status, str(error))
            await send_chunk(end, more=False)
