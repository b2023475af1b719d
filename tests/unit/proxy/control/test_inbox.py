"""Late votes: on groups that ended before anybody rated them."""

import contextlib
from pathlib import Path
from typing import Any

import pytest

from core.commands.spec import NotNow
from core.events import GroupRated, VoteCast
from core.journal.file import connect
from core.roles import Identity, NotPermitted
from core.state import Group
from proxy.control.dispatch import CommandDispatcher
from tests.support.capped_clock import skip
from tests.support.proxy.world import World, settings, world
from tests.support.scripted.swarm import ScriptedSwarm


def answer_first(**rating: Any) -> Any:
    return settings(rating={"mode": "answer_first", "window": 0.0, **rating})


async def missed(w: World, text: str = "hello") -> Group:
    """A group whose clock ran out before a vote."""
    group = await w.awaiting(text)
    skip(group.until - w.context.clock())
    await w.until(lambda: not group.open)
    return group


@pytest.mark.parametrize(("fallback", "phase"), [("accept", "DONE"), ("abort", "ABORTED")])
async def test_a_late_vote_is_only_recorded(tmp_path: Path, fallback: str, phase: str) -> None:
    async with world(tmp_path, configured=answer_first(fallback=fallback)) as w:
        group = await missed(w)
        before = list(w.swarm.reward_log)
        message = await w.vote(group, "ada", 2, note="clearer")
        assert "late vote" in message
        assert "not sent" in message
        assert (group.phase, group.is_rated) == (phase, True)
        assert w.swarm.reward_log == before
        (rated,) = w.kinds(GroupRated)
        assert (rated.note, rated.rewards, rated.raters) == ("clearer", (0, 0, 1, 0), ("ada",))
        assert w.state.raters["ada"].votes == 1
        await w.vote(group, "ada", 2)  # the same again
        assert len(w.kinds(VoteCast)) == 1
        await w.vote(group, "ada", 1)
        assert (w.state.raters["ada"].votes, group.rating.order) == (1, (1,))
        assert "undone" in await w.order("group.unrate", group_id=group.group_id, rater="ada")
        assert (w.state.raters["ada"].votes, group.rating) == (0, None)
        with pytest.raises(NotNow, match="skip judges nothing"):
            await w.vote(group, "ada", 1, rating="skip", order=[])


@pytest.mark.world(answer_first())
async def test_a_vote_of_another_rater_is_refused_until_he_overrides_it(w: World) -> None:
    group = await missed(w)
    await w.vote(group, "ada", 2)
    assert "equal vote" in await w.vote(group, "bob", 2)
    with pytest.raises(NotNow, match=f"ada rated group {group.group_id} .*3 best"):
        await w.vote(group, "bob", 1)
    with pytest.raises(NotPermitted):
        await w.vote(group, "bob", 1, override=True, identity=Identity("bob", "rater"))
    await w.vote(group, "bob", 1, override=True)
    assert {name: stats.votes for name, stats in w.state.raters.items()} == {"ada": 0, "bob": 1}
    assert (group.rating.rater, group.rating.order) == ("bob", (1,))


@pytest.mark.world(answer_first())
async def test_a_lease_of_the_inbox_refuses_the_vote_of_another_rater(w: World) -> None:
    group = await missed(w)
    name, before = group.group_id, list(w.swarm.reward_log)
    await w.order("group.lease", group_id=name, holder="c1", rater="ada")
    for left in (False, True):  # in the state, and only in the journal
        if left:
            await w.context.journal.committed(w.state.seq)
            w.state.groups.clear()
        with pytest.raises(NotNow, match=f"ada is rating group {name}"):
            await w.order("group.lease", group_id=name, holder="c2", rater="bob")
        with pytest.raises(NotNow, match=f"ada is rating group {name}, for .* s more"):
            await w.vote(group, "bob", 1, holder="c2")
    await w.order("group.lease", group_id=name, holder="c1", rater="ada")
    assert "late vote" in await w.vote(group, "ada", 2, holder="c1")
    await w.vote(group, "bob", 1, holder="c2", override=True)
    assert w.swarm.reward_log == before


@pytest.mark.world(answer_first(overlap=2))
async def test_two_raters_complete_a_group_as_an_open_one(w: World) -> None:
    group = await missed(w)
    assert "vote 1 of 2" in await w.vote(group, "ada", 1)
    assert group.rating is None
    assert "vote 2 of 2" in await w.vote(group, "bob", 0)
    assert (group.rating.raters, group.rating.rewards) == (("ada", "bob"), (0.5, 0.5, 0, 0))
    assert [stats.compared for stats in w.state.raters.values()] == [1, 1]
    with pytest.raises(NotNow, match="has its 2 votes, by ada and bob"):
        await w.vote(group, "eve", 0)


async def test_the_inbox_survives_kills_and_says_which_answers_are_gone(tmp_path: Path) -> None:
    async with ScriptedSwarm() as swarm:
        async with world(tmp_path, swarm, answer_first()) as w:
            group, other = await missed(w), await missed(w, "another")
            await w.vote(group, "ada", 2)
            w.kill()
        async with world(tmp_path, swarm, answer_first()) as w:
            assert list(w.state.inbox) == [group.group_id, other.group_id]
            assert w.state.inbox[group.group_id].votes[0].order == (2,)
            w.state.groups.clear()  # as after 500 newer groups: the journal has them
            assert "late vote" in await w.vote(other, "ada", 1, group_id=other.group_id[:-1])
            assert w.state.raters["ada"].votes == 2
            with contextlib.closing(connect(w.context.journal.path, 5, "rw")) as db:
                db.execute("delete from groups")
            with pytest.raises(NotNow, match=f"answers of group {other.group_id} are no longer"):
                await w.vote(other, "ada", 0)


@pytest.mark.world(answer_first())
async def test_the_same_prompt_is_asked_again_as_a_new_group(w: World) -> None:
    group = await missed(w)
    handler = CommandDispatcher(w.context, w.groups)
    _, data = await handler.execute("group.rerun", {"group_id": group.group_id})
    again = await w.open("AWAITING_RATING")
    assert again.group_id == data["group_id"] != group.group_id
    await w.vote(again, "ada", 2)
    await w.closed()
    assert again.source == "human"


@pytest.mark.world(answer_first())
async def test_an_abort_by_hand_is_no_missed_vote(w: World) -> None:
    group = await w.awaiting()
    await w.order("group.abort", group_id=group.group_id)
    await w.closed()
    assert not w.state.inbox
