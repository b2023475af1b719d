"""Groups that need the votes of several raters (`rating.overlap` above 1)."""

import asyncio
import contextlib
import re
from pathlib import Path
from typing import Any

import pytest

from core.commands import validate
from core.commands.spec import NotNow
from core.events import DisagreementSettled, GroupRated, GroupSealed, VoteCast
from core.runtime.access import AccessTokens
from core.runtime.home import Home
from core.state import Group
from proxy.control.api import ControlApi
from proxy.control.client import ControlClient, ControlError
from proxy.control.dispatch import CommandDispatcher
from tests.support.proxy.world import World, settings, world
from tests.support.scripted.swarm import ScriptedSwarm
from tests.support.served import below, served


def configured(**rating: Any) -> Any:
    """Settings with two raters for each group."""
    return settings(rating={"mode": "answer_first", "window": 0.0, "overlap": 2, **rating})


async def order(w: World, name: str, **args: Any) -> str:
    """As the control API carries it out."""
    message, _ = await CommandDispatcher(w.context, w.groups).execute(name, validate(name, args))
    return message


async def waiting(w: World, text: str = "hello") -> Group:
    """A new group that waits for votes."""
    waiter = await w.ask(text)
    await w.reply(waiter)
    group = w.group(waiter)
    await w.until(lambda: group.phase == "AWAITING_RATING")
    return group


async def vote(w: World, group: Group, rater: str, best: int, **more: Any) -> str:
    """A vote for one answer."""
    args = {"group_id": group.group_id, "rating": "best", "order": [best], "rater": rater}
    return await order(w, "group.rate", **{**args, **more})


def sent(w: World, group: Group) -> list[float]:
    """The rewards that the server received, by candidate."""
    return [w.swarm.rewards[one.episode_uuid] for one in group.candidates]


async def test_two_different_raters_seal_a_group_with_the_mean_of_their_votes(
    tmp_path: Path,
) -> None:
    async with world(tmp_path, configured=configured()) as w:
        group = await waiting(w)
        assert (group.overlap, group.is_free("a", w.context.clock())) == (2, True)
        assert "vote 1 of 2" in await vote(w, group, "ada", 1)
        assert group.phase == "AWAITING_RATING"
        assert group.rating is None
        # the same rater again: the same vote changes nothing, another one replaces it
        await vote(w, group, "ada", 1)
        await vote(w, group, "ada", 2)
        assert [(one.rater, one.order) for one in group.votes] == [("ada", (2,))]
        assert len(w.kinds(VoteCast)) == 2
        assert "is rated" in await vote(w, group, "bob", 0)
        await w.closed()
        assert sent(w, group) == [0.5, 0.0, 0.5, 0.0]
        (rated,) = w.kinds(GroupRated)
        assert (rated.raters, rated.rater, rated.rating) == (("ada", "bob"), "ada, bob", "scores")
        assert (len(w.kinds(GroupSealed)), group.source) == (1, "human")
        assert sorted(w.state.raters) == ["ada", "bob"]
        assert [w.state.raters[name].votes for name in ("ada", "bob")] == [1, 1]


async def test_a_third_rater_is_refused_with_the_names_of_the_others(tmp_path: Path) -> None:
    async with world(tmp_path, configured=configured(window=60.0)) as w:
        group = await waiting(w)
        await vote(w, group, "ada", 1)
        await vote(w, group, "bob", 1)
        assert (group.rating.rating, group.rating.order) == ("best", (1,))
        for more in ({}, {"override": True}):
            with pytest.raises(NotNow, match="has its 2 votes, by ada and bob"):
                await vote(w, group, "eve", 3, **more)
        await order(w, "group.unrate", group_id=group.group_id, rater="bob")
        assert group.rating is None
        assert [one.rater for one in group.votes] == ["ada"]
        with pytest.raises(NotNow, match="has 1 of 2 votes, by ada"):
            await order(w, "group.accept", group_id=group.group_id)
        with pytest.raises(NotNow, match="eve has no vote"):
            await order(w, "group.unrate", group_id=group.group_id, rater="eve")
        await vote(w, group, "eve", 1)
        await order(w, "group.accept", group_id=group.group_id)
        await w.closed()
        assert sent(w, group) == [0.0, 1.0, 0.0, 0.0]


async def test_a_group_that_lacks_votes_is_accepted_only_explicitly(tmp_path: Path) -> None:
    async with world(tmp_path, configured=configured(window=60.0)) as w:
        first, second = await waiting(w, "one"), await waiting(w, "two")
        await vote(w, first, "ada", 1)
        for group, votes in ((first, "1 of 2 votes, by ada"), (second, "0 of 2 votes")):
            with pytest.raises(NotNow, match=f"has {votes}. Wait for the others"):
                await order(w, "group.accept", group_id=group.group_id)
            await order(w, "group.accept", group_id=group.group_id, override=True)
        await w.closed()
        assert (first.source, second.source) == ("human", "auto")
        assert sent(w, first) == [0.0, 1.0, 0.0, 0.0]


