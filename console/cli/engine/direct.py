"""Engine commands without a proxy: they talk to the swarm server directly."""

import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from ajet_swarm.common.errors import AjetError
from ajet_swarm.common.tasks import Tasks
from ajet_swarm.common.text import one_line
from console.backend.swarm_report import PATIENCE, open_client
from console.cli.common import NotRunning
from console.cli.output import output

if TYPE_CHECKING:
    from ajet_swarm.api.wire import SwarmWire
    from core.commands.plan import Plan
    from core.events import Event
    from core.settings import EngineSettings


@asynccontextmanager
async def reached(name: str, url: str) -> AsyncIterator["SwarmWire"]:
    """Open a client of a server, after checking that the server answers.

    Raises:
        NotRunning: the server does not answer.
    """
    async with open_client(name, url) as client:
        try:
            await client.status(timeout=PATIENCE)
        except AjetError as error:
            raise NotRunning(
                f"no engine answers as `{name}`: {error.what}",
                url,
                "Start one with `ajet-console run engine`, or name another with --swarm-url",
            ) from error
        yield client


async def answers_as_embedded(name: str, url: str) -> bool:
    """Return whether the embedded engine answers at `url`; False when nothing answers."""
    try:
        async with reached(name, url) as client:
            return await client.is_embedded()
    except AjetError:
        return False


async def running_engine(name: str, url: str, settings: "EngineSettings") -> "EngineSettings":
    """Return the settings with backend and model of the engine at `url`; unchanged when nothing
    answers there."""
    if not url:
        return settings
    from proxy.control.job_commands import engine_of

    try:
        async with reached(name, url) as client:
            return await engine_of(client, settings)
    except AjetError:
        return settings


async def start_directly(
    name: str, url: str, job: str, *, for_job: bool = True, waits: bool = True
) -> str:
    """Send the job, start the engine and wait until it rolls.

    Args:
        name: Name of the server.
        url: Its URL.
        job: The job, as YAML.
        for_job: Refuse an engine that runs, instead of leaving it as it is.
        waits: Wait until the engine rolls.

    Raises:
        AjetError: the engine is not OFFLINE, refuses, or does not boot.
    """
    async with reached(name, url) as client:
        planned = await _planned(client, name, "engine.start", **({"job": job} if for_job else {}))
        if planned.done:
            return planned.message
        if output().dry_run:
            await client.prepared(job)
            return output().plan(f"would send the job to {name} and start it ({url})")
        return await _start(client, name, job, waits, stop=False)


async def stop_directly(name: str, url: str) -> str:
    """Stop the engine in whatever state it is."""
    async with reached(name, url) as client:
        planned = await _planned(client, name, "engine.stop")
        if planned.done:
            return planned.message
        if output().dry_run:
            return output().plan(f"would stop {name} ({url})")
        await client.stop_engine()
    return f"{name} is stopped ({url})"


async def apply_directly(name: str, url: str, job: str, *, waits: bool = True) -> str:
    """Stop, wait for a stable OFFLINE, send the job, start and wait; print each step.

    Raises:
        AjetError: a step failed; the error contains the state of the engine.
    """
    async with reached(name, url) as client:
        if output().dry_run:
            await client.prepared(job)
            return output().plan(f"would stop {name}, send the job and start it ({url})")
        return await _start(client, name, job, waits, stop=True)


async def _start(client: "SwarmWire", name: str, job: str, waits: bool, *, stop: bool) -> str:
    """Start an engine with a job, after a stop if need be; print each step.

    Raises:
        AjetError: a step failed; the error contains the state of the engine.
    """
    from ajet_swarm.api.watcher import Watcher
    from core.events import WorkChanged
    from proxy.control.job_operation import ALL_STEPS, JobOperation

    def show(event: "Event") -> None:
        for step in event.steps if isinstance(event, WorkChanged) else ():
            if step.phase == "doing" and step.title not in shown:
                shown.add(step.title)
                sys.stderr.write(f"{one_line(name, 40)}: {step.title}\n")

    shown: set[str] = set()
    watcher = Watcher(client)
    async with Tasks("engine") as tasks:
        tasks.spawn(watcher.run(), "watcher")
        operation = JobOperation(client, watcher, show, time.time, "Start", ALL_STEPS)
        async with operation.reported():
            if stop:
                await operation.stop_for(job)
            await operation.send(job)
            await operation.start()
            state = await operation.boot() if waits else f"{name} is starting with the job"
    return f"{state} ({client.url})"


async def _planned(client: "SwarmWire", name: str, command: str, **args: str) -> "Plan":
    """Return the plan of a command on the engine that a client reaches.

    Raises:
        NotNow: It is refused.
    """
    from core.commands.plan import plan
    from core.state import Server, State

    state = (await client.status()).state.value
    known = State(servers={name: Server(name=name, url=client.url, state=state)})
    return plan(known, command, {"server": name, **args}, time.time())
