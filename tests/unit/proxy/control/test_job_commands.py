"""Jobs: saved, started, replaced; each step is published, each failure names the state it left."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ajet_swarm.common.errors import AjetError
from ajet_swarm.job.schema import BATCH, KL, LEARNING_RATE, MODEL, REQUIRED, TEMPERATURE
from ajet_swarm.job.server import MODEL_VARIABLE
from ajet_swarm.job.tree import dump_job, get, load_job, put
from core.commands import CommandError
from core.events import AlertRaised, JobSent, WorkChanged
from core.jobs import server_job
from proxy.control.dispatch import CommandHandler
from proxy.control.engine_commands import EngineCommands
from proxy.control.job_commands import job_info
from tests.support.alerts import todo_of
from tests.support.proxy.world import World, world
from tests.support.scripted.ajetc_transport import AjetcTransport

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def remote_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model that the presets for AgentJet servers name."""
    monkeypatch.setenv(MODEL_VARIABLE, "remote/model")


def job(**values: Any) -> str:
    """The default job of an AgentJet server with other values: `job(lr=1e-4)`."""
    made = server_job("m")
    for path, value in ((LEARNING_RATE, values.get("lr")), (BATCH, values.get("batch"))):
        if value is not None:
            put(made, path, value)
    return dump_job(made)


@asynccontextmanager
async def orders(home: Path, **more: Any) -> AsyncIterator[tuple[World, EngineCommands]]:
    async with world(home, **more) as made:
        commands = EngineCommands(made.context)
        commands.jobs.quiet = 0.15
        yield made, commands


async def give(commands: EngineCommands, name: str, /, **args: Any) -> str:
    handler = CommandHandler(commands.context, commands.table, commands.refresh)
    return (await handler.execute(name, args))[0]


def work(made: World) -> WorkChanged:
    operation: WorkChanged = made.state.servers["s"].work
    return operation


def phases(made: World) -> dict[str, str]:
    return {one.title: one.phase for one in work(made).steps}


async def test_apply_stops_waits_sends_and_starts(tmp_path: Path) -> None:
    async with orders(tmp_path) as (made, value):
        result = await give(value, "engine.apply", job=job(lr=1e-4))
        assert result == "s is starting with this job: its engine was stopped for it"
        assert made.swarm.stops == 1
        assert get(load_job(str(made.swarm.config)), LEARNING_RATE) == 1e-4
        await made.until(lambda: work(made).over)
        assert work(made).phase == "done"
        assert work(made).said == "s is ROLLING, step 1"
        assert list(phases(made)) == [
            "check the job",
            "stop the engine",
            "wait for a stable OFFLINE",
            "send the job",
            "start the engine",
            "boot",
        ]
        assert set(phases(made).values()) == {"done"}
        waited = work(made).steps[2]
        assert waited.ended - waited.began >= 0.149  # Unix seconds are rounded, too
        (sent,) = made.kinds(JobSent)
        assert (sent.how, made.state.servers["s"].job.yaml) == ("given", sent.yaml)


async def test_each_step_is_published_when_it_begins_and_ends(tmp_path: Path) -> None:
    async with orders(tmp_path) as (made, value):
        await give(value, "engine.apply", job=job())
        await made.until(lambda: work(made).over)
        phase_pairs = [
            (event.steps[1].phase, event.steps[3].phase) for event in made.kinds(WorkChanged)
        ]
        assert ("doing", "waiting") in phase_pairs
        assert ("done", "doing") in phase_pairs


async def test_the_next_start_uses_the_applied_job(tmp_path: Path) -> None:
    async with orders(tmp_path) as (made, value):
        await give(value, "engine.apply", job=job(lr=2e-4))
        await made.until(lambda: work(made).over)
        await give(value, "engine.stop")
        assert await give(value, "engine.start") == "s is starting with its saved job"
        assert get(load_job(str(made.swarm.config)), LEARNING_RATE) == 2e-4


