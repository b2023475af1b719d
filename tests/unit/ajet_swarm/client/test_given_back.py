"""Whatever a script gives an end, and however long it took: no claim is left behind."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from ajet_swarm.client.asynchronous import AsyncSwarm
from ajet_swarm.client.multi_server import AsyncJointSwarm
from ajet_swarm.client.synchronous import SwarmClient
from ajet_swarm.episodes.holdings import REMEMBERED
from ajet_swarm.protocol.errors import EpisodeLost, SwarmError, WrongUse
from ajet_swarm.protocol.models import SwarmThrottlePolicy, Task, WorkflowOutput
from ajet_swarm.runs.episodes import rollout
from tests.support.scripted.swarm import ScriptedSwarm
from tests.support.scripted.threaded_swarm import ThreadedSwarm, threaded_swarm

HALF = "\ud83d"
"""Half of a pair: no text that can be sent."""
OF_HALF = SwarmThrottlePolicy(expected_batch_size=1, expected_num_repeat=1, current_task_id=HALF)


@pytest.fixture
def threaded() -> Iterator[ThreadedSwarm]:
    with threaded_swarm(batch=4, repeat=4) as swarm:
        yield swarm


def output(**fields: Any) -> WorkflowOutput:
    made = WorkflowOutput(reward=1.0)
    for name, value in fields.items():
        setattr(made, name, value)
    return made


BAD: list[tuple[Any, Any, str]] = [
    ("t", output(metadata={"t": HALF}), "`metadata` has a value that is not JSON"),
    ("t", output(metadata=None), "`metadata` is a NoneType"),
    ("t", output(metadata=[1]), "`metadata` is a list"),
    ("t", output(log_metrics=None), "`log_metrics` is a NoneType"),
    ("t", output(log_metrics={HALF: 1.0}), "`log_metrics` has a value that is not JSON"),
    ("t", output(metadata={"x": object()}), "`metadata`.*object has no JSON form"),
    ("t", output(log_metrics={"x": [float("nan")]}), "`log_metrics`.*Out of range float"),
    *(
        ("t", output(reward=reward), "one finite number")
        for reward in (float("nan"), float("inf"), None, [1.0, 0.0], "good")
    ),
    (Task(), output(), "task_id"),
    ("t", output(reward=10**400), "one finite number, not one beyond all bounds"),
    (HALF, output(), "task_id is no text"),
    ({"task_id": "t"}, output(), "a dict was given, not a task"),
    (7, output(), "a int was given, not a task"),
    (None, output(), "a NoneType was given, not a task"),
    ("t", 1.0, "a float was given, not a WorkflowOutput"),
    ("t", {"reward": 1.0}, "a dict was given, not a WorkflowOutput"),
    ("t", None, "a NoneType was given, not a WorkflowOutput"),
]


@pytest.mark.parametrize(("task", "value", "result"), BAD, ids=range(len(BAD)))
async def test_an_end_that_cannot_be_sent_gives_the_episode_back(
    server: ScriptedSwarm, swarm: AsyncSwarm, task: Any, value: Any, result: str
) -> None:
    uuid, _ = await swarm.begin_episode()
    error = WrongUse if result == "one finite number" else SwarmError
    with pytest.raises(error, match=result):
        await swarm.end_episode(task, uuid, value)
    assert not server.claimed()
    assert not server.ends


async def test_an_end_that_fails_unexpectedly_gives_the_episode_back(
    server: ScriptedSwarm, swarm: AsyncSwarm, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("of all things")

    uuid, _ = await swarm.begin_episode()
    monkeypatch.setattr(swarm.wire, "end", broken)
    with pytest.raises(SwarmError, match="could not be ended: ZeroDivisionError: of all things"):
        await swarm.end_episode("t", uuid, output())
    assert not server.claimed()


@pytest.mark.parametrize("reward", [10**400, None, {"a": 1}, "x"], ids=range(4))
async def test_the_context_aborts_on_an_invalid_reward(
    server: ScriptedSwarm, swarm: AsyncSwarm, reward: Any
) -> None:
    with pytest.raises(SwarmError, match="one finite number"):
        async with swarm.episode("t") as episode:
            await episode.end(reward)
    assert not server.claimed()


def test_a_run_with_invalid_outputs_leaves_no_claim(threaded: ThreadedSwarm) -> None:
    with SwarmClient(threaded.url) as client:
        run = rollout(client, lambda task, api: output(metadata={"text": HALF}))
        for _ in range(3):
            with pytest.raises(SwarmError, match="not JSON"):
                run(Task(task_id="t"))
        assert not threaded.server.claimed()
        uuid, _ = client.begin_episode()
        assert client.end_episode("t", uuid, output()).ended


@pytest.fixture
async def second() -> AsyncIterator[ScriptedSwarm]:
    async with ScriptedSwarm() as server:
        yield server


@pytest.mark.parametrize("first", ["a", "b"])
async def test_on_several_servers_an_invalid_reward_counts_on_none(
    server: ScriptedSwarm, swarm: AsyncSwarm, second: ScriptedSwarm, first: str
) -> None:
    async with AsyncSwarm(second.url) as other:
        clients = {"a": swarm, "b": other} if first == "a" else {"b": other, "a": swarm}
        async with AsyncJointSwarm(clients).episode("t", timeout=60) as joint:
            with pytest.raises(SwarmError, match="not JSON"):
                await joint.end({"a": 1.0, "b": output(metadata={"text": HALF})})
        assert not server.claimed() + second.claimed()
        assert not server.ends + second.ends


async def test_on_several_servers_an_error_at_the_end_is_named_and_gives_back(
    server: ScriptedSwarm,
    swarm: AsyncSwarm,
    second: ScriptedSwarm,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def broken(*_: Any) -> None:
        raise ZeroDivisionError("of all things")

    async with AsyncSwarm(second.url) as other:
        monkeypatch.setattr(other, "_end_claim", broken)
        clients = {"a": swarm, "b": other}
        async with AsyncJointSwarm(clients).episode("t", timeout=60) as joint:
            with pytest.raises(EpisodeLost, match=r"b: ZeroDivisionError.*counts on a"):
                await joint.end({"a": 1.0, "b": 1.0})
        assert not server.claimed() + second.claimed()
        assert (len(server.ends), len(second.ends)) == (1, 0)


async def _forgotten(swarm: AsyncSwarm, uuid: str) -> None:
    """Its time and more passes; another claim sweeps the books."""
    now = swarm._ends.holdings.monotonic
    swarm._ends.holdings.monotonic = lambda: now() + 480 + REMEMBERED + 1
    other, _ = await swarm.begin_episode()
    assert uuid not in swarm._ends.holdings.by_uuid
    assert await swarm.abort_episode(other)


async def test_the_context_aborts_an_episode_that_took_long(
    server: ScriptedSwarm, swarm: AsyncSwarm
) -> None:
    async def fails() -> None:
        async with swarm.episode("t") as episode:
            await _forgotten(swarm, episode.uuid)
            assert [record.uuid for record in server.claimed()] == [episode.uuid]
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fails()
    assert not server.claimed()


async def test_closing_gives_back_an_episode_that_took_long(server: ScriptedSwarm) -> None:
    async with AsyncSwarm(server.url) as client, AsyncSwarm(server.url) as other:
        uuid, _ = await client.begin_episode()
        value, _ = await other.begin_episode()
        await _forgotten(client, uuid)
        await client.close()
        assert [record.uuid for record in server.claimed()] == [value]


async def test_an_abort_that_does_not_arrive_is_repeated(
    server: ScriptedSwarm, swarm: AsyncSwarm
) -> None:
    uuid, _ = await swarm.begin_episode()
    await _forgotten(swarm, uuid)
    server.fail_next("/get_episode_buffer", 500)
    assert not await swarm.abort_episode(uuid)
    await server.until(lambda: not server.claimed())


@pytest.mark.parametrize(
    "values",
    [
        {"discard_episode_timeout": "60"},
        {"discard_episode_timeout": None},
        {"discard_episode_timeout": 10**400},
        {"discard_episode_timeout": float("nan")},
        {"timeout": "1"},
        {"lifetime": [1]},
        {"episode_type": None},
        {"throttle_policy": {"ratio": 0.5}},
        {"throttle_policy": OF_HALF},
    ],
)
async def test_a_claim_of_the_wrong_kind_is_named(
    server: ScriptedSwarm, swarm: AsyncSwarm, values: dict[str, Any]
) -> None:
    with pytest.raises(SwarmError, match=next(iter(values))):
        await swarm.begin_episode(**values)
    assert not server.requests["/claim_episode"]


def test_another_event_loop_is_named() -> None:
    client = AsyncSwarm("http://127.0.0.1:9")
    with asyncio.Runner() as runner:
        assert runner.run(client.get_engine_status())[0] == "ENGINE.CANNOT_CONNECT"
        for again in (client.get_engine_status, client.begin_episode, client.close):
            with pytest.raises(SwarmError, match="another event loop"):
                asyncio.run(again())
        runner.run(client.close())
