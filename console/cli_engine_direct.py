"""Engines ordered without a proxy: the command speaks to the swarm server itself."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from console.cli_common import NotRunning, say
from console.cli_swarm import PATIENCE, open_client
from core.errors import AjetError

if TYPE_CHECKING:
    from swarm.client import AsyncSwarmClient

QUIET = 8.0
"""Seconds a stopped server must stay OFFLINE before it is started again."""
QUIET_EMBEDDED = 0.3
OFF_LIMIT = 60.0
_OWN = "/ajetc/info"


@asynccontextmanager
async def reached(name: str, url: str) -> AsyncIterator["AsyncSwarmClient"]:
    """A client of a server that answers.

    Raises:
        NotRunning: it does not; says how to get one.
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


async def start_directly(name: str, url: str, job: str) -> str:
    """Send `job` and start.

    Raises:
        AjetError: the engine is not OFFLINE, or refuses.
    """
    async with reached(name, url) as client:
        status = await client.status()
        if status.state.value != "OFFLINE":
            raise AjetError(
                f"the engine is {status.state.value}, not OFFLINE",
                url,
                "Stop it first with `ajet-console engine-stop`",
            )
        await client.sync_train_config(job)
        await client.start_engine()
    return f"{name} is starting ({url})"


async def stop_directly(name: str, url: str) -> str:
    """Stop, whatever it does."""
    async with reached(name, url) as client:
        await client.stop_engine()
    return f"{name} is stopped ({url})"


async def apply_directly(name: str, url: str, job: str) -> str:
    """Stop, wait for a stable OFFLINE, send `job`, start; says each step.

    Raises:
        AjetError: a step failed; says what the engine is left in.
    """
    async with reached(name, url) as client:
        step = "stop the engine"
        try:
            if (await client.status()).state.value != "OFFLINE":
                say(f"{name}: {step}")
                await client.stop_engine()
            step = "wait for a stable OFFLINE"
            say(f"{name}: {step}")
            await _stable(client)
            step = "send the job"
            say(f"{name}: {step}")
            await client.sync_train_config(job)
            step = "start the engine"
            say(f"{name}: {step}")
            await client.start_engine()
        except (AjetError, TimeoutError) as error:
            what = error.what if isinstance(error, AjetError) else "it took too long"
            raise AjetError(f"`{step}` failed: {what}; {await _left(client)}", url) from error
    return f"{name} is starting with the job ({url})"


async def _stable(client: "AsyncSwarmClient") -> None:
    from swarm.schemas import EngineState
    from swarm.watcher import Watcher

    try:
        own = _OWN in await client.features()
    except AjetError:
        own = False
    quiet = QUIET_EMBEDDED if own else QUIET
    watcher = Watcher(client)
    async with asyncio.TaskGroup() as tasks:
        polls = tasks.create_task(watcher.run())
        try:
            await watcher.wait_stable({EngineState.OFFLINE}, quiet, OFF_LIMIT + quiet)
        finally:
            polls.cancel()


async def _left(client: "AsyncSwarmClient") -> str:
    try:
        return f"the engine is {(await client.status(timeout=PATIENCE)).state.value}"
    except AjetError:
        return "the server does not answer now"
