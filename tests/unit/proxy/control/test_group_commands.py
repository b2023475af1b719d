"""Rating by hand while groups are open: windows, modes, commands, and what survives a kill."""

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import pytest

import core.journal.writer
import proxy.groups.rating
import proxy.groups.seal
from ajet_swarm.common.errors import AjetError
from core.commands.spec import NotNow
from core.events import (
    AnswerReturned,
    GroupClosed,
    GroupRated,
    GroupSealed,
    RatingAwaited,
    RatingUndone,
)
from tests.support.alerts import cause_of
from tests.support.capped_clock import skip
from tests.support.proxy.singles import EpisodeEnded
from tests.support.proxy.world import World, settings, texts, world
from tests.support.scripted.swarm import ScriptedSwarm

pytestmark = pytest.mark.slow

LONG = settings(rating={"window": 30.0})


FIRST = settings(rating={"mode": "answer_first"})


HOLD = settings(rating={"mode": "hold"})


def rewards(w: World) -> list[float]:
    """The rewards sent, in the order of the candidates."""
    (group,) = w.state.groups.values()
    return [w.swarm.rewards[one.episode_uuid] for one in group.candidates]


async def test_a_rating_window_is_open_while_a_console_is_attached(w: World) -> None:
    w.console()
    ticket = await w.ask()
    assert (await w.reply(ticket)).why == "winner"
    group = await w.open("AWAITING_RATING")
    assert (group.awaiting, group.fallback) == ("window", "accept")
    assert not w.swarm.ends
    await w.closed()
    assert (group.source, group.phase) == ("auto", "DONE")


async def test_a_vote_within_the_window_is_sent(w: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxy.groups.seal, "UNDO", 0.05)
    w.console()
    group = await w.awaiting()
    await w.commands.rate(group.group_id, "ranking", (1, 0, 3, 2), (), "ann", "nicer")
    assert group.rating.rewards == pytest.approx((2 / 3, 1.0, 0.0, 1 / 3))
    await w.closed()
    assert rewards(w) == pytest.approx([2 / 3, 1.0, 0.0, 1 / 3])
    assert (group.source, group.best, group.returned) == ("human", 1, 3)
    assert [one.auto_reward for one in group.candidates] == [0.0, 0.1, 0.2, 0.3]


async def test_a_vote_counts_for_equal_answers(w: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxy.groups.seal, "UNDO", 0.05)
    w.console()
    w.swarm.answer = texts("Paris.", "Paris.", "Paris.", "Paris, of course.")
    group = await w.awaiting()
    [other] = [one.index for one in group.candidates if one.text == "Paris, of course."]
    last = max({0, 1, 2, 3} - {other})
    await w.commands.rate(group.group_id, "best", (last,), (), "ann", "")
    await w.closed()
    assert rewards(w) == [0.0 if one == other else 1.0 for one in range(4)]


@pytest.mark.world(LONG)
async def test_rolling_post_seals_open_windows_at_once(w: World) -> None:
    w.console()
    await w.awaiting()
    w.swarm.set_state("ROLLING_POST")
    await w.closed()
    assert rewards(w) == [0.0, 0.1, 0.2, 0.3]
    await w.until(lambda: w.swarm.state == "ROLLING")
    assert not w.swarm.lost


@pytest.mark.world(LONG)
async def test_the_last_console_that_leaves_closes_the_window(w: World) -> None:
    w.console()
    await w.awaiting()
    w.console(0)
    await w.closed()
    assert len(w.swarm.ends) == 4


@pytest.mark.world(HOLD)
async def test_repeated_votes_neither_keep_a_group_open_nor_fill_the_journal(
    w: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proxy.groups.rating, "MAX_VOTES", 5)
    ticket, group = await w.held()
    for best in (0, 1, 2, 3):
        await w.commands.rate(group.group_id, "best", (best,), (), "ann", "")
    assert "is undone" in await w.commands.unrate(group.group_id, "ann")
    await w.commands.rate(group.group_id, "best", (2,), (), "ann", "")
    with pytest.raises(AjetError, match="5 votes of this rater, it takes no more"):
        await w.commands.rate(group.group_id, "best", (0,), (), "ann", "")
    assert (await w.reply(ticket)).index == 2
    await w.closed()
    assert len(w.kinds(GroupRated)) == 5
    assert (group.source, group.best) == ("human", 2)


@pytest.mark.world(settings(rating={"mode": "hold", "window": 0.2}))
async def test_a_rating_that_is_replaced_again_and_again_is_sealed_in_time(w: World) -> None:
    ticket, group = await w.held()
    votes = 0
    with contextlib.suppress(AjetError):  # it is sealed
        for votes in range(15):
            await w.commands.rate(group.group_id, "best", (votes % 4,), (), "ann", "")
            await asyncio.sleep(0.1)
    assert 1 <= votes < 14  # 0.6 s after the first vote
    await w.reply(ticket)
    await w.closed()
    assert group.source == "human"


