"""Training run of a server: reported by the embedded engine, else counted by observed starts."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ajet_swarm.protocol.schemas import EngineState
from core.events import JobSent, TrainingRunIdentified, WorkChanged
from proxy.servers.reader import experiment_of
from tests.support.proxy.world import World, world
from tests.support.scripted.ajetc_transport import AjetcTransport
from tests.support.scripted.swarm import ScriptedSwarm

pytestmark = pytest.mark.slow


@asynccontextmanager
async def watched(
    home: Path, run: str | None = None
) -> AsyncIterator[tuple[World, AjetcTransport]]:
    """A proxy whose watch sees the server offline; with `run` its engine reports that one."""
    async with (
        ScriptedSwarm(state="OFFLINE") as swarm,
        world(home, swarm, watched=True) as made,
    ):
        stored = AjetcTransport(made.server.client.transport, swarm)
        if run is not None:
            stored.run = run
            made.server.client.transport = stored
            await made.server.client.features(again=True)
        yield made, stored


async def start(made: World, step: int = 1) -> None:
    """Let the engine start, and wait until its run is identified."""
    for state in ("OFFLINE", "BOOTING", "ROLLING"):
        made.swarm.set_state(state, step if state == "ROLLING" else 0)
        await made.server.watcher.wait_for({EngineState(state)}, 20)
    await made.until(lambda: made.state.servers["s"].run_number)


def runs(made: World) -> list[tuple[int, str, str]]:
    return [(kind.number, kind.name, kind.start) for kind in made.kinds(TrainingRunIdentified)]


async def test_the_run_of_the_embedded_engine_survives_a_stop_and_a_start(tmp_path: Path) -> None:
    async with watched(tmp_path, "5d41402a") as (made, value):
        await start(made)
        await start(made)
        assert [name for _, name, _ in runs(made)] == ["5d41402a"] * 2
        assert {number for number, _, _ in runs(made)} == {1}
        value.run, value.run_start = "7d793037", "step-2"  # restored while it was offline
        await start(made)
        assert runs(made)[-1] == (2, "7d793037", "step-2")
        assert made.server.identifying is None


async def test_a_restart_that_was_not_observed_is_noticed_at_the_next_step(tmp_path: Path) -> None:
    async with watched(tmp_path, "5d41402a") as (made, value):
        await start(made)
        value.run = "7d793037"
        made.swarm.set_state("ROLLING", 2)
        await made.until(lambda: len(made.state.servers["s"].runs) == 2)
        assert runs(made)[-1][:2] == (2, "7d793037")


async def test_each_observed_start_of_an_agentjet_server_is_another_run(tmp_path: Path) -> None:
    async with watched(tmp_path) as (made, _):
        await start(made)
        await start(made)
        names = [name for _, name, _ in runs(made)]
        assert (names[0], names[-1]) == ("run.1", "run.2")  # the last part of /srv/run, a count
        assert len(made.state.servers["s"].runs) == 2


async def test_the_experiment_of_a_job_that_this_proxy_started_names_the_run(
    tmp_path: Path,
) -> None:
    async with watched(tmp_path) as (made, _):
        job = "ajet: {experiment_name: math, model: {path: /models/q}}"
        made.context.bus.publish(JobSent(server="s", yaml=job))
        made.context.bus.publish(WorkChanged(server="s", work="Start", steps=()))
        await start(made)
        assert made.state.servers["s"].runs[-1].name == "math.1"


@pytest.mark.parametrize("job", ["", "ajet: [", "ajet: {}", "ajet: {experiment_name: 3}", "x: 1"])
def test_a_job_without_a_readable_experiment_has_none(job: str) -> None:
    assert experiment_of(job) == ""


async def test_a_server_that_reports_nothing_still_has_counted_runs(tmp_path: Path) -> None:
    async with watched(tmp_path) as (made, _):
        made.swarm.fail_always("/get_server_experiment_dir", 404)
        made.swarm.fail_always("/openapi.json", 404)
        await start(made)
        assert made.state.servers["s"].runs[-1].name == "run.1"
