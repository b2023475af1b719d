"""The router of all requests: session paths, API key, CORS, the table of routes.

It is plain ASGI: the handler of a request gets the server's own `receive` and `send`, without a
wrapper that hides the client's disconnect.
"""

import hmac
import logging
import re
import traceback
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import PurePath
from urllib.parse import unquote

from starlette.middleware.cors import CORSMiddleware

from ajet_swarm.common.text import one_line, plain
from core.runtime.sockets import is_loopback
from core.settings import ProxySettings
from proxy.http.asgi import (
    FAST_RESPONSE,
    App,
    Extra,
    Message,
    Receive,
    Scope,
    Send,
    refuse_unread,
    send_json,
)
from proxy.http.body_budget import BODY_BYTES, BodyBudget
from proxy.http.errors import ApiError

log = logging.getLogger(__name__)

UNAUTHORIZED = b'{"error":"Unauthorized"}'
NOT_FOUND = b'{"detail":"Not Found"}'
NOT_ALLOWED = b'{"detail":"Method Not Allowed"}'
FAILED = ApiError(500, None, "Internal server error").body()

LONGEST_SESSION = 200

KEYED = ("/v1", "/v2", "/inference", "/cohere", "/sessions", "/tokenize", "/detokenize")
"""Prefixes of paths that require the API key, including vLLM's that are not served here."""

LOCAL_HOSTS = frozenset(
    {"localhost", "host.docker.internal", "gateway.docker.internal", "host.containers.internal"}
)
"""Names of this machine, also those in its containers."""
_PORT = re.compile(r":[0-9]*\Z")

Methods = Mapping[str, App]
"""HTTP method -> handler."""


