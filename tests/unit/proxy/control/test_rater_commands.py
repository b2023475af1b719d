"""Leases, votes of several raters, corrections, commands for all waiting groups."""

import asyncio
import contextlib
import re
from pathlib import Path
from typing import Any

import pytest

from ajet_swarm.common.errors import AjetError
from core.commands.spec import NotNow
from core.events import (
    DisagreementSettled,
    GroupEdited,
    GroupRated,
    GroupSealed,
    RatingRepeated,
    VoteCast,
)
from core.runtime.access import AccessTokens
from core.runtime.home import Home
from core.state import Group
from proxy.control.api import ControlApi
from proxy.control.client import ControlClient, ControlError
from proxy.control.dispatch import CommandDispatcher
from tests.support.proxy.world import World, settings, world
from tests.support.scripted.swarm import ScriptedSwarm
from tests.support.served import below, served

FIRST = settings(rating={"mode": "answer_first", "window": 0.0})


def lease_left(w: World, group_id: str) -> float:
    """Seconds a lease holds; 0 without one."""
    lease = w.state.groups[group_id].lease
    return float(lease.until - w.context.clock()) if lease is not None else 0.0


@pytest.mark.world(FIRST)
async def test_a_lease_blocks_other_raters_until_it_is_returned(w: World) -> None:
    group = await w.awaiting()
    name = group.group_id
    assert "yours" in await w.order("group.lease", group_id=name, holder="a", rater="ann")
    assert 10 < lease_left(w, name) <= 20
    with pytest.raises(AjetError, match="ann is rating"):
        await w.order("group.lease", group_id=name, holder="b", rater="bob")
    await w.order("group.lease", group_id=name, holder="a", seconds=9999)
    assert 20 < lease_left(w, name) <= 120
    await w.order("group.lease", group_id=name, holder="a", seconds=0)
    assert lease_left(w, name) == 0
    await w.order("group.lease", group_id=name, holder="b", rater="bob")
    vote: dict[str, Any] = {"group_id": name, "rating": "best", "order": [1], "rater": "ann"}
    with pytest.raises(AjetError, match="bob is rating group"):
        await w.order("group.rate", **vote)
    assert group.rating is None
    await w.order("group.rate", **vote, override=True)
    assert lease_left(w, name) == 0
    await w.closed()
    with pytest.raises(AjetError, match="does not wait"):
        await w.order("group.lease", group_id=name, holder="b")


@pytest.mark.world(settings(rating={"mode": "answer_first", "window": 60.0}))
async def test_a_vote_of_another_rater_is_not_replaced_silently(w: World) -> None:
    group = await w.awaiting()

    async def vote(index: int, **more: Any) -> str:
        args = {"group_id": group.group_id, "rating": "best", "order": [index], **more}
        return await w.order("group.rate", **args)

    await vote(1, rater="ada")
    with pytest.raises(AjetError, match=r"ada rated group \w+ 0 s ago: 2 best"):
        await vote(2, rater="bob")
    assert (group.rating.rater, group.rating.order) == ("ada", (1,))
    await vote(1, rater="bob")  # the same vote: ada's remains
    with pytest.raises(AjetError, match="ada rated"):
        await vote(3, rater="bob")
    await vote(3, rater="ada")  # her own, to change
    await vote(2, rater="ada", override=True)
    assert (group.rating.rater, group.rating.order) == ("ada", (2,))
    await w.order("group.unrate", group_id=group.group_id)
    await vote(0, holder="console a")
    with pytest.raises(AjetError, match="another console rated"):
        await vote(1, holder="console b")
    await vote(1, holder="console a")


@pytest.mark.world(FIRST)
async def test_the_holder_of_a_lease_can_vote(w: World) -> None:
    await w.reply(await w.ask())
    name = (await w.open("AWAITING_RATING")).group_id
    await w.order("group.lease", group_id=name, holder="b", rater="bob")
    await w.order("group.rate", group_id=name, rating="tie", holder="b")
    (group_rated,) = w.kinds(GroupRated)
    assert group_rated.rating == "tie"


