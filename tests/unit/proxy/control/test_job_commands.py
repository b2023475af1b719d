"""Jobs are saved, started and replaced; a start after a stop waits."""

import asyncio
import os
import time
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
from tests.support.proxy.world import World

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


@pytest.fixture(autouse=True)
def engine(w: World) -> EngineCommands:
    """Its commands on the engine, with a short wait for a stable OFFLINE."""
    commands = EngineCommands(w.context)
    commands.jobs.quiet = 0.15
    w.dispatcher = CommandHandler(w.context, commands.table, commands.refresh)
    return commands


def work(made: World) -> WorkChanged:
    operation: WorkChanged = made.state.servers["s"].work
    return operation


def phases(made: World) -> dict[str, str]:
    return {one.title: one.phase for one in work(made).steps}


async def test_apply_stops_waits_sends_and_starts(w: World) -> None:
    result = await w.order("engine.apply", job=job(lr=1e-4))
    assert result == "s is starting with this job: its engine was stopped for it"
    assert w.swarm.stops == 1
    assert get(load_job(str(w.swarm.config)), LEARNING_RATE) == 1e-4
    await w.until(lambda: work(w).over)
    assert work(w).phase == "done"
    assert work(w).said == "s is ROLLING, step 1"
    assert list(phases(w)) == [
        "check the job",
        "stop the engine",
        "wait for a stable OFFLINE",
        "send the job",
        "start the engine",
        "boot",
    ]
    assert set(phases(w).values()) == {"done"}
    waited = work(w).steps[2]
    assert waited.ended - waited.began >= 0.149  # Unix seconds are rounded, too
    (sent,) = w.kinds(JobSent)
    assert (sent.how, w.state.servers["s"].job.yaml) == ("given", sent.yaml)


async def test_each_step_is_published_when_it_begins_and_ends(w: World) -> None:
    await w.order("engine.apply", job=job())
    await w.until(lambda: work(w).over)
    phase_pairs = [(event.steps[1].phase, event.steps[3].phase) for event in w.kinds(WorkChanged)]
    assert ("doing", "waiting") in phase_pairs
    assert ("done", "doing") in phase_pairs


async def test_the_next_start_uses_the_applied_job(w: World) -> None:
    await w.order("engine.apply", job=job(lr=2e-4))
    await w.until(lambda: work(w).over)
    await w.order("engine.stop")
    assert await w.order("engine.start") == "s is starting with its saved job"
    assert get(load_job(str(w.swarm.config)), LEARNING_RATE) == 2e-4


async def test_a_preset_beats_the_saved_job_and_is_not_saved(w: World) -> None:
    result = await w.order("engine.job", job=job(batch=6))
    assert result.startswith("s: the job is saved in ")
    assert "s.yaml" in result
    await w.order("engine.stop")
    result = await w.order("engine.start", preset="hand")
    assert result == "s is starting with the job for rating by hand: 2 votes make one update"
    assert get(load_job(str(w.swarm.config)), BATCH) == 2
    await w.until(lambda: work(w).over)
    await w.order("engine.stop")
    await w.order("engine.start")
    assert get(load_job(str(w.swarm.config)), BATCH) == 6


