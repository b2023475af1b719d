"""Users of the proxy bench: persistent connections, each sends its next request after an answer.

    python -m bench.proxy_cost.load PORT --users 64 --seconds 4

Reads orders from stdin and answers on stdout, one line of JSON each:
`{"seconds": 4}` or `{"requests": 300}` asks until then, waits for the last answers and tells
`requests`, `seconds`, `p50`, `p99` (ms), `left` and `errors`. Its bytes are made before.
"""

import argparse
import asyncio
import random
import sys
import time
from array import array
from collections.abc import Sequence
from typing import Any

import msgspec
import uvloop

from bench.proxy_cost.wire import Messages, request

SYSTEM = (
    "You are a helpful assistant inside an application. Answer in a few sentences, say what you do "
    "not know, and do not repeat the question. The user may ask about training language models "
    "with reinforcement learning, about rewards, about groups of candidates and their advantages."
)
MARK = b"##########"
LEAVE_AFTER = 0.05
"""Seconds within which users that leave have disconnected."""


def template(stream: bool, headers: Sequence[str] = ()) -> tuple[bytes, bytes]:
    """Bytes of a request before and after the number that makes each one unique."""
    body = {
        "model": "policy",
        "messages": [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": f"{MARK.decode()}: why is the best of several answers kept "
             "for the user while all of them are sent to the server with rewards?"},
        ],
        "temperature": 0.7,
        "max_tokens": 256,
        "stream": stream,
    }  # fmt: skip
    content = msgspec.json.encode(body)
    data = request("POST", "/v1/chat/completions", "127.0.0.1", content, *headers)
    before, behind = data.split(MARK)
    return before, behind


class Crowd:
    """All users and their measurements."""

    def __init__(
        self, port: int, stream: bool, leaving: float, seed: int, headers: Sequence[str] = ()
    ) -> None:
        self.port = port
        self.before, self.behind = template(stream, headers)
        self.leaving = leaving
        self.random = random.Random(seed)
        self.number = int(time.time()) % 100_000 * 10_000
        self.users: set[User] = set()
        self.reset(0, 0)

    def reset(self, requests: int, until: float) -> None:
        """Reset the counters."""
        self.quota, self.until = requests, until
        self.waited = array("d")
        self.asked = self.left = self.errors = self.busy = 0
        self.idle = asyncio.get_running_loop().create_future() if until or requests else None

    def next(self) -> bytes | None:
        """Return the bytes of the next request; None at the end."""
        if (self.quota and self.asked >= self.quota) or time.perf_counter() >= self.until:
            return None
        self.asked += 1
        self.number += 1
        return b"%b%010d%b" % (self.before, self.number, self.behind)

    def one_less(self) -> None:
        """Record that a user has no further request."""
        self.busy -= 1
        if not self.busy and self.idle is not None and not self.idle.done():
            self.idle.set_result(None)

    async def connect(self, users: int) -> None:
        """Open the connections."""
        loop = asyncio.get_running_loop()
        for _ in range(users):
            _, user = await loop.create_connection(lambda: User(self), "127.0.0.1", self.port)
            self.users.add(user)

    async def round(self, requests: int, seconds: float) -> dict[str, Any]:
        """Send requests for a time or a number of requests."""
        began = time.perf_counter()
        self.reset(requests, began + seconds)
        self.busy = len(self.users)
        for user in tuple(self.users):
            user.ask()
        assert self.idle is not None
        await self.idle
        elapsed = time.perf_counter() - began
        waited = sorted(self.waited)
        return {
            "requests": len(waited),
            "seconds": elapsed,
            "p50": _at(waited, 0.5),
            "p99": _at(waited, 0.99),
            "left": self.left,
            "errors": self.errors,
        }


def _at(waited: list[float], share: float) -> float:
    return waited[min(len(waited) - 1, int(len(waited) * share))] * 1000 if waited else 0.0


class User(Messages):
    """One user's connection."""

    def __init__(self, crowd: Crowd) -> None:
        super().__init__()
        self._crowd = crowd
        self._asked = 0.0
        self._leaving = False

    def ask(self) -> None:
        """Send the next request, if any."""
        crowd = self._crowd
        data = crowd.next()
        if data is None:
            crowd.one_less()
            return
        self._asked = time.perf_counter()
        self.write(data)
        if crowd.leaving and crowd.random.random() < crowd.leaving:
            later = crowd.random.random() * LEAVE_AFTER
            asyncio.get_running_loop().call_later(later, self._leave, self._asked)

    def _leave(self, asked_at: float) -> None:
        if self._asked == asked_at and self.transport is not None:
            self._leaving = True
            self.transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        """Replace a user that left or was disconnected."""
        super().connection_lost(error)
        crowd = self._crowd
        crowd.users.discard(self)
        if self._asked:
            crowd.left += self._leaving
            crowd.errors += not self._leaving
            loop = asyncio.get_running_loop()
            _pending.add(task := loop.create_task(self._replace()))
            task.add_done_callback(_pending.discard)

    async def _replace(self) -> None:
        loop = asyncio.get_running_loop()
        crowd = self._crowd
        try:
            _, user = await loop.create_connection(lambda: User(crowd), "127.0.0.1", crowd.port)
        except OSError:
            crowd.one_less()
            return
        crowd.users.add(user)
        user.ask()

    def message(self, head: bytes, body: bytes) -> None:
        crowd = self._crowd
        crowd.waited.append(time.perf_counter() - self._asked)
        self._asked = 0.0
        if not head.startswith(b"HTTP/1.1 200"):
            crowd.errors += 1
        self.ask()


_pending: set["asyncio.Task[None]"] = set()


async def _main(args: argparse.Namespace) -> None:
    loop = asyncio.get_running_loop()
    crowd = Crowd(args.port, args.stream, args.leaving, args.seed, args.header)
    await crowd.connect(args.users)
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        order = msgspec.json.decode(line)
        figures = await crowd.round(order.get("requests", 0), order.get("seconds", 60.0))
        print(msgspec.json.encode(figures).decode(), flush=True)


def main() -> None:
    """Execute orders until stdin ends."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("port", type=int)
    parser.add_argument("--users", type=int, default=64)
    parser.add_argument("--stream", action="store_true")
    parser.add_argument("--leaving", type=float, default=0.0, help="share that leaves unanswered")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--header", action="append", default=[], help="`name: value`; repeatable")
    args = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_main(args))


if __name__ == "__main__":
    main()
