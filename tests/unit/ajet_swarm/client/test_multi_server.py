"""An episode of several servers: all or none, whatever breaks between two of its steps."""

import asyncio
import threading
import time
from contextlib import AsyncExitStack
from typing import Any

import pytest

from ajet_swarm import SwarmClient
from ajet_swarm.api.outcomes import EndKind, EndOutcome
from ajet_swarm.client.asynchronous import AsyncSwarm
from ajet_swarm.client.multi_server import AsyncJointSwarm, JointEpisode, JointSwarm
from ajet_swarm.common.tasks import Tasks, cancel
from ajet_swarm.protocol.errors import EngineOff, EpisodeLost, GaveUp, SwarmError, Unreachable
from ajet_swarm.protocol.task import OpenaiBaseUrlAndApiKey, Task, WorkflowOutput
from engine.app import create_app
from tests.support.engine.client import driving
from tests.support.served import served


class Server:
    """A server's client that records its calls and fails as configured."""

    def __init__(self, free: int = 100, **faults: BaseException) -> None:
        self.free = free
        self.faults = faults
        self.held: set[str] = set()
        self.ended: list[float] = []
        self.most = 0
        self._count = 0
        self._lock = threading.Lock()

    def _fail(self, where: str) -> None:
        if where in self.faults:
            raise self.faults[where]

    def wait_until_rolling(self, *, timeout: float | None = None) -> int:
        self._fail("wait")
        return 1

    def begin_episode(
        self, discard_episode_timeout: float = 240, episode_type: str = "train", **_: Any
    ) -> tuple[str, OpenaiBaseUrlAndApiKey]:
        self._fail("begin")
        with self._lock:
            if len(self.held) >= self.free:
                raise GaveUp("none free")
            self._count += 1
            uuid = f"{id(self)}-{self._count}"
            self.held.add(uuid)
            self.most = max(self.most, len(self.held))
        return uuid, OpenaiBaseUrlAndApiKey("http://x/v1", "k", uuid)

    def can_continue_episode(self, episode_uuid: str) -> bool:
        self._fail("ask")
        return episode_uuid in self.held

    def end_episode(
        self, task: Task | str, episode_uuid: str, output: WorkflowOutput
    ) -> EndOutcome:
        self._fail("end")
        self.held.remove(episode_uuid)
        assert isinstance(output.reward, int | float)
        self.ended.append(output.reward)
        return EndOutcome(EndKind.ENDED)

    def abort_episode(self, episode_uuid: str) -> bool:
        with self._lock:
            self.held.discard(episode_uuid)
        self._fail("abort")
        return True


class AsyncServer:
    """The same, awaited."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def wait_until_rolling(self, *, timeout: float | None = None) -> int:
        await asyncio.sleep(0)
        return self._server.wait_until_rolling()

    async def begin_episode(self, *args: Any, **named: Any) -> tuple[str, OpenaiBaseUrlAndApiKey]:
        await asyncio.sleep(0)
        return self._server.begin_episode(*args, **named)

    async def can_continue_episode(self, episode_uuid: str) -> bool:
        await asyncio.sleep(0)
        return self._server.can_continue_episode(episode_uuid)

    async def end_episode(
        self, task: Task | str, episode_uuid: str, workflow_output: WorkflowOutput
    ) -> EndOutcome:
        await asyncio.sleep(0)
        return self._server.end_episode(task, episode_uuid, workflow_output)

    async def abort_episode(self, episode_uuid: str) -> bool:
        await asyncio.sleep(0)
        return self._server.abort_episode(episode_uuid)


def two(a: Server, b: Server) -> JointSwarm:
    return JointSwarm({"a": a, "b": b}, patience=0.01)


@pytest.mark.slow
def test_each_server_gets_its_own_reward() -> None:
    a, b = Server(), Server()
    with two(a, b).episode("t") as joint:
        assert joint["a"].base_url == "http://x/v1"
        assert len(a.held) == len(b.held) == 1
        joint.end({"a": 0.25, "b": WorkflowOutput(reward=1.0)})
    assert (a.ended, b.ended) == ([0.25], [1.0])
    assert not a.held | b.held


@pytest.mark.parametrize("fault", [EngineOff("off"), Unreachable("gone"), KeyboardInterrupt()])
def test_a_claim_that_fails_leaves_nothing(fault: BaseException) -> None:
    a, b = Server(), Server(begin=fault)
    with pytest.raises(type(fault)), two(a, b).episode("t"):
        pytest.fail("there is no episode")
    assert a.most == 1
    assert not a.held


def test_while_one_server_has_no_free_episode_none_is_held_elsewhere() -> None:
    a, b = Server(), Server(free=0)
    with pytest.raises(GaveUp), two(a, b).episode("t", timeout=0.3):
        pytest.fail("there is no episode")
    assert not a.held
    tried = a._count

    def free_one() -> None:
        while a._count < tried + 2:
            time.sleep(0.005)
        b.free = 1

    freeing = threading.Thread(target=free_one)
    freeing.start()
    with two(a, b).episode("t", timeout=60) as joint:
        joint.end({"a": 1, "b": 1})
    freeing.join(60)
    assert a._count > tried + 2  # tried again, and gave back in between


def test_an_exception_gives_back_on_all() -> None:
    a, b = Server(), Server()
    with pytest.raises(ZeroDivisionError), two(a, b).episode("t"):
        1 / 0  # noqa: B018  the agent's own fault
    assert not a.held | b.held
    assert not a.ended + b.ended


def test_an_interrupt_between_two_returns_is_raised() -> None:
    """A server's refusal does not suppress the exception that stops the caller."""
    a = Server(abort=SwarmError("it says no"))
    b = Server(abort=KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt), two(a, b).episode("t"):
        pass


