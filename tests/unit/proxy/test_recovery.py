"""A proxy that was killed, and the next one on the same journal."""

import asyncio
from pathlib import Path

import pytest

from core.events import EpisodeEnded
from core.state import Group
from tests.support.scripted_swarm import ScriptedSwarm
from tests.support.seat import settings, world

HOLD = settings(rating={"mode": "hold"})


async def killed_in(tmp_path: Path, swarm: ScriptedSwarm, phase: str) -> str:
    """Start a proxy, bring a group to `phase`, kill the proxy; returns the group's id."""
    chosen = HOLD if phase == "AWAITING_RATING" else settings()
    async with world(tmp_path, swarm, chosen) as w:
        if phase in ("CLAIMING", "GENERATING"):
            swarm.delay = 30.0
        if phase == "CLAIMING":
            swarm.fail_next("/claim_episode", "hang_before")
        if phase == "SUBMITTING":
            swarm.fail_always("/end_episode", "hang_before")
        ticket = await w.ask()
        if phase == "CLAIMING":
            await w.until(lambda: len(swarm.claims) == 3)
            await w.until(
                lambda: sum(one.phase == "claimed" for one in w.group(ticket).candidates) == 3
            )
        else:
            await w.open(phase)
        await w.seat.journal.durable(w.state.seq)
        w.kill()
        group_id = ticket.group_id
    swarm.fail_always("/end_episode", None)
    swarm.delay = 0.0
    return group_id


@pytest.mark.parametrize("phase", ["CLAIMING", "GENERATING", "AWAITING_RATING"])
async def test_what_was_not_sealed_is_aborted(tmp_path: Path, phase: str) -> None:
    async with ScriptedSwarm(automatic=False) as swarm:
        group_id = await killed_in(tmp_path, swarm, phase)
        assert swarm.claimed()
        async with world(tmp_path, swarm, recover=False) as w:
            assert w.state.groups[group_id].open
            await w.groups.recover()
            group: Group = w.state.groups[group_id]
            assert (group.phase, group.cause) == ("ABORTED", "proxy was killed")
            await w.until(lambda: not swarm.claimed())
            assert not swarm.ends
            assert (await w.reply(await w.ask("next"))).answer is not None
            await w.closed()


async def test_sealed_rewards_are_sent_exactly_once(tmp_path: Path) -> None:
    async with ScriptedSwarm(automatic=False) as swarm:
        group_id = await killed_in(tmp_path, swarm, "SUBMITTING")
        async with world(tmp_path, swarm) as w:
            group: Group = w.state.groups[group_id]
            assert (group.phase, group.cause) == ("DONE", "proxy was killed")
            assert [one.phase for one in group.candidates] == ["ended"] * 4
            assert sorted(swarm.rewards.values()) == [0.0, 0.1, 0.2, 0.3]
            assert {task for _, task, _ in swarm.reward_log} == {group.task_id}
            assert not swarm.claimed()
        async with world(tmp_path, swarm) as w:
            assert not w.kinds(EpisodeEnded)
        assert len(swarm.ends) == 4
        assert swarm.duplicate_ends == 0


async def test_an_end_that_arrived_before_the_kill_is_not_sent_again(tmp_path: Path) -> None:
    async with ScriptedSwarm(automatic=False) as swarm:
        async with world(tmp_path, swarm) as w:
            swarm.fail_always("/end_episode", "hang")  # acted on, never answered
            ticket = await w.ask()
            await w.until(lambda: len(swarm.ends) == 4)
            await w.seat.journal.durable(w.state.seq)
            w.kill()
        swarm.fail_always("/end_episode", None)
        async with world(tmp_path, swarm) as w:
            group = w.state.groups[ticket.group_id]
            assert group.phase == "DONE"
            assert [one.phase for one in group.candidates] == ["unknown"] * 4
            assert len(swarm.ends) == 4
            assert swarm.duplicate_ends == 0


async def test_claims_no_journal_knows_of_are_given_back(tmp_path: Path) -> None:
    async with ScriptedSwarm(automatic=False) as swarm:
        for client in ("me", "me", "somebody else"):
            swarm.claim(
                {"client_uuid": client, "episode_type": "train", "discard_episode_timeout": 240}
            )
        async with world(tmp_path, swarm) as w:
            await w.until(lambda: len(swarm.claimed()) == 1)
            assert swarm.claimed()[0].client == "somebody else"


async def test_a_server_that_does_not_answer_is_cleaned_up_when_it_does(tmp_path: Path) -> None:
    async with ScriptedSwarm(automatic=False) as swarm:
        group_id = await killed_in(tmp_path, swarm, "SUBMITTING")
        async with world(tmp_path, swarm, recover=False) as w:
            w.line.cut = True
            await w.until(lambda: not w.server.watcher.current.reachable)
            began = asyncio.get_running_loop().time()
            await w.groups.recover()
            assert asyncio.get_running_loop().time() - began < 0.4  # the start is not held up
            assert w.state.groups[group_id].open  # not forgotten
            w.line.cut = False
            await w.until(lambda: w.state.groups[group_id].phase == "DONE")
            assert len(swarm.reward_log) == 4
            assert not swarm.claimed()


async def test_an_engine_that_was_restarted_meanwhile(tmp_path: Path) -> None:
    async with ScriptedSwarm(automatic=False) as swarm:
        group_id = await killed_in(tmp_path, swarm, "SUBMITTING")
        swarm.set_state("OFFLINE", 0)
        async with world(tmp_path, swarm) as w:
            group = w.state.groups[group_id]
            assert not group.open
            assert not swarm.reward_log
            assert {one.phase for one in group.candidates} == {"unknown"}


async def test_two_kills_in_a_row(tmp_path: Path) -> None:
    async with ScriptedSwarm(automatic=False) as swarm:
        first = await killed_in(tmp_path, swarm, "GENERATING")
        async with world(tmp_path, swarm, recover=False) as w:
            w.kill()
        async with world(tmp_path, swarm) as w:
            assert w.state.groups[first].cause == "proxy was killed"
            await w.until(lambda: not swarm.claimed())