async def test_as_many_consoles_lease_a_group_as_votes_are_missing(tmp_path: Path) -> None:
    async with world(tmp_path, configured=configured(window=60.0)) as w:
        group = await waiting(w)
        name = group.group_id
        await order(w, "group.lease", group_id=name, holder="a", rater="ada")
        await order(w, "group.lease", group_id=name, holder="b", rater="bob")
        with pytest.raises(NotNow, match="ada and bob are rating"):
            await order(w, "group.lease", group_id=name, holder="c", rater="eve")
        with pytest.raises(NotNow, match="ada and bob are rating"):
            await vote(w, group, "eve", 0, holder="c")
        await vote(w, group, "ada", 0, holder="a")
        assert [one.holder for one in group.leases] == ["b"]
        with pytest.raises(NotNow, match="ada voted on"):
            await order(w, "group.lease", group_id=name, holder="a", rater="ada")
        with pytest.raises(NotNow, match="bob is rating"):
            await order(w, "group.lease", group_id=name, holder="c", rater="eve")
        now = w.context.clock()
        w.context.clock = lambda: now + 60  # bob's lease has expired
        await order(w, "group.lease", group_id=name, holder="c", rater="eve")
        await vote(w, group, "eve", 0, holder="c")
        with pytest.raises(NotNow, match="has its 2 votes"):
            await vote(w, group, "bob", 0, holder="b")
        await order(w, "rating.accept_all")
        await w.closed()


async def test_the_votes_so_far_count_when_the_clock_ends(tmp_path: Path) -> None:
    async with world(tmp_path, configured=configured(discard_timeout_rating=30.0)) as w:
        first, skipped = await waiting(w, "one"), await waiting(w, "two")
        await vote(w, first, "ada", 3)
        await order(w, "group.rate", group_id=skipped.group_id, rating="skip", rater="ada")
        await w.until(lambda: first.fallback == "votes")
        now = w.context.clock()
        w.context.clock = lambda: now + 40
        for run in w.groups.runs.values():
            run.wake.set()
        await w.closed()
        assert first.source == "human"
        assert first.rating is not None
        assert first.rating.rewards == (0.0, 0.0, 0.0, 1.0)
        assert skipped.phase == "ABORTED"


async def test_a_disagreement_is_settled_before_and_after_it_is_sent(tmp_path: Path) -> None:
    async with world(tmp_path, configured=configured(window=60.0)) as w:
        group = await waiting(w)
        await vote(w, group, "ada", 1)
        settle = {"group_id": group.group_id, "rating": "best", "rater": "lead"}
        with pytest.raises(NotNow, match="do not disagree"):
            await order(w, "group.settle", order=[2], **settle)
        await vote(w, group, "bob", 2)
        assert group.is_disputed
        assert "held for" in await order(w, "group.settle", order=[2], **settle)
        with pytest.raises(NotNow, match="lead has settled"):
            await vote(w, group, "ada", 3)
        await order(w, "group.accept", group_id=group.group_id)
        await w.closed()
        assert sent(w, group) == [0.0, 0.0, 1.0, 0.0]
        before = list(w.swarm.reward_log)
        assert "not sent again" in await order(w, "group.settle", order=[1], **settle)
        assert w.swarm.reward_log == before
        assert [one.sent for one in w.kinds(DisagreementSettled)] == [False, True]
        assert group.settled.order == (1,)


async def test_a_disagreement_can_wait_for_a_decision(tmp_path: Path) -> None:
    async with world(tmp_path, configured=configured(disagreements="wait")) as w:
        agreed, disputed = await waiting(w, "one"), await waiting(w, "two")
        for rater, place in (("ada", 0), ("bob", 1)):
            await vote(w, agreed, rater, 3)
            message = await vote(w, disputed, rater, place)
        assert "waits for a decision" in message
        await w.until(lambda: agreed.phase == "DONE")
        assert disputed.phase == "AWAITING_RATING"
        message = await order(
            w, "group.settle", group_id=disputed.group_id, rating="ranking", order=[1, 0, 2, 3]
        )
        assert "is settled: ranking, and sent now" in message
        await w.closed()
        assert sent(w, disputed) == pytest.approx([2 / 3, 1.0, 1 / 3, 0.0])


async def test_the_votes_so_far_survive_a_kill(tmp_path: Path) -> None:
    async with ScriptedSwarm() as swarm:
        async with world(tmp_path, swarm, configured(window=60.0)) as w:
            group = await waiting(w)
            await vote(w, group, "ada", 2)
            w.kill()
        async with world(tmp_path, swarm, configured()) as w:
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
        w = await stack.enter_async_context(world(home, configured=configured(overlap=overlap)))
        dispatcher = CommandDispatcher(w.context, w.groups)
        api = ControlApi(w.context, dispatcher, "secret", frozenset(), access)
        url = await stack.enter_async_context(served(below("/control", api.app())))
        clients = {
            rater: await stack.enter_async_context(ControlClient(url, token))
            for rater, token in tokens.items()
        }
        for number in range(races):
            group = await waiting(w, f"question {number}")
            turn = number % 4
            places = enumerate([*clients][turn:] + [*clients][:turn])
            results = await asyncio.gather(
                *(rate_at_once(clients[rater], rater, group, place) for place, rater in places),
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