@pytest.mark.parametrize("embedded", [True, False])
async def test_a_single_length_is_questioned_for_an_agentjet_server_only(
    embedded: bool, w: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def is_embedded() -> bool:
        return embedded

    monkeypatch.setattr(w.server.client, "is_embedded", is_embedded)
    text = "ajet:\n  rollout: {max_response_length_in_one_turn: 32}\n"
    result = await w.order("engine.job", job=text)
    assert ("the four lengths belong together" in result) is not embedded


async def test_a_bad_job_is_refused_with_its_line_and_nothing_is_stopped(w: World) -> None:
    bad = "ajet:\n  rollout:\n    num_repeat: many\n"
    for name in ("engine.apply", "engine.job", "engine.start"):
        with pytest.raises(AjetError) as caught:
            await w.order(name, job=bad)
        assert "num_repeat" in str(caught.value) or "ROLLING" in str(caught.value)
    with pytest.raises(AjetError) as caught:
        await w.order("engine.apply", job=bad)
    assert caught.value.where == "job:3"
    assert w.swarm.stops == 0
    assert not w.kinds(WorkChanged)
    with pytest.raises(CommandError, match="the command has no job"):
        await w.order("engine.job")


async def test_unknown_keys_are_named_and_saved(w: World) -> None:
    result = await w.order("engine.job", job="ajet:\n  rollout:\n    num_repeats: 4\n")
    assert "line 3: unknown key `ajet.rollout.num_repeats`" in result
    assert "is `ajet.rollout.num_repeat` meant?" in result


async def test_a_saved_job_broken_by_hand_starts_nothing(w: World, engine: EngineCommands) -> None:
    await w.order("engine.stop")
    file = engine.jobs.store.path("s")
    file.parent.mkdir()
    file.write_text("ajet: [")
    with pytest.raises(AjetError) as caught:
        await w.order("engine.start")
    assert caught.value.where.startswith(str(file))
    assert w.swarm.state == "OFFLINE"


async def test_an_operation_cancelled_while_it_waits_reports_the_server_state(
    w: World, engine: EngineCommands
) -> None:
    engine.jobs.quiet = 30.0
    applying = w.context.tasks.spawn(w.order("engine.apply", job=job()), "apply")
    await w.until(lambda: w.state.servers["s"].work is not None)
    await w.until(lambda: phases(w)["wait for a stable OFFLINE"] == "doing")
    with pytest.raises(AjetError, match="`Apply a job` runs on s"):
        await w.order("engine.start")
    assert "ends at its next safe place" in await w.order("engine.cancel")
    with pytest.raises(AjetError) as caught:
        await applying
    assert "cancelled at `wait for a stable OFFLINE`" in caught.value.what
    assert "the engine is OFFLINE, with the job it had and stopped" in caught.value.what
    assert (work(w).phase, w.swarm.config) == ("cancelled", None)
    assert "nothing runs on" in await w.order("engine.cancel")


async def test_a_cancellation_waits_for_a_sent_stop(w: World, engine: EngineCommands) -> None:
    w.swarm.stop_seconds = 0.3
    applying = w.context.tasks.spawn(w.order("engine.apply", job=job()), "apply")
    await w.until(lambda: w.swarm.stops)
    await w.order("engine.cancel")
    with pytest.raises(AjetError, match="`stop the engine`; the engine is OFFLINE"):
        await applying
    assert w.swarm.state == "OFFLINE"


@pytest.mark.parametrize(
    ("fault", "step", "left"),
    [
        ("config", "send the job", "the engine is OFFLINE, with the job it had and stopped"),
        ("start", "start the engine", "the engine is BOOTING, with the job that was sent"),
    ],
)
async def test_a_failed_step_names_the_state(w: World, fault: str, step: str, left: str) -> None:
    setattr(w.swarm, f"{fault}_error", "no GPU is free")
    with pytest.raises(AjetError) as caught:
        await w.order("engine.apply", job=job())
    assert f"`{step}` failed" in caught.value.what
    assert "no GPU is free" in caught.value.what
    assert left in caught.value.what
    assert work(w).phase == "failed"
    (alert,) = w.kinds(AlertRaised)
    assert alert.key == "start:s"
    assert left in todo_of(alert)
    advice = "Stop the engine, correct the job, start it again" if fault == "start" else ""
    assert todo_of(alert).startswith(advice or "Correct the job, start it again")


@pytest.mark.parametrize("order", ["engine.start", "engine.apply"])
async def test_an_error_that_quotes_a_secret_of_the_job_shows_none(w: World, order: str) -> None:
    if order == "engine.start":
        await w.order("engine.stop")
    w.swarm.start_error = "the teacher refused api_key=hunter2hunter2"
    teacher = "{teacher_model: {api_key: hunter2hunter2}}"
    with pytest.raises(AjetError, match=r"api_key=\*\*\*; the engine is BOOTING") as caught:
        await w.order(order, job=f"ajet: {teacher}")
    assert "hunter2" not in str(caught.value)
    assert "hunter2" not in str(w.kinds(AlertRaised))
    assert "hunter2" not in str(w.kinds(WorkChanged))


@pytest.mark.parametrize("preset", [None, "default", "hand"])
async def test_a_preset_leaves_training_to_an_agentjet_server(w: World, preset: str | None) -> None:
    await w.order("engine.stop")
    await w.order("engine.start", preset=preset)
    await w.until(lambda: work(w).over)
    assert work(w).phase == "done"
    sent = load_job(str(w.swarm.config))
    assert {path: get(sent, path) for path in REQUIRED} == dict(REQUIRED)
    assert get(sent, MODEL) == "remote/model"
    assert get(sent, BATCH) == (2 if preset == "hand" else None)
    for path in (LEARNING_RATE, KL, "ajet.trainer_common.ppo_epochs", TEMPERATURE):
        assert get(sent, path) is None
    assert w.kinds(JobSent)[-1].yaml == w.swarm.config


@pytest.mark.parametrize("name", ["engine.start", "engine.apply"])
@pytest.mark.parametrize("model", ["tiny", ""])
async def test_a_job_that_no_agentjet_server_can_train_is_not_sent(
    w: World, monkeypatch: pytest.MonkeyPatch, name: str, model: str
) -> None:
    monkeypatch.delenv(MODEL_VARIABLE)
    if name == "engine.start":
        await w.order("engine.stop")
    stops = w.swarm.stops
    text = f"ajet: {{model: {{path: {model}}}}}" if model else "ajet: {}"
    with pytest.raises(AjetError) as caught:
        await w.order(name, job=text)
    assert ("embedded engine" if model else "no model is named") in caught.value.what
    assert MODEL_VARIABLE in caught.value.todo
    assert w.swarm.stops == stops
    assert w.swarm.config is None


@pytest.mark.world(watched=True)
async def test_a_start_keeps_the_job_of_another_client(w: World, engine: EngineCommands) -> None:
    await w.order("engine.apply", job=job(batch=6))
    await w.until(lambda: work(w).over)
    assert w.state.servers["s"].foreign_start == 0
    saved_at = w.context.clock()  # this clock is late after a stall, that of the file is not
    os.utime(engine.jobs.store.path("s"), (saved_at, saved_at))
    await w.order("engine.stop")
    await w.until(lambda: w.state.servers["s"].state == "OFFLINE")
    theirs = dump_job(server_job("theirs"))
    await w.server.client.sync_train_config(theirs)  # a script starts it, not the proxy
    await w.server.client.start_engine()
    await w.until(lambda: w.state.servers["s"].state == "ROLLING")
    assert w.state.servers["s"].foreign_start > 0
    assert (await job_info(w.context, w.server, engine.jobs.store)).last
    await w.order("engine.stop")
    await w.until(lambda: w.server.watcher.current.state == "OFFLINE")
    result = await w.order("engine.start")
    assert result == "s is starting with the job it had, which another client sent"
    assert get(load_job(str(w.swarm.config)), MODEL) == "theirs"
    await w.until(lambda: w.state.servers["s"].state == "ROLLING")

    await w.order("engine.stop")
    await w.until(lambda: w.server.watcher.current.state == "OFFLINE")
    w.swarm.config = None
    with pytest.raises(AjetError, match="no job any more: it was restarted"):
        await w.order("engine.start")
    await w.order("engine.start", preset="default")
    assert get(load_job(str(w.swarm.config)), MODEL) == "remote/model"
    assert w.state.servers["s"].foreign_start == 0


async def test_a_server_that_does_not_answer_gets_no_job(w: World) -> None:
    w.line.cut = True
    await w.until(lambda: not w.server.watcher.current.reachable)
    with pytest.raises(AjetError, match="the server does not answer"):
        await w.order("engine.apply", job=job())
    assert w.swarm.stops == 0


@pytest.mark.parametrize("step", ["wait for a stable OFFLINE", "boot"])
async def test_a_boot_does_not_wait_for_a_lost_engine(
    step: str, w: World, engine: EngineCommands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ajet_swarm.api.watcher.GONE_FOR", 0.5)
    w.swarm.boot_seconds = 3_000.0
    engine.jobs.quiet = 45.0 if step != "boot" else 0.15
    applying = w.context.tasks.spawn(w.order("engine.apply", job=job()), "apply")
    await w.until(lambda: w.state.servers["s"].work is not None)
    await w.until(lambda: phases(w)[step] == "doing")
    state = "BOOTING" if step == "boot" else "OFFLINE"
    await w.until(lambda: w.server.watcher.current.state == state)
    began = asyncio.get_running_loop().time()
    w.line.cut = True
    await w.until(lambda: work(w).over)
    assert asyncio.get_running_loop().time() - began < 20
    assert f"`{step}` failed: " in work(w).said
    assert "gone: " in work(w).said
    await asyncio.wait([applying])
    assert (applying.exception() is None) == (step == "boot")


async def test_a_boot_that_returns_to_offline_is_reported(w: World) -> None:
    await w.order("engine.stop")
    w.swarm.boot_seconds = 30.0
    await w.order("engine.start")
    await w.until(lambda: phases(w)["boot"] == "doing")
    await w.until(lambda: w.server.watcher.current.state == "BOOTING")
    w.swarm.set_state("OFFLINE")
    await w.until(lambda: work(w).over)
    assert "`boot` failed: the engine went back to OFFLINE" in work(w).said


async def test_a_stop_ends_a_boot_that_does_not_finish(w: World) -> None:
    await w.order("engine.stop")
    w.swarm.boot_seconds = 30.0
    await w.order("engine.start")
    await w.until(lambda: phases(w)["boot"] == "doing")
    assert await w.order("engine.stop") == "s is stopped"
    await w.until(lambda: work(w).over)
    assert work(w).phase == "cancelled"


@pytest.mark.world(watched=True)
async def test_the_job_info_contains_the_running_job_and_its_source(
    w: World, engine: EngineCommands
) -> None:
    await w.server.watcher.poll_pool()
    info = await job_info(w.context, w.server, engine.jobs.store)
    assert (info.saved, info.whole) == ("", False)
    assert "reported by the server" in info.source
    assert get(load_job(info.running), BATCH) == 4

    await w.order("engine.apply", job=job(batch=6))
    await w.until(lambda: work(w).over)
    w.swarm.batch = 9
    await w.until(lambda: w.server.watcher.current.state == "ROLLING")
    await w.server.watcher.poll_pool()
    info = await job_info(w.context, w.server, engine.jobs.store)
    assert info.whole
    assert info.source == "4 values reported by the server, the rest as last sent from here"
    assert BATCH in info.differs
    assert get(load_job(info.running), BATCH) == 9
    assert get(load_job(info.saved), BATCH) == 6

    await w.order("engine.stop")
    await w.until(lambda: w.server.watcher.current.state == "OFFLINE")
    info = await job_info(w.context, w.server, engine.jobs.store)
    assert "as last sent from here" in info.source
    assert get(load_job(info.running), BATCH) == 6


async def test_the_job_an_engine_reports_is_preferred(w: World, engine: EngineCommands) -> None:
    swarm = await w.embedded()
    swarm.job = {"batch_size": 3, "save_freq": 20, "max_tokens": None, "hyper": {"lr": 5e-4}}
    info = await job_info(w.context, w.server, engine.jobs.store)
    assert info.source == "as the engine has read it"
    assert get(load_job(info.running), BATCH) == 3
    assert get(load_job(info.running), LEARNING_RATE) == 5e-4


async def test_an_episode_of_any_client_can_be_aborted(w: World, engine: EngineCommands) -> None:
    body = {"client_uuid": "other", "episode_type": "train", "discard_episode_timeout": 60}
    uuid = w.swarm.claim(body)["episode_uuid"]
    with pytest.raises(AjetError, match="no claimed episode begins with"):
        await w.order("engine.abort_episode", episode="nothing")
    result = await w.order("engine.abort_episode", episode=uuid[:10])
    assert result == f"s: episode {uuid[:8]} of client other aborted; it is back in the pool"


async def test_an_abort_in_flight_is_not_repeated_by_the_same_command(
    w: World, engine: EngineCommands
) -> None:
    """The server may acknowledge the first one minutes later, and grant the episode again."""
    body = {"client_uuid": "other", "episode_type": "train", "discard_episode_timeout": 60}
    uuid = w.swarm.claim(body)["episode_uuid"]
    w.server.claimer.ends.timeout = 0.1
    w.swarm.fail_always("/abort_episode", "stall")
    for _ in range(2):
        with pytest.raises(AjetError, match="has not confirmed the abort"):
            await w.order("engine.abort_episode", episode=uuid)
    assert w.swarm.requests["/abort_episode"] == 1
    w.swarm.release()


WAIT = "wait for a stable OFFLINE"


JOB = dump_job(server_job("m"))


START = "/start_engine"


def first_step(made: World) -> tuple[str, str]:
    operation = made.state.servers["s"].work
    return (operation.steps[0].title, operation.steps[0].phase) if operation else ("", "")


@pytest.mark.parametrize("order", ["engine.stop", ""], ids=["stopped", "ended by itself"])
async def test_a_late_message_of_the_trainer_does_not_end_the_start(
    w: World, engine: EngineCommands, order: str
) -> None:
    engine.jobs.quiet = 60.0
    if order:
        await w.order(order)
    else:
        w.swarm.set_state("OFFLINE", 0)
        await w.server.watcher.refresh(20)
    starting = w.context.tasks.spawn(w.order("engine.start", job=JOB), "start")
    await w.until(lambda: first_step(w) == (WAIT, "doing"))
    w.swarm.set_state("OFFLINE", 7)  # the late message
    await w.server.watcher.refresh(20)
    assert w.swarm.config is None
    assert await w.order("engine.start") == "s is starting already"
    await w.order("engine.cancel")
    with pytest.raises(AjetError, match=f"`Start` was cancelled at `{WAIT}`"):
        await starting
    assert (w.swarm.requests[START], w.swarm.config) == (0, None)
    assert work(w).phase == "cancelled"


async def test_the_start_follows_the_wait(w: World, engine: EngineCommands) -> None:
    engine.jobs.quiet = 0.2
    client, began = w.server.client, time.monotonic()
    w.server.watcher.clock = lambda: client.stopped_at  # however slow this machine is
    await w.order("engine.stop")
    assert await w.order("engine.start", job=JOB) == "s is starting with this job"
    assert time.monotonic() - began >= 0.2
    await w.until(lambda: work(w).over)
    assert [one.title for one in work(w).steps] == [
        WAIT,
        "send the job",
        "start the engine",
        "boot",
    ]
    assert {one.phase for one in work(w).steps} == {"done"}


@pytest.mark.world(state="OFFLINE")
async def test_a_server_that_was_offline_for_long_is_started_at_once(
    w: World, engine: EngineCommands
) -> None:
    engine.jobs.quiet = 60.0
    w.server.watcher.clock = lambda: time.time() + 61
    await w.order("engine.start", job=JOB)
    assert first_step(w) == ("send the job", "done")


@pytest.mark.parametrize("name", ["engine.start", "engine.resume"])
async def test_the_embedded_engine_is_started_at_once(
    w: World, engine: EngineCommands, name: str
) -> None:
    engine.jobs.quiet = 60.0
    await w.embedded()
    w.swarm.config = JOB
    await w.order("engine.stop")
    await w.order(name)
    assert first_step(w)[0] in ("send the job", "start the engine")


async def test_a_resume_of_another_server_waits_and_can_be_cancelled(
    w: World, engine: EngineCommands
) -> None:
    engine.jobs.quiet = 60.0
    await w.embedded("/ajetc/info")
    w.swarm.config = JOB
    restoring = w.context.tasks.spawn(w.order("engine.restore", name="base"), "restore")
    await w.until(lambda: first_step(w) == (WAIT, "doing"))
    await w.order("engine.cancel")
    with pytest.raises(AjetError, match=f"`Resume` was cancelled at `{WAIT}`"):
        await restoring
    assert (work(w).work, work(w).phase) == ("Resume", "cancelled")
    assert (w.swarm.state, w.swarm.requests[START]) == ("OFFLINE", 0)
