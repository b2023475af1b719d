"""Orders to engines: jobs, starts, stops, agreement, several at once."""

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ajet_swarm.api import watcher
from ajet_swarm.api.wire import SwarmWire
from ajet_swarm.client.asynchronous import AsyncSwarm
from ajet_swarm.common.tasks import Tasks, cancel
from ajet_swarm.job.agentjet import AgentJetJob
from ajet_swarm.job.tree import JobError
from ajet_swarm.protocol.errors import EngineOff, GaveUp, SwarmError, Unreachable
from ajet_swarm.protocol.models import WorkflowOutput
from ajet_swarm.protocol.schemas import EngineState
from tests.support.scripted.swarm import ScriptedSwarm

pytestmark = pytest.mark.slow

JOB = AgentJetJob(batch_size=4, num_repeat=4, model="m")
AGREE = "rollout_until_all_clients_agree_sync_weight"


@pytest.fixture
async def server() -> AsyncIterator[ScriptedSwarm]:
    async with ScriptedSwarm(state="OFFLINE") as server:
        yield server


@pytest.fixture
async def swarm(
    server: ScriptedSwarm, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[AsyncSwarm]:
    monkeypatch.setattr(watcher, "QUIET", 0.2)
    async with AsyncSwarm(server.url, patience=30) as client:
        yield client


async def test_an_engine_that_is_off_gets_the_job_and_starts(
    server: ScriptedSwarm, swarm: AsyncSwarm
) -> None:
    await swarm.auto_sync_train_config_and_start_engine(JOB)
    assert server.state == "ROLLING"
    assert server.config == JOB.to_yaml()
    before = server.requests["/start_engine"]
    await swarm.auto_sync_train_config_and_start_engine(JOB)
    assert server.requests["/start_engine"] == before, "it rolls: nothing to do"


@pytest.mark.parametrize("form", ["job", "text"])
async def test_notices_about_a_job_are_logged_once(
    server: ScriptedSwarm,
    swarm: AsyncSwarm,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    form: str,
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(
        "ajet: {model: {path: m}, data: {train_batch_size: 1}, rollout: {num_repet: 3}, "
        "trainer_common: {n_gpus_per_node: 4}}"
    )
    value = AgentJetJob(base_yaml_config=str(file)) if form == "job" else file.read_text()
    await swarm.auto_sync_train_config_and_start_engine(value)
    assert server.state == "ROLLING"
    assert len([one for one in caplog.messages if "unknown key" in one]) == 1, caplog.text


async def test_a_difference_from_the_running_job_is_reported(
    server: ScriptedSwarm, swarm: AsyncSwarm, caplog: pytest.LogCaptureFixture
) -> None:
    await swarm.auto_sync_train_config_and_start_engine(JOB)
    with caplog.at_level(logging.WARNING):
        await swarm.auto_sync_train_config_and_start_engine(AgentJetJob(batch_size=8))
    assert "train_batch_size = 4, not 8: force_restart=True" in caplog.text


async def test_a_difference_from_the_running_model_is_reported(
    server: ScriptedSwarm,
    swarm: AsyncSwarm,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def embedded(_: SwarmWire, *, again: bool = False) -> frozenset[str]:
        return frozenset({"/ajetc/updates"})

    server.model = "m"
    await swarm.auto_sync_train_config_and_start_engine(JOB)
    await swarm.auto_sync_train_config_and_start_engine(JOB)
    other = AgentJetJob(batch_size=4, num_repeat=4, model="another")
    with monkeypatch.context() as patch:
        patch.setattr(SwarmWire, "features", embedded)
        await swarm.auto_sync_train_config_and_start_engine(other)
    assert "ajet.model.path" not in caplog.text
    await swarm.auto_sync_train_config_and_start_engine(other)
    assert "ajet.model.path = m, not another: force_restart=True" in caplog.text


@pytest.mark.parametrize("path", ["", "/v1"])
async def test_an_unreachable_server_is_reported_at_once_and_only_once(
    server: ScriptedSwarm, caplog: pytest.LogCaptureFixture, path: str
) -> None:
    url = f"{server.url}{path}" if path else "http://127.0.0.1:9"
    hint = "without /v1" if path else "Is the address right"
    async with AsyncSwarm(url, patience=1.0) as swarm:
        asks = [swarm.begin_episode() for _ in range(8)]
        result = await asyncio.gather(
            *asks, swarm.auto_sync_train_config_and_start_engine(JOB), return_exceptions=True
        )
    for one in result:
        assert isinstance(one, Unreachable)
        assert hint in str(one)
    assert caplog.text.count("no swarm server answers, waiting 1 s") == 1
    assert hint in caplog.text


async def test_a_forced_restart_stops_and_waits_for_a_stable_offline(
    server: ScriptedSwarm, swarm: AsyncSwarm
) -> None:
    await swarm.auto_sync_train_config_and_start_engine(JOB)
    other = AgentJetJob(batch_size=8, model="m")
    await swarm.auto_sync_train_config_and_start_engine(other, force_restart=True)
    assert server.stops == 1
    assert server.state == "ROLLING"
    assert server.config == other.to_yaml()


async def test_a_job_that_no_server_accepts_does_not_stop_the_engine(
    server: ScriptedSwarm, swarm: AsyncSwarm
) -> None:
    await swarm.auto_sync_train_config_and_start_engine(JOB)
    with pytest.raises(JobError, match="embedded engine"):
        await swarm.auto_sync_train_config_and_start_engine(
            AgentJetJob(model="tiny"), force_restart=True
        )
    assert server.stops == 0
    assert server.state == "ROLLING"


async def test_a_booting_engine_is_waited_for(
    server: ScriptedSwarm, swarm: AsyncSwarm, tasks: Tasks
) -> None:
    server.set_state("BOOTING")
    waiting = tasks.spawn(swarm.auto_sync_train_config_and_start_engine(JOB), "start")
    await server.until(lambda: server.requests["/get_engine_status"] > 3)
    assert not waiting.done()
    server.set_state("ROLLING", 1)
    await waiting
    assert not server.requests["/start_engine"]


async def test_a_start_that_fails_says_why(server: ScriptedSwarm, swarm: AsyncSwarm) -> None:
    server.start_error = "CUDA out of memory"
    with pytest.raises(SwarmError, match=r"CUDA out of memory.*Only a stop helps"):
        await swarm.auto_sync_train_config_and_start_engine(JOB)
    server.start_error, server.config_error = "", "no such model"
    await swarm.stop_engine()
    with pytest.raises(SwarmError, match="no such model"):
        await swarm.auto_sync_train_config_and_start_engine(JOB)


async def test_an_engine_that_dies_while_booting_is_an_error(
    server: ScriptedSwarm, swarm: AsyncSwarm, tasks: Tasks
) -> None:
    server.boot_seconds = 30
    starting = tasks.spawn(_raised(swarm.auto_sync_train_config_and_start_engine(JOB)), "start")
    await server.until(lambda: server.state == "BOOTING")
    polls = server.requests["/get_engine_status"]
    await server.until(lambda: server.requests["/get_engine_status"] > polls + 2)
    server.detail = "the trainer crashed"
    server.set_state("OFFLINE", 0)
    error = await starting
    assert isinstance(error, EngineOff)
    assert "the trainer crashed" in str(error)
    server.boot_seconds, server.detail, server.gpus = 0.05, "", 4
    error = await _raised(swarm.auto_sync_train_config_and_start_engine(JOB))
    assert "fewer GPUs there than the 8 GPUs" in str(error)
    assert "swarm_server.log" in str(error)


async def _raised(work: object) -> BaseException:
    with pytest.raises(SwarmError) as caught:
        await work  # type: ignore[misc]  # any coroutine
    return caught.value


async def test_waiting_for_a_start_ends_in_time(
    server: ScriptedSwarm, swarm: AsyncSwarm, tasks: Tasks
) -> None:
    server.boot_seconds = 600
    starting = tasks.spawn(swarm.auto_sync_train_config_and_start_engine(JOB), "start")
    await server.until(lambda: swarm.watcher.current.state is EngineState.BOOTING)
    with pytest.raises(GaveUp, match=r"ROLLING did not come in 0\.3 s; the engine is BOOTING"):
        await swarm.auto_sync_train_config_and_start_engine(JOB, timeout=0.3)
    await cancel(starting)


async def test_a_job_is_refused_while_it_runs(server: ScriptedSwarm, swarm: AsyncSwarm) -> None:
    server.set_state("ROLLING", 1)
    with pytest.raises(SwarmError, match="only accepted while the engine is OFFLINE"):
        await swarm.sync_train_config(JOB)
    with pytest.raises(JobError, match="ajet"):
        await swarm.sync_train_config("model: x")


async def test_agreeing_ends_the_batch(server: ScriptedSwarm, swarm: AsyncSwarm) -> None:
    server.method = AGREE
    server.set_state("ROLLING", 1)
    uuid, _ = await swarm.begin_episode()
    server.episodes[uuid].calls += 1
    await swarm.end_episode("t", uuid, WorkflowOutput(reward=1))
    assert await swarm.agree_sync_weight(timeout=60)
    await server.until(lambda: server.step == 2)
    assert len(server.batches) == 1


async def test_agreeing_is_repeated_until_the_client_is_active(
    server: ScriptedSwarm, swarm: AsyncSwarm, tasks: Tasks
) -> None:
    server.method = AGREE
    server.set_state("ROLLING", 1)
    agreeing = tasks.spawn(swarm.agree_sync_weight(), "agree")
    await server.until(lambda: server.requests["/agree_sync_weight"] >= 1)
    uuid, _ = await swarm.begin_episode()
    await swarm.end_episode("t", uuid, WorkflowOutput(reward=1))
    assert await agreeing


async def test_agreeing_under_another_rule_is_an_error(
    server: ScriptedSwarm, swarm: AsyncSwarm
) -> None:
    server.set_state("ROLLING", 1)
    with pytest.raises(SwarmError, match="not by agreement"):
        await swarm.agree_sync_weight()


async def test_several_engines_start_concurrently(
    server: ScriptedSwarm, swarm: AsyncSwarm, tasks: Tasks
) -> None:
    server.boot_seconds = 600
    async with ScriptedSwarm(state="OFFLINE") as second, AsyncSwarm(second.url) as other:
        second.boot_seconds = 600
        starting = tasks.spawn(
            AsyncSwarm.async_and_start_multi_engine([(swarm, JOB), (other, JOB)]), "start"
        )
        await server.until(lambda: (server.state, second.state) == ("BOOTING", "BOOTING"))
        for one in (server, second):
            one.boot_seconds = 0.05
            one.set_state("ROLLING", 1)
        await starting
        assert (server.state, second.state) == ("ROLLING", "ROLLING")
        await other.stop_engine()
        second.start_error = "no GPU"
        with pytest.raises(SwarmError, match=r"1 of 2 engines.*no GPU"):
            await AsyncSwarm.async_and_start_multi_engine([(swarm, JOB), (other, JOB)])


async def test_waiting_for_rolling_returns_the_step(
    server: ScriptedSwarm, swarm: AsyncSwarm
) -> None:
    server.set_state("ROLLING", 7)
    assert await swarm.wait_until_rolling(timeout=60) == 7
    server.sync_seconds = None  # it stays there until the test changes it
    server.set_state("WEIGHT_SYNCING", 8)
    with pytest.raises(GaveUp, match="WEIGHT_SYNCING"):
        await swarm.wait_until_rolling(timeout=0.3)
    server.set_state("ROLLING", 8)
    assert await swarm.wait_until_rolling(timeout=20) == 8
