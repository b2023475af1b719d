"""An episode of several servers: all or none, whatever breaks between two of its steps."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, cast

import pytest

from ajet_swarm import SwarmClient
from ajet_swarm.client.asynchronous import AsyncSwarm
from ajet_swarm.client.episode import AsyncEpisode
from ajet_swarm.client.multi_server import AsyncJointSwarm, JointEpisode, JointSwarm
from ajet_swarm.common.tasks import Tasks, cancel
from ajet_swarm.protocol.errors import (
    EngineOff,
    EpisodeLost,
    GaveUp,
    SwarmError,
    Unreachable,
    WrongUse,
)
from ajet_swarm.protocol.models import OpenaiBaseUrlAndApiKey, Task, WorkflowOutput
from ajet_swarm.protocol.schemas import EndKind, EndOutcome
from engine.app import create_app
from tests.support.engine.client import driving
from tests.support.scripted.threaded_swarm import threaded_swarm
from tests.support.served import served


class Server:
    """A server's client that records its calls and fails as configured."""

    def __init__(self, free: int = 100, **faults: BaseException) -> None:
        self.free = free
        self.faults = faults
        self.held: set[str] = set()
        self.ended: list[float] = []
        self.most = 0
        self.count = 0

    async def _call(self, what: str) -> None:
        await asyncio.sleep(0)
        if what in self.faults:
            raise self.faults[what]

    async def wait_until_rolling(self, *, timeout: float | None = None) -> int:
        await self._call("wait")
        return 1

    async def can_continue_episode(self, episode_uuid: str) -> bool:
        await self._call("ask")
        return episode_uuid in self.held

    @asynccontextmanager
    async def episode(self, task: Task | str, *_: Any, **__: Any) -> AsyncIterator[AsyncEpisode]:
        await self._call("begin")
        if len(self.held) >= self.free:
            raise GaveUp("none free")
        self.count += 1
        uuid = f"{id(self)}-{self.count}"
        self.held.add(uuid)
        self.most = max(self.most, len(self.held))

        async def end(task: Task | str, output: WorkflowOutput) -> EndOutcome:
            await self._call("end")
            self.held.remove(uuid)
            assert isinstance(output.reward, int | float)
            self.ended.append(output.reward)
            return EndOutcome(EndKind.ENDED)

        episode = AsyncEpisode(task, uuid, OpenaiBaseUrlAndApiKey("http://x/v1", "k", uuid), end)
        try:
            yield episode
        finally:
            if episode.outcome is None:
                self.held.discard(uuid)
                await self._call("abort")


def two(a: Server, b: Server) -> AsyncJointSwarm:
    return AsyncJointSwarm({"a": cast(AsyncSwarm, a), "b": cast(AsyncSwarm, b)}, patience=0.01)


async def test_each_server_gets_its_own_reward() -> None:
    a, b = Server(), Server()
    async with two(a, b).episode("t") as joint:
        assert joint["a"].base_url == "http://x/v1"
        assert len(a.held) == len(b.held) == 1
        await joint.end({"a": 0.25, "b": WorkflowOutput(reward=1.0)})
    assert (a.ended, b.ended) == ([0.25], [1.0])
    assert not a.held | b.held


@pytest.mark.parametrize("fault", [EngineOff("off"), Unreachable("gone"), ZeroDivisionError()])
async def test_a_claim_that_fails_leaves_nothing(fault: BaseException) -> None:
    a, b = Server(), Server(begin=fault)
    with pytest.raises(type(fault)):
        async with two(a, b).episode("t"):
            pytest.fail("there is no episode")
    assert a.most == 1
    assert not a.held


async def test_while_one_server_has_no_free_episode_none_is_held_elsewhere() -> None:
    a, b = Server(), Server(free=0)
    with pytest.raises(GaveUp):
        async with two(a, b).episode("t", timeout=0.3):
            pytest.fail("there is no episode")
    assert not a.held
    tried = a.count

    async def free_one() -> None:
        while a.count < tried + 2:
            await asyncio.sleep(0)
        b.free = 1

    async with asyncio.TaskGroup() as group:
        group.create_task(free_one())
        async with two(a, b).episode("t", timeout=60) as joint:
            await joint.end({"a": 1, "b": 1})
    assert a.count >= tried + 2  # tried again, and gave back in between


