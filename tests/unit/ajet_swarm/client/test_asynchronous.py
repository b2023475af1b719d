"""Episodes of one server, waited for as scripts do."""

import asyncio
import contextlib
import itertools
import random
from collections.abc import AsyncIterator

import numpy as np
import pytest

from ajet_swarm.client.asynchronous import AsyncSwarm
from ajet_swarm.common.tasks import Tasks
from ajet_swarm.episodes import ends
from ajet_swarm.protocol.errors import (
    EngineOff,
    EpisodeLost,
    GaveUp,
    SwarmError,
    Unreachable,
    WrongUse,
)
from ajet_swarm.protocol.models import Task, WorkflowOutput
from ajet_swarm.protocol.schemas import EndKind, EngineState
from ajet_swarm.runtime import Chance, Clock, Runtime
from tests.support.capped_clock import loop_time
from tests.support.scripted.swarm import ScriptedSwarm

TASK = Task(task_id="t", main_query="q")


@pytest.fixture
async def swarm(server: ScriptedSwarm) -> AsyncIterator[AsyncSwarm]:
    async with AsyncSwarm(server.url, patience=30) as client:
        yield client
    assert not server.claimed(), "nothing is left claimed"


async def test_begin_and_end(server: ScriptedSwarm, swarm: AsyncSwarm) -> None:
    uuid, api = await swarm.begin_episode(30)
    assert api.base_url == f"{server.url}/v1"
    assert api.api_key == server.episodes[uuid].key
    assert api.api_key not in repr(api)
    assert server.episodes[uuid].timeout == 30
    output = WorkflowOutput(reward=0.5, metadata={"row": 1}, log_metrics={"length": 3.0})
    assert (await swarm.end_episode(TASK, uuid, output)).ended
    assert server.rewards == {uuid: 0.5}
    assert server.ends[0]["workflow_output"]["metadata"] == {"row": 1, "task_id": "t"}
    assert server.ends[0]["declare_client_active"] is True


@pytest.mark.parametrize(
    ("argument", "value"),
    [("discard_episode_timeout", 0), ("episode_type", "test"), ("timeout", -1), ("lifetime", 0)],
)
async def test_a_wrong_argument_is_named(swarm: AsyncSwarm, argument: str, value: object) -> None:
    with pytest.raises(SwarmError, match=argument):
        await swarm.begin_episode(**{argument: value})  # type: ignore[arg-type]  # on purpose


async def test_begin_gives_up_when_the_caller_asks_for_it(
    server: ScriptedSwarm, swarm: AsyncSwarm
) -> None:
    server.automatic = False
    server.set_state("WEIGHT_SYNCING")
    await swarm.start()
    await swarm.watcher.wait_for({EngineState.WEIGHT_SYNCING}, 60)
    began = loop_time()
    with pytest.raises(GaveUp, match=r"an episode did not come in 0\.3 s.*WEIGHT_SYNCING"):
        await swarm.begin_episode(timeout=0.3)
    assert loop_time() - began < 1.5


async def test_begin_gives_up_on_a_full_server_with_the_reason(
    server: ScriptedSwarm, swarm: AsyncSwarm
) -> None:
    held = [await swarm.begin_episode() for _ in range(16)]
    with pytest.raises(GaveUp, match="No available episodes"):
        await swarm.begin_episode(timeout=1.0)
    for uuid, _ in held:
        assert await swarm.abort_episode(uuid)


async def test_an_engine_that_stays_off_is_an_error(server: ScriptedSwarm) -> None:
    server.set_state("OFFLINE", 0)
    async with AsyncSwarm(server.url, patience=1.0) as swarm:
        with pytest.raises(EngineOff, match=r"OFFLINE for 1 s.*auto_sync"):
            await swarm.begin_episode()


async def test_the_patience_is_measured_and_the_id_is_drawn_by_the_runtime(
    server: ScriptedSwarm,
) -> None:
    server.set_state("OFFLINE", 0)
    hours = itertools.count(0.0, 3600.0)
    runtime = Runtime(Clock(wall=lambda: next(hours)), Chance(random.Random(1)))
    async with AsyncSwarm(server.url, patience=86_400, runtime=runtime) as swarm:
        assert swarm.client_uuid == Chance(random.Random(1)).uuid()
        with pytest.raises(EngineOff, match="OFFLINE for 86400 s"):
            await swarm.begin_episode()


async def test_a_wrong_url_is_an_error() -> None:
    async with AsyncSwarm("http://127.0.0.1:9", patience=0.3) as client:
        with pytest.raises(Unreachable, match="Is the address right"):
            await client.begin_episode()
        assert (await client.get_engine_status())[0] == "ENGINE.CANNOT_CONNECT"
    for wrong in ("localhost:10086", "http://127.0.0.1:99999"):
        with pytest.raises(WrongUse, match="not the address"):
            AsyncSwarm(wrong)
    with pytest.raises(WrongUse, match="contains a user or a password") as caught:
        AsyncSwarm("http://ann:secret@127.0.0.1:9")
    assert "secret" not in str(caught.value)


