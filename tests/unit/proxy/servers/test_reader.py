"""What is read from a server: figures of updates, its training run."""

from typing import Any

import pytest

from ajet_swarm.protocol.schemas import EngineState, PoolInfo
from core.events import JobSent, TrainingRunIdentified, UpdateDone, WorkChanged
from proxy.servers.reader import ServerReader, experiment_of, figures, pool_stats
from tests.support.proxy.world import World

pytestmark = pytest.mark.slow


TOLD: dict[str, Any] = {
    "step": 1,
    "samples": 16,
    "kl": 0.02,
    "clip_fraction": None,
    "no_signal_share": 0.25,
    "step_seconds": 4.5,
    "sync_seconds": 0.3,
    "at": 1.0,
    "extra": {"loss": -0.1},
}


async def read(w: World) -> None:
    """Start a reader on its server."""
    watcher, reader = w.server.watcher, ServerReader(w.context, w.server)
    watcher.add_listener(reader.on_status)
    watcher.add_pool_listener(reader.on_pool)
    w.context.tasks.spawn(reader.run(), "reader")
    await w.until(lambda: watcher.current.reachable and watcher.current.step == 1)


def published(made: World) -> list[tuple[int, str]]:
    return [(kind.step, kind.source) for kind in made.kinds(UpdateDone)]


@pytest.mark.world(batch=1, repeat=2)
async def test_each_update_is_published_once_with_all_its_figures(w: World) -> None:
    engine = await w.embedded()
    await read(w)
    engine.updates = [TOLD]
    w.swarm.set_state("ROLLING", 2)
    await w.until(lambda: w.server.watcher.current.step == 2)
    await w.until(lambda: published(w) == [(1, "engine")])
    engine.updates.append({**TOLD, "step": 2})
    w.swarm.set_state("ROLLING", 3)
    await w.until(lambda: published(w) == [(1, "engine"), (2, "engine")])
    stats = w.kinds(UpdateDone)[0].stats
    assert (stats["step_seconds"], stats["loss"]) == (4.5, -0.1)
    await w.until(lambda: w.state.servers["s"].checkpoints)


@pytest.mark.world(batch=1, repeat=2)
async def test_updates_after_a_restored_step_are_read_again(w: World) -> None:
    engine = await w.embedded()
    await read(w)
    engine.updates = [{**TOLD, "step": step} for step in (1, 2, 3)]
    w.swarm.set_state("ROLLING", 4)
    await w.until(lambda: len(published(w)) == 3)
    engine.updates = engine.updates[:1]
    w.swarm.set_state("ROLLING", 2)
    await w.until(lambda: w.server.watcher.current.step == 2)
    engine.updates.append({**TOLD, "step": 2, "kl": 0.5})
    w.swarm.set_state("ROLLING", 3)
    await w.until(lambda: len(published(w)) == 4)
    assert published(w)[-1] == (2, "engine")
    assert w.kinds(UpdateDone)[-1].stats["kl"] == 0.5


@pytest.mark.world(batch=1, repeat=2)
async def test_updates_of_a_server_without_the_route_come_from_its_pool(w: World) -> None:
    await read(w)
    await w.complete()
    await w.until(lambda: published(w))
    (event,) = w.kinds(UpdateDone)
    assert (event.step, event.source) == (1, "pool")
    assert event.stats["reward_mean"] == pytest.approx(0.05)
    assert event.stats["no_signal_share"] == 0


def test_null_values_are_dropped() -> None:
    result = figures(TOLD)
    assert result == {
        "samples": 16.0,
        "kl": 0.02,
        "no_signal_share": 0.25,
        "step_seconds": 4.5,
        "sync_seconds": 0.3,
        "loss": -0.1,
    }


def test_statistics_of_a_pool_computed_by_hand() -> None:
    pool = PoolInfo(
        completed_tasks_rewards={"a": [0.0, 1.0], "b": [0.5, 0.5], "c": [None], "d": []}
    )
    assert pool_stats(pool) == {
        "samples": 4.0,
        "groups": 2.0,
        "dead_groups": 1.0,
        "no_signal_share": 0.5,
        "reward_mean": 0.5,
        "reward_std": pytest.approx(0.125**0.5),
    }
    assert pool_stats(PoolInfo()) == {}
    assert pool_stats(PoolInfo(completed_tasks_rewards={"a": [None]})) == {}


OFFLINE = pytest.mark.world(state="OFFLINE", watched=True)
"""The watch of the proxy sees the server offline."""


async def start(made: World, step: int = 1) -> None:
    """Let the engine start, and wait until its run is identified."""
    for state in ("OFFLINE", "BOOTING", "ROLLING"):
        made.swarm.set_state(state, step if state == "ROLLING" else 0)
        await made.server.watcher.wait_for({EngineState(state)}, 20)
    await made.until(lambda: made.state.servers["s"].run_number)


def runs(made: World) -> list[tuple[int, str, str]]:
    return [(kind.number, kind.name, kind.start) for kind in made.kinds(TrainingRunIdentified)]


@OFFLINE
async def test_the_run_of_the_embedded_engine_survives_a_stop_and_a_start(w: World) -> None:
    engine = await w.embedded()
    engine.run = "5d41402a"
    await start(w)
    await start(w)
    assert [name for _, name, _ in runs(w)] == ["5d41402a"] * 2
    assert {number for number, _, _ in runs(w)} == {1}
    engine.run, engine.run_start = "7d793037", "step-2"  # restored while it was offline
    await start(w)
    assert runs(w)[-1] == (2, "7d793037", "step-2")
    assert w.server.identifying is None


@OFFLINE
async def test_a_restart_that_was_not_observed_is_noticed_at_the_next_step(w: World) -> None:
    engine = await w.embedded()
    engine.run = "5d41402a"
    await start(w)
    engine.run = "7d793037"
    w.swarm.set_state("ROLLING", 2)
    await w.until(lambda: len(w.state.servers["s"].runs) == 2)
    assert runs(w)[-1][:2] == (2, "7d793037")


@OFFLINE
async def test_each_observed_start_of_an_agentjet_server_is_another_run(w: World) -> None:
    await start(w)
    await start(w)
    names = [name for _, name, _ in runs(w)]
    assert (names[0], names[-1]) == ("run.1", "run.2")  # the last part of /srv/run, a count
    assert len(w.state.servers["s"].runs) == 2


@OFFLINE
async def test_the_experiment_of_a_job_that_this_proxy_started_names_the_run(w: World) -> None:
    job = "ajet: {experiment_name: math, model: {path: /models/q}}"
    w.context.bus.publish(JobSent(server="s", yaml=job))
    w.context.bus.publish(WorkChanged(server="s", work="Start", steps=()))
    await start(w)
    assert w.state.servers["s"].runs[-1].name == "math.1"


@pytest.mark.parametrize("job", ["", "ajet: [", "ajet: {}", "ajet: {experiment_name: 3}", "x: 1"])
def test_a_job_without_a_readable_experiment_has_none(job: str) -> None:
    assert experiment_of(job) == ""


@OFFLINE
async def test_a_server_that_reports_nothing_still_has_counted_runs(w: World) -> None:
    w.swarm.fail_always("/get_server_experiment_dir", 404)
    w.swarm.fail_always("/openapi.json", 404)
    await start(w)
    assert w.state.servers["s"].runs[-1].name == "run.1"
