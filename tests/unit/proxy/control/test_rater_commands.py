"""Leases, second votes, corrections, and commands for all waiting groups."""

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from ajet_swarm.common.errors import AjetError
from core.commands import validate
from core.commands.spec import NotNow
from core.events import GroupEdited, GroupRated, RatingRepeated
from proxy.control.dispatch import CommandDispatcher
from tests.support.proxy.world import World, settings, world

FIRST = settings(rating={"mode": "answer_first", "window": 0.0})


async def order(w: World, name: str, **args: Any) -> str:
    """As the control API carries it out."""
    message, _ = await CommandDispatcher(w.context, w.groups).execute(name, validate(name, args))
    return message


def lease_left(w: World, group_id: str) -> float:
    """Seconds a lease holds; 0 without one."""
    lease = w.state.groups[group_id].lease
    return float(lease.until - w.context.clock()) if lease is not None else 0.0


async def test_a_lease_blocks_other_raters_until_it_is_returned(tmp_path: Path) -> None:
    async with world(tmp_path, configured=FIRST) as w:
        await w.reply(await w.ask())
        group = await w.open("AWAITING_RATING")
        name = group.group_id
        assert "yours" in await order(w, "group.lease", group_id=name, holder="a", rater="ann")
        assert 10 < lease_left(w, name) <= 20
        with pytest.raises(AjetError, match="ann is rating"):
            await order(w, "group.lease", group_id=name, holder="b", rater="bob")
        await order(w, "group.lease", group_id=name, holder="a", seconds=9999)
        assert 20 < lease_left(w, name) <= 120
        await order(w, "group.lease", group_id=name, holder="a", seconds=0)
        assert lease_left(w, name) == 0
        await order(w, "group.lease", group_id=name, holder="b", rater="bob")
        vote: dict[str, Any] = {"group_id": name, "rating": "best", "order": [1], "rater": "ann"}
        with pytest.raises(AjetError, match="bob is rating group"):
            await order(w, "group.rate", **vote)
        assert group.rating is None
        await order(w, "group.rate", **vote, override=True)
        assert lease_left(w, name) == 0
        await w.closed()
        with pytest.raises(AjetError, match="does not wait"):
            await order(w, "group.lease", group_id=name, holder="b")


async def test_a_vote_of_another_rater_is_not_replaced_silently(tmp_path: Path) -> None:
    held = settings(rating={"mode": "answer_first", "window": 60.0})
    async with world(tmp_path, configured=held) as w:
        await w.reply(await w.ask())
        group = await w.open("AWAITING_RATING")

        async def vote(index: int, **more: Any) -> str:
            args = {"group_id": group.group_id, "rating": "best", "order": [index], **more}
            return await order(w, "group.rate", **args)

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
        await order(w, "group.unrate", group_id=group.group_id)
        await vote(0, holder="console a")
        with pytest.raises(AjetError, match="another console rated"):
            await vote(1, holder="console b")
        await vote(1, holder="console a")


async def test_one_of_two_simultaneous_raters_is_refused(tmp_path: Path) -> None:
    held = settings(rating={"mode": "answer_first", "window": 60.0})
    async with world(tmp_path, configured=held) as w:
        await w.reply(await w.ask())
        group = await w.open("AWAITING_RATING")
        votes = [("ada", 1), ("bob", 2), ("eve", 3)]
        result = await asyncio.gather(
            *(
                w.commands.rate(group.group_id, "best", (index,), rater=rater)
                for rater, index in votes
            ),
            return_exceptions=True,
        )
        assert [isinstance(one, NotNow) for one in result] == [False, True, True]
        assert group.rating.rater == "ada"


async def test_the_holder_of_a_lease_can_vote(tmp_path: Path) -> None:
    async with world(tmp_path, configured=FIRST) as w:
        await w.reply(await w.ask())
        name = (await w.open("AWAITING_RATING")).group_id
        await order(w, "group.lease", group_id=name, holder="b", rater="bob")
        await order(w, "group.rate", group_id=name, rating="tie", holder="b")
        (group_rated,) = w.kinds(GroupRated)
        assert group_rated.rating == "tie"