@pytest.mark.world(FIRST)
async def test_a_vote_records_its_circumstances(w: World) -> None:
    group = await w.awaiting()
    look: dict[str, Any] = {"shown": [2, 0, 3, 1], "seed": "5f3a", "looked": 7.5, "blind": True}
    await w.order(
        "group.rate",
        group_id=group.group_id,
        rating="best",
        order=[2],
        tags="wrong, verbose",
        first_key=3.25,
        guidelines="aa11",
        **look,
    )
    (group_rated,) = w.kinds(GroupRated)
    assert (group_rated.shown, group_rated.seed, group_rated.looked, group_rated.blind) == (
        (2, 0, 3, 1),
        "5f3a",
        7.5,
        True,
    )
    assert (group_rated.tags, group_rated.first_key) == (("wrong", "verbose"), 3.25)
    assert group_rated.guidelines == "aa11"


@pytest.mark.world(FIRST)
async def test_a_second_vote_is_compared_and_sends_nothing(w: World) -> None:
    group = await w.awaiting()
    name = group.group_id
    with pytest.raises(AjetError, match="no rating that was sent"):
        await w.order("group.repeat", group_id=name, rating="tie")
    await w.order("group.rate", group_id=name, rating="best", order=[2], rater="ann")
    await w.closed()
    before = list(w.swarm.reward_log)
    for rater in ("bob", ""):
        with pytest.raises(AjetError, match="that was sent is of ann"):
            await w.order("group.repeat", group_id=name, rating="bad", rater=rater)
    with pytest.raises(AjetError, match="judges nothing"):
        await w.order("group.repeat", group_id=name, rating="skip", rater="ann")
    same = await w.order(
        "group.repeat", group_id=name, rating="ranking", order=[2, 0, 1, 3], rater="ann"
    )
    assert same == "the same as before"
    with pytest.raises(AjetError, match="has had its second vote"):
        await w.order("group.repeat", group_id=name, rating="bad", rater="ann")
    assert [one.agrees for one in w.kinds(RatingRepeated)] == [True]
    assert w.state.raters["ann"].repeats == 1
    assert "bob" not in w.state.raters
    assert w.swarm.reward_log == before
    assert [one.reward for one in group.candidates] == [0.0, 0.0, 1.0, 0.0]


@pytest.mark.world(settings(rating={"mode": "hold"}))
async def test_a_correction_is_recorded_and_never_sent(w: World) -> None:
    ticket, group = await w.held()
    text = group.candidates[3].text
    whole = "a better answer " * 400
    args: dict[str, Any] = {"group_id": group.group_id, "index": 3, "edited": whole, "rater": "ann"}
    assert "not sent" in await w.order("group.edit", **args)
    with pytest.raises(AjetError, match="no candidate 9"):
        await w.order("group.edit", **{**args, "index": 8})
    await w.order("group.accept", group_id=group.group_id)
    reply = await w.reply(ticket)
    assert reply.answer.message["content"] == text
    await w.closed()
    (group_edited,) = w.kinds(GroupEdited)
    assert group_edited.edited == whole
    assert sorted(w.swarm.rewards.values()) == [0.0, 0.1, 0.2, 0.3]
    message = await w.order("group.edit", **{**args, "edited": ""})
    assert "is removed" in message
    assert group.edited_index is None


@pytest.mark.world(
    settings(rating={"mode": "answer_first", "window": 0.0, "score_low": -1.0, "score_high": 2.0})
)
async def test_scores_outside_the_configured_range_are_refused(w: World) -> None:
    group = await w.awaiting()
    name = group.group_id
    with pytest.raises(AjetError, match="outside -1 to 2"):
        await w.order("group.rate", group_id=name, rating="scores", scores=[3, 0, 0, 0])
    await w.order("group.rate", group_id=name, rating="scores", scores=[2, -1, 0, 0.5])
    await w.closed()
    assert [w.swarm.rewards[one.episode_uuid] for one in group.candidates] == [2, -1, 0, 0.5]


@pytest.mark.world(settings(rating={"mode": "hold", "window": 60.0}))
async def test_the_reply_to_a_vote_names_the_end_of_its_undo_time(w: World) -> None:
    w.console()
    _, group = await w.held("one")
    result = await w.order("group.rate", group_id=group.group_id, rating="best", order=[0])
    assert re.search(r"held for (59|60) s until \d\d:\d\d:\d\d: unrate undoes it", result)
    await w.order("rating.accept_all")
    await w.closed()


