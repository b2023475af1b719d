"""Every way in which something can go wrong, by name; each is over when its function returns."""

import asyncio
import contextlib
import math
from collections import Counter
from collections.abc import Awaitable, Callable

import httpx

from proxy.rewards.base import GroupContext
from swarm.answers import OVERFLOW
from tests.support.faults_field import PATIENCE, Field
from tests.support.seat import by_index

Fault = Callable[[Field], Awaitable[None]]

FAULTS: dict[str, Fault] = {}
"""Name -> what breaks it, and mends it again."""

CLAIM, CHAT = "/claim_episode", "/v1/chat/completions"
END, ABORT, BUFFER = "/end_episode", "/abort_episode", "/get_episode_buffer"


def fault(function: Fault) -> Fault:
    FAULTS[function.__name__] = function
    return function


async def _hold(f: Field, seconds: float) -> None:
    """How long something lasts."""
    await asyncio.sleep(seconds * f.rng.uniform(0.7, 1.3))


async def _abort(other: httpx.AsyncClient, uuid: str) -> None:
    said = {"client_uuid": "other", "episode_uuid": uuid, "task_id": ""}
    output: dict[str, object] = {"reward": None, "metadata": {}}
    await other.post(ABORT, json={**said, "workflow_output": output})


# --- rewards -----------------------------------------------------------------------------------


async def _judged(f: Field, bad: Callable[[GroupContext], Awaitable[list[float]]]) -> None:
    """The next two groups are scored by `bad`."""
    source = f.front.world.source
    left = 2

    async def scorer(ctx: GroupContext) -> list[float]:
        nonlocal left
        left -= 1
        if left < 0:
            return await by_index(ctx)
        return await bad(ctx)

    source.scorer = scorer
    await f.swarm.until(lambda: left <= 0, 20)
    await f.served(2)
    source.scorer = by_index


@fault
async def judge_raises(f: Field) -> None:
    async def bad(ctx: GroupContext) -> list[float]:
        raise ValueError("broken")

    await _judged(f, bad)


@fault
async def judge_hangs(f: Field) -> None:
    async def bad(ctx: GroupContext) -> list[float]:
        await asyncio.sleep(60.0)
        return [0.0] * len(ctx.answers)

    await _judged(f, bad)


@fault
async def judge_returns_nan(f: Field) -> None:
    async def bad(ctx: GroupContext) -> list[float]:
        return [math.nan, *([0.5] * (len(ctx.answers) - 1))]

    await _judged(f, bad)


@fault
async def judge_returns_too_few(f: Field) -> None:
    async def bad(ctx: GroupContext) -> list[float]:
        return [0.5]

    source, strict = f.front.world.source, f.front.world.source.score

    async def score(ctx: GroupContext):  # type: ignore[no-untyped-def] # as the method it stands for
        sheet = await strict(ctx)
        return type(sheet)(sheet.scores[:1], None, sheet.version, 0.0)

    source.score = score  # type: ignore[method-assign]
    await f.served(2)
    source.score = strict  # type: ignore[method-assign]


# --- candidates --------------------------------------------------------------------------------

SPARE = 2
"""Candidates that may fail at once: with the retries there is an answer for a group of one."""


def _next(f: Field, route: str, how: int | str, most: int = 4) -> None:
    f.swarm.fail_next(route, how, f.rng.randint(1, most))


async def _fails(f: Field, route: str, how: int | str, most: int = 4) -> None:
    await f.moment()
    _next(f, route, how, most)
    await f.consumed(route)


@fault
async def candidate_fails(f: Field) -> None:
    await _fails(f, CHAT, 500, SPARE)


@fault
async def candidate_is_cut_off(f: Field) -> None:
    await _fails(f, CHAT, "drop", SPARE)


@fault
async def candidate_answer_is_lost(f: Field) -> None:
    await _fails(f, CHAT, "drop_after", SPARE)


async def _answers(f: Field, told: object, times: int) -> None:
    """The next candidates answer this."""
    usual, left = f.swarm.answer, times

    async def answer(name: str, body: dict[str, object], index: int) -> object:
        nonlocal left
        left -= 1
        return told if left >= 0 else await usual(name, body, index)

    f.swarm.answer = answer
    await f.swarm.until(lambda: left <= 0, 20)
    f.swarm.answer = usual


@fault
async def candidate_is_empty(f: Field) -> None:
    await _answers(f, "", f.rng.randint(1, SPARE))


@fault
async def candidate_overflows(f: Field) -> None:
    with f.load.during(f.load.too_long):
        await _answers(f, f"{OVERFLOW} Sorry.", 1)


@fault
async def episode_is_taken_back(f: Field) -> None:
    await f.moment()
    for uuid in f.rng.sample(f.swarm.ours(), min(3, len(f.swarm.ours()))):
        f.swarm.expire(uuid)


@fault
async def another_client_aborts_ours(f: Field) -> None:
    await f.moment()
    async with httpx.AsyncClient(base_url=f.swarm.url) as other:
        for uuid in f.rng.sample(f.swarm.ours(), min(3, len(f.swarm.ours()))):
            await _abort(other, uuid)


