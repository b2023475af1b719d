"""LLM routes of an episode's key: `/v1/chat/completions`, `/v1/responses`, `/v1/messages`."""

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any, Protocol

from fastapi import APIRouter, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.types import Receive, Scope, Send

from engine.interface import Completion
from engine.llm import real_server_quirks
from engine.llm.calls import CLIENT_LEFT, CallStarter, LiveCall
from engine.llm.chat import ChatEncoder, ChatRequest, choice_logprobs, parse_json, validate
from engine.llm.messages import MessagesEncoder, MessagesRequest
from engine.llm.responses import ResponsesEncoder, ResponsesRequest
from engine.server.episode_keys import parse_key
from engine.server.lifecycle import Engine, EngineError

KEEP_ALIVE_SECONDS = 5.0
"""Longest silence of a stream, in seconds."""

_STREAM_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


class LlmRequest(Protocol):
    """A request in any of the three API forms."""

    model: str | None
    stream: bool | None

    def chat(self) -> ChatRequest:
        """Return the equivalent chat request."""


class AnswerEncoder(Protocol):
    """Encoder of one answer in one of the three API forms."""

    format: str

    def whole(self, completion: Completion) -> dict[str, Any]:
        """Return the answer as one object."""

    def opening(self) -> bytes:
        """Return the first events of a stream."""

    def piece(self, text: str) -> bytes:
        """Return the event for a piece of text."""

    def idle(self) -> bytes:
        """Return a keep-alive event."""

    def closing(self, completion: Completion, whole: Mapping[str, Any]) -> bytes:
        """Return the last events of a stream."""

    def failure(self, status: int, detail: str) -> bytes:
        """Return the event for an error in the middle of a stream."""

    def compact_stream(self, completion: Completion, whole: Mapping[str, Any]) -> bytes:
        """Return the whole answer as a stream in the real server's few chunks."""


EncoderFactory = Callable[[str, str | None], AnswerEncoder]
"""Creates an encoder from the policy's name and the model name in the request."""

_FORMS: tuple[tuple[str, type[BaseModel], EncoderFactory, tuple[str, ...]], ...] = (
    ("/v1/chat/completions", ChatRequest, ChatEncoder, ("authorization",)),
    ("/v1/responses", ResponsesRequest, ResponsesEncoder, ("authorization",)),
    ("/v1/messages", MessagesRequest, MessagesEncoder, ("authorization", "x-api-key")),
)


def chat_routes(engine: Engine) -> APIRouter:
    """Return the LLM routes; bodies are parsed by hand because the key is checked first."""
    router = APIRouter()
    calls = CallStarter(engine)
    for path, model, answer, headers in _FORMS:
        _add_route(router, calls, path, model, answer, headers)
    return router


@cache
def _body_schema(model: type[BaseModel]) -> dict[str, Any]:
    """Return the JSON schema of a body, without references; do not change it."""
    schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
    _inline(schema, schema.pop("$defs", {}))
    return schema


def _add_route(
    router: APIRouter,
    calls: CallStarter,
    path: str,
    model: type[BaseModel],
    encoder_type: EncoderFactory,
    headers: tuple[str, ...],
) -> None:
    content = {"application/json": {"schema": _body_schema(model)}}
    extra = {"requestBody": {"required": True, "content": content}}

    @router.post(path, openapi_extra=extra, name=path.rpartition("/v1/")[2])
    async def call(request: Request) -> Response:
        """Answer one call of an episode; a stream sends the text while it is sampled."""
        values = (request.headers.get(name) for name in headers)
        try:
            key = parse_key(next(filter(None, values), None))
        except EngineError as error:
            if calls.engine.faithful and encoder_type is ChatEncoder:
                return JSONResponse(real_server_quirks.unauthorized(str(error)))
            raise
        llm_request, chat, raw = _read(calls.engine, model, await request.body())

        encoder = encoder_type(calls.model, llm_request.model)
        live = calls.begin(key, chat, partial(until_disconnected, request))
        scored = chat.logprobs is True and encoder_type is ChatEncoder
        logprobs = scored and not (llm_request.stream or calls.engine.faithful)
        streamed = StreamingAnswer(calls, live, encoder, raw, logprobs=logprobs)
        try:
            if llm_request.stream and not calls.engine.faithful:
                await streamed.begin()
                return streamed
            completion, whole = await streamed.answer()
        except BaseException:
            live.close()
            raise
        live.close()
        if llm_request.stream:
            return _events(encoder.compact_stream(completion, whole))
        return JSONResponse(whole)


async def until_disconnected(request: Request) -> None:
    """Wait until the client has disconnected; the body must be read before."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _read(engine: Engine, model: type[Any], body: bytes) -> tuple[LlmRequest, ChatRequest, Any]:
    """Return the parsed request, its chat form and the raw JSON."""
    try:
        raw = parse_json(body)
        llm_request: LlmRequest = validate(model, raw)
        return llm_request, llm_request.chat(), raw
    except RecursionError as error:
        raise EngineError(400, "The request body is nested too deeply") from error
    except RequestValidationError as error:
        if engine.faithful:
            raise real_server_quirks.AssertionCrash from error
        raise


def _events(content: bytes) -> Response:
    return Response(content, media_type="text/event-stream", headers=_STREAM_HEADERS)


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

    async def answer(self) -> tuple[Completion, dict[str, Any]]:
        """Return the sampled answer and its encoded form; store both for the replay route.

        Raises:
            EngineError: see `LiveCall.answer`.
        """
        policy = self._calls.engine.policy_holder.policy
        completion = await self._live.answer()
        whole = self._encoder.whole(completion)
        if self._logprobs and policy is not None:
            whole["choices"][0]["logprobs"] = choice_logprobs(completion, policy.token_texts)
        latest = {"input": self._raw, "output": whole}
        self._calls.engine.latest_call = (
            {**latest, "format": self._encoder.format} if self._encoder.format else latest
        )
        return completion, whole

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
                end = self._encoder.closing(*await self.answer())
            except EngineError as error:
                disconnected = error.status == CLIENT_LEFT
                end = b"" if disconnected else self._encoder.failure(error.status, str(error))
            await send_chunk(end, more=False)


def _inline(node: Any, parts: Mapping[str, Any]) -> None:
    """Replace each `$ref` by its definition: the route's schema must stand alone."""
    for value in list(node.values()) if isinstance(node, dict) else node:
        if isinstance(value, dict) and "$ref" in value:
            name = value.pop("$ref").rpartition("/")[2]
            value.update(parts[name])
        if isinstance(value, (dict, list)):
            _inline(value, parts)