class Router:
    """The ASGI application.

    Args:
        table: Path -> method -> handler; a path with `{}` is a pattern, see `_pattern`.
        inner: Application for the paths that begin with one of `owned`.
        settings: API key, body limits, allowed origins.
        owned: Path prefixes of `inner`, which has its own access checks.
        allowed_hosts: Names in addition to `LOCAL_HOSTS`; a list, or a comma-separated text.
    """

    def __init__(
        self,
        table: Mapping[str, Methods],
        inner: App,
        settings: ProxySettings,
        owned: tuple[str, ...] = ("/control/",),
        allowed_hosts: str | Iterable[str] = (),
    ) -> None:
        self._exact = {path: methods for path, methods in table.items() if "{" not in path}
        self._patterns = [
            (_pattern(path), methods) for path, methods in table.items() if "{" in path
        ]
        self._inner = inner
        self._owned = owned
        self._key = settings.api_key.encode()
        open_to_pages = not self._key and is_loopback(settings.host)
        hosts = frozenset(host.lower() for host in origins_of(allowed_hosts))
        self._hosts = LOCAL_HOSTS | hosts if open_to_pages and "*" not in hosts else None
        """Names under which it is addressed; None for any."""
        self._body_budget = BodyBudget(max(settings.max_bodies_mb, settings.max_body_mb) << 20)
        origins = tuple(origins_of(settings.cors_origins))
        self._cors_enabled = bool(origins)
        self._cors = CORSMiddleware(
            self._route,
            allow_origins=origins,
            allow_methods=("*",),
            allow_headers=("*",),
            expose_headers=("x-request-id", "retry-after", "x-ajet-weights"),
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; an unexpected error is a 500 in JSON."""
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return
        body = scope[BODY_BYTES] = self._body_budget.body()
        try:
            if scope["path"].startswith(self._owned):
                await self._inner(scope, receive, send)
            else:
                await self._dispatch(scope, receive, send)
        finally:
            body.release()

    async def _dispatch(self, scope: Scope, receive: Receive, send: Send) -> None:
        response_started = False

        async def send_and_note(message: Message) -> None:
            nonlocal response_started
            response_started = True
            await send(message)

        try:
            if (self._cors_enabled or scope["method"] == "OPTIONS") and _has(scope, b"origin"):
                scope.pop(FAST_RESPONSE, None)  # a fast response would lack the CORS headers
                await self._cors(scope, receive, send_and_note)
            else:
                await self._route(scope, receive, send_and_note)
        except Exception as error:  # the client gets an error response, never a traceback
            if response_started:
                raise
            log.error(
                "%s %s failed: %s", scope["method"], one_line(scope["path"]), _fault_place(error)
            )
            await send_json(send, 500, FAILED, ((b"connection", b"close"),))

    async def _route(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope["path"]
        if self._hosts is not None and (host := _foreign_host(scope, self._hosts)):
            log.warning("%s requested %s of the foreign Host %s", _client(scope), path, host)
            await refuse_unread(scope, send, 421, foreign_host(host).body())
            return
        if self._key and path.startswith(KEYED) and not self._has_key(scope):
            log.info("%s requested %s without the API key", _client(scope), one_line(path))
            await refuse_unread(scope, send, 401, UNAUTHORIZED)
            return
        if path.startswith("/sessions/"):
            path = _strip_session(scope)
        methods = self._find(path)
        if methods is None:
            await refuse_unread(scope, send, 404, NOT_FOUND)
        elif (app := methods.get(scope["method"])) is None:
            allow: Extra = ((b"allow", ", ".join(sorted(methods)).encode()),)
            await refuse_unread(scope, send, 405, NOT_ALLOWED, allow)
        else:
            await app(scope, receive, send)

    def _find(self, path: str) -> Methods | None:
        methods_ = self._exact.get(path) or self._exact.get(path.rstrip("/"))
        if methods_ is not None:
            return methods_
        for pattern, methods in self._patterns:
            if pattern.fullmatch(path):
                return methods
        return None

    def _has_key(self, scope: Scope) -> bool:
        """Return whether a header has the API key; compare all of them in constant time."""
        if scope["method"] == "OPTIONS":
            return True
        passed = False
        for name, value in scope["headers"]:
            key = value
            if name == b"authorization":
                scheme, _, key = value.partition(b" ")
                if scheme.lower() != b"bearer":
                    continue
            elif name != b"x-api-key":
                continue
            passed |= hmac.compare_digest(key.strip(), self._key)
        return passed


def foreign_host(host: str) -> ApiError:
    """Return the refusal of a request that is addressed to another server."""
    text = f"Host `{host}` is not served here. Allow it: `http: {{allowed_hosts: [{host}]}}` in"
    return ApiError(
        421, None, f"{text} config.yaml (setting http.allowed_hosts).", kind="Misdirected"
    )


def origins_of(setting: str | Iterable[str]) -> list[str]:
    """Return the origins of a setting: a list, or a comma-separated text."""
    names = setting.split(",") if isinstance(setting, str) else setting
    return [name.strip().rstrip("/") for name in names if name.strip()]


def _strip_session(scope: Scope) -> str:
    """Strip `/sessions/ID` off a request's path; store the id in `scope["session"]`.

    Returns:
        The rest of the path; empty when the id is missing or `/v1/` does not follow it.
    """
    parts = scope["raw_path"].decode("latin-1").split("/", 3)
    if len(parts) < 3 or unquote(parts[1]) != "sessions":  # an escaped slash does not separate
        return ""
    session = plain(unquote(parts[2]))[:LONGEST_SESSION]
    path = "/" + unquote(parts[3]) if len(parts) == 4 else ""
    if not session or not path.startswith("/v1/"):
        return ""
    scope["session"], scope["path"] = session, path
    return path


def _pattern(path: str) -> re.Pattern[str]:
    """Compile a path pattern: `{}` matches one segment, `{*}` the rest of the path."""
    parts = re.split(r"(\{\*?\})", path)
    kinds = {"{}": "([^/]+)", "{*}": "(.+)"}
    return re.compile("".join(kinds.get(part) or re.escape(part) for part in parts))


def _foreign_host(scope: Scope, hosts: frozenset[str]) -> str:
    """Return the name of another server by which it is addressed; empty for its own or none.

    A web page reaches this port under the page's own name, by DNS rebinding.
    """
    for name, value in scope["headers"]:
        if name == b"host":
            return _if_foreign(value, hosts)
    return ""


@lru_cache(maxsize=16)
def _if_foreign(value: bytes, hosts: frozenset[str]) -> str:
    host = _PORT.sub("", value.decode("latin-1").strip().lower())
    known = not host or host in hosts or host.endswith(".localhost") or is_loopback(host)
    return "" if known else one_line(host, 100)


def _has(scope: Scope, header: bytes) -> bool:
    return any(name == header for name, _ in scope["headers"])


def _fault_place(error: Exception) -> str:
    """Return an error's type and source line; its text may hold a user's message or a key."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" in {PurePath(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}{place}"


def _client(scope: Scope) -> str:
    client = scope.get("client")
    return str(client[0]) if client else "a client"
