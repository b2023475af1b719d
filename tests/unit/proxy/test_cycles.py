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
    """By kind, the present garbage of our code and the web server."""
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


async def test_a_request_leaves_no_cycles(tmp_path: Path) -> None:
    """Of each route, whole and streamed; one proxy, since a full collection takes longest."""
    kinds = [(path, stream) for path in BODIES for stream in (False, True)]

    def request_body(path: str, stream: bool, number: int) -> dict[str, Any]:
        return {**BODIES[path], "stream": stream, "user": f"{number}"}

    async with fronted(tmp_path, configured=settings(proxy={"replay": "off"})) as front:

        async def ask(path: str, body: dict[str, Any]) -> None:
            assert (await front.client.post(path, json=body)).status_code == 200

        for path, stream in kinds:
            for number in range(3):
                await ask(path, request_body(path, stream, number))
        gc.collect()
        gc.freeze()  # present objects are no part of the collections below
        gc.disable()
        try:
            for path, stream in kinds:
                for number in range(3, 9):
                    await ask(path, request_body(path, stream, number))
                assert not left(), f"{path}, {'streamed' if stream else 'whole'}"
        finally:
            gc.enable()
