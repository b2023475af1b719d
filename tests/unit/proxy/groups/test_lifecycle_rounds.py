"""A group that lost all its candidates starts another round where that may help."""

from pathlib import Path
from typing import Any

import pytest

from ajet_swarm.api.chat import OVERFLOW
from tests.support.proxy.world import world
from tests.support.scripted.swarm import ScriptedSwarm


async def test_candidates_that_fail_as_the_batch_ends_are_generated_again(tmp_path: Path) -> None:
    """In ROLLING_POST no fresh episode can be had: the next batch has some."""
    async with ScriptedSwarm() as swarm:
        usual, names = swarm.answer, []

        async def failing(name: str, body: dict[str, Any], index: int) -> Any:
            names.append(name)
            if len(names) > 4:
                return await usual(name, body, index)
            await swarm.until(lambda: len(names) == 4)
            if swarm.state == "ROLLING":
                swarm.set_state("ROLLING_POST")
            return RuntimeError("broken")

        swarm.answer = failing
        async with world(tmp_path, swarm) as w:
            reply = await w.reply(await w.ask())
            assert reply.answer is not None
            await w.closed()
            assert len(swarm.chats) == 8
            assert len(swarm.reward_log) == 4
            assert not swarm.claimed()


@pytest.mark.parametrize(("result", "status"), [(f"{OVERFLOW} Sorry.", 400), (RuntimeError(), 503)])
async def test_candidates_that_fail_by_their_own_fault_are_not_generated_again(
    tmp_path: Path, result: Any, status: int
) -> None:
    async def failing(name: str, body: dict[str, Any], index: int) -> Any:
        return result

    async with ScriptedSwarm(answer=failing) as swarm, world(tmp_path, swarm) as w:
        reply = await w.reply(await w.ask())
        assert reply.error is not None
        assert reply.error.status == status
        await w.closed()
        assert len(swarm.chats) <= 12
        assert not swarm.claimed()
