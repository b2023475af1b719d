"""The policy behind an episode's key: `/v1/chat/completions`, `/v1/responses`, `/v1/messages`."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from fastapi import APIRouter, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.types import Receive, Scope, Send

from engine.interface import Completion
from engine.llm import real_server_quirks
from engine.llm.calls import CLIENT_LEFT, CallStarter, LiveCall
from engine.llm.chat import ChatEncoder, ChatRequest, parse_json, validate
from engine.llm.messages import MessagesEncoder, MessagesRequest
from engine.llm.responses import ResponsesEncoder, ResponsesRequest
from engine.server.episode_keys import parse_key
from engine.server.lifecycle import Engine, EngineError

KEEP_ALIVE_SECONDS = 5.0
"""Longest silence of a stream."""

_STREAM_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


class LlmRequest(Protocol):
    """A request in any of the three forms."""

    model: str | None
    stream: bool | None

    def chat(self) -> ChatRequest:
        """The same as a chat request."""


class AnswerEncoder(Protocol):
    """Tells one answer in one of the three forms."""

    format: str

    def whole(self, drawn: Completion) -> dict[str, Any]:
        """The answer as one object."""

    def opening(self) -> bytes:
        """The first events of a stream."""

    def piece(self, text: str) -> bytes:
        """A piece of the answer."""

    def idle(self) -> bytes:
        """Shows that the connection lives."""

    def closing(self, drawn: Completion, whole: Mapping[str, Any]) -> bytes:
        """The last events of a stream."""

    def failure(self, status: int, detail: str) -> bytes:
        """An error where the answer should go on."""

    def three_chunks(self, drawn: Completion, whole: Mapping[str, Any]) -> bytes:
        """The whole answer as the real server streams it."""


EncoderFactory = Callable[[str, str | None], AnswerEncoder]
"""Makes an answer of the policy's name and the name in the request."""

_FORMS: tuple[tuple[str, type[BaseModel], EncoderFactory, tuple[str, ...]], ...] = (
    ("/v1/chat/completions", ChatRequest, ChatEncoder, ("authorization",)),
    ("/v1/responses", ResponsesRequest, ResponsesEncoder, ("authorization",)),
    ("/v1/messages", MessagesRequest, MessagesEncoder, ("authorization", "x-api-key")),
)


def chat_routes(engine: Engine) -> APIRouter:
    """The LLM routes; bodies are read by hand because the key is checked first."""
    router = APIRouter()
    calls = CallStarter(engine)
    for path, model, answer, headers in _FORMS:
        _add(router, calls, path, model, answer, headers)
    return router


def _add(
    router: APIRouter,
    calls: CallStarter,
    path: str,
    model: type[BaseModel],
    answer: EncoderFactory,
    headers: tuple[str, ...],
) -> None:
    schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
    parts = schema.pop("$defs", {})
    _inline(schema, parts)
    extra = {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}

    @router.post(path, openapi_extra=extra, name=path.rpartition("/v1/")[2])
    async def call(request: Request) -> Response:
        """Answer one call of an episode; a stream tells the text as it is drawn."""
        values = (request.headers.get(name) for name in headers)
        try:
            key = parse_key(next(filter(None, values), None))
        except EngineError as error:
            if calls.engine.faithful and answer is ChatEncoder:
                return JSONResponse(real_server_quirks.unauthorized(str(error)))
            raise
        asked, chat, raw = _read(calls.engine, model, await request.body())

        async def gone() -> None:
            while (await request.receive())["type"] != "http.disconnect":
                pass

        told = answer(calls.model, asked.model)
        live = calls.begin(key, chat, gone)
        streamed = StreamingAnswer(calls, live, told, raw)
        try:
            if asked.stream and not calls.engine.faithful:
                await streamed.begin()
                return streamed
            drawn, whole = await streamed.answer()
        except BaseException:
            live.close()
            raise
        live.close()
        if asked.stream:
            return _events(told.three_chunks(drawn, whole))
        return JSONResponse(whole)


def _read(engine: Engine, model: type[Any], body: bytes) -> tuple[LlmRequest, ChatRequest, Any]:
    """The request, the same as a chat request, and as it came."""
    try:
        raw = parse_json(body)
        asked: LlmRequest = validate(model, raw)
        return asked, asked.chat(), raw
    except RecursionError as error:
        raise EngineError(400, "The request body is nested too deeply") from error
    except RequestValidationError as error:
        if engine.faithful:
            raise real_server_quirks.AssertionCrash from error
        raise


def _events(content: bytes) -> Response:
    return Response(content, media_type="text/event-stream", headers=_STREAM_HEADERS)


class StreamingAnswer(Response):
    """An answer that is sent while it is drawn.

    What goes wrong before the first piece is an HTTP status still; later it is an event, and the
    stream ends without its last one.
    """

    media_type = "text/event-stream"

    def __init__(self, calls: CallStarter, live: LiveCall, told: AnswerEncoder, raw: Any) -> None:
        super().__init__(headers=_STREAM_HEADERS)
        del self.headers["content-length"]
        self._calls, self._live, self._told, self._raw = calls, live, told, raw
        self._next: str | None = None

    async def begin(self) -> None:
        """Wait for the first piece, or as long as a client may be left without a word.

        Raises:
            Refused: there will be none.
        """
        self._next = await self._live.piece(KEEP_ALIVE_SECONDS)
        if self._next is None and self._live.failed:
            await self._live.answer()

    async def answer(self) -> tuple[Completion, dict[str, Any]]:
        """The whole answer, as it was drawn and as it is told; kept for a replay.

        Raises:
            Refused: see `LiveCall.answer`.
        """
        drawn = await self._live.answer()
        whole = self._told.whole(drawn)
        kept = {"input": self._raw, "output": whole}
        self._calls.engine.latest_call = (
            {**kept, "format": self._told.format} if self._told.format else kept
        )
        return drawn, whole

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""

        async def out(content: bytes, more: bool = True) -> None:
            await send({"type": "http.response.body", "body": content, "more_body": more})

        with self._live:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await out(self._told.opening())
            while self._next is not None:
                await out(self._told.piece(self._next) if self._next else self._told.idle())
                self._next = await self._live.piece(KEEP_ALIVE_SECONDS)
            try:
                end = self._told.closing(*await self.answer())
            except EngineError as error:
                gone = error.status == CLIENT_LEFT
                end = b"" if gone else self._told.failure(error.status, str(error))
            await out(end, more=False)


def _inline(node: Any, parts: Mapping[str, Any]) -> None:
    """Put definitions where they are referred to: the route's schema stands alone."""
    for value in list(node.values()) if isinstance(node, dict) else node:
        if isinstance(value, dict) and "$ref" in value:
            name = value.pop("$ref").rpartition("/")[2]
            value.update(parts[name])
        if isinstance(value, (dict, list)):
            _inline(value, parts)
