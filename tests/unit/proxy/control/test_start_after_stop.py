"""A start soon after the engine went OFFLINE waits: a late message of the trainer would end it."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ajet_swarm.common.errors import AjetError
from ajet_swarm.job.tree import dump_job
from core.events import WorkChanged
from core.jobs import server_job
from proxy.control.dispatch import CommandHandler
from proxy.control.engine_commands import EngineCommands
from tests.support.proxy.world import World, world
from tests.support.scripted.ajetc_transport import AjetcTransport
from tests.support.scripted.swarm import ScriptedSwarm

WAIT = "wait for a stable OFFLINE"
JOB = dump_job(server_job("m"))
START = "/start_engine"


@asynccontextmanager
async def orders(
    home: Path, swarm: ScriptedSwarm | None = None, quiet: float = 60.0
) -> AsyncIterator[tuple[World, EngineCommands]]:
    async with world(home, swarm) as made:
        commands = EngineCommands(made.context)
        commands.jobs.quiet = quiet
        yield made, commands


async def give(commands: EngineCommands, name: str, /, **args: Any) -> str:
    handler = CommandHandler(commands.context, commands.table, commands.refresh)
    return (await handler.execute(name, args))[0]


def work(made: World) -> WorkChanged:
    operation: WorkChanged = made.state.servers["s"].work
    return operation


def first_step(made: World) -> tuple[str, str]:
    operation = made.state.servers["s"].work
    return (operation.steps[0].title, operation.steps[0].phase) if operation else ("", "")


@pytest.mark.parametrize("order", ["engine.stop", ""], ids=["stopped", "ended by itself"])
async def test_a_late_message_of_the_trainer_does_not_end_the_start(
    tmp_path: Path, order: str
) -> None:
    async with orders(tmp_path) as (made, value):
        if order:
            await give(value, order)
        else:
            made.swarm.set_state("OFFLINE", 0)
            await made.server.watcher.refresh(20)
        starting = made.context.tasks.spawn(give(value, "engine.start", job=JOB), "start")
        await made.until(lambda: first_step(made) == (WAIT, "doing"))
        made.swarm.set_state("OFFLINE", 7)  # the late message
        await made.server.watcher.refresh(20)
        assert made.swarm.config is None
        assert await give(value, "engine.start") == "s is starting already"
        await give(value, "engine.cancel")
        with pytest.raises(AjetError, match=f"`Start` was cancelled at `{WAIT}`"):
            await starting
        assert (made.swarm.requests[START], made.swarm.config) == (0, None)
        assert work(made).phase == "cancelled"


async def test_the_start_follows_the_wait(tmp_path: Path) -> None:
    async with orders(tmp_path, quiet=0.2) as (made, value):
        client, began = made.server.client, time.monotonic()
        made.server.watcher.clock = lambda: client.stopped_at  # however slow this machine is
        await give(value, "engine.stop")
        assert await give(value, "engine.start", job=JOB) == "s is starting with this job"
        assert time.monotonic() - began >= 0.2
        await made.until(lambda: work(made).over)
        assert [one.title for one in work(made).steps] == [
            WAIT,
            "send the job",
            "start the engine",
            "boot",
        ]
        assert {one.phase for one in work(made).steps} == {"done"}


async def test_a_stop_ends_the_wait(tmp_path: Path) -> None:
    async with orders(tmp_path) as (made, value):
        await give(value, "engine.stop")
        starting = made.context.tasks.spawn(give(value, "engine.start", job=JOB), "start")
        await made.until(lambda: first_step(made) == (WAIT, "doing"))
        await give(value, "engine.stop")
        with pytest.raises(AjetError, match="cancelled"):
            await starting
        assert made.swarm.requests[START] == 0


async def test_a_server_that_was_offline_for_long_is_started_at_once(tmp_path: Path) -> None:
    async with ScriptedSwarm(state="OFFLINE") as swarm, orders(tmp_path, swarm) as (made, value):
        made.server.watcher.clock = lambda: time.time() + 61
        await give(value, "engine.start", job=JOB)
        assert first_step(made) == ("send the job", "done")


@asynccontextmanager
async def keeping(home: Path, *missing: str) -> AsyncIterator[tuple[World, EngineCommands]]:
    """A proxy on an engine with checkpoints, without the routes `missing`."""
    async with orders(home) as (made, value):
        client = made.server.client
        engine = AjetcTransport(client.transport, made.swarm)
        engine.paths = tuple(path for path in engine.paths if path not in missing)
        client.transport = engine  # type: ignore[assignment]  # it streams nothing here
        await client.features(again=True)
        made.swarm.config = JOB
        yield made, value


@pytest.mark.parametrize("name", ["engine.start", "engine.resume"])
async def test_the_embedded_engine_is_started_at_once(tmp_path: Path, name: str) -> None:
    async with keeping(tmp_path) as (made, value):
        await give(value, "engine.stop")
        await give(value, name)
        assert first_step(made)[0] in ("send the job", "start the engine")


async def test_a_resume_of_another_server_waits_and_can_be_cancelled(tmp_path: Path) -> None:
    async with keeping(tmp_path, "/ajetc/info") as (made, value):
        restoring = made.context.tasks.spawn(give(value, "engine.restore", name="base"), "restore")
        await made.until(lambda: first_step(made) == (WAIT, "doing"))
        await give(value, "engine.cancel")
        with pytest.raises(AjetError, match=f"`Resume` was cancelled at `{WAIT}`"):
            await restoring
        assert (work(made).work, work(made).phase) == ("Resume", "cancelled")
        assert (made.swarm.state, made.swarm.requests[START]) == ("OFFLINE", 0)
