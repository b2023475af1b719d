"""What a request costs: calls, commits, and nothing that stays."""

import gc
import inspect
import sqlite3
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

from proxy.rewards.model.source import ComposedSource
from tests.support.proxy.front import BODIES, fronted
from tests.support.proxy.observed import observed
from tests.support.proxy.world import World, settings

pytestmark = pytest.mark.slow


ROOT = Path(__file__).parents[3]


OURS = tuple(f"{ROOT / name}/" for name in ("ajet_swarm", "core", "proxy"))


COROUTINE = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


REQUESTS = 20


@dataclass(frozen=True, slots=True)
class Counts:
    """Figures per request."""

    calls: float
    events: float
    bytes: float


FOUR_CANDIDATES = Counts(calls=2_370, events=10.1, bytes=1_500)


OBSERVED = Counts(calls=1_160, events=8.4, bytes=1_280)


class Profile:
    """Counts calls of our code on this thread while it is entered."""

    def __init__(self) -> None:
        self.calls = 0
        self._known: dict[CodeType, tuple[bool, bool]] = {}

    def __enter__(self) -> "Profile":
        sys.setprofile(self._count)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _count(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        facts = self._known.get(code)
        if facts is None:
            ours = code.co_filename.startswith(OURS)
            facts = self._known[code] = ours, bool(code.co_flags & COROUTINE)
        if not facts[0]:
            return
        if event == "c_call" or (event == "call" and not facts[1]):
            self.calls += 1


def stored_bytes(file: Path) -> int:
    """Bytes of all events and messages of a journal."""
    with closing(sqlite3.connect(file)) as db:
        (events,) = db.execute("select sum(length(cast(data as blob))) from rows").fetchone()
        (messages,) = db.execute("select coalesce(sum(size), 0) from messages").fetchone()
    return int(events) + int(messages)


async def count(world: World, ask: Callable[[int], Awaitable[int]], file: Path) -> Counts:
    """Count a series of requests with the built-in rewards."""
    source = ComposedSource()
    await source.start()
    world.context.rewards = source
    journal = world.context.journal

    async def settled() -> int:
        await world.closed()
        await journal.committed(world.context.bus.state.seq)
        return stored_bytes(file)

    try:
        for number in range(REQUESTS // 2):  # fills caches
            assert await ask(number) == 200
        before, events = await settled(), len(world.events)
        with Profile() as profile:
            for number in range(REQUESTS):
                assert await ask(1_000 + number) == 200
            await world.closed()
        after = await settled()
    finally:
        await source.close()
    return Counts(
        calls=profile.calls / REQUESTS,
        events=(len(world.events) - events) / REQUESTS,
        bytes=(after - before) / REQUESTS,
    )


def question(number: int) -> dict[str, Any]:
    text = f"What is {number} plus {number + 7}, and how do you know?"
    return {"model": "tiny", "messages": [{"role": "user", "content": text}]}


def compare(counts: Counts, bar: Counts) -> None:
    """Require that no figure exceeds its bar, and that no bar is far too high."""
    for name in Counts.__dataclass_fields__:
        figure, limit = getattr(counts, name), getattr(bar, name)
        assert figure <= limit, f"{name}: {figure:.1f} a request, bar {limit:g} ({counts})"
        assert figure >= 0.7 * limit, f"{name}: {figure:.1f} a request; lower the bar {limit:g}"


@pytest.mark.parametrize(
    ("serve", "bar"),
    [(fronted, FOUR_CANDIDATES), (partial(observed, proxy={"repeats": 1}), OBSERVED)],
    ids=["four candidates", "observed"],
)
async def test_what_a_request_costs(tmp_path: Path, serve: Any, bar: Counts) -> None:
    async with serve(tmp_path) as front:

        async def ask(number: int) -> int:
            body = question(number)
            return (await front.client.post("/v1/chat/completions", json=body)).status_code

        compare(await count(front.world, ask, tmp_path / "j.db"), bar)


PACKAGES = ("core", "proxy", "ajet_swarm", "uvicorn")


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
        if module.split(".")[0] in PACKAGES:
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
