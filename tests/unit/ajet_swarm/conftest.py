"""Fixtures: a scripted server, a transport, a client, a running watcher."""

import random
from collections.abc import AsyncIterator

import pytest

from ajet_swarm.api.watcher import Watcher
from ajet_swarm.api.wire import SwarmWire
from ajet_swarm.client.asynchronous import AsyncSwarm
from ajet_swarm.common.tasks import Tasks
from ajet_swarm.episodes.claim import EpisodeClaimer
from ajet_swarm.http.transport import HttpTransport
from ajet_swarm.runtime import Chance, Runtime
from tests.support.scripted.swarm import ScriptedSwarm
from tests.unit.ajet_swarm.helpers import Book, Clock, ScriptedClient


@pytest.fixture
async def server() -> AsyncIterator[ScriptedSwarm]:
    async with ScriptedSwarm() as server:
        yield server


@pytest.fixture
async def transport() -> AsyncIterator[HttpTransport]:
    async with HttpTransport() as transport:
        yield transport


@pytest.fixture
async def swarm(server: ScriptedSwarm) -> AsyncIterator[AsyncSwarm]:
    async with AsyncSwarm(server.url, patience=30) as client:
        yield client


@pytest.fixture
def scripted() -> ScriptedClient:
    """A client whose answers the test gives."""
    return ScriptedClient()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def watch(scripted: ScriptedClient, clock: Clock) -> Watcher:
    """A watcher that polls when the test says so."""
    return Watcher(scripted, clock)


@pytest.fixture
def client(server: ScriptedSwarm, transport: HttpTransport) -> SwarmWire:
    return SwarmWire(server.url, transport, "me", name="test")


@pytest.fixture
async def tasks() -> AsyncIterator[Tasks]:
    async with Tasks("test") as tasks:
        yield tasks


@pytest.fixture
async def watcher(client: SwarmWire, tasks: Tasks) -> Watcher:
    """A watcher that runs and has seen the server."""
    watcher = Watcher(client)
    tasks.spawn(watcher.run(), "watcher")
    await watcher.wait_for(lambda status: status.reachable, 60)
    return watcher


@pytest.fixture
def book() -> Book:
    return Book()


@pytest.fixture
async def claimer(client: SwarmWire, watcher: Watcher, book: Book) -> AsyncIterator[EpisodeClaimer]:
    claimer = EpisodeClaimer(
        client,
        watcher,
        timeout=30.0,
        search_again=0.1,
        runtime=Runtime(chance=Chance(random.Random(1))),
    )
    yield book.watch(claimer)
    await claimer.close()
