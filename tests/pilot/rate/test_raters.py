"""Several raters on Rate: groups that need two votes, who is here, disagreements."""

from console.models.screen_registry import SCREENS
from core.events import ConsoleAttached, RatingAwaited, VoteCast
from core.roles import Identity
from tests.support.console import NOW, group_events, run_console, state_of
from tests.unit.console.models.rating.test_raters import best, voted

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
    async with run_console(state, places=PLACES, at="rate") as console:
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


async def test_a_disagreement_is_settled_from_the_list() -> None:
    state = state_of(*voted(1, {"ada": 1, "bob": 2}), *voted(2, {"ada": 1, "bob": 1}))
    async with run_console(state, places=PLACES, at="rate") as console:
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
        messages = [one.message for one in console.app._notifications]
        assert messages == ["Only an operator settles disagreements"]
        assert "group.settle" not in dict(console.link.commands)
