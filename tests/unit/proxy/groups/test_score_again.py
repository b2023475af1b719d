"""Scored again, asked again, and orders on groups that memory has let go."""

from pathlib import Path

import pytest

from core.commands.spec import NotNow
from core.events import GroupOpened, GroupScored, GroupSealed
from core.state import GROUP_CAP
from proxy.dataset_rows import Row
from proxy.rewards.source import GroupContext
from tests.support.proxy.world import World, sent, settings, world
from tests.support.sample import group_events

pytestmark = pytest.mark.slow

HOLD = settings(rating={"mode": "answer_first"})


async def backwards(ctx: GroupContext) -> list[float]:
    """The first candidate is the best."""
    return [1.0 - answer.index / 10 for answer in ctx.answers]


async def test_a_group_that_waits_is_scored_again_with_the_present_rewards(tmp_path: Path) -> None:
    async with world(tmp_path, configured=HOLD) as w:
        await w.ask()
        group = await w.open("AWAITING_RATING")
        assert group.best == 3
        w.source.scorer = backwards
        await w.commands.rescore(group.group_id)
        assert (group.best, group.phase) == (0, "AWAITING_RATING")
        assert [candidate.auto_reward for candidate in group.candidates] == [1.0, 0.9, 0.8, 0.7]
        await w.commands.accept(group.group_id)
        await w.closed()
        assert next(iter(sent(w.swarm).values())) == pytest.approx([1.0, 0.9, 0.8, 0.7])
        assert len(w.kinds(GroupScored)) == 2


async def test_rewards_that_abstain_the_second_time_change_nothing(tmp_path: Path) -> None:
    async with world(tmp_path, configured=HOLD) as w:
        await w.ask()
        group = await w.open("AWAITING_RATING")
        w.source.abstains = "no credit"
        with pytest.raises(NotNow, match="no credit"):
            await w.commands.rescore(group.group_id)
        assert (group.best, group.abstained) == (3, "")
        await w.commands.accept(group.group_id)
        await w.closed()
        assert len(w.kinds(GroupSealed)) == 1


async def test_an_unscored_group_is_scored_once_the_rewards_work_again(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as w:
        w.console()
        w.source.abstains = "the judge is away"
        await w.ask()
        group = await w.open("AWAITING_RATING")
        assert group.abstained
        w.source.abstains = ""
        await w.commands.rescore(group.group_id)
        await w.closed()
        assert (group.phase, group.abstained, group.source) == ("DONE", "", "auto")


async def test_a_closed_group_is_not_scored_again(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        ticket = await w.ask()
        await w.reply(ticket)
        await w.closed()
        with pytest.raises(NotNow, match="finished"):
            await w.commands.rescore(ticket.group_id)


async def again(w: World, group_id: str) -> GroupOpened:
    """Ask again; the event of the new group."""
    rerun = await w.commands.rerun(group_id)
    opened: GroupOpened = w.kinds(GroupOpened)[-1]
    assert rerun.endswith(opened.group_id)
    await w.closed()
    return opened


async def test_the_same_request_becomes_a_new_group_that_is_trained_on(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        w.context.rows.register(
            Row(row_id="r7", query="hello", task_id="t7", reference="42", metadata={"a": 1})
        )
        ticket = await w.ask("hello", top_k=3)
        await w.reply(ticket)
        await w.closed()
        opened = await again(w, ticket.group_id)
        first: GroupOpened = w.kinds(GroupOpened)[0]
        assert opened.group_id != first.group_id
        assert (opened.body, opened.query) == (first.body, first.query)
        assert (opened.row_id, opened.dataset_task_id, opened.reference) == ("r7", "t7", "42")
        assert opened.metadata == first.metadata == {"a": 1}
        assert len(w.context.rows) == 0
        groups = w.state.groups[opened.group_id]
        assert (groups.phase, groups.returned, groups.source) == ("DONE", 3, "auto")
        assert len(sent(w.swarm)) == 2
        assert not w.swarm.claimed()


async def test_the_repeat_of_an_untrained_request_is_untrained(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        ticket = await w.ask(headers={"x-ajet-train": "no"})
        await w.reply(ticket)
        await w.closed()
        assert (await again(w, ticket.group_id)).episode_type == "eval"


async def test_groups_that_only_the_journal_has_can_be_marked_and_repeated(tmp_path: Path) -> None:
    async with world(tmp_path) as w:
        for number in range(GROUP_CAP + 1):
            for event in group_events(number, query="old"):
                w.context.bus.publish(event)
        await w.context.journal.durable(w.state.seq)
        assert "g0000" not in w.state.groups
        assert "marked" in await w.commands.mark("g0000")
        assert (await again(w, "g0000")).query == "old"
        with pytest.raises(NotNow, match="no group `nobody`"):
            await w.commands.note("nobody", "x")
