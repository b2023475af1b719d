"""Limits on requests, as plain ASGI middleware.

`Faults` answers a request that fails with a 500 that tells nothing. `Bodies` limits the bodies of
requests: size, time, and memory of all together. `Access` refuses a foreign Host and a missing API
key before a byte of the body is read, and takes the session out of a path.
"""

import asyncio
import contextlib
import hmac
import logging
import math
import re
import traceback
from collections.abc import Collection, Iterable
from pathlib import PurePath
from urllib.parse import unquote

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ajet_swarm.common.text import one_line, plain
from core.dialects.errors import ApiError
from core.runtime.sockets import is_loopback
from core.settings import ProxySettings
from proxy.http.exchange import error_response, json_response

log = logging.getLogger(__name__)

DRAIN = 10.0
"""Seconds for which the rest of a body over a limit is read, so that the client sees the error."""
UNREAD = 64 << 10
"""Bytes of a body that are read and discarded after its request was answered. The connection of a
longer one is closed."""
LINGER = 1.0
"""Seconds that such a connection stays open: an immediate close would reset it before the client
has read the response."""
BODY_TIME_FACTOR = 10
"""A whole body may take this many times the limit on a pause within it."""
CONTROL = "/control/"
"""Beginning of the paths of the control API, which has its own access checks."""
CONTROL_BODY = 64 << 20
"""Maximum size of a body for it in bytes: the longest row of a dataset, JSON escapes included."""

UNAUTHORIZED = b'{"error":"Unauthorized"}'
LONGEST_SESSION = 200
KEYED = ("/v1", "/v2", "/inference", "/cohere", "/sessions", "/tokenize", "/detokenize")
"""Prefixes of paths that require the API key, including vLLM's that are not served here."""
LOCAL_HOSTS = frozenset(
    {"localhost", "host.docker.internal", "gateway.docker.internal", "host.containers.internal"}
)
"""Names of this machine, also those in its containers."""
_PORT = re.compile(r":[0-9]*\Z")


class Faults:
    """Answers 500 to a request that fails; the client never gets a traceback."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def note(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._app(scope, receive, note)
        except Exception as error:  # noqa: BLE001  logged without its text
            log.error(
                "%s %s failed: %s", scope["method"], one_line(scope["path"]), _fault_place(error)
            )
            if not started:  # else the web server closes the connection
                failed = ApiError(500, None, "Internal server error")
                await error_response(failed, headers={"connection": "close"})(scope, receive, send)


class Bodies:
    """Bounds on the bodies of requests.

    A body that exceeds one raises an `ApiError` where it is read, so that the error has the form of
    its route.

    Args:
        app: The application.
        settings: The bounds.
    """

    def __init__(self, app: ASGIApp, settings: ProxySettings) -> None:
        self._app = app
        self._most = settings.max_body_mb << 20
        self.pause = settings.body_timeout
        self.room = max(settings.max_bodies_mb, settings.max_body_mb) << 20
        """Bytes that may still be held in memory, of all requests together."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        control = scope["path"].startswith(CONTROL)
        body = _Body(self, scope, receive, send, CONTROL_BODY if control else self._most)
        try:
            await self._app(scope, body.receive, body.send)
        finally:
            self.room += body.size