@fault
async def clients_leave(f: Field) -> None:
    usual, f.load.leave = f.load.leave, 0.9
    target = f.load.tally()["left"] + 10
    await f.swarm.until(lambda: f.load.tally()["left"] >= target, 20)
    f.load.leave = usual


# --- the wire ----------------------------------------------------------------------------------


@fault
async def claims_answers_are_lost(f: Field) -> None:
    await _fails(f, CLAIM, "drop_after")


@fault
async def claims_are_never_answered(f: Field) -> None:
    await _fails(f, CLAIM, "hang", 2)


@fault
async def claims_crash_the_server(f: Field) -> None:
    await _fails(f, CLAIM, 500)


@fault
async def ends_answers_are_lost(f: Field) -> None:
    await _fails(f, END, "drop_after")


@fault
async def ends_never_arrive(f: Field) -> None:
    await _fails(f, END, "drop")


@fault
async def ends_are_never_answered(f: Field) -> None:
    await _fails(f, END, "hang", 2)


@fault
async def ends_crash_the_server(f: Field) -> None:
    await _fails(f, END, 500)


@fault
async def aborts_are_lost(f: Field) -> None:
    _next(f, ABORT, "drop", 4)
    await clients_leave(f)
    f.swarm._failures[ABORT].clear()


@fault
async def the_buffer_is_not_told(f: Field) -> None:
    """Just when it is needed."""
    _next(f, BUFFER, 500, 3)
    await _fails(f, CLAIM, "drop_after")
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
    taken = []
    asked = {"client_uuid": "other", "episode_type": "train", "discard_episode_timeout": 60.0}
    async with httpx.AsyncClient(base_url=f.swarm.url) as other:
        while (told := (await other.post(CLAIM, json=asked)).json())["success"]:
            taken.append(told["episode_uuid"])
        await _hold(f, 0.5)
        for uuid in taken:
            await _abort(other, uuid)


async def _steady_workers(f: Field, count: int) -> None:
    """Another client's, who claim, work and claim again without a pause, on all but a few slots."""
    over = asyncio.Event()

    async def worker(number: int, other: httpx.AsyncClient) -> None:
        asked = {"episode_type": "train", "discard_episode_timeout": 60.0}
        while not over.is_set():
            told = (await other.post(CLAIM, json={**asked, "client_uuid": f"o{number}"})).json()
            if told["success"]:
                await asyncio.sleep(f.rng.uniform(0.2, 0.6))
                await _abort(other, told["episode_uuid"])
                done[number] += 1
            else:
                await asyncio.sleep(f.rng.uniform(0.05, 0.15))

    done: Counter[int] = Counter()
    limits = httpx.Limits(max_connections=None)
    async with (
        httpx.AsyncClient(base_url=f.swarm.url, limits=limits, timeout=30) as other,
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
        await _hold(f, 0.8)
        await f.start_engine()


@fault
async def stopped_by_another_client(f: Field) -> None:
    """With the whole server frozen while it stops."""
    await f.moment()
    f.swarm.stop_seconds = 0.5
    with f.load.outage():
        async with httpx.AsyncClient(base_url=f.swarm.url, timeout=10) as other:
            await other.post("/stop_engine", json={})
        await _hold(f, 0.3)
        await f.start_engine()


# --- the server --------------------------------------------------------------------------------


@fault
async def gone_for_a_moment(f: Field) -> None:
    """As through a bad network: nothing is forgotten."""
    await f.moment()
    with f.load.outage():
        await f.swarm.relay.become("gone")
        await _hold(f, 0.3)
        await f.swarm.relay.become("well")


@fault
async def gone_for_long(f: Field) -> None:
    await f.moment()
    with f.load.outage():
        await f.swarm.relay.become("gone")
        await _hold(f, 1.5)
        await f.swarm.relay.become("well")


@fault
async def restarted_empty(f: Field) -> None:
    """Killed, back with nothing in it, started by someone."""
    await f.moment()
    with f.load.outage():
        await f.swarm.relay.become("gone")
        f.swarm.set_state("OFFLINE", 0)
        await _hold(f, 0.5)
        await f.swarm.relay.become("well")
        await _hold(f, 0.3)
        await f.start_engine()


@fault
async def frozen(f: Field) -> None:
    """It takes everything and does it later."""
    await f.moment()
    with f.load.outage():
        await f.swarm.relay.become("frozen")
        await _hold(f, 2.5 * PATIENCE)
        await f.swarm.relay.become("well")


@fault
async def frozen_for_a_moment(f: Field) -> None:
    """Nobody has to notice."""
    await f.moment()
    await f.swarm.relay.become("frozen")
    await _hold(f, 0.3 * PATIENCE)
    await f.swarm.relay.become("well")


@fault
async def mute(f: Field) -> None:
    """A port that something holds which never answers."""
    await f.moment()
    with f.load.outage():
        await f.swarm.relay.become("mute")
        await _hold(f, 2.0 * PATIENCE)
        await f.swarm.relay.become("well")


async def breaks(f: Field, name: str) -> None:
    """One fault from beginning to end, within bounds."""
    with contextlib.ExitStack() as stack:
        stack.callback(f.swarm.unfreeze)
        async with asyncio.timeout(60):
            await FAULTS[name](f)
            await f.served(3)
