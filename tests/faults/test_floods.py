"""A hostile upstream: what the proxy's process holds of answers that do not end.

To print the figures: `python -m pytest -m process -s tests/faults/test_floods.py`.
"""

import asyncio
import contextlib
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx
import pytest

from tests.support.faults.floods import MODES, Flood, flooding
from tests.support.scripted.openai import ScriptedOpenAI, in_thread
from tests.support.scripted.swarm import ScriptedSwarm
from tests.support.stack import Stack, until

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

MOST_MB = 150.0
"""By which the peak of the process may grow."""
SETTINGS = "proxy:\n  answer: live\n  straggler_after: 0\n  straggler_limit: 0\n"
"""A slow machine restarts no candidate: another call of it is another request for the flood."""
HELLO = {"model": "tiny", "messages": [{"role": "user", "content": "Say hello."}]}
SMALL_CHUNKS = "endless body in small chunks"
"""Takes 24 s of CPU with the larger answers of a swarm server, on the same path."""


def peak_mb(pid: int) -> float:
    """Largest resident memory of a process so far."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1e3


@contextlib.contextmanager
def swarm_in_thread() -> Iterator[ScriptedSwarm]:
    loop, swarm, ready = asyncio.new_event_loop(), ScriptedSwarm(), threading.Event()
    end = asyncio.Event()

    async def run() -> None:
        async with swarm:
            ready.set()
            await end.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(run(),), daemon=True)
    thread.start()
    ready.wait(60)
    try:
        yield swarm
    finally:
        loop.call_soon_threadsafe(end.set)
        thread.join(60)
        loop.close()


@pytest.mark.parametrize(
    ("kind", "modes"),
    [
        ("observe", MODES),
        ("swarm", [mode for mode in MODES if mode != SMALL_CHUNKS]),
        pytest.param("swarm", [SMALL_CHUNKS], marks=pytest.mark.soak),
    ],
)
def test_a_flood_takes_little_memory(tmp_path: Path, kind: str, modes: Sequence[str]) -> None:
    (tmp_path / "config.yaml").write_text(SETTINGS)
    with contextlib.ExitStack() as stack:
        server: ScriptedOpenAI | ScriptedSwarm
        if kind == "observe":
            server = stack.enter_context(in_thread(ScriptedOpenAI()))
        else:
            server = stack.enter_context(swarm_in_thread())
        flood = stack.enter_context(flooding(server.port))
        proxy = stack.enter_context(Stack(tmp_path))
        info = proxy.proxy("--upstream" if kind == "observe" else "--swarm-url", flood.url)
        http = stack.enter_context(httpx.Client(base_url=info.url, timeout=120, trust_env=False))
        until("the proxy serves", lambda: http.get("/health").status_code == 200)
        figures = {mode: _growth(http, flood, mode, info.pid) for mode in modes}
        assert {mode: grown for mode, grown in figures.items() if grown > MOST_MB} == {}


def _growth(http: httpx.Client, flood: Flood, mode: str, pid: int) -> float:
    """Return by how many MB two requests raise the peak."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")  # the peak is now the present memory
    before = peak_mb(pid)
    for stream in (False, True):
        body = {**HELLO, "stream": stream, "user": mode}
        answer = http.post("/v1/chat/completions", json=body)
        assert answer.status_code >= 500 or b'"error"' in answer.content, answer.text[:200]
    grown = peak_mb(pid) - before
    print(f"\n{mode}: +{grown:.0f} MB, {flood.calls[mode]} calls")
    assert 2 <= flood.calls[mode] <= 8  # four for each request: none is asked again
    return grown
