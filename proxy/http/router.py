"""What stands in front of all routes: sessions in the path, the key, foreign pages, who is asked.

Bare ASGI: a request is looked up in a table and handed on; nothing is wrapped, so nothing hides
that a client has left.
"""

import hmac
import logging
import re
import traceback
from collections.abc import Iterable, Mapping
from pathlib import PurePath
from urllib.parse import unquote

from starlette.middleware.cors import CORSMiddleware

from ajet_swarm.common.text import one_line, plain
from core.settings import ProxySettings
from proxy.http.asgi import (
    AT_ONCE,
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
"""Beginnings of paths that need the key, those of a vLLM that are not served here among them."""

Methods = Mapping[str, App]
"""Method -> what answers it."""


class Router:
    """The whole application.

    Args:
        table: Paths -> methods -> what answers; a path in `{}` is a pattern, see `_pattern`.
        inner: Gets what begins with one of `owned`.
        settings: Key, largest body, allowed pages.
        owned: Beginnings of paths that are `inner`'s, with checks of its own.
    """

    def __init__(
        self,
        table: Mapping[str, Methods],
        inner: App,
        settings: ProxySettings,
        owned: tuple[str, ...] = ("/control/",),
    ) -> None:
        self._exact = {path: methods for path, methods in table.items() if "{" not in path}
        self._patterns = [
            (_pattern(path), methods) for path, methods in table.items() if "{" in path
        ]
        self._inner = inner
        self._owned = owned
        self._key = settings.api_key.encode()
        self._room = BodyBudget(max(settings.max_bodies_mb, settings.max_body_mb) << 20)
        origins = tuple(origins_of(settings.cors_origins))
        self._shared = bool(origins)
        self._cors = CORSMiddleware(
            self._enter,
            allow_origins=origins,
            allow_methods=("*",),
            allow_headers=("*",),
            expose_headers=("x-request-id", "retry-after"),
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; what fails in a way nobody foresaw is a 500 in JSON."""
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return
        body = scope[BODY_BYTES] = self._room.body()
        try:
            if scope["path"].startswith(self._owned):
                await self._inner(scope, receive, send)
            else:
                await self._outer(scope, receive, send)
        finally:
            body.release()

    async def _outer(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False

        async def told(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            if (self._shared or scope["method"] == "OPTIONS") and _has(scope, b"origin"):
                scope.pop(AT_ONCE, None)  # or the headers for the page would be left out
                await self._cors(scope, receive, told)
            else:
                await self._enter(scope, receive, told)
        except Exception as error:  # whoever asks is to read an answer, and no traceback
            if begun:
                raise
            log.error("%s %s failed: %s", scope["method"], one_line(scope["path"]), _where(error))
            await send_json(send, 500, FAILED, ((b"connection", b"close"),))

    async def _enter(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope["path"]
        if self._key and path.startswith(KEYED) and not self._passes(scope):
            log.info("%s asked for %s without the key", _client(scope), one_line(path))
            await refuse_unread(scope, send, 401, UNAUTHORIZED)
            return
        if path.startswith("/sessions/"):
            path = _enter_session(scope)
        methods = self._find(path)
        if methods is None:
            await refuse_unread(scope, send, 404, NOT_FOUND)
        elif (app := methods.get(scope["method"])) is None:
            allow: Extra = ((b"allow", ", ".join(sorted(methods)).encode()),)
            await refuse_unread(scope, send, 405, NOT_ALLOWED, allow)
        else:
            await app(scope, receive, send)

    def _find(self, path: str) -> Methods | None:
        found = self._exact.get(path) or self._exact.get(path.rstrip("/"))
        if found is not None:
            return found
        for pattern, methods in self._patterns:
            if pattern.fullmatch(path):
                return methods
        return None

    def _passes(self, scope: Scope) -> bool:
        """Whether one of the request's headers has the key; all are compared in constant time."""
        if scope["method"] == "OPTIONS":
            return True
        passed = False
        for name, value in scope["headers"]:
            given = value
            if name == b"authorization":
                scheme, _, given = value.partition(b" ")
                if scheme.lower() != b"bearer":
                    continue
            elif name != b"x-api-key":
                continue
            passed |= hmac.compare_digest(given.strip(), self._key)
        return passed


def origins_of(told: str | Iterable[str]) -> list[str]:
    """The origins of a setting: a list, or one text with commas."""
    names = told.split(",") if isinstance(told, str) else told
    return [name.strip().rstrip("/") for name in names if name.strip()]


def _enter_session(scope: Scope) -> str:
    """Take `/sessions/ID` off a request's path; the id goes to `scope["session"]`.

    Returns:
        The rest of the path; an empty one when there is no id, or nothing of `/v1` behind it.
    """
    parts = scope["raw_path"].decode("latin-1").split("/", 3)
    if len(parts) < 3 or unquote(parts[1]) != "sessions":  # a slash in other letters is none
        return ""
    session = plain(unquote(parts[2]))[:LONGEST_SESSION]
    path = "/" + unquote(parts[3]) if len(parts) == 4 else ""
    if not session or not path.startswith("/v1/"):
        return ""
    scope["session"], scope["path"] = session, path
    return path


def _pattern(path: str) -> re.Pattern[str]:
    """`{}` stands for one part of a path, `{*}` for all that follows."""
    parts = re.split(r"(\{\*?\})", path)
    kinds = {"{}": "([^/]+)", "{*}": "(.+)"}
    return re.compile("".join(kinds.get(part) or re.escape(part) for part in parts))


def _has(scope: Scope, header: bytes) -> bool:
    return any(name == header for name, _ in scope["headers"])


def _where(error: Exception) -> str:
    """Kind and place of a fault, in one line: its text may hold what a user said, or a key."""
    frames = traceback.extract_tb(error.__traceback__)
    at = f" in {PurePath(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}{at}"


def _client(scope: Scope) -> str:
    client = scope.get("client")
    return str(client[0]) if client else "somebody"
