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
from console.cli.common import NotRunning, say
from console.cli.output import output

if TYPE_CHECKING:
    from ajet_swarm.api.watcher import Watcher
    from ajet_swarm.api.wire import SwarmWire
    from core.commands.plan import Plan
    from core.settings import EngineSettings

WAY_OUT = "Stop it with `ajet-console engine-stop`, correct the job, start it again"


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
                "Start one with `ajet-console engine`, or name another with --swarm-url",
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
    from proxy.control.job_info import engine_of

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
    from ajet_swarm.protocol.errors import TrainingFinished
    from ajet_swarm.protocol.job_secrets import hidden, hidden_error

    async with reached(name, url) as client:
        planned = await _planned(client, name, "engine.start", **({"job": job} if for_job else {}))
        if planned.done:
            return planned.message
        if output().dry_run:
            await client.prepared(job)
            return output().plan(f"would send the job to {name} and start it ({url})")
        try:
            sent = await client.sync_train_config(job)
        except TrainingFinished as error:  # nothing is started, so the command fails
            raise AjetError(error.what, url, error.todo) from error
        except AjetError as error:
            raise hidden_error(error, job) from None
        try:
            await client.start_engine()
        except AjetError as error:
            why = hidden(error.what, job)
            what = f"`start the engine` failed: {why}; {await _left(client)}"
            raise AjetError(what, url, WAY_OUT) from None
        return await _booted(client, name, sent) if waits else f"{name} is starting ({url})"


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
    from ajet_swarm.protocol.job_secrets import hidden

    async with reached(name, url) as client:
        step = "check the job"
        try:
            await client.prepared(job)
            if output().dry_run:
                return output().plan(f"would stop {name}, send the job and start it ({url})")
            step = "stop the engine"
            if (await client.status()).state.value != "OFFLINE":
                say(f"{name}: {step}")
                await client.stop_engine()
            step = "wait for a stable OFFLINE"
            say(f"{name}: {step}")
            await _wait_offline(client)
            step = "send the job"
            say(f"{name}: {step}")
            sent = await client.sync_train_config(job)
            step = "start the engine"
            say(f"{name}: {step}")
            await client.start_engine()
        except (AjetError, TimeoutError) as error:
            what = error.what if isinstance(error, AjetError) else "it took too long"
            what = f"`{step}` failed: {hidden(what, job)}; {await _left(client)}"
            todo = (error.todo if isinstance(error, AjetError) else "") or WAY_OUT
            raise AjetError(what, url, hidden(todo, job)) from None
        if waits:
            return await _booted(client, name, sent)
    return f"{name} is starting with the job ({url})"


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


async def _wait_offline(client: "SwarmWire") -> None:
    from ajet_swarm.api import stable_offline

    quiet = stable_offline.quiet_seconds(await stable_offline.answers_as_embedded(client))
    async with _watched(client) as watcher:
        await stable_offline.wait_stable_offline(watcher, quiet)


async def _booted(client: "SwarmWire", name: str, job: str) -> str:
    """Wait until a started engine has left BOOTING.

    Raises:
        AjetError: it is OFFLINE, or gone.
    """
    from proxy.control.job_operation import wait_booted

    sys.stderr.write(f"{one_line(name, 40)}: boot\n")
    async with _watched(client) as watcher:
        status = await wait_booted(name, watcher, job)
    return f"{name} is {status.state.value}, step {status.step or 0} ({client.url})"


@asynccontextmanager
async def _watched(client: "SwarmWire") -> AsyncIterator["Watcher"]:
    """Open a watcher of the server."""
    from ajet_swarm.api.watcher import Watcher

    watcher = Watcher(client)
    async with Tasks("engine") as tasks:
        tasks.spawn(watcher.run(), "watcher")
        yield watcher


async def _left(client: "SwarmWire") -> str:
    try:
        return f"the engine is {(await client.status(timeout=PATIENCE)).state.value}"
    except AjetError:
        return "the server does not answer now"
