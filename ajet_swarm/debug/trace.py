"""Relay between an agent and its model that records every call."""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import urlsplit

import aiohttp
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from ajet_swarm.client.synchronous import LoopThread

MOST = 16_000_000
"""Largest accepted request, and largest recorded part of a response, in bytes."""
_HOP = frozenset(
    ["connection", "host", "keep-alive", "content-length", "transfer-encoding", "accept-encoding"]
)
_AUTO = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")
"""Header fields that aiohttp would add to a request."""
_TEXTS = (
    ("choices", 0, "delta", "content"),
    ("choices", 0, "message", "content"),
    ("delta", "text"),
    ("delta",),
)


@dataclass(slots=True)
class RecordedCall:
    """One request of an agent, with its response.

    Attributes:
        status: HTTP status; 0 without a response.
        seconds: Seconds until the last byte of the response.
        error: Reason why the response is missing or incomplete.
    """

    path: str
    request: Any
    status: int = 0
    answer: Any = None
    text: str = ""
    seconds: float = 0.0
    error: str = ""
    usage: dict[str, Any] = field(default_factory=dict)
    finish: str = ""

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The request's chat messages; the text input of a responses request is a user message."""
        if not isinstance(self.request, dict):
            return []
        messages = self.request.get("messages", self.request.get("input"))
        if isinstance(messages, str):
            return [{"role": "user", "content": messages}]
        return [message for message in messages or [] if isinstance(message, dict)]


class RecordingRelay:
    """HTTP server on a free local port that forwards every request to one address.

    Args:
        base_url: The OpenAI base URL to forward to.
        seconds: Timeout of one call in seconds.
    """

    def __init__(self, base_url: str, seconds: float = 600.0) -> None:
        self.calls: list[RecordedCall] = []
        """The calls, in the order in which they started."""
        self.base_url = ""
        """The base URL for the agent."""
        self._target = urlsplit(base_url.rstrip("/"))
        self._seconds = seconds
        self._thread = LoopThread("relay")

    def __enter__(self) -> Self:
        self._thread.run(self._start())
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.run(self._stop())

    async def _start(self) -> None:
        timeout = aiohttp.ClientTimeout(total=self._seconds)
        jar = aiohttp.DummyCookieJar()
        self._session = aiohttp.ClientSession(
            timeout=timeout, cookie_jar=jar, auto_decompress=False, skip_auto_headers=_AUTO
        )
        app = web.Application(client_max_size=MOST)
        app.router.add_route("*", "/{path:.*}", self._pass)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.base_url = f"http://127.0.0.1:{self._runner.addresses[0][1]}{self._target.path}"

    async def _stop(self) -> None:
        await self._runner.cleanup()
        await self._session.close()

    async def _pass(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        call = RecordedCall(request.raw_path, _parsed(body))
        self.calls.append(call)
        began, recorded = time.monotonic(), bytearray()
        url = URL(f"{self._target.scheme}://{self._target.netloc}{call.path}", encoded=True)
        head = CIMultiDict((k, v) for k, v in request.headers.items() if k.lower() not in _HOP)
        send = self._session.request(
            request.method, url, data=body or None, headers=head, allow_redirects=False
        )
        try:
            async with send as answer:
                call.status = answer.status
                left_out = _HOP | {"date", "server"}
                response = web.StreamResponse(status=answer.status)
                for name, value in answer.headers.items():
                    if name.lower() not in left_out:
                        response.headers.add(name, value)
                await response.prepare(request)
                async for piece in answer.content.iter_any():
                    recorded += piece[: MOST - len(recorded)]
                    await response.write(piece)
        except (aiohttp.ClientError, OSError) as error:
            call.error = f"{type(error).__name__}: {error}"[:500]
            if not call.status:
                return web.Response(status=502, text=call.error)
            if request.transport is not None:  # the agent must not take it for complete
                request.transport.abort()
        finally:  # the record must be complete before the agent receives the end
            if call.status:
                _read_answer(call, bytes(recorded))
            call.seconds = time.monotonic() - began
        return response


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return body.decode(errors="replace")


def _read_answer(call: RecordedCall, body: bytes) -> None:
    whole = _parsed(body)
    call.answer = whole
    pieces = [whole] if isinstance(whole, dict) else list(_events(body))
    texts: list[str] = []
    for piece in pieces:
        if isinstance(piece.get("usage"), dict):
            call.usage = piece["usage"]
        finish = _at(piece, ("choices", 0, "finish_reason")) or piece.get("stop_reason")
        call.finish = finish or call.finish
        candidates = (_at(piece, path) for path in _TEXTS)
        texts.append(next((text for text in candidates if isinstance(text, str)), ""))
    call.text = "".join(texts) or _blocks(whole)


def _events(body: bytes) -> Iterator[dict[str, Any]]:
    for line in body.decode(errors="replace").splitlines():
        if line.startswith("data:") and isinstance(one := _parsed(line[5:].encode()), dict):
            yield one


def _blocks(whole: Any) -> str:
    """Return the text of an answer of the responses or the messages API."""
    if not isinstance(whole, dict):
        return ""
    blocks = whole.get("content") or [
        part for item in whole.get("output") or [] for part in item.get("content") or []
    ]
    return "".join(str(block.get("text") or "") for block in blocks if isinstance(block, dict))


def _at(tree: Any, path: tuple[str | int, ...]) -> Any:
    for step in path:
        try:
            tree = tree[step]
        except (KeyError, IndexError, TypeError):
            return None
    return tree