@pytest.mark.world(settings(rating={"mode": "answer_first", "window": 60.0}))
async def test_all_waiting_groups_are_accepted_or_aborted_at_once(w: World) -> None:
    w.console()
    await w.reply(await w.ask("one"))
    await w.reply(await w.ask("two"))
    w.source.abstains = "the judge is away"
    third = await w.ask("three")
    await w.until(lambda: len(w.state.waiting()) == 3)
    with pytest.raises(AjetError, match="no server `x`"):
        await w.order("rating.accept_all", server="x")
    assert "1 without an automatic reward" in await w.order("rating.accept_all", server="s")
    await w.until(lambda: len(w.state.waiting()) == 1)
    assert await w.order("rating.abort_all", reason="test") == "1 group is aborted"
    await w.closed()
    assert w.group(third).phase == "ABORTED"
    assert [one.phase for one in w.state.groups.values()].count("DONE") == 2
    assert len(w.swarm.ends) == 8


@pytest.mark.world(settings(rating={"mode": "answer_first", "window": 60.0}))
async def test_rated_groups_are_not_aborted_with_the_others(w: World) -> None:
    await w.reply(await w.ask("one"))
    await w.reply(await w.ask("two"))
    await w.until(lambda: len(w.state.waiting()) == 2)
    first, second = w.state.waiting()
    await w.order("group.rate", group_id=first.group_id, rating="best", order=[0])
    assert await w.order("rating.abort_all") == "1 group is aborted"
    await w.until(lambda: second.phase == "ABORTED")
    assert first.open
    await w.order("rating.accept_all")
    await w.closed()
    assert first.source == "human"


def two_votes(**rating: Any) -> Any:
    """Settings with two raters for each group."""
    return settings(rating={"mode": "answer_first", "window": 0.0, "overlap": 2, **rating})


def sent(w: World, group: Group) -> list[float]:
    """The rewards that the server received, by candidate."""
    return [w.swarm.rewards[one.episode_uuid] for one in group.candidates]


@pytest.mark.world(two_votes())
async def test_two_different_raters_seal_a_group_with_the_mean_of_their_votes(w: World) -> None:
    group = await w.awaiting()
    assert (group.overlap, group.is_free("a", w.context.clock())) == (2, True)
    assert "vote 1 of 2" in await w.vote(group, "ada", 1)
    assert group.phase == "AWAITING_RATING"
    assert group.rating is None
    # the same rater again: the same vote changes nothing, another one replaces it
    await w.vote(group, "ada", 1)
    await w.vote(group, "ada", 2)
    assert [(one.rater, one.order) for one in group.votes] == [("ada", (2,))]
    assert len(w.kinds(VoteCast)) == 2
    assert "is rated" in await w.vote(group, "bob", 0)
    await w.closed()
    assert sent(w, group) == [0.5, 0.0, 0.5, 0.0]
    (rated,) = w.kinds(GroupRated)
    assert (rated.raters, rated.rater, rated.rating) == (("ada", "bob"), "ada, bob", "scores")
    assert (len(w.kinds(GroupSealed)), group.source) == (1, "human")
    assert sorted(w.state.raters) == ["ada", "bob"]
    assert [w.state.raters[name].votes for name in ("ada", "bob")] == [1, 1]


@pytest.mark.world(two_votes(window=60.0))
async def test_a_third_rater_is_refused_with_the_names_of_the_others(w: World) -> None:
    group = await w.awaiting()
    await w.vote(group, "ada", 1)
    await w.vote(group, "bob", 1)
    assert (group.rating.rating, group.rating.order) == ("best", (1,))
    for more in ({}, {"override": True}):
        with pytest.raises(NotNow, match="has its 2 votes, by ada and bob"):
            await w.vote(group, "eve", 3, **more)
    await w.order("group.unrate", group_id=group.group_id, rater="bob")
    assert group.rating is None
    assert [one.rater for one in group.votes] == ["ada"]
    with pytest.raises(NotNow, match="has 1 of 2 votes, by ada"):
        await w.order("group.accept", group_id=group.group_id)
    with pytest.raises(NotNow, match="eve has no vote"):
        await w.order("group.unrate", group_id=group.group_id, rater="eve")
    await w.vote(group, "eve", 1)
    await w.order("group.accept", group_id=group.group_id)
    await w.closed()
    assert sent(w, group) == [0.0, 1.0, 0.0, 0.0]