async def test_begin_continues_within_a_second_of_rolling(
    server: ScriptedSwarm, swarm: AsyncSwarm, tasks: Tasks
) -> None:
    server.automatic = False
    server.set_state("WEIGHT_SYNCING")
    waiting = [tasks.spawn(swarm.begin_episode(), "begin") for _ in range(12)]
    await server.until(lambda: server.requests["/get_engine_status"] > 3)
    server.set_state("ROLLING", 2)
    began = loop_time()
    done = await asyncio.gather(*waiting)
    assert loop_time() - began < 1.0
    assert len({uuid for uuid, _ in done}) == 12
    for uuid, _ in done:
        await swarm.abort_episode(uuid)


@pytest.mark.slow
async def test_waiting_threads_do_not_flood_a_full_server(
    server: ScriptedSwarm, swarm: AsyncSwarm, tasks: Tasks
) -> None:
    held = [await swarm.begin_episode() for _ in range(16)]
    waiting = [tasks.spawn(swarm.begin_episode(), "begin") for _ in range(40)]
    await server.until(lambda: server.refusals)
    before = len(server.refusals)
    await server.until(lambda: len(server.refusals) >= before + 6)
    began = loop_time()
    for uuid, _ in held:
        await swarm.abort_episode(uuid)
    for _ in range(40):
        done, _left = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            waiting.remove(task)
            await swarm.abort_episode(task.result()[0])
        if not waiting:
            break
    assert not waiting
    assert loop_time() - began < 10
    assert len(server.refusals) < 200


async def test_a_cancelled_begin_holds_nothing(
    server: ScriptedSwarm, swarm: AsyncSwarm, tasks: Tasks
) -> None:
    server.fail_next("/claim_episode", "late")
    begun = tasks.spawn(swarm.begin_episode(), "begin")
    await server.until(server.claimed)
    begun.cancel()
    with pytest.raises(asyncio.CancelledError):
        await begun
    server.release()
    await server.until(lambda: not server.claimed())
    assert len(server.aborts) == 1


async def test_a_claim_whose_answer_is_lost_is_swept(
    server: ScriptedSwarm, swarm: AsyncSwarm
) -> None:
    server.fail_next("/claim_episode", "drop_after")
    uuid, _ = await swarm.begin_episode()
    await server.until(lambda: [record.uuid for record in server.claimed()] == [uuid])
    await swarm.abort_episode(uuid)


async def test_numpy_numbers_are_accepted_as_rewards(
    server: ScriptedSwarm, swarm: AsyncSwarm
) -> None:
    uuid, _ = await swarm.begin_episode()
    output = WorkflowOutput(
        reward=np.float32(0.5),  # type: ignore[arg-type]  # as scripts do
        is_success=np.bool_(True),  # type: ignore[arg-type]
        metadata={"row": np.int64(3), "marks": np.array([1, 2])},
        log_metrics={"x": np.float64(2.5), 3: (1, 2)},  # type: ignore[dict-item]
    )
    await swarm.end_episode(TASK, uuid, output)
    sent = server.ends[0]["workflow_output"]
    assert sent["reward"] == 0.5
    assert sent["is_success"] is True
    assert sent["metadata"] == {"row": 3, "marks": [1, 2], "task_id": "t"}
    assert sent["log_metrics"] == {"x": 2.5, "3": [1, 2]}


async def test_past_its_lifetime_an_end_is_an_abort(
    server: ScriptedSwarm, swarm: AsyncSwarm
) -> None:
    swarm.strict = False
    uuid, _ = await swarm.begin_episode(0.02)
    await asyncio.sleep(0.05)  # its time is two idle timeouts
    outcome = await swarm.end_episode(TASK, uuid, WorkflowOutput(reward=1))
    assert outcome.kind is EndKind.EXPIRED
    assert not server.ends
    assert not server.claimed()
    uuid, _ = await swarm.begin_episode(0.02, lifetime=60)
    await asyncio.sleep(0.05)
    assert (await swarm.end_episode(TASK, uuid, WorkflowOutput(reward=1))).ended


async def test_a_late_end_raises(server: ScriptedSwarm) -> None:
    async with AsyncSwarm(server.url) as client:
        uuid, _ = await client.begin_episode(0.02)
        await asyncio.sleep(0.05)
        with pytest.raises(EpisodeLost, match="expired"):
            await client.end_episode(TASK, uuid, WorkflowOutput(reward=1))


async def test_an_episode_of_another_client_is_never_aborted(
    server: ScriptedSwarm, swarm: AsyncSwarm
) -> None:
    uuid, _ = await swarm.begin_episode(0.02)
    server.expire(uuid)
    server.unclaimed.remove(uuid)
    server.unclaimed.insert(0, uuid)
    async with AsyncSwarm(server.url) as other:
        claimed, _ = await other.begin_episode()
        assert claimed == uuid
        await asyncio.sleep(0.03)
        assert not await swarm.abort_episode(uuid)
        assert server.episodes[uuid].client == other.client_uuid
        assert await other.abort_episode(uuid)


