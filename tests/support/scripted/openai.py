"""An OpenAI-compatible server for tests, as vLLM or a hosted model is, on a script.

    async with ScriptedOpenAI() as upstream:      # port 0; `upstream.url`
        upstream.answer = my_answer               # async (body, call_index) -> text | dict | Denied

In a process test: `with in_thread(ScriptedOpenAI()) as upstream`.

Scripting:
    answer       a text, a message dict, or a `Failure` (returned): its status, headers and error.
    gate         an asyncio.Event every call waits for; `token_seconds` between streamed words.
    key          the key a caller must send; empty accepts any.
    models       listed ids; None has no such route. `context` is their `max_model_len`.
    health       status of `/health`; None has no such route.
    tokenizer    False: no `/tokenize` (a token is a word). `openapi` False: no `/openapi.json`.
    completes    True: it has `/v1/completions` too, whose bodies are in `bare`.
    hang_up      close every new connection at once, as a dead host does.

What happened: `calls` ((body, headers in lower case)), `cancelled` (calls whose client left),
`running`, `requests` (a Counter by route).
"""

import asyncio
import contextlib
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from aiohttp import web

from tests.support.scripted.chat import completion
from tests.support.scripted.stream import begin, send_stream
from tests.support.server_close import end_site

Answer = Callable[[dict[str, Any], int], Awaitable[Any]]


@dataclass(frozen=True)
class Failure:
    """An error in OpenAI's shape."""

    status: int
    message: str = "no"
    headers: Mapping[str, str] = field(default_factory=dict)
    code: str | None = None
    param: str | None = None

    def response(self) -> web.Response:
        result = {"message": self.message, "type": "error", "param": self.param, "code": self.code}
        return web.json_response({"error": result}, status=self.status, headers=self.headers)


async def by_call(body: dict[str, Any], index: int) -> str:
    return f"answer {index}"


class ScriptedOpenAI:
    """See the module's docstring."""

    def __init__(self, *, key: str = "", port: int = 0) -> None:
        self.answer: Answer = by_call
        self.key = key
        self.port = port
        self.models: list[str] | None = ["tiny"]
        self.context: int | None = 4096
        self.health: int | None = 200
        self.tokenizer = self.openapi = True
        self.completes = self.hang_up = False
        self.bare: list[dict[str, Any]] = []
        self.gate: asyncio.Event | None = None
        self.token_seconds = 0.0
        self.calls: list[tuple[dict[str, Any], dict[str, str]]] = []
        self.cancelled = self.running = 0
        self.requests: Counter[str] = Counter()
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        app = web.Application(middlewares=[self._outer], client_max_size=1 << 26)
        app.router.add_get("/health", self._health)
        app.router.add_get("/openapi.json", self._openapi)
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/tokenize", self._tokenize)
        app.router.add_post("/detokenize", self._detokenize)
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_post("/v1/completions", self._complete)
        self._runner = web.AppRunner(
            app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True
        )
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._runner is not None:
            await end_site(self._runner)

    @web.middleware
    async def _outer(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        self.requests[request.path] += 1
        if self.hang_up and request.transport is not None:
            request.transport.abort()
            return web.Response()
        known = request.headers.get("Authorization") == f"Bearer {self.key}"
        if self.key and request.path.startswith("/v1") and not known:
            return Failure(401, f"Incorrect API key provided: {self.key}").response()
        return await handler(request)

    async def _health(self, request: web.Request) -> web.Response:
        return web.Response(status=404 if self.health is None else self.health)

    async def _openapi(self, request: web.Request) -> web.Response:
        if not self.openapi:
            return web.Response(status=404)
        paths = ["/v1/chat/completions", "/v1/models"]
        paths += ["/tokenize", "/detokenize"] if self.tokenizer else []
        paths += ["/v1/completions"] if self.completes else []
        return web.json_response({"paths": {path: {} for path in paths}})

    async def _models(self, request: web.Request) -> web.Response:
        if self.models is None:
            return web.Response(status=404)
        cards = [{"id": name, "max_model_len": self.context} for name in self.models]
        return web.json_response({"object": "list", "data": cards})

    async def _tokenize(self, request: web.Request) -> web.Response:
        if not self.tokenizer:
            return web.Response(status=404)
        body = await request.json()
        if self.models and body.get("model") not in (None, *self.models):
            return Failure(404, "no such model").response()
        messages = body.get("messages") or [{"content": body.get("prompt", "")}]
        count = sum(len(str(message.get("content")).split()) for message in messages)
        result = {"count": count, "max_model_len": self.context, "tokens": list(range(count))}
        return web.json_response({**result, "token_strs": None})

    async def _detokenize(self, request: web.Request) -> web.Response:
        body = await request.json()
        return web.json_response({"prompt": " ".join(map(str, body["tokens"]))})

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        index = len(self.calls)
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.calls.append((body, headers))
        self.running += 1
        try:
            if self.gate is not None:
                await self.gate.wait()
            result = await self.answer(body, index)
            if isinstance(result, Failure):
                return result.response()
            answer = {**completion(result), "model": body.get("model")}
            if not body.get("stream"):
                return web.json_response(answer)
            return await send_stream(
                request, await begin(request), answer, "tokens", "", self._pause
            )
        except (asyncio.CancelledError, ConnectionError):
            self.cancelled += 1
            raise
        finally:
            self.running -= 1

    async def _complete(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.bare.append(body)
        answer = await self.answer(body, len(self.bare) - 1)
        if isinstance(answer, Failure):
            return answer.response()
        return web.json_response({"object": "text_completion", "model": body["model"], **answer})

    async def _pause(self, _: str, __: int) -> None:
        await asyncio.sleep(self.token_seconds)


@contextlib.contextmanager
def in_thread(upstream: ScriptedOpenAI) -> Iterator[ScriptedOpenAI]:
    """The server on a loop of its own, for tests that block."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="upstream", daemon=True)
    thread.start()
    asyncio.run_coroutine_threadsafe(upstream.__aenter__(), loop).result(10)
    try:
        yield upstream
    finally:
        asyncio.run_coroutine_threadsafe(upstream.__aexit__(None, None, None), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(60)
        loop.close()