@pytest.mark.world(LONG)
async def test_a_rating_can_be_undone(w: World) -> None:
    w.console()
    group = await w.awaiting()
    await w.commands.rate(group.group_id, "best", (0,))
    assert w.state.totals.rated == 1
    await w.commands.unrate(group.group_id)
    assert "no vote to undo" in await w.commands.unrate(group.group_id)
    await w.commands.accept(group.group_id)
    await w.closed()
    assert group.source == "auto"
    assert rewards(w) == [0.0, 0.1, 0.2, 0.3]


@pytest.mark.world(FIRST)
async def test_answer_first_answers_at_once_and_waits_for_the_rating(w: World) -> None:
    ticket = await w.ask()
    reply = await w.reply(ticket, 1.0)
    assert (reply.index, reply.why) == (3, "provisional")
    group = await w.open("AWAITING_RATING")
    assert group.awaiting == "answer_first"
    timeout = w.swarm.episodes[group.candidates[0].episode_uuid].timeout
    assert timeout == 600.0
    assert 580 < group.until - w.context.clock() <= 590
    w.swarm.set_state("ROLLING_POST")
    await asyncio.sleep(0.05)
    assert group.open  # visible, not sealed silently
    await w.commands.rate(group.group_id, "bad")
    await w.closed()
    assert rewards(w) == [0.0] * 4
    assert group.dead == "equal rewards"


@pytest.mark.parametrize(("fallback", "ends"), [("accept", 4), ("abort", 0)])
async def test_the_fallback_applies_when_the_clock_runs_out(
    tmp_path: Path, fallback: str, ends: int
) -> None:
    configured = settings(rating={"mode": "answer_first", "fallback": fallback})
    async with ScriptedSwarm(automatic=False) as swarm, world(tmp_path, swarm, configured) as w:
        group = await w.awaiting()
        skip(group.until - w.context.clock())
        await w.closed()
        await w.until(lambda: not swarm.claimed())
        assert len(swarm.ends) == ends
        assert group.phase == ("DONE" if ends else "ABORTED")


@pytest.mark.world(HOLD)
async def test_mode_hold_delays_the_answer_until_the_operator_rates(w: World) -> None:
    ticket, group = await w.held()
    assert await ticket.next(0.05) is None
    await w.commands.rate(group.group_id, "best", (1,))
    reply = await w.reply(ticket)
    assert (reply.index, reply.why) == (1, "winner")
    await w.closed()
    assert rewards(w) == [0.0, 1.0, 0.0, 0.0]


@pytest.mark.world(HOLD)
async def test_mode_hold_ends_at_the_budget_of_the_user(w: World) -> None:
    ticket = await w.ask()
    await w.open("AWAITING_RATING")
    skip(HOLD.proxy.answer_budget)
    reply = await w.reply(ticket)
    assert (reply.index, reply.why) == (3, "provisional")
    group = w.group(ticket)
    assert group.open
    await w.commands.accept(group.group_id)
    await w.closed()
    assert (group.returned, group.source) == (3, "auto")
    assert len(w.kinds(AnswerReturned)) == 1


@pytest.mark.world(HOLD)
async def test_a_skipped_group_is_returned(w: World) -> None:
    ticket, group = await w.held()
    await w.commands.rate(group.group_id, "skip")
    assert (await w.reply(ticket)).index == 3
    await w.closed()
    assert (group.phase, group.cause) == ("ABORTED", "skipped by the operator")
    assert not w.swarm.ends


@pytest.mark.world(HOLD)
async def test_the_mode_can_be_switched_while_groups_are_open(w: World) -> None:
    ticket = await w.ask()
    await w.open("AWAITING_RATING")
    await w.commands.set_mode("off")
    assert (await w.reply(ticket)).why == "winner"
    await w.closed()
    await w.commands.set_mode("answer_first")
    assert w.state.rating_mode == "answer_first"
    with pytest.raises(AjetError, match="`mode` cannot be 'maybe'"):
        await w.commands.set_mode("maybe")


@pytest.mark.world(HOLD)
async def test_abort_answers_the_user_and_frees_the_episodes(w: World) -> None:
    ticket, group = await w.held()
    await w.commands.abort(group.group_id, "silly")
    assert "is aborted already" in await w.commands.abort(group.group_id)
    assert (await w.reply(ticket)).index == 3
    await w.closed()
    assert (group.phase, group.cause) == ("ABORTED", "aborted by the operator: silly")
    assert not w.swarm.claimed()
    assert "nothing left to abort" in await w.commands.abort(group.group_id)
    with pytest.raises(AjetError, match="Already aborted"):
        await w.commands.accept(group.group_id)


