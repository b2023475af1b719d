"""The least that N claims, completions and ends can cost in Python: sockets by hand, ready bytes.

    python -m bench.cost_floor STUB_PORT

No framework, no task, no model, no journal, no events: callbacks on kept-alive connections, front
and back, on uvloop. Nothing is checked either; it is a bound, not a proxy.
"""

import asyncio
import sys
from typing import ClassVar

from bench.cost_wire import Messages, answer, request, run

N = 4
CLIENT = "floor"


class Front(Messages):
    """One user's connection: claims, completions, the answer, ends."""

    port: ClassVar[int] = 0

    def __init__(self) -> None:
        super().__init__()
        self._body = b""
        self._ids: list[bytes] = []
        self._best = b""
        self._left = 0

    def message(self, head: bytes, body: bytes) -> None:
        """A request came: claim all."""
        self._body, self._ids, self._best, self._left = body, [], b"", N
        for _ in range(N):
            Back.ask(CLAIM, self._claimed)

    def _claimed(self, body: bytes) -> None:
        at = body.find(b'"episode_uuid":"') + 16
        self._ids.append(body[at : at + 36])
        self._left -= 1
        if not self._left:
            self._left = N
            for _ in range(N):
                Back.ask(CHAT % (len(self._body), self._body), self._completed)

    def _completed(self, body: bytes) -> None:
        self._best = max(self._best, body, key=len)
        self._left -= 1
        if not self._left:
            self.write(answer(self._best))
            for one in self._ids:
                Back.ask(END % one, _nothing)


def _nothing(body: bytes) -> None:
    """An end was taken."""


class Back(Messages):
    """One connection to the server."""

    idle: ClassVar[list["Back"]] = []
    waiting: ClassVar[list[tuple[bytes, object]]] = []

    def __init__(self, data: bytes, done: object) -> None:
        super().__init__()
        self._data, self._done = data, done

    @classmethod
    def ask(cls, data: bytes, done: object) -> None:
        """Send `data` on a free connection; `done` gets the body."""
        if cls.idle:
            back = cls.idle.pop()
            back._done = done
            back.write(data)
        else:
            loop = asyncio.get_running_loop()
            making = loop.create_connection(lambda: Back(data, done), "127.0.0.1", Front.port)
            _making.add(task := loop.create_task(making))
            task.add_done_callback(_making.discard)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `Messages`."""
        super().connection_made(transport)
        self.write(self._data)

    def message(self, head: bytes, body: bytes) -> None:
        """The answer."""
        done = self._done
        Back.idle.append(self)
        if callable(done):
            done(body)


_making: set["asyncio.Task[object]"] = set()


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


if __name__ == "__main__":
    Front.port = int(sys.argv[1])
    run(Front)
