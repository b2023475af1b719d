"""The OpenAPI document of equal apps, generated once in a process.

FastAPI generates it for each app, for 0.1 s of CPU time, and each client of an engine reads it.
"""

from typing import Any

import fastapi.applications
from fastapi.openapi.utils import get_openapi

from engine.app import create_app
from engine.server.lifecycle import Engine
from tests.support.engine.fake_policy import Bench

_documents: dict[Any, dict[str, Any]] = {}


def _once(*, routes: Any, **options: Any) -> dict[str, Any]:
    """Generate the document of these routes, or return that of equal ones."""
    served = (
        (getattr(route, "path", ""), str(getattr(route, "methods", "")), *_function(route))
        for route in routes
    )
    key = repr(options), *served
    if key not in _documents:
        _documents[key] = get_openapi(routes=routes, **options)
    return dict(_documents[key])


def _function(route: Any) -> tuple[str, str]:
    endpoint = getattr(route, "endpoint", None)
    return getattr(endpoint, "__module__", ""), getattr(endpoint, "__qualname__", "")


def generate_once() -> None:
    """Generate one document for all equal apps of this process, and of processes forked later."""
    fastapi.applications.get_openapi = _once  # type: ignore[attr-defined]  # what apps call


def prepare() -> None:
    """Generate the document of the embedded engine now."""
    create_app(Engine(Bench().factory)).openapi()