async def test_an_exception_gives_back_on_all() -> None:
    a, b = Server(), Server()
    with pytest.raises(ZeroDivisionError):
        async with two(a, b).episode("t"):
            1 / 0  # noqa: B018  the agent's own fault
    assert not a.held | b.held
    assert not a.ended + b.ended


@pytest.mark.parametrize(
    "rewards", [{}, {"a": 1.0}, {"a": 1.0, "b": float("nan")}, {"a": 1.0, "b": 1.0, "c": 1.0}]
)
async def test_a_reward_that_is_missing_or_none_ends_it_nowhere(rewards: dict[str, float]) -> None:
    a, b = Server(), Server()
    with pytest.raises(SwarmError):
        async with two(a, b).episode("t") as joint:
            await joint.end(rewards)
    assert not a.held | b.held
    assert not a.ended + b.ended


@pytest.mark.parametrize("which", [0, 1])
async def test_a_server_that_took_it_back_ends_it_nowhere(which: int) -> None:
    servers = Server(), Server()
    async with two(*servers).episode("t") as joint:
        servers[which].held.clear()
        with pytest.raises(EpisodeLost, match="given back on all"):
            await joint.end({"a": 1, "b": 1})
    assert not servers[0].ended + servers[1].ended
    assert not servers[0].held | servers[1].held


async def test_a_server_that_does_not_answer_ends_it_nowhere() -> None:
    a, b = Server(ask=Unreachable("gone")), Server()
    with pytest.raises(EpisodeLost):
        async with two(a, b).episode("t") as joint:
            await joint.end({"a": 1, "b": 1})
    assert not b.ended
    assert not b.held


async def test_an_end_that_fails_at_the_last_moment_is_named() -> None:
    a, b = Server(), Server(end=EpisodeLost("not_found", "wiped"))
    async with two(a, b).episode("t") as joint:
        with pytest.raises(EpisodeLost, match=r"b: .*wiped.*counts on a"):
            await joint.end({"a": 1, "b": 1})
        assert joint.finished
    assert a.ended == [1.0]


@pytest.mark.parametrize("which", ["a", "b"])
async def test_a_failed_return_does_not_prevent_the_others(which: str) -> None:
    servers = {"a": Server(), "b": Server()}
    servers[which].faults = {"abort": ZeroDivisionError()}
    with pytest.raises(ZeroDivisionError):
        async with two(**servers).episode("t"):
            pass
    assert not servers["a"].held | servers["b"].held


async def test_many_tasks_over_few_episodes_do_not_block_each_other() -> None:
    """Claims are made in one order and held briefly: none waits for ever."""
    a, b = Server(), Server(free=1)
    joint = two(a, b)

    async def work() -> None:
        for _ in range(5):
            async with joint.episode("t", timeout=30) as one:
                await one.end({"a": 0.25, "b": WorkflowOutput(reward=1.0)})

    async with asyncio.TaskGroup() as group:
        for _ in range(6):
            group.create_task(work())
    assert a.ended == [0.25] * 30
    assert b.ended == [1.0] * 30
    assert b.most == 1


async def test_a_cancelled_episode_is_given_back_on_all_servers(tasks: Tasks) -> None:
    a, b = Server(), Server()
    holds = asyncio.Event()

    async def work() -> None:
        async with two(a, b).episode("t"):
            holds.set()
            await asyncio.Event().wait()

    task = tasks.spawn(work(), "work")
    await holds.wait()
    assert len(a.held) == len(b.held) == 1
    await cancel(task)
    assert not a.held | b.held


