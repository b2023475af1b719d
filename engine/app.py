"""The embedded engine as an ASGI app."""

import json
import logging
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ajet_swarm.common.errors import AjetError
from core.dialects.errors import ApiError
from core.dialects.schemas import schemas
from core.version import version
from engine.llm.real_server_quirks import AssertionCrash
from engine.routes.control import control_routes
from engine.routes.extensions import ajetc_routes
from engine.routes.llm import chat_routes
from engine.routes.tokenize import tokenize_routes
from engine.routes.trainer import trainer_routes
from engine.server.activity import replace_nonfinite
from engine.server.episodes import EpisodeService
from engine.server.lifecycle import Engine, EngineError

log = logging.getLogger(__name__)

MAX_BODY = 64 * 1024 * 1024
"""Longest request body in bytes: more than the proxy accepts (`proxy.max_body_mb`, 32 MiB),
since a request of another API form may grow when it is converted to a chat request."""


def create_app(
    engine: Engine, *, home: str = "", allowed_hosts: Collection[str] | None = None
) -> FastAPI:
    """Return the HTTP app of an engine; the app's lifespan is the engine's.

    Args:
        engine: Not entered yet.
        home: Reported by `/ajetc/info`.
        allowed_hosts: Host names that a request may carry; None allows any.
    """
    release = version()

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        async with engine:
            yield

    app = _App(
        title="ajet-console embedded engine",
        description="An AgentJet swarm server on the laptop's CPU.",
        version=release,
        lifespan=lifespan,
    )
    episodes = EpisodeService(engine)
    for router in (
        control_routes(episodes),
        chat_routes(engine),
        ajetc_routes(episodes, home, release),
        trainer_routes(episodes) if engine.faithful else tokenize_routes(engine),
    ):
        # `include_router` would build each route twice.
        app.router.routes.extend(router.routes)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(AjetError, _refused_or_crashed if engine.faithful else _refused)
    app.add_exception_handler(Exception, _failed)
    app.add_middleware(RequestGuard, allowed_hosts=allowed_hosts)
    return app


class _App(FastAPI):
    def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI document; see the base class."""
        document = super().openapi()
        document.setdefault("components", {}).setdefault("schemas", {}).update(schemas())
        return document


class RequestGuard:
    """Middleware that refuses web pages and oversized bodies; the swarm wire carries no key."""

    def __init__(self, app: ASGIApp, allowed_hosts: Collection[str] | None) -> None:
        self.app = app
        self.allowed_hosts = allowed_hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        refusal = self._refusal(headers)
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        await self.app(_one_slash(scope), _bounded(receive), send)

    def _refusal(self, headers: dict[bytes, str]) -> Response | None:
        host = headers.get(b"host", "")
        if self.allowed_hosts is not None and _hostname(f"//{host}") not in self.allowed_hosts:
            return _error(403, f"Host {host!r} is not this server")
        origin = headers.get(b"origin")
        if origin is not None and origin.partition("://")[2] != host:
            return _error(403, f"Pages of {origin!r} may not use this server")
        length = headers.get(b"content-length", "0")
        if not length.isdecimal() or int(length) > MAX_BODY:
            return _error(413, f"The request body is larger than {MAX_BODY} bytes")
        return None


def _one_slash(scope: Scope) -> Scope:
    """Accept `//v1/...`: clients append `/v1/...` to a server URL that ends in a slash."""
    path: str = scope["path"]
    return {**scope, "path": f"/{path.lstrip('/')}"} if path.startswith("//") else scope


def _bounded(receive: Receive) -> Receive:
    """Limit a body of unknown length while it arrives."""
    received = 0

    async def counted() -> Message:
        nonlocal received
        message = await receive()
        received += len(message.get("body", b""))
        if received > MAX_BODY:
            raise HTTPException(413, f"The request body is larger than {MAX_BODY} bytes")
        return message

    return counted


def loopback_hosts(host: str) -> frozenset[str]:
    """Return the host names that a request to a loopback address may carry."""
    return frozenset({"localhost", "127.0.0.1", "::1", host})


def _hostname(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


def _error(status: int, detail: str) -> JSONResponse:
    return JSONResponse({"detail": detail}, status_code=status)


async def _refused(_request: Request, error: Exception) -> Response:
    if isinstance(error, ApiError):
        return _invalid_body([error.fault]) if error.fault else _error(error.status, error.message)
    return _error(error.status if isinstance(error, EngineError) else 500, str(error))


async def _refused_or_crashed(request: Request, error: Exception) -> Response:
    """As the real server: a failed assertion gets no answer of its own; see `_failed`."""
    if isinstance(error, AssertionCrash | ApiError) or getattr(error, "asserts", False):
        raise AssertionCrash from error
    return await _refused(request, error)


async def _invalid(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return _invalid_body(error.errors())


def _invalid_body(faults: Sequence[dict[str, Any]]) -> Response:
    """Return FastAPI's 422 body, without values that JSON cannot represent."""
    details = [_fault(fault) for fault in faults]
    text = json.dumps({"detail": details}, ensure_ascii=True, default=str)
    return Response(text, status_code=422, media_type="application/json")


def _fault(fault: dict[str, Any]) -> dict[str, Any]:
    loc: Sequence[Any] = fault["loc"]
    return {
        "type": fault["type"],
        "loc": list(loc),
        "msg": fault["msg"],
        "input": replace_nonfinite(fault.get("input")),
    }


async def _failed(_request: Request, error: Exception) -> Response:
    """Answer 500; the web server then closes the connection, as after every such error."""
    if isinstance(error, AssertionCrash):
        return PlainTextResponse("Internal Server Error", 500)
    log.error("a request failed", exc_info=error)
    return _error(500, f"Internal error: {type(error).__name__}. See the engine's log.")
