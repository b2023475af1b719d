"""A group never asks for more episodes than its server has."""

import asyncio
import json
from pathlib import Path

import pytest

from core.dialects.errors import ApiError
from core.events import AlertRaised, ClaimIntended
from proxy.dialects.chat.request import read_request
from proxy.groups.answer import AnswerWaiter
from tests.support.alerts import cause_of
from tests.support.proxy.world import HEADERS, World, settings, world
from tests.support.scripted.swarm import ScriptedSwarm


async def ask(w: World, n: int, text: str = "hi") -> AnswerWaiter:
    result = {"model": "m", "n": n, "messages": [{"role": "user", "content": text}]}
    return w.groups.admission.admit(read_request(json.dumps(result).encode(), HEADERS, "host"))


async def test_too_many_choices_are_a_400_before_any_claim(
    tmp_path: Path,
) -> None:
    async with ScriptedSwarm(batch=2) as swarm, world(tmp_path, swarm) as w:
        await w.until(lambda: w.server.watcher.pool)
        with pytest.raises(ApiError, match="n must be at most 8, got 9") as refused:
            await ask(w, 9)
        assert (refused.value.status, refused.value.param) == (400, "n")
        assert not w.kinds(ClaimIntended)
        assert (await w.reply(await ask(w, 8))).answers


@pytest.mark.slow
async def test_no_request_takes_a_whole_batch(tmp_path: Path) -> None:
    async with ScriptedSwarm(batch=64) as swarm, world(tmp_path, swarm) as w:
        with pytest.raises(
            ApiError, match=r"n must be at most 16, got 65. \(parameter=n, value=65"
        ):
            await ask(w, 65)
        assert (await w.reply(await ask(w, 16))).answers


async def test_the_limit_applies_also_when_the_pool_is_read_later(tmp_path: Path) -> None:
    async with ScriptedSwarm(batch=2) as swarm, world(tmp_path, swarm) as w:
        await w.until(lambda: w.server.watcher.pool)
        pool, w.server.watcher.pool = w.server.watcher.pool, None
        large = await ask(w, 9)
        w.server.watcher.pool = pool
        small = await ask(w, 1, "another")
        first, second = await asyncio.gather(w.reply(large), w.reply(small))
        assert first.error is not None
        assert first.error.status == 400
        assert second.answers


async def test_repeats_beyond_the_number_of_episodes_are_reduced_with_an_alert(
    tmp_path: Path,
) -> None:
    many = settings(proxy={"repeats": 20})
    async with ScriptedSwarm(batch=2) as swarm, world(tmp_path, swarm, many) as w:
        assert (await w.reply(await w.ask("hi"))).answers
        await w.closed()
        assert [event.n for event in w.kinds(ClaimIntended)] == [8]
        result = [event for event in w.kinds(AlertRaised) if event.key == "room:s"]
        assert [cause_of(event) for event in result] == [
            "20 candidates are wanted, s has 8 episodes at a time: 8 are used"
        ]