@pytest.mark.slow
def test_threads_share_a_client_of_two_servers() -> None:
    with (
        threaded_swarm(batch=4, repeat=4) as first,
        threaded_swarm(batch=4, repeat=4) as second,
        SwarmClient(first.url, name="a") as a,
        SwarmClient(second.url, name="b") as b,
    ):
        joint = JointSwarm({"a": a, "b": b})

        def work() -> None:
            with joint.episode("t", timeout=60) as one:
                assert one["a"].base_url == f"{first.url}/v1"
                one["b"].task = "t/b"
                one.end({"a": 0.25, "b": WorkflowOutput(reward=1.0)})

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert list(first.server.rewards.values()) == [0.25] * 8
        assert list(second.server.rewards.values()) == [1.0] * 8
        assert {task for _, task, _ in first.server.reward_log} == {"t"}
        assert {task for _, task, _ in second.server.reward_log} == {"t/b"}
        with joint.episode("t", timeout=60) as one:
            one["a"].task = "t/a"
            one["a"].end(0.5)
        assert first.server.reward_log[-1][1:] == ("t/a", 0.5)

        def failing(fault: type[BaseException]) -> None:
            with joint.episode("t", timeout=60):
                assert len(first.server.claimed()) == len(second.server.claimed()) == 1
                raise fault

        for fault in (ZeroDivisionError, KeyboardInterrupt):
            with pytest.raises(fault):
                failing(fault)
        second.server.automatic = False
        second.do(lambda: second.server.set_state("WEIGHT_SYNCING"))
        with pytest.raises(GaveUp), joint.episode("t", timeout=0.2):
            pytest.fail("there is no episode")
        b.close()
        with pytest.raises(WrongUse, match="closed"), joint.episode("t", timeout=60):
            pytest.fail("there is no episode")
        assert not first.server.claimed() + second.server.claimed()


@pytest.mark.slow
async def test_awaited_with_two_real_engines() -> None:
    async with AsyncExitStack() as stack:
        a, b = [await stack.enter_async_context(driving()) for _ in range(2)]
        urls = [await stack.enter_async_context(served(create_app(d.engine))) for d in (a, b)]
        clients = {}
        for name, url, driver in zip("ab", urls, (a, b), strict=True):
            clients[name] = await stack.enter_async_context(AsyncSwarm(url, name=name))
            await driver.start(batch=1, repeat=2)
        async with AsyncJointSwarm(clients).episode("t", timeout=60) as episode:
            for driver, name in ((a, "a"), (b, "b")):
                await driver.chat({"openai_api_key": episode[name].api_key})
            await episode.end({"a": 0.5, "b": 1.0})
        assert [d.engine.pool.finished["t"][0].reward for d in (a, b)] == [0.5, 1.0]
        with pytest.raises(ZeroDivisionError):
            async with AsyncJointSwarm(clients).episode("t", timeout=60):
                1 / 0  # noqa: B018  the agent's own fault
        assert not a.engine.pool.claimed + b.engine.pool.claimed


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["none", "stopped", "taken"])
async def test_two_real_engines(fault: str) -> None:
    async with AsyncExitStack() as stack:
        a, b = [await stack.enter_async_context(driving()) for _ in range(2)]
        urls = [await stack.enter_async_context(served(create_app(d.engine))) for d in (a, b)]
        loop = asyncio.get_running_loop()
        for driver in (a, b):
            await driver.start(batch=1, repeat=2)

        async def before_the_end(episode: JointEpisode) -> None:
            for driver, name in ((a, "a"), (b, "b")):
                answer = await driver.chat({"openai_api_key": episode[name].api_key})
                assert answer.status_code == 200
            if fault == "stopped":
                await b.post("/stop_engine")
            if fault == "taken":  # as after too long a pause
                record = b.engine.pool.find(episode["b"].uuid)
                assert record is not None
                b.engine.pool.revert(record)

        def act() -> None:
            clients = {
                name: SwarmClient(url, name=name) for name, url in zip("ab", urls, strict=True)
            }
            try:
                with JointSwarm(clients).episode("t", timeout=60) as episode:
                    asyncio.run_coroutine_threadsafe(before_the_end(episode), loop).result(60)
                    episode.end({"a": 0.5, "b": 1.0})
            finally:
                for one in clients.values():
                    one.close()

        if fault == "none":
            await asyncio.to_thread(act)
            assert [d.engine.pool.finished["t"][0].reward for d in (a, b)] == [0.5, 1.0]
        else:
            with pytest.raises(EpisodeLost, match="b no longer holds it"):
                await asyncio.to_thread(act)
            assert not a.engine.pool.finished
        assert not a.engine.pool.claimed
        assert not b.engine.pool.claimed
