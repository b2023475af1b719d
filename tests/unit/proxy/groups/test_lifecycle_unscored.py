"""Groups without automatic rewards: what they hold, and what ends their wait."""

import asyncio
from pathlib import Path

import pytest

from proxy.rewards.source import GroupContext
from tests.support.proxy.world import settings, world
from tests.support.scripted.swarm import ScriptedSwarm

ABSTAINED = "returned None, expected a list of 4 numbers"


@pytest.mark.slow
async def test_unscored_groups_hold_at_most_half_of_the_pool(tmp_path: Path) -> None:
    async with ScriptedSwarm(batch=4) as swarm, world(tmp_path, swarm) as w:
        w.console()
        w.source.abstains = ABSTAINED
        replies = [await w.reply(await w.ask(f"question {one}"), 5.0) for one in range(6)]
        assert {reply.why for reply in replies} == {"provisional"}
        await w.until(lambda: len(w.groups.runs) == 2)
        assert len(w.swarm.claimed()) == 8
        causes = {group.cause for group in w.state.groups.values() if not group.open}
        half = "unscored: open unscored groups hold half of the pool; judge: " + ABSTAINED
        assert causes == {half}
        w.source.abstains = ""
        for one in range(2):  # the rest of the pool is trained on
            await w.reply(await w.ask(f"more {one}"), 5.0)
        await w.until(lambda: w.state.totals.done == 2)


async def test_a_held_answer_is_given_when_unscored_groups_exceed_their_share(
    tmp_path: Path,
) -> None:
    held = settings(rating={"mode": "hold"})
    async with ScriptedSwarm(batch=2) as swarm, world(tmp_path, swarm, held) as w:
        w.console()
        w.source.abstains = ABSTAINED
        await w.ask("one")
        await w.open("AWAITING_RATING")
        assert (await w.reply(await w.ask("two"), 5.0)).why == "provisional"


async def test_a_group_that_is_the_whole_pool_may_wait_for_its_rating(
    tmp_path: Path,
) -> None:
    held = settings(rating={"mode": "hold", "window": 0.0})
    async with ScriptedSwarm(batch=1) as swarm, world(tmp_path, swarm, held) as w:
        w.console()
        w.source.abstains = ABSTAINED
        await w.ask("one")
        group = await w.open("AWAITING_RATING")
        await w.commands.rate(group.group_id, "best", (0,))
        await w.until(lambda: w.state.groups[group.group_id].phase == "DONE")
        assert sorted(w.swarm.rewards.values()) == [0.0, 0.0, 0.0, 1.0]


@pytest.mark.slow
async def test_the_weight_update_does_not_wait_for_an_unscored_group(tmp_path: Path) -> None:
    async with ScriptedSwarm(batch=2) as swarm, world(tmp_path, swarm) as w:
        step = w.swarm.step
        assert step is not None
        w.console()
        w.swarm.slots = 16
        w.source.abstains = ABSTAINED
        unscored = await w.ask("one")
        await w.open("AWAITING_RATING")
        w.source.abstains = ""
        for one in ("two", "three"):
            await w.reply(await w.ask(one), 5.0)
        await w.until(lambda: (w.swarm.step or 0) > step)
        await w.closed()
        cause = "unscored: the weight update waits for its episodes"
        assert w.group(unscored).cause.startswith(cause)


async def test_open_groups_are_scored_when_a_corrected_version_loads(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        w.console()
        w.source.abstains = ABSTAINED
        tickets = [await w.ask("one"), await w.ask("two")]
        await w.until(lambda: len(w.state.waiting()) == 2)
        w.source.load("v2")  # it abstains as well: nothing changes
        await w.until(lambda: len(w.source.contexts) == 4)
        assert len(w.state.waiting()) == 2
        w.source.abstains = ""
        w.source.load("v3")
        await w.closed()
        for ticket in tickets:
            group = w.group(ticket)
            assert (group.phase, group.abstained, group.version) == ("DONE", "", "v3")


async def test_a_version_that_loads_during_the_scoring_scores_the_group(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        begun = asyncio.Event()

        async def fails(context: GroupContext) -> list[float]:
            w.source.scorer = scores
            begun.set()
            await w.until(lambda: w.source.version == "v2")
            raise ValueError("the old version")

        async def scores(context: GroupContext) -> list[float]:
            return [0.1, 0.2, 0.3, 0.4]

        w.source.scorer = fails
        ticket = await w.ask()
        await begun.wait()
        w.source.load("v2")
        await w.closed()
        assert w.group(ticket).phase == "DONE"
        assert sorted(w.swarm.rewards.values()) == [0.1, 0.2, 0.3, 0.4]
