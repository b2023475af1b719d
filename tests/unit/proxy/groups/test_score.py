"""Groups that are scored again, asked again, or refilled."""

import asyncio

import pytest

from core.commands.spec import NotNow
from core.events import CandidateFailed, GroupOpened, GroupScored, GroupSealed
from core.state import GROUP_CAP, Group
from proxy.dataset_rows import Row
from proxy.groups.claim import _record_claim, _record_return
from proxy.rewards.source import GroupContext
from tests.support.proxy.world import World, sent, settings
from tests.support.sample import group_events

pytestmark = pytest.mark.slow


HOLD = settings(rating={"mode": "answer_first"})


async def backwards(ctx: GroupContext) -> list[float]:
    """The first candidate is the best."""
    return [1.0 - answer.index / 10 for answer in ctx.answers]


@pytest.mark.world(HOLD)
async def test_a_group_that_waits_is_scored_again_with_the_present_rewards(w: World) -> None:
    _, group = await w.held()
    assert group.best == 3
    w.source.scorer = backwards
    await w.commands.rescore(group.group_id)
    assert (group.best, group.phase) == (0, "AWAITING_RATING")
    assert [candidate.auto_reward for candidate in group.candidates] == [1.0, 0.9, 0.8, 0.7]
    await w.commands.accept(group.group_id)
    await w.closed()
    assert next(iter(sent(w.swarm).values())) == pytest.approx([1.0, 0.9, 0.8, 0.7])
    assert len(w.kinds(GroupScored)) == 2


@pytest.mark.world(HOLD)
async def test_rewards_that_abstain_the_second_time_change_nothing(w: World) -> None:
    _, group = await w.held()
    w.source.abstains = "no credit"
    with pytest.raises(NotNow, match="no credit"):
        await w.commands.rescore(group.group_id)
    assert (group.best, group.abstained) == (3, "")
    await w.commands.accept(group.group_id)
    await w.closed()
    assert len(w.kinds(GroupSealed)) == 1


async def test_an_unscored_group_is_scored_once_the_rewards_work_again(w: World) -> None:
    w.console()
    w.source.abstains = "the judge is away"
    _, group = await w.held()
    assert group.abstained
    w.source.abstains = ""
    await w.commands.rescore(group.group_id)
    await w.closed()
    assert (group.phase, group.abstained, group.source) == ("DONE", "", "auto")


async def test_a_closed_group_is_not_scored_again(w: World) -> None:
    group, _ = await w.complete()
    with pytest.raises(NotNow, match="finished"):
        await w.commands.rescore(group.group_id)


async def again(w: World, group_id: str) -> GroupOpened:
    """Ask again; the event of the new group."""
    rerun = await w.commands.rerun(group_id)
    opened: GroupOpened = w.kinds(GroupOpened)[-1]
    assert rerun.endswith(opened.group_id)
    await w.closed()
    return opened


async def test_the_same_request_becomes_a_new_group_that_is_trained_on(w: World) -> None:
    w.context.rows.register(
        Row(row_id="r7", query="hello", task_id="t7", reference="42", metadata={"a": 1})
    )
    group, _ = await w.complete("hello", top_k=3)
    opened = await again(w, group.group_id)
    first: GroupOpened = w.kinds(GroupOpened)[0]
    assert opened.group_id != first.group_id
    assert (opened.body, opened.query) == (first.body, first.query)
    assert (opened.row_id, opened.dataset_task_id, opened.reference) == ("r7", "t7", "42")
    assert opened.metadata == first.metadata == {"a": 1}
    assert len(w.context.rows) == 0
    groups = w.state.groups[opened.group_id]
    assert (groups.phase, groups.returned, groups.source) == ("DONE", 3, "auto")
    assert len(sent(w.swarm)) == 2


async def test_the_repeat_of_an_untrained_request_is_untrained(w: World) -> None:
    group, _ = await w.complete(headers={"x-ajet-train": "no"})
    assert (await again(w, group.group_id)).episode_type == "eval"


async def test_groups_that_only_the_journal_has_can_be_marked_and_repeated(w: World) -> None:
    for number in range(GROUP_CAP + 1):
        for event in group_events(number, query="old"):
            w.context.bus.publish(event)
    await w.context.journal.durable(w.state.seq)
    assert "g0000" not in w.state.groups
    assert "marked" in await w.commands.mark("g0000")
    assert (await again(w, "g0000")).query == "old"
    with pytest.raises(NotNow, match="no group `nobody`"):
        await w.commands.note("nobody", "x")


CHATS = "/v1/chat/completions"


OPEN = settings(rating={"mode": "answer_first"}, rewards={"retries": 0})


@pytest.fixture
async def group(w: World) -> Group:
    """A group of four places that waits for a rating with two answers."""
    w.swarm.fail_next(CHATS, 500, times=2)
    return await w.awaiting()


def answers(group: Group) -> int:
    return sum(candidate.phase == "answered" for candidate in group.candidates)


@pytest.mark.world(OPEN)
async def test_a_refill_fills_empty_slots_and_scores_all_again(w: World, group: Group) -> None:
    assert answers(group) == 2
    refill = await w.commands.refill(group.group_id[:6])
    assert refill == f"group {group.group_id} has 4 of 4 candidates now and is scored again"
    assert (answers(group), group.phase, group.best) == (4, "AWAITING_RATING", 3)
    assert [candidate.auto_reward for candidate in group.candidates] == [0.0, 0.1, 0.2, 0.3]
    await w.commands.rate(group.group_id, "ranking", (3, 2, 1, 0))
    await w.commands.accept(group.group_id)
    await w.closed()
    assert len(next(iter(sent(w.swarm).values()))) == 4


@pytest.mark.world(OPEN)
async def test_a_refill_that_fails_leaves_the_group_unchanged(w: World, group: Group) -> None:
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


@pytest.mark.world(OPEN)
async def test_a_group_in_refill_takes_no_votes_and_can_be_aborted(w: World, group: Group) -> None:
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
    assert not w.swarm.ends


async def _refused(w: World, group: Group) -> str:
    with pytest.raises(NotNow) as error:
        await w.commands.refill(group.group_id)
    return str(error.value)


@pytest.mark.world(OPEN)
async def test_a_refill_of_a_complete_or_closed_group_is_refused_with_the_reason(w: World) -> None:
    group = await w.awaiting()
    with pytest.raises(NotNow, match="It is complete"):
        await w.commands.refill(group.group_id)
    await w.commands.accept(group.group_id)
    await w.closed()
    with pytest.raises(NotNow, match="closed: it cannot be refilled"):
        await w.commands.refill(group.group_id)


@pytest.mark.world(OPEN)
async def test_a_grant_after_a_later_refill_changes_no_slot(w: World, group: Group) -> None:
    await w.commands.refill(group.group_id)
    (run,) = w.groups.runs.values()
    held = [slot.uuid for slot in run.slots.candidates]
    _record_claim(run, "late", run.slots.candidates[0])
    _record_return(run, ["late"], "it came late")
    assert [slot.uuid for slot in run.slots.candidates] == held
    assert [candidate.episode_uuid for candidate in group.candidates] == held