async def test_abort_while_generating(w: World) -> None:
    w.swarm.delay = 30.0
    ticket = await w.ask()
    group = await w.open("GENERATING")
    with pytest.raises(AjetError, match="not complete yet"):
        await w.commands.rate(group.group_id, "tie")
    await w.commands.abort(group.group_id)
    assert (await w.refused(ticket)).status == 503
    await w.closed()


async def test_a_sealed_group_cannot_be_changed(w: World) -> None:
    w.swarm.fail_next("/end_episode", "hang", 4)
    ticket = await w.ask()
    await w.reply(ticket)
    group = await w.open("SUBMITTING")
    for order in (
        w.commands.rate(group.group_id, "tie"),
        w.commands.abort(group.group_id),
        w.commands.unrate(group.group_id),
    ):
        with pytest.raises(AjetError, match=r"(?i)already finished|nothing left to abort"):
            await order
    assert "Already finished" in await w.commands.accept(group.group_id)


@pytest.mark.world(HOLD)
async def test_ratings_that_do_not_fit_change_nothing(w: World) -> None:
    ticket, group = await w.held()
    for rating, order, scores in (
        ("best", (7,), ()),
        ("ranking", (0, 1), ()),
        ("scores", (), (0.5,)),
        ("scores", (), (2.0, 0.0, 0.0, 0.0)),
        ("great", (), ()),
    ):
        with pytest.raises(AjetError):
            await w.commands.rate(group.group_id, rating, order, scores)
    with pytest.raises(AjetError, match="no group"):
        await w.commands.rate("zzz", "tie")
    assert not w.kinds(GroupRated)
    assert group.open
    ticket.leave()
    await w.closed()


@pytest.mark.world(settings(rating={"mode": "hold", "window": 0.0}, rewards={"retries": 0}))
async def test_only_candidates_with_an_answer_are_rated(w: World) -> None:
    broken = ""

    async def answer(name: str, body: dict[str, Any], index: int) -> Any:
        nonlocal broken
        broken = broken or name
        return RuntimeError("out of memory") if name == broken else f"fine, {name}"

    w.swarm.answer = answer
    ticket, group = await w.held()
    failed = next(one.index for one in group.candidates if one.error)
    left = [index for index in range(4) if index != failed]
    with pytest.raises(AjetError, match="has no answer"):
        await w.commands.rate(group.group_id, "best", (failed,))
    await w.commands.rate(group.group_id, "ranking", tuple(reversed(left)))
    assert (await w.reply(ticket)).index == left[-1]
    await w.closed()
    assert sorted(w.swarm.rewards.values()) == [0.0, 0.5, 1.0]


async def test_closed_groups_can_be_marked_and_noted(w: World) -> None:
    group, _ = await w.complete()
    marks = []
    for args in ({}, {}, {"marked": False}, {"marked": False}):
        await w.commands.mark(group.group_id, **args)
        marks.append(group.marked)
    assert marks == [True, True, False, False]  # a repetition changes nothing
    await w.commands.note(group.group_id[:8], "look here")
    assert group.note == "look here"


@pytest.mark.parametrize(("fallback", "ends"), [("accept", 4), ("abort", 0)])
async def test_a_drain_applies_the_fallback(tmp_path: Path, fallback: str, ends: int) -> None:
    chosen = settings(rating={"mode": "answer_first", "fallback": fallback})
    async with world(tmp_path, configured=chosen) as w:
        await w.awaiting()
        assert not await w.groups.drain(0.05)
        await w.closed()
        assert len(w.swarm.ends) == ends
        assert not w.swarm.claimed()


@pytest.mark.world(LONG)
async def test_a_wait_is_published_once_for_each_change(w: World) -> None:
    w.console()
    group = await w.awaiting()
    for _ in range(5):
        w.console()
        await asyncio.sleep(0.005)
    assert len(w.kinds(RatingAwaited)) == 1
    await w.commands.accept(group.group_id)
    await w.closed()


@pytest.mark.world(FIRST, batch=4, repeat=4, slots=40)
async def test_more_groups_than_a_batch_wait_for_a_rating_where_the_pool_has_them(w: World) -> None:
    """Nothing in the proxy bounds the queue of the rater: the server's pool does."""
    w.console()
    for number in range(10):
        assert (await w.reply(await w.ask(f"question {number}"))).answers
    await w.until(lambda: len(w.state.waiting()) == 10)
    assert not w.swarm.ends


