"""The HTTP application that all routes are added to."""

from typing import Any

from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp

from core.dialects.errors import ApiError
from core.settings import Settings
from core.version import version
from proxy.http.exchange import error_response, json_response
from proxy.http.middleware import Access, Bodies, Faults, origins_of


class ProxyApp(FastAPI):
    """FastAPI with the limits on requests, vLLM's errors, and the control API.

    Requests are parsed by the dialects; FastAPI finds the route and describes it in
    `/openapi.json`.

    Args:
        settings: The settings.
        control: The control API, for the paths below `/control`.
        schemas: OpenAPI schemas by name, to which the routes refer.
    """

    def __init__(
        self, settings: Settings, control: ASGIApp, schemas: dict[str, Any] | None = None
    ) -> None:
        cors = Middleware(
            CORSMiddleware,
            allow_origins=origins_of(settings.proxy.cors_origins),
            allow_methods=("*",),
            allow_headers=("*",),
            expose_headers=("x-request-id", "retry-after", "x-ajet-weights"),
        )
        super().__init__(
            title="ajet-console",
            version=version(),
            docs_url=None,
            redoc_url=None,
            redirect_slashes=False,
            telemetry={"tracing": False, "metrics": False, "logs": False},
            middleware=[
                Middleware(Faults),
                Middleware(Bodies, settings=settings.proxy),
                cors,
                Middleware(
                    Access, settings=settings.proxy, allowed_hosts=settings.http.allowed_hosts
                ),
            ],
            exception_handlers={405: _name_methods, ApiError: _refuse, ClientDisconnect: _ignore},
        )
        self._schemas = schemas or {}
        self.mount("/control", control)

    def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI document; see the base class."""
        document = super().openapi()
        components = document.setdefault("components", {})
        components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        components.setdefault("schemas", {}).update(self._schemas)
        return document


async def _name_methods(request: Request, _: Exception) -> Response:
    """Answer 405 with the methods of all routes of a path; FastAPI names those of the first."""
    path, methods = request.scope["path"], set[str]()
    for route in request.app.routes:
        if isinstance(route, APIRoute) and route.path_regex.match(path):
            methods |= route.methods or set()
    return json_response(
        b'{"detail":"Method Not Allowed"}', 405, {"allow": ", ".join(sorted(methods))}
    )


async def _refuse(_: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return error_response(error)


async def _ignore(_: Request, error: Exception) -> Response:
    return Response(status_code=499)  # nobody reads it