async def test_a_preset_beats_the_saved_job_and_is_not_saved(tmp_path: Path) -> None:
    async with orders(tmp_path) as (made, value):
        result = await give(value, "engine.job", job=job(batch=6))
        assert result.startswith("s: the job is saved in ")
        assert "s.yaml" in result
        await give(value, "engine.stop")
        result = await give(value, "engine.start", preset="hand")
        assert result == "s is starting with the job for rating by hand: 2 votes make one update"
        assert get(load_job(str(made.swarm.config)), BATCH) == 2
        await made.until(lambda: work(made).over)
        await give(value, "engine.stop")
        await give(value, "engine.start")
        assert get(load_job(str(made.swarm.config)), BATCH) == 6


@pytest.mark.parametrize("embedded", [True, False])
async def test_a_single_length_is_questioned_for_an_agentjet_server_only(
    embedded: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def is_embedded() -> bool:
        return embedded

    async with orders(tmp_path) as (made, value):
        monkeypatch.setattr(made.server.client, "is_embedded", is_embedded)
        text = "ajet:\n  rollout: {max_response_length_in_one_turn: 32}\n"
        result = await give(value, "engine.job", job=text)
        assert ("the four lengths belong together" in result) is not embedded


async def test_a_bad_job_is_refused_with_its_line_and_nothing_is_stopped(tmp_path: Path) -> None:
    async with orders(tmp_path) as (made, value):
        bad = "ajet:\n  rollout:\n    num_repeat: many\n"
        for name in ("engine.apply", "engine.job", "engine.start"):
            with pytest.raises(AjetError) as caught:
                await give(value, name, job=bad)
            assert "num_repeat" in str(caught.value) or "ROLLING" in str(caught.value)
        with pytest.raises(AjetError) as caught:
            await give(value, "engine.apply", job=bad)
        assert caught.value.where == "job:3"
        assert made.swarm.stops == 0
        assert not made.kinds(WorkChanged)
        with pytest.raises(CommandError, match="the command has no job"):
            await give(value, "engine.job")


async def test_unknown_keys_are_named_and_saved(tmp_path: Path) -> None:
    async with orders(tmp_path) as (_, value):
        result = await give(value, "engine.job", job="ajet:\n  rollout:\n    num_repeats: 4\n")
        assert "line 3: unknown key `ajet.rollout.num_repeats`" in result
        assert "is `ajet.rollout.num_repeat` meant?" in result


async def test_a_saved_job_that_was_broken_by_hand_starts_nothing(tmp_path: Path) -> None:
    async with orders(tmp_path) as (made, value):
        await give(value, "engine.stop")
        file = value.jobs.store.path("s")
        file.parent.mkdir()
        file.write_text("ajet: [")
        with pytest.raises(AjetError) as caught:
            await give(value, "engine.start")
        assert caught.value.where.startswith(str(file))
        assert made.swarm.state == "OFFLINE"


async def test_an_operation_cancelled_while_it_waits_reports_the_server_state(
    tmp_path: Path,
) -> None:
    async with orders(tmp_path) as (made, value):
        value.jobs.quiet = 30.0
        applying = made.context.tasks.spawn(give(value, "engine.apply", job=job()), "apply")
        await made.until(lambda: made.state.servers["s"].work is not None)
        await made.until(lambda: phases(made)["wait for a stable OFFLINE"] == "doing")
        with pytest.raises(AjetError, match="`Apply a job` runs on s"):
            await give(value, "engine.start")
        assert "ends at its next safe place" in await give(value, "engine.cancel")
        with pytest.raises(AjetError) as caught:
            await applying
        assert "cancelled at `wait for a stable OFFLINE`" in caught.value.what
        assert "the engine is OFFLINE, with the job it had and stopped" in caught.value.what
        assert (work(made).phase, made.swarm.config) == ("cancelled", None)
        assert "nothing runs on" in await give(value, "engine.cancel")


async def test_a_cancellation_waits_for_a_stop_that_was_sent(tmp_path: Path) -> None:
    async with orders(tmp_path) as (made, value):
        made.swarm.stop_seconds = 0.3
        applying = made.context.tasks.spawn(give(value, "engine.apply", job=job()), "apply")
        await made.until(lambda: made.swarm.stops)
        await give(value, "engine.cancel")
        with pytest.raises(AjetError, match="`stop the engine`; the engine is OFFLINE"):
            await applying
        assert made.swarm.state == "OFFLINE"


@pytest.mark.parametrize(
    ("fault", "step", "left"),
    [
        ("config", "send the job", "the engine is OFFLINE, with the job it had and stopped"),
        ("start", "start the engine", "the engine is BOOTING, with the job that was sent"),
    ],
)
async def test_a_failed_step_reports_the_server_state(
    tmp_path: Path, fault: str, step: str, left: str
) -> None:
    async with orders(tmp_path) as (made, value):
        setattr(made.swarm, f"{fault}_error", "no GPU is free")
        with pytest.raises(AjetError) as caught:
            await give(value, "engine.apply", job=job())
        assert f"`{step}` failed" in caught.value.what
        assert "no GPU is free" in caught.value.what
        assert left in caught.value.what
        assert work(made).phase == "failed"
        (alert,) = made.kinds(AlertRaised)
        assert alert.key == "start:s"
        assert left in todo_of(alert)
        advice = "Stop the engine, correct the job, start it again" if fault == "start" else ""
        assert todo_of(alert).startswith(advice or "Correct the job, start it again")


@pytest.mark.parametrize("order", ["engine.start", "engine.apply"])
async def test_an_error_that_quotes_a_secret_of_the_job_shows_none(
    tmp_path: Path, order: str
) -> None:
    async with orders(tmp_path) as (made, value):
        if order == "engine.start":
            await give(value, "engine.stop")
        made.swarm.start_error = "the teacher refused api_key=hunter2hunter2"
        teacher = "{teacher_model: {api_key: hunter2hunter2}}"
        with pytest.raises(AjetError, match=r"api_key=\*\*\*; the engine is BOOTING") as caught:
            await give(value, order, job=f"ajet: {teacher}")
        assert "hunter2" not in str(caught.value)
        assert "hunter2" not in str(made.kinds(AlertRaised))
        assert "hunter2" not in str(made.kinds(WorkChanged))


@pytest.mark.parametrize("preset", [None, "default", "hand"])
async def test_a_preset_for_an_agentjet_server_leaves_training_to_it(
    tmp_path: Path, preset: str | None
) -> None:
    async with orders(tmp_path) as (made, value):
        await give(value, "engine.stop")
        await give(value, "engine.start", preset=preset)
        await made.until(lambda: work(made).over)
        assert work(made).phase == "done"
        sent = load_job(str(made.swarm.config))
        assert {path: get(sent, path) for path in REQUIRED} == dict(REQUIRED)
        assert get(sent, MODEL) == "remote/model"
        assert get(sent, BATCH) == (2 if preset == "hand" else None)
        for path in (LEARNING_RATE, KL, "ajet.trainer_common.ppo_epochs", TEMPERATURE):
            assert get(sent, path) is None
        assert made.kinds(JobSent)[-1].yaml == made.swarm.config


@pytest.mark.parametrize("name", ["engine.start", "engine.apply"])
@pytest.mark.parametrize("model", ["tiny", ""])
async def test_a_job_that_no_agentjet_server_can_train_is_not_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, model: str
) -> None:
    monkeypatch.delenv(MODEL_VARIABLE)
    async with orders(tmp_path) as (made, value):
        if name == "engine.start":
            await give(value, "engine.stop")
        stops = made.swarm.stops
        text = f"ajet: {{model: {{path: {model}}}}}" if model else "ajet: {}"
        with pytest.raises(AjetError) as caught:
            await give(value, name, job=text)
        assert ("embedded engine" if model else "no model is named") in caught.value.what
        assert MODEL_VARIABLE in caught.value.todo
        assert made.swarm.stops == stops
        assert made.swarm.config is None


