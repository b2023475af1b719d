"""How long one request with a long conversation holds the proxy's event loop.

    .venv/bin/python -m bench.long_conversations [--quick]

A proxy on the instant stub serves 16 users with short requests and one client that sends long
conversations, one after the other: 2,000 short messages, 1 MB and 2 MB. The proxy runs on asyncio's
own loop, whose callbacks are timed one by one in CPU time of the loop's thread: while a callback
runs, no other user is served. The same is measured without the long client.
"""

import argparse
import asyncio
import contextlib
import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil

from bench.bars import Verdicts
from bench.proxy_cost.run import child, load
from core.runtime.home import Home, running
from tests.support.stack import until

USERS = 16
BAR = 10.0
"""Milliseconds."""
LEAST = 0.002
"""Seconds from which a callback is recorded."""
SHAPES = {"2,000 messages": (2_000, 100), "1 MB": (200, 5_000), "2 MB": (200, 10_000)}
"""Name -> number of messages, characters of each."""


def run_proxy(holds: Path, args: list[str]) -> None:
    """Run `ajet-console proxy ARGS`; append the CPU time of each long callback to a file."""
    import core.runtime.sockets
    from console.cli import main

    core.runtime.sockets.loop_factory = lambda: None  # asyncio's own loop
    plain = asyncio.events.Handle._run
    file = holds.open("a", buffering=1, encoding="utf-8")
    began_at = 0.0

    def collected(phase: str, facts: dict[str, int]) -> None:
        nonlocal began_at
        if phase == "start":
            began_at = time.thread_time()
        elif (took := time.thread_time() - began_at) >= LEAST:
            file.write(f"0 gc of generation {facts['generation']}: {took * 1000:.2f} ms\n")

    gc.callbacks.append(collected)

    def timed(self: asyncio.Handle) -> None:
        began = time.thread_time()
        plain(self)
        took = time.thread_time() - began
        if took >= LEAST:
            file.write(f"{took * 1000:.2f} {self!r}\n"[:300].rstrip() + "\n")

    asyncio.events.Handle._run = timed  # type: ignore[method-assign]
    sys.exit(main(["proxy", *args]))


@contextlib.contextmanager
def timed_proxy(folder: Path, stub: int) -> Iterator[tuple[int, Path]]:
    """Start such a proxy; yield its port and the file of the callbacks."""
    home, holds = Home.open(folder / "home"), folder / "holds"
    holds.touch()
    flags = ["--swarm-url", f"http://127.0.0.1:{stub}", "--port", "0"]
    with (home.logs / "proxy.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "bench.long_conversations", "--proxy", str(holds), *flags],
            env={
                **os.environ,
                "AJET_CONSOLE_HOME": str(home.root),
                "AJET_CONSOLE__PROBE__ENABLED": "false",
            },
            stdout=log,
            stderr=log,
        )
    try:
        info = until("the proxy is up", lambda: running(home, "proxy"))
        url = f"{info.url}/v1/chat/completions"
        until("it answers", lambda: httpx.post(url, json=body(1, 10, 0)).status_code == 200)
        yield info.port, holds
    finally:
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired, psutil.Error):
            process.wait(30)
        process.kill()
        process.wait()


def body(messages: int, size: int, number: int) -> dict[str, Any]:
    """Return a conversation that no other request repeats."""
    said = [
        {
            "role": "assistant" if at % 2 else "user",
            "content": (f"{number}.{at} what is known of it " * (size // 20 + 1))[:size],
        }
        for at in range(messages)
    ]
    return {"model": "policy", "messages": [*said, {"role": "user", "content": "Go on."}]}


def longest(holds: Path, first: int) -> tuple[float, str, int]:
    """Return the longest callback after a position in the file, and the file's new size."""
    data = holds.read_text(encoding="utf-8")
    lines = [line for line in data[first:].splitlines() if line.partition(" ")[0]]
    rows = [(float(line.partition(" ")[0]), line.partition(" ")[2]) for line in lines]
    figure, callback = max(rows, default=(0.0, ""))
    return figure, callback, len(data)


def main() -> None:
    """Measure each shape."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer requests")
    args = parser.parse_args()
    seconds = 3.0 if args.quick else 10.0
    verdicts = Verdicts()
    with (
        tempfile.TemporaryDirectory() as folder,
        child("bench.proxy_cost.stub") as (_, stub),
        timed_proxy(Path(folder), stub) as (port, holds),
        load(port, USERS) as crowd,
        httpx.Client(timeout=30) as client,
    ):
        url = f"http://127.0.0.1:{port}/v1/chat/completions"
        crowd.round(seconds=2.0)
        at = len(holds.read_text(encoding="utf-8"))
        figures = crowd.round(seconds=seconds)
        figure, callback, at = longest(holds, at)
        print(f"without: {figure:.1f} ms, users' p99 {figures['p99']:.0f} ms  {callback}")
        verdicts.info("short_requests_alone", figure, "ms")
        for name, (messages, size) in SHAPES.items():
            bodies = [json.dumps(body(messages, size, number)).encode() for number in range(40)]
            order = {"seconds": seconds}
            with_long = _beside(crowd, client, url, bodies, order)
            figure, callback, at = longest(holds, at)
            sent, p99 = with_long
            print(f"{name}: {figure:.1f} ms, {sent} of {len(bodies[0]) / 1e6:.2f} MB sent, "
                  f"users' p99 {p99:.0f} ms  {callback}")  # fmt: skip
            verdicts.at_most(f"hold_{name.replace(' ', '_').replace(',', '')}", figure, BAR, "ms")
    verdicts.close()


def _beside(
    crowd: Any, client: httpx.Client, url: str, bodies: list[bytes], order: dict[str, float]
) -> tuple[int, float]:
    """Send the long conversations while the users ask; return how many, and the users' p99."""
    import threading

    results: list[dict[str, Any]] = []
    thread = threading.Thread(target=lambda: results.append(crowd.round(**order)))
    thread.start()
    sent = 0
    for data in bodies:
        if not thread.is_alive():
            break
        headers = {"content-type": "application/json"}
        client.post(url, content=data, headers=headers).raise_for_status()
        sent += 1
    thread.join()
    return sent, results[0]["p99"]


if __name__ == "__main__":
    if sys.argv[1:2] == ["--proxy"]:
        run_proxy(Path(sys.argv[2]), sys.argv[3:])
    main()
