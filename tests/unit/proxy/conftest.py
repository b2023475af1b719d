"""What the tests of the proxy share: quick clocks, and a proxy as fixture.

`@pytest.mark.world(...)` has the arguments of the fixture's context manager, and those of
`ScriptedSwarm`.
"""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from core.bus import Bus
from core.journal.writer import Journal
from tests.support.proxy.front import Front, fronted
from tests.support.proxy.observed import Observed, observed
from tests.support.proxy.quick_clocks import quick
from tests.support.proxy.world import World, world
from tests.support.scripted.openai import ScriptedOpenAI
from tests.support.scripted.swarm import ScriptedSwarm
from tests.support.wire import Wire, wire

OF_WORLD = {"limits", "recover", "watched", "others"}


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    quick(monkeypatch)


@pytest.fixture
def bus(tmp_path: Path) -> Iterator[Bus]:
    """A bus on a journal, without a proxy."""
    journal = Journal(tmp_path / "j.db")
    yield Bus(journal, "run")
    journal.close()


def marked(request: pytest.FixtureRequest) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of the mark."""
    mark = request.node.get_closest_marker("world")
    return (mark.args, dict(mark.kwargs)) if mark else ((), {})


async def nothing_claimed(w: World) -> None:
    """Without an open group, no episode of ours stays claimed."""
    ours = w.context.client_uuid
    await w.until(lambda: w.groups.runs or all(one.client != ours for one in w.swarm.claimed()), 5)


@pytest.fixture
async def w(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    """A proxy at a scripted server of its own; at the end, none of its episodes is claimed."""
    args, more = marked(request)
    own = {name: more.pop(name) for name in OF_WORLD & more.keys()}
    async with ScriptedSwarm(**more) as swarm, world(tmp_path, swarm, *args, **own) as made:
        yield made
        if request.node.get_closest_marker("leaves") is None:
            await nothing_claimed(made)


@pytest.fixture
async def f(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Front]:
    """Such a proxy behind a socket, with a client."""
    args, more = marked(request)
    own = {name: more.pop(name) for name in OF_WORLD & more.keys()}
    async with ScriptedSwarm(**more) as swarm, fronted(tmp_path, swarm, *args, **own) as made:
        yield made


@pytest.fixture
async def wired(f: Front) -> AsyncIterator[Wire]:
    """A connection to it, for requests in bytes."""
    async with wire(f.url) as made:
        yield made


@pytest.fixture
async def o(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Observed]:
    """A proxy in observe mode at a scripted upstream, as `@pytest.mark.upstream(...)` sets it."""
    own = request.node.get_closest_marker("upstream")
    async with ScriptedOpenAI() as upstream:
        for name, value in own.kwargs.items() if own else ():
            setattr(upstream, name, value)
        async with observed(tmp_path, upstream, **marked(request)[1]) as made:
            yield made