async def test_a_start_keeps_the_job_that_another_client_sent(tmp_path: Path) -> None:
    async with orders(tmp_path, watched=True) as (made, value):
        await give(value, "engine.apply", job=job(batch=6))
        await made.until(lambda: work(made).over)
        assert made.state.servers["s"].foreign_start == 0
        saved_at = made.context.clock()  # this clock is late after a stall, that of the file is not
        os.utime(value.jobs.store.path("s"), (saved_at, saved_at))
        await give(value, "engine.stop")
        await made.until(lambda: made.state.servers["s"].state == "OFFLINE")
        theirs = dump_job(server_job("theirs"))
        await made.server.client.sync_train_config(theirs)  # a script starts it, not the proxy
        await made.server.client.start_engine()
        await made.until(lambda: made.state.servers["s"].state == "ROLLING")
        assert made.state.servers["s"].foreign_start > 0
        assert (await job_info(made.context, made.server, value.jobs.store)).last
        await give(value, "engine.stop")
        await made.until(lambda: made.server.watcher.current.state == "OFFLINE")
        result = await give(value, "engine.start")
        assert result == "s is starting with the job it had, which another client sent"
        assert get(load_job(str(made.swarm.config)), MODEL) == "theirs"
        await made.until(lambda: made.state.servers["s"].state == "ROLLING")

        await give(value, "engine.stop")
        await made.until(lambda: made.server.watcher.current.state == "OFFLINE")
        made.swarm.config = None
        with pytest.raises(AjetError, match="no job any more: it was restarted"):
            await give(value, "engine.start")
        await give(value, "engine.start", preset="default")
        assert get(load_job(str(made.swarm.config)), MODEL) == "remote/model"
        assert made.state.servers["s"].foreign_start == 0


