"""Lower bound of the cost of N claims, completions and ends in Python: raw sockets, prepared bytes.

    python -m bench.proxy_cost.floor STUB_PORT

The back is callbacks on kept-alive connections: no task, no model, no journal, no events. The front
is a raw ASGI application under uvicorn. Nothing is checked: it is a bound, not a proxy.
"""

import asyncio
import socket
import sys
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar

import uvicorn

from bench.proxy_cost.wire import Messages, request

N = 4
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


class Group:
    """One request: its claims, completions, answer and ends."""

    __slots__ = ("_answer", "_best", "_body", "_ids", "_left")

    def __init__(self, body: bytes, answered: Callable[[bytes], None]) -> None:
        self._body, self._answer = body, answered
        self._ids: list[bytes] = []
        self._best = b""
        self._left = N
        for _ in range(N):
            Back.ask(CLAIM, self._claimed)

    def _claimed(self, body: bytes) -> None:
        at = body.find(b'"episode_uuid":"') + 16
        self._ids.append(body[at : at + 36])
        self._left -= 1
        if not self._left:
            self._left = N
            data = CHAT % (len(self._body), self._body)
            for _ in range(N):
                Back.ask(data, self._completed)

    def _completed(self, body: bytes) -> None:
        self._best = max(self._best, body, key=len)
        self._left -= 1
        if not self._left:
            self._answer(self._best)
            for episode_id in self._ids:
                Back.ask(END % episode_id, _nothing)


def _nothing(body: bytes) -> None:
    """Handle the response to an end."""


async def app(scope: dict[str, Any], receive: Receive, send: Send) -> None:
    """Answer one request, as a raw ASGI application."""
    message = await receive()
    answered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    Group(message["body"], answered.set_result)
    body = await answered
    length = (b"content-length", b"%d" % len(body))
    headers = [(b"content-type", b"application/json"), length]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class Back(Messages):
    """One connection to the server."""

    port: ClassVar[int] = 0
    idle: ClassVar[list["Back"]] = []

    def __init__(self, data: bytes, done: Callable[[bytes], None]) -> None:
        super().__init__()
        self._data, self._done = data, done

    @classmethod
    def ask(cls, data: bytes, done: Callable[[bytes], None]) -> None:
        """Send `data` on a free connection; call `done` with the body."""
        if cls.idle:
            back = cls.idle.pop()
            back._done = done
            back.write(data)
        else:
            loop = asyncio.get_running_loop()
            making = loop.create_connection(lambda: Back(data, done), "127.0.0.1", cls.port)
            _making.add(task := loop.create_task(making))
            task.add_done_callback(_making.discard)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.write(self._data)

    def message(self, head: bytes, body: bytes) -> None:
        Back.idle.append(self)
        self._done(body)


_making: set["asyncio.Task[Any]"] = set()


def _post(path: str, body: bytes) -> bytes:
    return request("POST", path, "127.0.0.1", body)


CLAIM = _post(
    "/claim_episode",
    b'{"client_uuid":"floor","episode_type":"train","discard_episode_timeout":240.0,'
    b'"throttle_policy":null}',
)
CHAT = (
    b"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer sk-ajet-0\r\n"
    b"content-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
)
_ENDING = (
    b'{"client_uuid":"floor","episode_uuid":"%b","task_id":"t","workflow_output":{"reward":0.5,'
    b'"is_success":true,"metadata":{"task_id":"t"},"log_metrics":{}}}'
)
END = _post("/end_episode", _ENDING % (b"0" * 36)).replace(b"0" * 36, b"%b")


def main() -> None:
    """Serve until terminated; print the port on stdout."""
    Back.port = int(sys.argv[1])
    sock = socket.create_server(("127.0.0.1", 0), backlog=2048)
    print(sock.getsockname()[1], flush=True)
    config = uvicorn.Config(app, log_level="error", access_log=False, lifespan="off")
    uvicorn.Server(config).run(sockets=[sock])


if __name__ == "__main__":
    main()