@pytest.mark.parametrize(
    ("how", "kind"), [("drop_after", EndKind.UNKNOWN_OUTCOME), ("drop", EndKind.ENDED)]
)
async def test_an_end_without_an_answer_is_only_repeated_if_it_did_not_arrive(
    server: ScriptedSwarm,
    swarm: AsyncSwarm,
    monkeypatch: pytest.MonkeyPatch,
    how: str,
    kind: EndKind,
) -> None:
    monkeypatch.setattr(ends, "BROKEN_PAUSES", (0.01, 0.02))
    uuid, _ = await swarm.begin_episode()
    server.fail_next("/end_episode", how)
    outcome = await swarm.end_episode(TASK, uuid, WorkflowOutput(reward=1))
    assert outcome.kind is kind
    assert server.ended[uuid] == 1
    assert not server.duplicate_ends


async def test_the_second_end_of_an_episode_is_refused(
    server: ScriptedSwarm, swarm: AsyncSwarm
) -> None:
    uuid, _ = await swarm.begin_episode()
    assert (await swarm.end_episode(TASK, uuid, WorkflowOutput(reward=1))).ended
    with pytest.raises(EpisodeLost, match="not ours any more"):
        await swarm.end_episode(TASK, uuid, WorkflowOutput(reward=1))
    assert not server.aborts
    assert server.ended[uuid] == 1
    assert not await swarm.abort_episode(uuid)


async def test_an_end_after_the_batch_moved_on_is_reported(
    server: ScriptedSwarm, swarm: AsyncSwarm
) -> None:
    server.automatic = False
    swarm.strict = False
    uuid, _ = await swarm.begin_episode()
    assert await swarm.can_continue_episode(uuid)
    server.set_state("WEIGHT_SYNCING")
    assert not await swarm.can_continue_episode(uuid)
    outcome = await swarm.end_episode(TASK, uuid, WorkflowOutput(reward=1))
    assert outcome.kind is EndKind.SYNCING


async def test_the_context_aborts_on_an_exception(server: ScriptedSwarm, swarm: AsyncSwarm) -> None:
    async def failing() -> None:
        async with swarm.episode(TASK) as episode:
            assert server.claimed()[0].uuid == episode.uuid
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await failing()
    assert not server.claimed()
    async with swarm.episode(TASK) as episode:
        assert (await episode.end(0.25)).ended
    assert server.rewards[episode.uuid] == 0.25
    async with swarm.episode(TASK):
        pass
    assert not server.claimed(), "left without an end it is aborted"


async def test_an_eval_episode_goes_back(server: ScriptedSwarm, swarm: AsyncSwarm) -> None:
    uuid, _ = await swarm.begin_episode(episode_type="eval")
    assert (await swarm.end_episode("t", uuid, WorkflowOutput(reward=1))).ended
    assert uuid not in server.rewards


async def test_closing_gives_back_held_episodes(server: ScriptedSwarm) -> None:
    async with AsyncSwarm(server.url) as client:
        await client.begin_episode()
        await client.begin_episode()
    assert not server.claimed()
    with pytest.raises(SwarmError, match="closed"):
        await client.begin_episode()


async def test_server_information_is_available(server: ScriptedSwarm, swarm: AsyncSwarm) -> None:
    uuid, _ = await swarm.begin_episode()
    assert await swarm.get_engine_status() == (
        "ENGINE.ROLLING",
        {"engine_status": "ENGINE.ROLLING", "engine_status_detail": None, "global_step": 1},
    )
    assert await swarm.get_global_step() == 1
    stat = await swarm.get_rollout_stat()
    assert (stat.completed_task_target, stat.repeat) == (4, 4)
    assert stat.model_dump()["completed_task_target"] == 4
    assert [r.episode_uuid for r in await swarm.get_episode_buffer() if r.claimed] == [uuid]
    assert await swarm.server_experiment_dir() == "/srv/run"
    assert (await swarm.get_verbose_logs())[0].message == "hello"
    server.pool_default = True
    assert (await swarm.get_rollout_stat()).is_default
    await swarm.abort_episode(uuid)


async def test_a_claim_in_flight_at_close_is_given_back(
    server: ScriptedSwarm, tasks: Tasks
) -> None:
    client = AsyncSwarm(server.url, patience=30)
    await client.begin_episode(30)
    server.fail_next("/claim_episode", "stall")
    begin = tasks.spawn(client.begin_episode(30), "begin")
    await server.until(lambda: server.requests["/claim_episode"] == 2)
    close = tasks.spawn(client.close(), "close")
    with contextlib.suppress(TimeoutError):  # it must not list its episodes before the answer
        await server.until(lambda: server.requests["/get_episode_buffer"] > 0, 0.5)
    server.release()
    await close
    assert len(server.claims) == 2
    assert not server.claimed()
    with contextlib.suppress(SwarmError, asyncio.CancelledError):
        await begin