@pytest.mark.world(HOLD)
async def test_the_same_vote_again_changes_nothing(w: World) -> None:
    """A key pressed twice, or a command sent again, makes no second vote and no longer undo."""
    ticket, group = await w.held()
    votes: list[dict[str, Any]] = [
        {"rating": "best", "order": (1,), "rater": "ann"},
        {"rating": "best", "order": (2,), "rater": "ann"},
        {"rating": "best", "order": (2,), "rater": "ann", "note": "shorter"},
        {"rating": "best", "order": (2,), "rater": "ann", "note": "shorter", "tags": ("tone",)},
    ]
    for vote in votes:
        await asyncio.gather(*(w.commands.rate(group.group_id, **vote) for _ in range(3)))
    assert (await w.reply(ticket)).index == 2
    await w.closed()
    rated = w.kinds(GroupRated)
    assert [(one.order, one.note, one.tags) for one in rated] == [
        ((1,), "", ()),
        ((2,), "", ()),
        ((2,), "shorter", ()),
        ((2,), "shorter", ("tone",)),
    ]


HOLD_LONG = settings(rating={"mode": "hold", "window": 60.0})


@pytest.mark.world(HOLD_LONG)
async def test_a_vote_is_acknowledged_once_it_is_on_the_disk(
    w: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, group = await w.held()
    await w.context.journal.committed(w.state.seq)
    monkeypatch.setattr(
        core.journal.writer, "LINGER", 30.0
    )  # nothing is committed unless waited for
    await w.commands.rate(group.group_id, "best", (2,), rater="ada")
    on_disk = w.context.journal.group_events(group.group_id)
    assert [one.rater for one in on_disk if isinstance(one, GroupRated)] == ["ada"]
    await w.commands.unrate(group.group_id)
    kinds = [type(one) for one in w.context.journal.group_events(group.group_id)]
    assert RatingUndone in kinds


@pytest.mark.world(HOLD_LONG)
async def test_a_vote_that_cannot_be_committed_is_refused(w: World) -> None:
    _, group = await w.held()
    w.context.journal.error = "the disk is full"
    with pytest.raises(NotNow, match=r"nothing is changed: .* disk is full"):
        await w.commands.rate(group.group_id, "best", (2,))
    w.context.journal.error = ""
    assert group.rating is None


@pytest.mark.world(HOLD_LONG)
async def test_the_abort_of_a_rated_group_is_acknowledged_after_its_commit(
    w: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, group = await w.held()
    await w.commands.rate(group.group_id, "best", (2,))
    monkeypatch.setattr(core.journal.writer, "LINGER", 30.0)
    await w.commands.abort(group.group_id)
    on_disk = w.context.journal.group_events(group.group_id)
    assert any(isinstance(one, GroupClosed) for one in on_disk)


async def killed_after_the_vote(tmp_path: Path, swarm: ScriptedSwarm) -> str:
    """Rate a group within its undo window and kill the proxy; returns the group's id."""
    async with world(tmp_path, swarm, HOLD_LONG) as w:
        _, group = await w.held()
        await w.commands.rate(group.group_id, "ranking", (2, 0, 1, 3), rater="ada")
        w.kill()
    return group.group_id


async def test_a_rated_group_is_finished_with_its_vote(tmp_path: Path) -> None:
    async with ScriptedSwarm(automatic=False) as swarm:
        group_id = await killed_after_the_vote(tmp_path, swarm)
        async with world(tmp_path, swarm, HOLD_LONG) as w:
            group = w.state.groups[group_id]
            assert (group.phase, group.cause) == ("DONE", "the proxy ended")
            assert (group.source, group.best) == ("human", 2)
            sent = [swarm.rewards[one.episode_uuid] for one in group.candidates]
            assert sent == pytest.approx([2 / 3, 1 / 3, 1.0, 0.0])
            (seal,) = w.kinds(GroupSealed)
            assert [one.advantage for one in seal.rewards] != [0.0] * 4
            assert w.state.raters["ada"].votes == 1
            assert not swarm.claimed()
            assert "lost" not in cause_of(w.state.alerts["recovered:s"])
        async with world(tmp_path, swarm, HOLD_LONG) as w:
            assert not w.kinds(EpisodeEnded)
        assert swarm.duplicate_ends == 0


async def test_a_vote_whose_episodes_are_lost_is_named_in_the_alert(tmp_path: Path) -> None:
    async with ScriptedSwarm(automatic=False) as swarm:
        group_id = await killed_after_the_vote(tmp_path, swarm)
        swarm.set_state("OFFLINE", 0)
        async with world(tmp_path, swarm, HOLD_LONG) as w:
            group = w.state.groups[group_id]
            assert (group.phase, group.source) == ("ABORTED", "")
            assert not swarm.ends
            result = cause_of(w.state.alerts["recovered:s"])
            assert "1 vote is lost, the server no longer holds the episodes" in result
            assert f"ada on {group_id}" in result
            assert "(ranking 3 1 2 4)" in result
