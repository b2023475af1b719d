"""An order gives a scored group with too few candidates fresh ones, or leaves it unchanged."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from core.commands.spec import NotNow
from core.events import CandidateFailed
from core.state import Group
from proxy.groups.claim import _record_claim, _record_return
from tests.support.proxy.world import World, sent, settings, world

CHATS = "/v1/chat/completions"
OPEN = settings(rating={"mode": "answer_first"}, rewards={"retries": 0})


@contextlib.asynccontextmanager
async def short(tmp_path: Path) -> AsyncIterator[tuple[World, Group]]:
    """A group of four places that waits for a rating with two answers."""
    async with world(tmp_path, configured=OPEN) as w:
        w.swarm.fail_next(CHATS, 500, times=2)
        ticket = await w.ask()
        await w.reply(ticket)
        yield w, await w.open("AWAITING_RATING")


def answers(group: Group) -> int:
    return sum(candidate.phase == "answered" for candidate in group.candidates)


async def test_a_refill_fills_the_empty_slots_and_scores_all_answers_again(tmp_path: Path) -> None:
    async with short(tmp_path) as (w, group):
        assert answers(group) == 2
        refill = await w.commands.refill(group.group_id[:6])
        assert refill == f"group {group.group_id} has 4 of 4 candidates now and is scored again"
        assert (answers(group), group.phase, group.best) == (4, "AWAITING_RATING", 3)
        assert [candidate.auto_reward for candidate in group.candidates] == [0.0, 0.1, 0.2, 0.3]
        await w.commands.rate(group.group_id, "ranking", (3, 2, 1, 0))
        await w.commands.accept(group.group_id)
        await w.closed()
        assert len(next(iter(sent(w.swarm).values()))) == 4
        assert not w.swarm.claimed()


async def test_a_refill_that_fails_leaves_the_group_unchanged(tmp_path: Path) -> None:
    async with short(tmp_path) as (w, group):
        w.swarm.fail_next(CHATS, 500, times=2)
        with pytest.raises(NotNow, match="no fresh candidate: upstream"):
            await w.commands.refill(group.group_id)
        assert (answers(group), group.phase) == (2, "AWAITING_RATING")
        assert len(w.swarm.claimed()) == 2
        w.source.abstains = "no credit"
        with pytest.raises(NotNow, match=r"stays as it was.*no credit"):
            await w.commands.refill(group.group_id)
        await w.commands.accept(group.group_id)
        await w.closed()
        assert group.source == "auto"
        assert len(next(iter(sent(w.swarm).values()))) == 2
        assert len(w.kinds(CandidateFailed)) == 6
        assert not w.swarm.claimed()


async def test_a_group_being_refilled_takes_no_votes_and_can_be_aborted(tmp_path: Path) -> None:
    async with short(tmp_path) as (w, group):
        w.swarm.delay = 30.0
        chats = len(w.swarm.chats)
        async with asyncio.TaskGroup() as tasks:
            order = tasks.create_task(_refused(w, group))
            await w.until(lambda: len(w.swarm.chats) == chats + 2)
            for verb in (w.commands.accept, w.commands.refill):
                with pytest.raises(NotNow, match=r"being refilled|already requested"):
                    await verb(group.group_id)
            with pytest.raises(NotNow, match="being refilled"):
                await w.commands.rate(group.group_id, "best", (0,))
            await w.commands.abort(group.group_id)
        assert "ended meanwhile" in order.result()
        await w.closed()
        assert not w.swarm.claimed()
        assert not w.swarm.ends


async def _refused(w: World, group: Group) -> str:
    with pytest.raises(NotNow) as error:
        await w.commands.refill(group.group_id)
    return str(error.value)


async def test_a_refill_of_a_complete_or_closed_group_is_refused_with_the_reason(
    tmp_path: Path,
) -> None:
    async with world(tmp_path, configured=OPEN) as w:
        await w.reply(await w.ask())
        group = await w.open("AWAITING_RATING")
        with pytest.raises(NotNow, match="It is complete"):
            await w.commands.refill(group.group_id)
        await w.commands.accept(group.group_id)
        await w.closed()
        with pytest.raises(NotNow, match="closed: it cannot be refilled"):
            await w.commands.refill(group.group_id)


async def test_a_grant_that_comes_after_a_later_refill_changes_no_slot(tmp_path: Path) -> None:
    async with short(tmp_path) as (w, group):
        await w.commands.refill(group.group_id)
        (run,) = w.groups.runs.values()
        held = [slot.uuid for slot in run.slots.candidates]
        _record_claim(run, "late", run.slots.candidates[0])
        _record_return(run, ["late"], "it came late")
        assert [slot.uuid for slot in run.slots.candidates] == held
        assert [candidate.episode_uuid for candidate in group.candidates] == held