async def test_a_vote_records_its_circumstances(tmp_path: Path) -> None:
    async with world(tmp_path, configured=FIRST) as w:
        await w.reply(await w.ask())
        group = await w.open("AWAITING_RATING")
        look: dict[str, Any] = {"shown": [2, 0, 3, 1], "seed": "5f3a", "looked": 7.5, "blind": True}
        await order(
            w,
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


async def test_a_second_vote_is_compared_and_sends_nothing(tmp_path: Path) -> None:
    async with world(tmp_path, configured=FIRST) as w:
        await w.reply(await w.ask())
        group = await w.open("AWAITING_RATING")
        name = group.group_id
        with pytest.raises(AjetError, match="no rating that was sent"):
            await order(w, "group.repeat", group_id=name, rating="tie")
        await order(w, "group.rate", group_id=name, rating="best", order=[2], rater="ann")
        await w.closed()
        before = list(w.swarm.reward_log)
        for rater in ("bob", ""):
            with pytest.raises(AjetError, match="that was sent is of ann"):
                await order(w, "group.repeat", group_id=name, rating="bad", rater=rater)
        with pytest.raises(AjetError, match="judges nothing"):
            await order(w, "group.repeat", group_id=name, rating="skip", rater="ann")
        same = await order(
            w, "group.repeat", group_id=name, rating="ranking", order=[2, 0, 1, 3], rater="ann"
        )
        assert same == "the same as before"
        with pytest.raises(AjetError, match="has had its second vote"):
            await order(w, "group.repeat", group_id=name, rating="bad", rater="ann")
        assert [one.agrees for one in w.kinds(RatingRepeated)] == [True]
        assert w.state.raters["ann"].repeats == 1
        assert "bob" not in w.state.raters
        assert w.swarm.reward_log == before
        assert [one.reward for one in group.candidates] == [0.0, 0.0, 1.0, 0.0]


async def test_a_correction_is_recorded_and_never_sent(tmp_path: Path) -> None:
    async with world(tmp_path, configured=settings(rating={"mode": "hold"})) as w:
        ticket = await w.ask()
        group = await w.open("AWAITING_RATING")
        text = group.candidates[3].text
        whole = "a better answer " * 400
        args: dict[str, Any] = {
            "group_id": group.group_id,
            "index": 3,
            "edited": whole,
            "rater": "ann",
        }
        assert "not sent" in await order(w, "group.edit", **args)
        with pytest.raises(AjetError, match="no candidate 9"):
            await order(w, "group.edit", **{**args, "index": 8})
        await order(w, "group.accept", group_id=group.group_id)
        reply = await w.reply(ticket)
        assert reply.answer is not None
        assert reply.answer.message["content"] == text
        await w.closed()
        (group_edited,) = w.kinds(GroupEdited)
        assert group_edited.edited == whole
        assert sorted(w.swarm.rewards.values()) == [0.0, 0.1, 0.2, 0.3]
        message = await order(w, "group.edit", **{**args, "edited": ""})
        assert "is removed" in message
        assert group.edited_index is None


async def test_scores_outside_the_configured_range_are_refused(tmp_path: Path) -> None:
    bounds = {"mode": "answer_first", "window": 0.0, "score_low": -1.0, "score_high": 2.0}
    async with world(tmp_path, configured=settings(rating=bounds)) as w:
        await w.reply(await w.ask())
        group = await w.open("AWAITING_RATING")
        name = group.group_id
        with pytest.raises(AjetError, match="outside -1 to 2"):
            await order(w, "group.rate", group_id=name, rating="scores", scores=[3, 0, 0, 0])
        await order(w, "group.rate", group_id=name, rating="scores", scores=[2, -1, 0, 0.5])
        await w.closed()
        assert [w.swarm.rewards[one.episode_uuid] for one in group.candidates] == [2, -1, 0, 0.5]


async def test_the_reply_to_a_vote_names_the_end_of_its_undo_time(tmp_path: Path) -> None:
    held = settings(rating={"mode": "hold", "window": 60.0})
    async with world(tmp_path, configured=held) as w:
        w.console()
        await w.ask("one")
        group = await w.open("AWAITING_RATING")
        result = await order(w, "group.rate", group_id=group.group_id, rating="best", order=[0])
        assert re.search(r"held for (59|60) s until \d\d:\d\d:\d\d: unrate undoes it", result)
        await order(w, "rating.accept_all")
        await w.closed()


async def test_all_waiting_groups_are_accepted_or_aborted_at_once(tmp_path: Path) -> None:
    held = settings(rating={"mode": "answer_first", "window": 60.0})
    async with world(tmp_path, configured=held) as w:
        w.console()
        await w.reply(await w.ask("one"))
        await w.reply(await w.ask("two"))
        w.source.abstains = "the judge is away"
        third = await w.ask("three")
        await w.until(lambda: len(w.state.waiting()) == 3)
        with pytest.raises(AjetError, match="no server `x`"):
            await order(w, "rating.accept_all", server="x")
        assert "1 without an automatic reward" in await order(w, "rating.accept_all", server="s")
        await w.until(lambda: len(w.state.waiting()) == 1)
        assert await order(w, "rating.abort_all", reason="test") == "1 group is aborted"
        await w.closed()
        assert w.group(third).phase == "ABORTED"
        assert [one.phase for one in w.state.groups.values()].count("DONE") == 2
        assert len(w.swarm.ends) == 8


async def test_rated_groups_are_not_aborted_with_the_others(tmp_path: Path) -> None:
    held = settings(rating={"mode": "answer_first", "window": 60.0})
    async with world(tmp_path, configured=held) as w:
        await w.reply(await w.ask("one"))
        await w.reply(await w.ask("two"))
        await w.until(lambda: len(w.state.waiting()) == 2)
        first, second = w.state.waiting()
        await order(w, "group.rate", group_id=first.group_id, rating="best", order=[0])
        assert await order(w, "rating.abort_all") == "1 group is aborted"
        await w.until(lambda: second.phase == "ABORTED")
        assert first.open
        await order(w, "rating.accept_all")
        await w.closed()
        assert first.source == "human"