async def test_a_server_that_does_not_answer_gets_no_job(tmp_path: Path) -> None:
    async with orders(tmp_path) as (made, value):
        made.line.cut = True
        await made.until(lambda: not made.server.watcher.current.reachable)
        with pytest.raises(AjetError, match="the server does not answer"):
            await give(value, "engine.apply", job=job())
        assert made.swarm.stops == 0


@pytest.mark.parametrize("step", ["wait for a stable OFFLINE", "boot"])
async def test_a_boot_does_not_wait_for_a_lost_engine(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ajet_swarm.api.watcher.GONE_FOR", 0.5)
    async with orders(tmp_path) as (made, value):
        made.swarm.boot_seconds = 3_000.0
        value.jobs.quiet = 45.0 if step != "boot" else 0.15
        applying = made.context.tasks.spawn(give(value, "engine.apply", job=job()), "apply")
        await made.until(lambda: made.state.servers["s"].work is not None)
        await made.until(lambda: phases(made)[step] == "doing")
        state = "BOOTING" if step == "boot" else "OFFLINE"
        await made.until(lambda: made.server.watcher.current.state == state)
        began = asyncio.get_running_loop().time()
        made.line.cut = True
        await made.until(lambda: work(made).over)
        assert asyncio.get_running_loop().time() - began < 20
        assert f"`{step}` failed: " in work(made).said
        assert "gone: " in work(made).said
        await asyncio.wait([applying])
        assert (applying.exception() is None) == (step == "boot")


async def test_a_boot_that_returns_to_offline_is_reported(tmp_path: Path) -> None:
    async with orders(tmp_path) as (made, value):
        await give(value, "engine.stop")
        made.swarm.boot_seconds = 30.0
        await give(value, "engine.start")
        await made.until(lambda: phases(made)["boot"] == "doing")
        await made.until(lambda: made.server.watcher.current.state == "BOOTING")
        made.swarm.set_state("OFFLINE")
        await made.until(lambda: work(made).over)
        assert "`boot` failed: the engine went back to OFFLINE" in work(made).said


async def test_a_stop_ends_a_boot_that_does_not_finish(tmp_path: Path) -> None:
    async with orders(tmp_path) as (made, value):
        await give(value, "engine.stop")
        made.swarm.boot_seconds = 30.0
        await give(value, "engine.start")
        await made.until(lambda: phases(made)["boot"] == "doing")
        assert await give(value, "engine.stop") == "s is stopped"
        await made.until(lambda: work(made).over)
        assert work(made).phase == "cancelled"


async def test_the_job_info_contains_the_running_job_and_its_source(tmp_path: Path) -> None:
    async with orders(tmp_path, watched=True) as (made, value):
        await made.server.watcher.poll_pool()
        info = await job_info(made.context, made.server, value.jobs.store)
        assert (info.saved, info.whole) == ("", False)
        assert "reported by the server" in info.source
        assert get(load_job(info.running), BATCH) == 4

        await give(value, "engine.apply", job=job(batch=6))
        await made.until(lambda: work(made).over)
        made.swarm.batch = 9
        await made.until(lambda: made.server.watcher.current.state == "ROLLING")
        await made.server.watcher.poll_pool()
        info = await job_info(made.context, made.server, value.jobs.store)
        assert info.whole
        assert info.source == "4 values reported by the server, the rest as last sent from here"
        assert BATCH in info.differs
        assert get(load_job(info.running), BATCH) == 9
        assert get(load_job(info.saved), BATCH) == 6

        await give(value, "engine.stop")
        await made.until(lambda: made.server.watcher.current.state == "OFFLINE")
        info = await job_info(made.context, made.server, value.jobs.store)
        assert "as last sent from here" in info.source
        assert get(load_job(info.running), BATCH) == 6


async def test_the_job_reported_by_an_engine_takes_precedence(tmp_path: Path) -> None:
    async with orders(tmp_path) as (made, value):
        client = made.server.client
        swarm = AjetcTransport(client.transport, made.swarm)
        client.transport = swarm  # type: ignore[assignment]  # it streams nothing here
        await client.features(again=True)
        swarm.job = {"batch_size": 3, "save_freq": 20, "max_tokens": None, "hyper": {"lr": 5e-4}}
        info = await job_info(made.context, made.server, value.jobs.store)
        assert info.source == "as the engine has read it"
        assert get(load_job(info.running), BATCH) == 3
        assert get(load_job(info.running), LEARNING_RATE) == 5e-4


async def test_an_episode_of_any_client_can_be_aborted(tmp_path: Path) -> None:
    async with orders(tmp_path) as (made, value):
        body = {"client_uuid": "other", "episode_type": "train", "discard_episode_timeout": 60}
        uuid = made.swarm.claim(body)["episode_uuid"]
        with pytest.raises(AjetError, match="no claimed episode begins with"):
            await give(value, "engine.abort_episode", episode="nothing")
        result = await give(value, "engine.abort_episode", episode=uuid[:10])
        assert result == f"s: episode {uuid[:8]} of client other aborted; it is back in the pool"
        assert not made.swarm.claimed()


async def test_an_abort_in_flight_is_not_repeated_by_the_same_command(tmp_path: Path) -> None:
    """The server may acknowledge the first one minutes later, and grant the episode again."""
    async with orders(tmp_path) as (made, value):
        body = {"client_uuid": "other", "episode_type": "train", "discard_episode_timeout": 60}
        uuid = made.swarm.claim(body)["episode_uuid"]
        made.server.claimer.ends.timeout = 0.1
        made.swarm.fail_always("/abort_episode", "stall")
        for _ in range(2):
            with pytest.raises(AjetError, match="has not confirmed the abort"):
                await give(value, "engine.abort_episode", episode=uuid)
        assert made.swarm.requests["/abort_episode"] == 1
        made.swarm.release()
        await made.until(lambda: not made.swarm.claimed())