class _Body:
    """The body of one request, and what remains of it when the request is answered."""

    def __init__(
        self, bounds: Bodies, scope: Scope, receive: Receive, send: Send, most: int
    ) -> None:
        headers = Headers(scope=scope)
        length = headers.get("content-length", "")
        self._announced = int(length[:15]) if length.isdecimal() else 0
        self._bounds, self._receive, self._send, self._most = bounds, receive, send, most
        self.size = 0
        """Bytes that were read."""
        self._complete = not (self._announced or "transfer-encoding" in headers)
        self._waits = "100-continue" in headers.get("expect", "").lower()
        """The client sends no body before the server asks for it."""
        self._closes = self._waits or self._announced > UNREAD or "transfer-encoding" in headers
        """The connection is closed if the body is not complete when its request is answered."""
        self._discards: tuple[float, float] = UNREAD, LINGER
        """Bytes and seconds of it that are read before that."""
        self._until = 0.0

    async def receive(self) -> Message:
        """Return the next part, or whatever follows the body.

        Raises:
            ApiError: It exceeds a bound.
        """
        if self._complete:
            return await self._receive()
        self._check(max(self._announced - self.size, 0))
        now = asyncio.get_running_loop().time()
        self._until = self._until or now + BODY_TIME_FACTOR * self._bounds.pause
        try:
            async with asyncio.timeout_at(min(now + self._bounds.pause, self._until)):
                message = await self._receive()
        except TimeoutError:
            self._closes = True
            raise ApiError(408, None, "The request did not arrive in time.") from None
        part = len(message.get("body", b""))
        self._complete = not message.get("more_body", False)
        self._check(part)
        self.size += part
        self._bounds.room -= part
        return message

    def _check(self, size: int) -> None:
        """Refuse the body if so many further bytes of it exceed a bound."""
        if self.size + size > self._most:
            text = f"The request body is larger than {self._most >> 20} MiB."
            refusal = ApiError(413, None, text)
        elif size > self._bounds.room:
            text = "The server holds too many request bodies in memory. Please try again later."
            refusal = ApiError(503, 5, text)
        else:
            return
        self._closes, self._discards = True, (math.inf, DRAIN)
        raise refusal

    async def send(self, message: Message) -> None:
        """Send a part of the response; before the last one, discard the rest of the body."""
        if self._complete or not self._closes:
            await self._send(message)
        elif message["type"] == "http.response.start":
            close = (b"connection", b"close")
            await self._send({**message, "headers": [*message["headers"], close]})
        elif message.get("more_body", False):
            await self._send(message)
        else:
            await self._send({**message, "more_body": True})
            await self._discard()
            await self._send({"type": "http.response.body"})

    async def _discard(self) -> None:
        most, seconds = self._discards
        if self._waits and not self.size:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self._complete:
                    if most <= 0:
                        await asyncio.sleep(seconds)  # the client can read the response meanwhile
                    message = await self._receive()
                    most -= len(message.get("body", b""))
                    self._complete = not message.get("more_body", False)


class Access:
    """Refuses a foreign Host and a missing API key; takes the session out of a path.

    Args:
        app: The application.
        settings: API key and address.
        allowed_hosts: Names in addition to `LOCAL_HOSTS`; a list, or a comma-separated text.
    """

    def __init__(
        self, app: ASGIApp, settings: ProxySettings, allowed_hosts: str | Iterable[str]
    ) -> None:
        self._app = app
        self._key = settings.api_key.encode()
        open_to_pages = not self._key and is_loopback(settings.host)
        hosts = LOCAL_HOSTS | {host.lower() for host in origins_of(allowed_hosts)}
        self._hosts = hosts if open_to_pages and "*" not in hosts else None
        """Names under which it is addressed; None for any."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope["path"]
        if path.startswith(CONTROL):
            await self._app(scope, receive, send)
            return
        client = (scope.get("client") or ("a client",))[0]
        host = _PORT.sub("", Headers(scope=scope).get("host", "").strip().lower())
        if self._hosts is not None and _is_foreign(host, self._hosts):
            log.warning("%s requested %s of the foreign Host %s", client, path, one_line(host, 100))
            await error_response(foreign_host(one_line(host, 100)))(scope, receive, send)
        elif self._key and path.startswith(KEYED) and not self._has_key(scope):
            log.info("%s requested %s without the API key", client, one_line(path))
            await json_response(UNAUTHORIZED, 401)(scope, receive, send)
        else:
            if path.startswith("/sessions/"):
                path = _strip_session(scope)
            scope["path"] = path.rstrip("/")
            await self._app(scope, receive, send)

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
    scope["session"] = session
    return path


def _is_foreign(host: str, hosts: Collection[str]) -> bool:
    """Return whether a request is addressed to another server.

    A web page reaches this port under the page's own name, by DNS rebinding.
    """
    ours = not host or host in hosts or host.endswith(".localhost")
    return not (ours or is_loopback(host))


def _fault_place(error: Exception) -> str:
    """Return an error's type and source line; its text may hold a user's message or a key."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" in {PurePath(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}{place}"
