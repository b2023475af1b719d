"""Which engines are expected soon, and the agreement to the weight sync."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

import proxy.servers.facts
from ajet_swarm.api.watcher import ServerStatus
from ajet_swarm.common.tasks import Tasks
from ajet_swarm.protocol.errors import Unreachable
from ajet_swarm.protocol.schemas import EngineState, PoolInfo
from core.events import WorkChanged
from core.state import Server
from proxy.context import ServerHandle
from proxy.servers.facts import SyncAgreement, is_starting
from tests.support.proxy.world import World

STOPPED = WorkChanged(work="Stop", phase="done", began=90.0)


@pytest.mark.parametrize(
    ("server", "expected"),
    [
        (None, False),
        (Server(name="e", url="", own=True, lost="silent", expected_until=120.0), True),
        (Server(name="e", url="", own=True, lost="silent", expected_until=100.0), False),
        (Server(name="e", url="", own=True, expected_until=120.0), False),  # it answers: OFFLINE
        (Server(name="gpu", url="", lost="silent", expected_until=120.0), False),
        (Server(name="gpu", url="", work=WorkChanged(work="Start")), True),
        (Server(name="gpu", url="", work=WorkChanged(work="Start", phase="failed")), False),
    ],
)
def test_an_own_engine_not_seen_yet_or_one_with_a_start_in_progress_starts(
    server: Server | None, expected: bool
) -> None:
    assert is_starting(server, now=100.0) == expected


@pytest.mark.parametrize(
    ("server", "expected"),
    [
        (Server(name="e", url="", own=True, expected_until=120.0), True),
        (Server(name="e", url="", own=True, expected_until=120.0, work=STOPPED), True),
        (Server(name="e", url="", own=True, expected_until=109.0, work=STOPPED), False),
        (Server(name="gpu", url="", expected_until=120.0), False),
    ],
    ids=["no command", "stopped under the last proxy", "stopped under this one", "not its own"],
)
def test_an_announced_start_holds_until_a_command(server: Server, expected: bool) -> None:
    """The proxy started 20 s before `expected_until`."""
    assert is_starting(server, now=100.0, starts_by=101.0) == expected
    assert not is_starting(server, now=101.0, starts_by=101.0)


ROUTE = "/agree_sync_weight"


METHOD = "rollout_until_all_clients_agree_sync_weight"


ROLLING = ServerStatus(EngineState.ROLLING, step=3, since=100.0, reachable=True, error="")


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxy.servers.facts, "AGREE_AGAIN_AFTER", 0.001)


async def one_group(w: World) -> None:
    await w.complete("hello")


@pytest.mark.parametrize("how", ["drop", 503])
@pytest.mark.world(method=METHOD)
async def test_an_idle_proxy_repeats_an_agreement_that_was_lost(w: World, how: int | str) -> None:
    await w.until(lambda: w.server.watcher.pool)
    w.swarm.fail_next(ROUTE, how, times=2)
    await one_group(w)
    await w.swarm.until(lambda: w.swarm.step == 2)
    assert w.swarm.requests[ROUTE] == 3


@pytest.mark.world(method=METHOD)
async def test_an_engine_restarted_at_the_same_step_gets_the_agreement_again(w: World) -> None:
    w.swarm.active_clients["other"] = 0.0  # it has not agreed: the batch stays open
    await w.until(lambda: w.server.watcher.pool)
    await one_group(w)
    await w.swarm.until(lambda: w.swarm.agreed == {"me"})
    await one_group(w)
    assert w.swarm.requests[ROUTE] == 1  # once a batch
    for state, step in (("OFFLINE", 0), ("ROLLING", 1)):
        w.swarm.set_state(state, step)
        await w.server.watcher.refresh(20)
    await one_group(w)
    await w.swarm.until(lambda: w.swarm.step == 2)
    assert w.swarm.requests[ROUTE] == 2


class FakeServer:
    """A server whose responses and state a test sets."""

    name = "s"

    def __init__(self) -> None:
        self.attempts = 0
        self.reached = asyncio.Event()
        """Set by the second attempt, the first one of the repetition."""
        self.accepts: bool | None = None
        """None: the server does not respond."""
        pool = PoolInfo(sample_collection_method=METHOD)
        self.watcher = SimpleNamespace(pool=pool, current=ROLLING, nudge=lambda: None)
        self.client = self
        self.idle = True

    async def agree_sync_weight(self) -> bool:
        self.attempts += 1
        if self.attempts > 1:
            self.reached.set()
        if self.accepts is None:
            raise Unreachable("gone", "http://s")
        return self.accepts


def opens(server: FakeServer) -> None:
    server.idle = False


def changes(**values: Any) -> Callable[[FakeServer], None]:
    def change(server: FakeServer) -> None:
        server.watcher.current = replace(ROLLING, **values)

    return change


def accepts(server: FakeServer) -> None:
    server.accepts = True


@pytest.mark.parametrize("refusal", [None, False], ids=["no response", "not active"])
@pytest.mark.parametrize(
    "end",
    [
        opens,
        changes(step=4),
        changes(since=120.0),
        changes(state=EngineState.ROLLING_POST),
        changes(state=EngineState.OFFLINE, step=0),
        accepts,
    ],
    ids=["a group opens", "step", "restart", "ROLLING_POST", "OFFLINE", "accepted"],
)
async def test_the_repetition_ends(end: Callable[[FakeServer], None], refusal: bool | None) -> None:
    server = FakeServer()
    server.accepts = refusal
    async with Tasks("test") as tasks:
        agreement = SyncAgreement(cast(ServerHandle, server), tasks)
        agreement.agree(lambda: server.idle)
        async with asyncio.timeout(20):
            await server.reached.wait()
        assert len(tasks) == 1
        end(server)
        assert await tasks.drain(20)


async def test_a_lost_connection_does_not_end_the_repetition() -> None:
    server = FakeServer()
    async with Tasks("test") as tasks:
        agreement = SyncAgreement(cast(ServerHandle, server), tasks)
        agreement.agree(lambda: server.idle)
        server.watcher.current = replace(ROLLING, reachable=False, error="gone: refused")
        async with asyncio.timeout(20):
            await server.reached.wait()
        server.watcher.current, server.accepts = ROLLING, True
        assert await tasks.drain(20)


async def test_the_end_of_the_proxy_ends_the_repetition() -> None:
    server = FakeServer()
    async with Tasks("test") as tasks:
        SyncAgreement(cast(ServerHandle, server), tasks).agree(lambda: True)
        assert len(tasks) == 1
        await tasks.close()
        assert not tasks


async def test_a_later_call_replaces_the_repetition() -> None:
    server = FakeServer()
    async with Tasks("test") as tasks:
        agreement = SyncAgreement(cast(ServerHandle, server), tasks)
        agreement.agree(lambda: server.idle)
        agreement.agree(lambda: server.idle)
        server.accepts = True
        agreement.agree(lambda: server.idle)
        assert await tasks.drain(20)
        made = server.attempts
        agreement.agree(lambda: server.idle)
        assert server.attempts == made


@pytest.mark.parametrize(
    "pool", [None, PoolInfo(sample_collection_method="rollout_until_finish_enough_tasks")]
)
async def test_other_stop_rules_need_no_agreement(pool: PoolInfo | None) -> None:
    server = FakeServer()
    server.watcher.pool = pool
    async with Tasks("test") as tasks:
        SyncAgreement(cast(ServerHandle, server), tasks).agree(lambda: server.idle)
        assert (server.attempts, len(tasks)) == (0, 0)