@pytest.mark.world(two_votes(window=60.0))
async def test_a_group_that_lacks_votes_is_accepted_only_explicitly(w: World) -> None:
    first, second = await w.awaiting("one"), await w.awaiting("two")
    await w.vote(first, "ada", 1)
    for group, votes in ((first, "1 of 2 votes, by ada"), (second, "0 of 2 votes")):
        with pytest.raises(NotNow, match=f"has {votes}. Wait for the others"):
            await w.order("group.accept", group_id=group.group_id)
        await w.order("group.accept", group_id=group.group_id, override=True)
    await w.closed()
    assert (first.source, second.source) == ("human", "auto")
    assert sent(w, first) == [0.0, 1.0, 0.0, 0.0]


@pytest.mark.world(two_votes(window=60.0))
async def test_as_many_consoles_lease_a_group_as_votes_are_missing(w: World) -> None:
    group = await w.awaiting()
    name = group.group_id
    await w.order("group.lease", group_id=name, holder="a", rater="ada")
    await w.order("group.lease", group_id=name, holder="b", rater="bob")
    with pytest.raises(NotNow, match="ada and bob are rating"):
        await w.order("group.lease", group_id=name, holder="c", rater="eve")
    with pytest.raises(NotNow, match="ada and bob are rating"):
        await w.vote(group, "eve", 0, holder="c")
    await w.vote(group, "ada", 0, holder="a")
    assert [one.holder for one in group.leases] == ["b"]
    with pytest.raises(NotNow, match="ada voted on"):
        await w.order("group.lease", group_id=name, holder="a", rater="ada")
    with pytest.raises(NotNow, match="bob is rating"):
        await w.order("group.lease", group_id=name, holder="c", rater="eve")
    now = w.context.clock()
    w.context.clock = lambda: now + 60  # bob's lease has expired
    await w.order("group.lease", group_id=name, holder="c", rater="eve")
    await w.vote(group, "eve", 0, holder="c")
    with pytest.raises(NotNow, match="has its 2 votes"):
        await w.vote(group, "bob", 0, holder="b")
    await w.order("rating.accept_all")
    await w.closed()


@pytest.mark.world(two_votes(discard_timeout_rating=30.0))
async def test_the_votes_so_far_count_when_the_clock_ends(w: World) -> None:
    first, skipped = await w.awaiting("one"), await w.awaiting("two")
    await w.vote(first, "ada", 3)
    await w.order("group.rate", group_id=skipped.group_id, rating="skip", rater="ada")
    await w.until(lambda: first.fallback == "votes")
    now = w.context.clock()
    w.context.clock = lambda: now + 40
    for run in w.groups.runs.values():
        run.wake.set()
    await w.closed()
    assert first.source == "human"
    assert first.rating.rewards == (0.0, 0.0, 0.0, 1.0)
    assert skipped.phase == "ABORTED"


@pytest.mark.world(two_votes(window=60.0))
async def test_a_disagreement_is_settled_before_and_after_it_is_sent(w: World) -> None:
    group = await w.awaiting()
    await w.vote(group, "ada", 1)
    settle = {"group_id": group.group_id, "rating": "best", "rater": "lead"}
    with pytest.raises(NotNow, match="do not disagree"):
        await w.order("group.settle", order=[2], **settle)
    await w.vote(group, "bob", 2)
    assert group.is_disputed
    assert "held for" in await w.order("group.settle", order=[2], **settle)
    with pytest.raises(NotNow, match="lead has settled"):
        await w.vote(group, "ada", 3)
    await w.order("group.accept", group_id=group.group_id)
    await w.closed()
    assert sent(w, group) == [0.0, 0.0, 1.0, 0.0]
    before = list(w.swarm.reward_log)
    assert "not sent again" in await w.order("group.settle", order=[1], **settle)
    assert w.swarm.reward_log == before
    assert [one.sent for one in w.kinds(DisagreementSettled)] == [False, True]
    assert group.settled.order == (1,)


@pytest.mark.world(two_votes(disagreements="wait"))
async def test_a_disagreement_can_wait_for_a_decision(w: World) -> None:
    agreed, disputed = await w.awaiting("one"), await w.awaiting("two")
    for rater, place in (("ada", 0), ("bob", 1)):
        await w.vote(agreed, rater, 3)
        message = await w.vote(disputed, rater, place)
    assert "waits for a decision" in message
    await w.until(lambda: agreed.phase == "DONE")
    assert disputed.phase == "AWAITING_RATING"
    message = await w.order(
        "group.settle", group_id=disputed.group_id, rating="ranking", order=[1, 0, 2, 3]
    )
    assert "is settled: ranking, and sent now" in message
    await w.closed()
    assert sent(w, disputed) == pytest.approx([2 / 3, 1.0, 1 / 3, 0.0])