@pytest.mark.parametrize(
    "rewards", [{}, {"a": 1.0}, {"a": 1.0, "b": float("nan")}, {"a": 1.0, "b": 1.0, "c": 1.0}]
)
def test_a_reward_that_is_missing_or_none_ends_it_nowhere(rewards: dict[str, float]) -> None:
    a, b = Server(), Server()
    with pytest.raises(SwarmError), two(a, b).episode("t") as joint:
        joint.end(rewards)
    assert not a.held | b.held
    assert not a.ended + b.ended


@pytest.mark.parametrize("which", [0, 1])
def test_a_server_that_took_it_back_ends_it_nowhere(which: int) -> None:
    servers = Server(), Server()
    with two(*servers).episode("t") as joint:
        servers[which].held.clear()
        with pytest.raises(EpisodeLost, match="given back on all"):
            joint.end({"a": 1, "b": 1})
    assert not servers[0].ended + servers[1].ended
    assert not servers[0].held | servers[1].held


def test_a_server_that_does_not_answer_ends_it_nowhere() -> None:
    a, b = Server(ask=Unreachable("gone")), Server()
    with pytest.raises(EpisodeLost), two(a, b).episode("t") as joint:
        joint.end({"a": 1, "b": 1})
    assert not b.ended
    assert not b.held


def test_an_end_that_fails_at_the_last_moment_is_named() -> None:
    a, b = Server(), Server(end=EpisodeLost("not_found", "wiped"))
    with two(a, b).episode("t") as joint:
        with pytest.raises(EpisodeLost, match=r"b: .*wiped.*counts on a"):
            joint.end({"a": 1, "b": 1})
        assert joint.finished
    assert a.ended == [1.0]


def test_a_failed_return_does_not_prevent_the_others() -> None:
    a, b = Server(abort=Unreachable("gone")), Server()
    with two(a, b).episode("t"):
        pass
    assert not a.held | b.held


def test_many_threads_over_few_episodes_do_not_block_each_other() -> None:
    """Claims are made in one order and held briefly: none waits for ever."""
    a, b = Server(), Server(free=1)
    joint = two(a, b)

    def work() -> None:
        for _ in range(5):
            with joint.episode("t", timeout=30) as one:
                one.end({"a": 1, "b": 1})

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(40)
    assert len(a.ended) == len(b.ended) == 30
    assert b.most == 1


def two_awaited(a: Server, b: Server) -> AsyncJointSwarm:
    return AsyncJointSwarm({"a": AsyncServer(a), "b": AsyncServer(b)}, patience=0.01)


async def test_the_asynchronous_client_behaves_the_same() -> None:
    a, b = Server(), Server(free=1)
    joint = two_awaited(a, b)

    async def work() -> None:
        for _ in range(5):
            async with joint.episode("t", timeout=30) as one:
                assert one["a"].base_url == "http://x/v1"
                await one.end({"a": 0.25, "b": WorkflowOutput(reward=1.0)})

    async with asyncio.TaskGroup() as group:
        for _ in range(6):
            group.create_task(work())
    assert a.ended == [0.25] * 30
    assert b.ended == [1.0] * 30
    assert b.most == 1
    b.faults = {"begin": EngineOff("off")}
    with pytest.raises(EngineOff):
        async with joint.episode("t"):
            pytest.fail("there is no episode")
    assert not a.held | b.held


async def test_a_cancelled_episode_is_given_back_on_all_servers(tasks: Tasks) -> None:
    a, b = Server(), Server()
    holds = asyncio.Event()

    async def work() -> None:
        async with two_awaited(a, b).episode("t"):
            holds.set()
            await asyncio.Event().wait()

    task = tasks.spawn(work(), "work")
    await holds.wait()
    assert len(a.held) == len(b.held) == 1
    await cancel(task)
    assert not a.held | b.held


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
