"""A request leaves nothing that only Python's collector can free.

What it leaves piles up until the collector runs, and then all users wait until that is through
with tens of thousands of cold objects: 40 to 100 ms, every few thousand requests.
"""

import gc
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.support.proxy.front import BODIES, fronted
from tests.support.proxy.world import settings

pytestmark = pytest.mark.slow

OURS = ("core", "proxy", "ajet_swarm", "uvicorn")


def left() -> Counter[str]:
    """By kind, what is garbage now and was made by our code or the web server's."""
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        gc.collect()
        garbage, kinds = list(gc.garbage), Counter[str]()
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
    for one in garbage:
        named = one if hasattr(one, "__qualname__") else type(one)
        module = str(getattr(named, "__module__", ""))
        if module.split(".")[0] in OURS:
            kinds[f"{module}.{named.__qualname__}"] += 1
    return kinds


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("path", BODIES)
async def test_a_request_leaves_no_cycles(tmp_path: Path, path: str, stream: bool) -> None:
    def asked(number: int) -> dict[str, Any]:
        return {**BODIES[path], "stream": stream, "user": f"{number}"}

    async with fronted(tmp_path, configured=settings(proxy={"replay_window": 0})) as front:
        for number in range(3):
            assert (await front.client.post(path, json=asked(number))).status_code == 200
        gc.collect()
        gc.disable()
        try:
            for number in range(3, 9):
                assert (await front.client.post(path, json=asked(number))).status_code == 200
            assert not left()
        finally:
            gc.enable()