async def test_the_votes_so_far_survive_a_kill(tmp_path: Path) -> None:
    async with ScriptedSwarm() as swarm:
        async with world(tmp_path, swarm, two_votes(window=60.0)) as w:
            group = await w.awaiting()
            await w.vote(group, "ada", 2)
            w.kill()
        async with world(tmp_path, swarm, two_votes()) as w:
            await w.until(lambda: w.state.groups[group.group_id].phase == "DONE")
            restored = w.state.groups[group.group_id]
            assert restored.source == "human"
            assert sent(w, restored) == [0.0, 0.0, 1.0, 0.0]
            assert restored.rating.raters == ("ada",)


@pytest.mark.parametrize("overlap", [1, 2])
async def test_four_raters_race(tmp_path: Path, overlap: int) -> None:
    figures = await race(tmp_path, overlap, 25)
    assert figures == {"accepted": 25 * overlap, "refused": 25 * (4 - overlap)}


@pytest.mark.soak
@pytest.mark.parametrize("overlap", [1, 2])
async def test_a_thousand_races_of_four_raters(tmp_path: Path, overlap: int) -> None:
    figures = await race(tmp_path, overlap, 1000)
    assert figures == {"accepted": 1000 * overlap, "refused": 1000 * (4 - overlap)}


async def race(home: Path, overlap: int, races: int) -> dict[str, int]:
    """Let four raters, each with a token, lease and rate each group at the same time by HTTP.

    Returns:
        Number of accepted and refused votes. Each accepted one is in the state once and part of
        the rewards that were sent; each refusal names a reason.
    """
    figures = {"accepted": 0, "refused": 0}
    access = AccessTokens(Home.open(home / "home"))
    tokens = {rater: access.add(rater, "rater") for rater in ("ada", "bob", "cid", "eve")}
    async with contextlib.AsyncExitStack() as stack:
        w = await stack.enter_async_context(world(home, configured=two_votes(overlap=overlap)))
        dispatcher = CommandDispatcher(w.context, w.groups)
        api = ControlApi(w.context, dispatcher, "secret", frozenset(), access)
        url = await stack.enter_async_context(served(below("/control", api.app())))
        clients = {
            rater: await stack.enter_async_context(ControlClient(url, token))
            for rater, token in tokens.items()
        }
        for number in range(races):
            group = await w.awaiting(f"question {number}")
            turn = number % 4
            places = enumerate([*clients][turn:] + [*clients][:turn])
            results = await asyncio.gather(
                *(rate_at_once(clients[rater], rater, group, place) for place, rater in places)
            )
            reasons = [one for one in results if one.startswith("refused")]
            accepted = [one for one in results if one not in reasons]
            assert all(_REASON.search(one) for one in reasons), reasons
            await w.closed()
            rewards = sent(w, group)
            assert sorted(rewards) == [0.0] * (4 - overlap) + [1 / overlap] * overlap
            voters = group.votes if overlap > 1 else [group.rating]
            assert sorted(one.rater for one in voters) == sorted(accepted)
            assert len(w.swarm.reward_log) == 4 * (number + 1)
            figures["accepted"] += len(accepted)
            figures["refused"] += len(reasons)
        # Each vote once, also in the journal, whatever was sent twice or came too late.
        kind = VoteCast if overlap > 1 else GroupRated
        assert len(w.kinds(kind)) == figures["accepted"]
        assert len(w.kinds(GroupSealed)) == races
        journal = w.context.journal
        await journal.committed(w.state.seq)
        after, stored = 0, 0
        while page := await asyncio.to_thread(journal.events, after, 500):
            stored += sum(isinstance(event, kind) for event in page)
            after = page[-1].seq
        assert stored == figures["accepted"]
    return figures


_REASON = re.compile(
    r"(is|are) rating group|has its \d votes, by|rated group \w+ \d+ s ago|is finished|"
    r"(?i:already finished)|voted on group"
)


async def rate_at_once(client: ControlClient, rater: str, group: Group, place: int) -> str:
    """Lease a group and vote, even without the lease; return the rater, or why it was refused."""
    args = {"group_id": group.group_id, "holder": f"console {rater}"}
    with contextlib.suppress(ControlError):
        await client.command("group.lease", args)
    try:
        await client.command("group.rate", {**args, "rating": "best", "order": [place]})
    except ControlError as error:
        return f"refused: {error}"
    return rater
