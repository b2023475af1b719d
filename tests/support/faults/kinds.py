"""Every way in which something can go wrong, by name; each is over when its function returns.

Here what befalls the wire, the engine and the server; the rest is in `faults_answers`.
"""

import asyncio
import contextlib
from collections import Counter
from typing import Any

import aiohttp
import httpx

from tests.support.faults.all import (
    ABORT,
    BUFFER,
    CLAIM,
    END,
    FAULTS,
    abort,
    abort_body,
    fail_next,
    fails,
    fault,
    hold,
)
from tests.support.faults.answers import clients_leave
from tests.support.faults.field import PATIENCE, Field

__all__ = ["FAULTS", "breaks"]

# --- the wire ----------------------------------------------------------------------------------


@fault
async def claims_answers_are_lost(f: Field) -> None:
    await fails(f, CLAIM, "drop_after")


@fault
async def claims_are_never_answered(f: Field) -> None:
    await fails(f, CLAIM, "hang", 2)


@fault
async def claims_crash_the_server(f: Field) -> None:
    await fails(f, CLAIM, 500)


@fault
async def ends_answers_are_lost(f: Field) -> None:
    await fails(f, END, "drop_after")


@fault
async def ends_never_arrive(f: Field) -> None:
    await fails(f, END, "drop")


@fault
async def ends_are_never_answered(f: Field) -> None:
    await fails(f, END, "hang", 2)


@fault
async def ends_crash_the_server(f: Field) -> None:
    await fails(f, END, 500)


@fault
async def aborts_are_lost(f: Field) -> None:
    fail_next(f, ABORT, "drop", 4)
    await clients_leave(f)
    f.swarm._failures[ABORT].clear()


@fault
async def the_buffer_request_fails(f: Field) -> None:
    """The request for the buffer fails when a lost claim needs it."""
    fail_next(f, BUFFER, 500, 3)
    await fails(f, CLAIM, "drop_after")
    await f.served(2)
    f.swarm._failures[BUFFER].clear()


# --- the engine --------------------------------------------------------------------------------


@fault
async def batch_ends_under_partial_claims(f: Field) -> None:
    await f.swarm.until(lambda: len(f.swarm.ours()) % 4 or f.swarm.state != "ROLLING", 20)
    if f.swarm.state == "ROLLING":
        f.swarm.set_state("ROLLING_POST")
        f.swarm.set_state("ROLLING_POST")
    await f.served(2)


@fault
async def weights_are_synced_mid_request(f: Field) -> None:
    await f.moment()
    if f.swarm.rolling:
        f.swarm.set_state("WEIGHT_SYNCING")
    await f.served(2)


@fault
async def another_client_takes_all(f: Field) -> None:
    uuids = []
    claim = {"client_uuid": "other", "episode_type": "train", "discard_episode_timeout": 60.0}
    async with httpx.AsyncClient(base_url=f.swarm.url) as other:
        while (body := (await other.post(CLAIM, json=claim)).json())["success"]:
            uuids.append(body["episode_uuid"])
        await hold(f, 0.5)
        for uuid in uuids:
            await abort(other, uuid)


async def _steady_workers(f: Field, count: int) -> None:
    """Another client's, who claim, work and claim again without a pause, on all but a few slots."""
    over = asyncio.Event()

    async def post(other: aiohttp.ClientSession, route: str, body: object) -> Any:
        async with other.post(route, json=body) as answer:
            return await answer.json()

    async def worker(number: int, other: aiohttp.ClientSession) -> None:
        claim = {"episode_type": "train", "discard_episode_timeout": 60.0}
        while not over.is_set():
            body = await post(other, CLAIM, {**claim, "client_uuid": f"o{number}"})
            if body["success"]:
                await asyncio.sleep(f.rng.uniform(0.2, 0.6))
                await post(other, ABORT, abort_body(body["episode_uuid"]))
                done[number] += 1
            else:
                await asyncio.sleep(f.rng.uniform(0.05, 0.15))

    done: Counter[int] = Counter()
    # many requests a second: this client takes a quarter of the time of the other
    async with (
        aiohttp.ClientSession(
            f.swarm.url,
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=30),
        ) as other,
        asyncio.TaskGroup() as tasks,
    ):
        for number in range(count):
            tasks.create_task(worker(number, other))
        await f.swarm.until(lambda: len(done) >= count // 2, 20)
        before = done.total()
        await f.served(3)
        assert done.total() > before  # and they go on too
        over.set()


@fault
async def another_client_leaves_one_free(f: Field) -> None:
    await _steady_workers(f, (f.swarm.slots or 0) - 1)


@fault
async def another_client_leaves_three_free(f: Field) -> None:
    await _steady_workers(f, (f.swarm.slots or 0) - 3)


@fault
async def knocked_offline(f: Field) -> None:
    await f.moment()
    with f.load.outage():
        f.swarm.set_state("OFFLINE", 0)
        await hold(f, 0.8)
        await f.start_engine()


@fault
async def stopped_by_another_client(f: Field) -> None:
    """With the whole server frozen while it stops."""
    await f.moment()
    f.swarm.stop_seconds = 0.5
    with f.load.outage():
        async with httpx.AsyncClient(base_url=f.swarm.url, timeout=60) as other:
            await other.post("/stop_engine", json={})
        await hold(f, 0.3)
        await f.start_engine()


# --- the server --------------------------------------------------------------------------------


@fault
async def unreachable_for_a_moment(f: Field) -> None:
    """As through a bad network: the server keeps its state."""
    await f.moment()
    with f.load.outage():
        await f.swarm.relay.become("gone")
        await hold(f, 0.3)
        await f.swarm.relay.become("well")


@fault
async def unreachable_for_long(f: Field) -> None:
    await f.moment()
    with f.load.outage():
        await f.swarm.relay.become("gone")
        await hold(f, 1.5)
        await f.swarm.relay.become("well")


@fault
async def restarted_empty(f: Field) -> None:
    """Killed, restarted without its state, started by a client."""
    await f.moment()
    with f.load.outage():
        await f.swarm.relay.become("gone")
        f.swarm.set_state("OFFLINE", 0)
        await hold(f, 0.5)
        await f.swarm.relay.become("well")
        await hold(f, 0.3)
        await f.start_engine()


@fault
async def frozen(f: Field) -> None:
    """It receives all requests and answers them later."""
    await f.moment()
    with f.load.outage():
        await f.swarm.relay.become("frozen")
        await hold(f, 2.5 * PATIENCE)
        await f.swarm.relay.become("well")


@fault
async def frozen_for_a_moment(f: Field) -> None:
    """No request may fail."""
    await f.moment()
    await f.swarm.relay.become("frozen")
    await hold(f, 0.3 * PATIENCE)
    await f.swarm.relay.become("well")


@fault
async def mute(f: Field) -> None:
    """A port that something holds which never answers."""
    await f.moment()
    with f.load.outage():
        await f.swarm.relay.become("mute")
        await hold(f, 2.0 * PATIENCE)
        await f.swarm.relay.become("well")


async def breaks(f: Field, name: str) -> None:
    """One fault from beginning to end, within bounds."""
    with contextlib.ExitStack() as stack:
        stack.callback(f.swarm.unfreeze)
        async with asyncio.timeout(60):
            await FAULTS[name](f)
            await f.served(3)
