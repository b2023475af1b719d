"""Stand-in for the proxy's control API in its own process: snapshot, feed, pages.

    python -m bench.console.feed HOME

It prints its port. `POST /bench/ORDER` with a JSON object says what the feed brings:

    live {"rate": 2000, "streams": 100}     events a second, candidates that answer bit by bit
    flood {"requests": 1000}                as fast as it is read; then the engine is OFFLINE
    quiet {}                                nothing
"""

import asyncio
import re
import sys
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec

from bench.console.traffic import PAIR, RUN, SERVER, Traffic, frames, life, old_group, start
from core.events import ConsoleAttached, EngineChanged, Event, encode
from core.journal.reader import HistoryPage
from core.runtime.home import Home
from core.state import State, reduce

TICK = 0.02
PING_EVERY = 5.0
BATCH = 250
OPENING = 500
"""Number of requests in state before the console connects, all finished."""
OLDER = 99_500
"""Number of older requests, which only the pages of the journal have."""

Writer = asyncio.StreamWriter
Work = Callable[[Writer, asyncio.Event], Awaitable[None]]
"""Function that feeds one follower until the event is set."""


class Feed:
    """The state, and its newest follower."""

    def __init__(self) -> None:
        self.state = State()
        self.sent = 0
        self._traffic = Traffic(100_000)
        self._work: Work = self._quiet
        self._changed = asyncio.Event()
        self._publish(start())
        for number in range(OPENING):
            self._publish(msgspec.structs.replace(event, at=0.0) for event in life(number))
        self.state.totals.groups += OLDER

    def _publish(self, events: Iterable[Event]) -> bytes:
        out = []
        for event in events:
            seq = self.state.seq + 1
            stamped = msgspec.structs.replace(
                event, seq=seq, run_id=RUN, at=event.at or time.time()
            )
            reduce(self.state, stamped)
            out.append(b"id: %d\nevent: %s\ndata: %s\n\n")
            out[-1] %= (seq, stamped.kind.encode(), encode(stamped))
        self.sent += len(out)
        return b"".join(out)

    # --- what the feed brings -----------------------------------------------------------------

    def order(self, name: str, args: dict[str, Any]) -> None:
        """Change what the feed sends."""
        if name == "live":
            self._traffic.streams(args["streams"])
            self._work = self._live(args["rate"])
        elif name == "flood":
            self._work = self._flood(args["requests"])
        else:
            self._work = self._quiet
        self._changed.set()

    def _live(self, rate: int) -> Work:
        async def run(writer: Writer, changed: asyncio.Event) -> None:
            began, done = time.monotonic(), 0
            while not changed.is_set():
                await asyncio.sleep(TICK)
                due = int((time.monotonic() - began) * rate) - done
                while due > 0:  # a reader that is slow gets them late: nothing is left out
                    step = min(due, BATCH)
                    await send(writer, self._publish(self._traffic.mixed(step)))
                    done, due = done + step, due - step
                    if changed.is_set():
                        return

        return run

    def _flood(self, requests: int) -> Work:
        async def run(writer: Writer, changed: asyncio.Event) -> None:
            seq, form = self.state.seq + 1, frames()
            for number in range(requests):
                if number % 20 == 0 and changed.is_set():
                    return
                values: dict[bytes, Any] = {b"s%d" % at: seq + at for at in range(PAIR)}
                seq += PAIR
                values |= {b"group": b"f%d" % number, b"at": b"%.3f" % time.time()}
                await send(writer, form % values)
            self.state.seq = seq - 1
            done = EngineChanged(server=SERVER, state="OFFLINE", step=1)
            await send(writer, self._publish([done]))
            await self._quiet(writer, changed)

        return run

    async def _quiet(self, writer: Writer, changed: asyncio.Event) -> None:
        while not changed.is_set():
            try:
                async with asyncio.timeout(PING_EVERY):
                    await changed.wait()
            except TimeoutError:
                await send(writer, b"event: ping\ndata: {}\n\n")

    async def follow(self, writer: Writer) -> None:
        """Serve the feed until the follower disconnects."""
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
        writer.write(head + b"transfer-encoding: chunked\r\n\r\n")
        await send(writer, self._publish([ConsoleAttached(consoles=1)]))
        self._changed.set()  # whoever followed until now is let go
        changed = self._changed = asyncio.Event()
        while self._changed is changed:
            changed.clear()
            await self._work(writer, changed)

    # --- everything else ----------------------------------------------------------------------

    def answer(self, path: str, body: bytes) -> Any:
        """Return the JSON value for one request."""
        at = urlsplit(path)
        if at.path.startswith("/bench/"):
            name = at.path.removeprefix("/bench/")
            if name != "sent":
                self.order(name, msgspec.json.decode(body or b"{}"))
            return {"sent": self.sent}
        if at.path == "/control/snapshot":
            return {"seq": self.state.seq, "state": self.state}
        if at.path == "/control/groups":
            value = parse_qs(at.query)
            first, limit = int(value["first"][0]), int(value["limit"][0])
            total = self.state.totals.groups
            ranks = range(first, min(first + limit, total))
            return HistoryPage(first, total, [old_group(rank, time.time()) for rank in ranks])
        if at.path.startswith("/control/groups/"):
            return {"events": []}
        return {"ok": True, "message": "done", "result": {}}


async def send(writer: Writer, data: bytes) -> None:
    """Send one chunk; wait while the peer does not read."""
    if data:
        writer.write(b"%x\r\n%s\r\n" % (len(data), data))
        await writer.drain()


async def serve(home: Home) -> None:
    """Listen until the process is terminated."""
    feed = Feed()
    home.token()

    async def talk(reader: asyncio.StreamReader, writer: Writer) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                path = head.split(" ", 2)[1]
                size = re.search(r"(?i)content-length: *(\d+)", head)
                body = await reader.readexactly(int(size[1]) if size else 0)
                if path.startswith("/control/events"):
                    await feed.follow(writer)
                    return
                result = msgspec.json.encode(feed.answer(path, body))
                writer.write(
                    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
                    b"content-length: %d\r\n\r\n%s" % (len(result), result)
                )
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            return
        finally:
            writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(Home.open(Path(sys.argv[1]))))
