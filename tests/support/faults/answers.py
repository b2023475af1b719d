"""What can go wrong with rewards and with candidates' answers."""

import asyncio
import math
from collections.abc import Awaitable, Callable

import httpx

from ajet_swarm.api.chat import OVERFLOW
from proxy.rewards.source import GroupContext
from tests.support.faults.all import CHAT, abort, fails, fault
from tests.support.faults.field import Field
from tests.support.proxy.world import by_index
from tests.support.scripted.swarm import Denied

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


@fault
async def candidate_fails(f: Field) -> None:
    await fails(f, CHAT, 500, SPARE)


@fault
async def candidate_is_cut_off(f: Field) -> None:
    await fails(f, CHAT, "drop", SPARE)


@fault
async def candidate_answer_is_lost(f: Field) -> None:
    await fails(f, CHAT, "drop_after", SPARE)


async def _answers(f: Field, content: object, times: int) -> None:
    """The next candidates answer this."""
    usual, left = f.swarm.answer, times

    async def answer(name: str, body: dict[str, object], index: int) -> object:
        nonlocal left
        left -= 1
        return content if left >= 0 else await usual(name, body, index)

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
async def candidates_are_refused_for_good(f: Field) -> None:
    """The server cannot read what it is asked: 422 each time, and no time will help."""
    usual = f.swarm.answer

    async def refuses(name: str, body: dict[str, object], index: int) -> object:
        return Denied(422, "That cannot be read.")

    def refused() -> int:
        return sum(request.status in (400, 422) for request in f.load.requests)

    with f.load.during(f.load.unread):
        f.swarm.answer, before = refuses, refused()
        await f.swarm.until(lambda: refused() >= before + 4, 20)
        f.swarm.answer = usual
    for group in f.front.world.state.groups.values():
        for candidate in group.candidates:
            if candidate.error.startswith("refused"):
                assert candidate.attempt == 1  # no candidate was requested twice


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
            await abort(other, uuid)


@fault
async def clients_leave(f: Field) -> None:
    usual, f.load.leave = f.load.leave, 0.9
    target = f.load.tally()["left"] + 10
    await f.swarm.until(lambda: f.load.tally()["left"] >= target, 20)
    f.load.leave = usual
