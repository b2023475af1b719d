"""Several raters on Rate: groups that need two votes, who is here, disagreements."""

import pytest

from console.models.screen_registry import SCREENS
from core.events import ConsoleAttached, RatingAwaited, VoteCast
from core.roles import AccessRole, Identity
from core.state import Rating
from tests.support.console import BY_ENTER, NOW, FakeLink, group_events, run_console, state_of
from tests.support.ratings import best, voted

PLACES = [place for place in SCREENS if place.name in ("rate", "requests")]


async def test_a_group_leaves_the_screen_after_ones_own_vote_of_two() -> None:
    wait = RatingAwaited(
        group_id="g0001",
        server="embedded",
        until=NOW + 500,
        fallback="accept",
        why="hold",
        overlap=2,
    )
    state = state_of(*group_events(1, until="AWAITING_RATING"), wait)
    state.groups["g0001"].waited = None
    assert state.groups["g0001"].user_waits
    async with run_console(state, places=PLACES, at="rate", rating=BY_ENTER) as console:
        console.link.publish(ConsoleAttached(consoles=2, holder="other", rater="bob"))
        await console.settle()
        assert "also here: bob" in console.text()
        assert "vote 1 of 2" in console.text()
        await console.press("2", "enter")
        await console.settle()
        (vote,) = [args for name, args in console.link.commands if name == "group.rate"]
        assert vote["holder"] == console.session.holder
        console.link.publish(
            VoteCast(
                group_id="g0001",
                server="embedded",
                rating="best",
                order=(0,),
                rewards=best(0),
                rater=str(vote.get("rater", "")),
                holder=str(vote["holder"]),
            )
        )
        await console.shows("No group is waiting")
        await console.shows("counted, vote 1 of 2")
        await console.press("enter")
        await console.shows("The group still lacks 1 vote: nothing was sent")
        assert "group.accept" not in dict(console.link.commands)


async def test_an_operator_accepts_a_group_that_lacks_votes_only_after_a_question() -> None:
    vote = Rating(rating="best", order=(1,), rewards=(0, 1, 0, 0), rater="bob", holder="c-bob")
    state = state_of(*group_events(1, until="AWAITING_RATING"))
    state.rating_mode = "hold"
    state.groups["g0001"].overlap, state.groups["g0001"].votes = 2, [vote]
    async with run_console(state, places=PLACES, at="rate") as console:
        await console.press("a")
        await console.shows("It has 1 of 2 votes, by bob. They count now")
        assert console.link.commands == []
        await console.press("y")
        await console.until(lambda: bool(console.link.commands))
        expected = ("group.accept", {"group_id": "g0001", "override": True})
        assert console.link.commands.pop() == expected


@pytest.mark.parametrize("role", ["rater", "operator"])
async def test_a_rater_is_offered_only_what_the_token_permits(role: AccessRole) -> None:
    link = FakeLink(state_of(*group_events(1, until="AWAITING_RATING")))
    link.identity = Identity("ada", role)
    async with run_console(places=PLACES, at="rate", link=link, size=(120, 36)) as console:
        text, operates = console.text(), role == "operator"
        assert "Skip" in text
        for words in ("x Abort", "o Mode", "(o switches)"):
            assert (words in text) == operates, words
        await console.press("x")
        if operates:
            await console.shows("Abort this group?")
        else:
            (refused,) = console.messages
            assert "an operator may do it" in refused
        assert console.link.commands == []


async def test_a_disagreement_is_settled_from_the_list() -> None:
    state = state_of(*voted(1, {"ada": 1, "bob": 2}), *voted(2, {"ada": 1, "bob": 1}))
    async with run_console(state, places=PLACES, at="rate", rating=BY_ENTER) as console:
        await console.press("r")
        await console.shows("1 disagreement to settle")
        await console.shows("1 of 2, 50 %")
        await console.shows("over 2 groups")
        await console.press("s")
        await console.press("2", "enter")
        await console.until(lambda: "group.settle" in dict(console.link.commands))
        (settled,) = [args for name, args in console.link.commands if name == "group.settle"]
        assert (settled["group_id"], settled["rating"], settled["order"]) == ("g0001", "best", (1,))


async def test_a_rater_is_told_that_he_does_not_settle() -> None:
    state = state_of(*voted(1, {"ada": 1, "bob": 2}))
    async with run_console(state, places=PLACES, at="rate") as console:
        console.session.identity = Identity("ada", "rater")
        await console.press("r")
        await console.shows("1 disagreement to settle")
        await console.press("s")
        await console.settle()
        assert console.messages == ["Only an operator settles disagreements"]
        assert "group.settle" not in dict(console.link.commands)
