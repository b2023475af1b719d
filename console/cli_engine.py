"""`engine-start` and `engine-stop`: through the proxy when one runs, else on the server itself."""

import argparse
import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from console.cli_common import (
    NotRunning,
    cert_of,
    confirm,
    count,
    open_home,
    order,
    proxy_url,
    say,
    settings_of,
    token_of,
)
from console.cli_swarm import PATIENCE, addresses, choose, open_client, report
from core.errors import AjetError
from core.home import Home
from core.state import State

if TYPE_CHECKING:
    from swarm.client import AsyncSwarmClient


def start(given: argparse.Namespace) -> int:
    """Send the job and start the engine."""
    home = open_home(given)
    url = _proxy(given, home)
    if url:
        args = {"server": given.server, "preset": given.preset}
        say(asyncio.run(order(url, token_of(given, home), "engine.start", args, cert_of(home))))
    else:
        say(asyncio.run(_start_directly(given, home)))
    return 0


def stop(given: argparse.Namespace) -> int:
    """Stop the engine, after saying what is lost."""
    home = open_home(given)
    url = _proxy(given, home)
    if not given.yes:
        act, lost = asyncio.run(_loss(given, home, url))
        if not confirm(act, lost, given.yes):
            say("left as it is")
            return 1
    if url:
        args = {"server": given.server}
        say(asyncio.run(order(url, token_of(given, home), "engine.stop", args, cert_of(home))))
    else:
        say(asyncio.run(_stop_directly(given, home)))
    return 0


def _proxy(given: argparse.Namespace, home: Home) -> str:
    """The proxy to go through; none when a swarm server was named."""
    return "" if given.swarm_url and not given.url else proxy_url(given, home)


async def _start_directly(given: argparse.Namespace, home: Home) -> str:
    from swarm.job import default_job, dump_job, hand_job

    settings = settings_of(home, given.swarm_url)
    model = settings.engine.model
    name, url = choose(addresses(settings, home), given)
    async with _reached(name, url) as client:
        status = await client.status()
        if status.state.value != "OFFLINE":
            raise AjetError(
                f"the engine is {status.state.value}, not OFFLINE",
                url,
                "Stop it first with `ajet-console engine-stop`",
            )
        job = hand_job(model) if given.preset == "hand" else default_job(model)
        await client.sync_train_config(dump_job(job))
        await client.start_engine()
    return f"{name} is starting ({url})"


@asynccontextmanager
async def _reached(name: str, url: str) -> AsyncIterator["AsyncSwarmClient"]:
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


async def _stop_directly(given: argparse.Namespace, home: Home) -> str:
    name, url = choose(addresses(settings_of(home, given.swarm_url), home), given)
    async with _reached(name, url) as client:
        await client.stop_engine()
    return f"{name} is stopped ({url})"


async def _loss(given: argparse.Namespace, home: Home, proxy: str) -> tuple[str, str]:
    """What is done, and what the stop costs as far as it can be known."""
    if not proxy:
        name, url = choose(addresses(settings_of(home, given.swarm_url), home), given)
        return await _server_loss(name, url, "")
    from proxy.client import ControlClient

    async with ControlClient(proxy, token_of(given, home), cert=cert_of(home)) as client:
        state = await client.snapshot()
    name, url = choose({one.name: one.url for one in state.servers.values()}, given)
    return await _server_loss(name, url, state.client_uuid, state)


async def _server_loss(
    name: str, url: str, own: str, state: State | None = None
) -> tuple[str, str]:
    seen = await report(name, url)
    losses: list[str] = []
    if seen.claimed is not None:
        others = {who: n for who, n in seen.claimed_by.items() if who != own}
        mine = seen.claimed - sum(others.values())
        if mine:
            losses.append(f"{count(mine, 'episode')} of yours")
        if others:
            losses.append(
                f"{count(sum(others.values()), 'episode')} of {count(len(others), 'client')}"
                if not own
                else f"{count(sum(others.values()), 'episode')} of "
                f"{count(len(others), 'other client')}"
            )
    elif state is not None and (pool := state.servers[name].pool) is not None:
        losses.append(f"{count(pool.running, 'running episode')} as last seen")
    if state is not None:
        unrated = [
            group for group in state.waiting() if group.server == name and group.rating is None
        ]
        if unrated:
            losses.append(f"{count(len(unrated), 'unrated group')} of yours")
    if seen.pool and seen.pool["episodes"]:
        losses.append(f"{count(seen.pool['episodes'], 'finished episode')} of this batch")
    lost = ", ".join(losses) or (
        "nothing that is claimed" if not seen.error else "what it does not tell"
    )
    return f"Stop the engine of {name} ({url}, {seen.state})", lost
