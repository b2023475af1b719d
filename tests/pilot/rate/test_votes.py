"""Votes on Rate: sent at once, held, listed, overriding; the lines around them."""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from ajet_swarm.common.errors import AjetError
from console.models.screen_registry import SCREENS
from console.screens.group.widgets import Candidates
from core.commands.table import OVERRIDE_HINT
from core.events import (
    AlertCleared,
    AlertRaised,
    EngineChanged,
    Event,
    GroupOpened,
    GroupRated,
    RatingAwaited,
    RatingModeChanged,
    UpdateDone,
)
from core.state import State
from tests.pilot.rate.test_screen import PLACES, held, order_of, sent_vote, waiting
from tests.support.console import (
    BY_ENTER,
    NOW,
    FakeLink,
    FakeReply,
    group_events,
    run_console,
    state_of,
)
from tests.support.ratings import sent

HELD = AlertRaised(key="hold:embedded", cause="2 open ratings hold up the weight update")
REFUSED = f"ada rated group g0001 3 s ago: 2 best. Leave it, or {OVERRIDE_HINT}"


class RefusingLink(FakeLink):
    """Refuses a vote that does not override."""

    async def command(self, name: str, args: Mapping[str, Any]) -> FakeReply:
        reply = await super().command(name, args)
        if name == "group.rate" and not args.get("override"):
            raise AjetError(REFUSED)
        return reply


def names(link: FakeLink) -> list[str]:
    return [name for name, _ in link.commands]


# --- when a vote is sent -------------------------------------------------------------------------


def held_state(*numbers: int) -> State:
    events = [event for number in numbers for event in held(number, 0, 100 + number)]
    return state_of(RatingModeChanged(mode="hold"), *events)


async def test_the_last_vote_of_a_held_user_is_sent_at_once_and_one_before_it_is_held() -> None:
    async with run_console(held_state(1, 2), places=PLACES, at="rate", rating=BY_ENTER) as console:
        await console.press("1", "enter")
        assert names(console.link) == ["group.rate"]
        await console.press("2", "enter")
        assert names(console.link) == ["group.rate", "group.rate", "group.accept"]
        assert console.link.commands[-1][1] == {"group_id": "g0002"}


async def test_a_vote_is_at_the_link_before_the_screen_is_painted() -> None:
    shown: list[str] = []

    class NotingLink(FakeLink):
        async def command(self, name: str, args: Mapping[str, Any]) -> FakeReply:
            if name == "group.rate":
                shown.append(console.text())
            return await super().command(name, args)

    link = NotingLink(waiting(2))
    async with run_console(link=link, places=PLACES, at="rate", rating=BY_ENTER) as console:
        await console.press("1", "enter")
        assert "Question 1" in shown[0]
        assert "Question 2" in console.text()


async def test_a_last_vote_that_is_refused_or_not_confirmed_with_enter_is_not_accepted() -> None:
    async with run_console(held_state(1), places=PLACES, at="rate", rating=BY_ENTER) as console:
        console.link.refuse = AjetError("group g0001 is already sealed")
        await console.press("1", "enter")
        console.link.refuse = None
        await console.press("3", "1", "4", "2")  # the last digit of a ranking sends it
        assert names(console.link) == ["group.rate"] * 2
    async with run_console(held_state(1), places=PLACES, at="rate", rating=BY_ENTER) as console:
        await console.press("k", "k")
        assert names(console.link) == []


async def test_enter_with_nothing_typed_sends_the_held_vote_now() -> None:
    async with run_console(
        waiting(3), places=PLACES, at="rate", rating=BY_ENTER, size=(120, 30)
    ) as console:
        await console.press("1", "enter")
        console.link.publish(sent_vote(1))
        await console.settle()
        assert "u undoes it, Enter sends now" in console.text()
        await console.press("enter")
        assert console.link.commands[-1] == ("group.accept", {"group_id": "g0001"})
        console.link.commands.clear()
        await console.press("2")
        assert "Enter sends now" not in console.text()
        await console.press("enter")
        assert names(console.link) == ["group.rate"]


async def test_enter_sends_the_held_vote_of_an_empty_queue() -> None:
    async with run_console(waiting(1), places=PLACES, at="rate", rating=BY_ENTER) as console:
        await console.press("3", "1", "4", "2")
        console.link.publish(RatingModeChanged(mode="answer_first"), sent_vote(1))
        await console.settle()
        assert "New groups wait until your votes are sent: Enter sends the last" in console.text()
        await console.press("enter")
        assert console.link.commands[-1] == ("group.accept", {"group_id": "g0001"})


# --- held votes ----------------------------------------------------------------------------------


async def test_any_held_vote_can_be_undone() -> None:
    async with run_console(waiting(4), places=PLACES, at="rate", rating=BY_ENTER) as console:
        for number in (1, 2, 3):
            await console.press("1", "enter")
            console.link.publish(replace(sent_vote(number), rater="anna", at=NOW + number))
            await console.settle()
        assert "3 rated, held" in console.text()
        await console.press("U")
        rows = [
            line for line in console.text().splitlines() if "sends in" in line and "best" in line
        ]
        listed = [row for row in rows if "last of" not in row]
        assert [row.split("“")[1].split("”")[0] for row in listed] == [
            "Question 3",
            "Question 2",
            "Question 1",
        ]
        await console.press("down", "down", "enter")
        unrated = [args for name, args in console.link.commands if name == "group.unrate"]
        assert unrated == [{"group_id": "g0001", "rater": "anna"}]


async def test_the_list_of_held_votes_follows_their_clocks() -> None:
    async with run_console(waiting(3), places=PLACES, at="rate", rating=BY_ENTER) as console:
        await console.press("1", "enter")
        console.link.publish(
            replace(sent_vote(1), rater="anna", at=NOW),
            RatingAwaited(group_id="g0001", until=NOW + 3, fallback="accept", why="window"),
        )
        await console.settle()
        await console.press("U")
        assert "sends in 0:03" in console.text()
        console.clock.now += 5
        await console.shows("best #2  being sent")
        await console.press("enter")
        assert "group.unrate" not in names(console.link)


async def test_held_votes_of_other_raters_are_not_listed() -> None:
    async with run_console(waiting(2), places=PLACES, at="rate") as console:
        console.link.publish(replace(sent_vote(1), rater="bob", at=NOW))
        await console.settle()
        await console.press("U")
        assert "You have no votes" in console.text()
        await console.press("enter")
        assert console.link.commands == []


TRAINED = "trained by update 1: answer 1 gained 1.7"


async def test_a_vote_that_was_sent_says_what_it_did_and_opens_or_is_asked_again() -> None:
    rolling = EngineChanged(server="embedded", state="ROLLING", step=1, at=NOW - 900)
    state = state_of(rolling, RatingModeChanged(mode="hold"), *sent(1), *sent(2))
    for group in state.groups.values():
        group.candidates[group.rating.order[0]].advantage = 1.732  # type: ignore[union-attr]
        group.rating.shown = (0, 1, 2, 3)  # type: ignore[union-attr]
    async with run_console(state, places=PLACES, at="rate") as console:
        assert console.text().count("best 1  sent, not trained yet  “Why is the sky") == 2
        console.link.publish(UpdateDone(server="embedded", step=1, stats={"loss": 0.1}))
        await console.settle()
        assert console.text().count(f"best 1  {TRAINED}  “Why is the sky blue?”") == 2
        await console.press("U", "down", "enter")
        assert "rated best #1 by anna" in console.text()
        await console.press("2")
        assert console.messages[-1] == "Already finished: its rewards are fixed"
        console.link.reply = FakeReply(result={"group_id": "g0009"})
        await console.press("escape", "U", "down", "A")
        await console.press("A")
        asked = [("group.rerun", {"group_id": name}) for name in ("g0001", "g0002")]
        assert console.link.commands == asked
        assert "A asks one now: “Why is the sky blue?”" in console.text()
        console.link.publish(*group_events(9, query="Again?", at=NOW, until="AWAITING_RATING"))
        await console.settle()
        assert "Again?" in console.text()
        for size, panel in (((160, 48), True), ((80, 24), False)):
            await console.pilot.resize_terminal(*size)
            await console.settle()
            assert (TRAINED in console.text()) is panel
            assert console.text().splitlines()[3].startswith(("╭─  1", " 1"))


async def test_the_goal_of_a_session() -> None:
    async with run_console(waiting(4), places=PLACES, at="rate", rating=BY_ENTER) as console:
        await console.press("G", "x", "enter")
        assert console.messages[-1] == "A goal is a number of votes"
        await console.press("G", "6", "0", "enter")
        assert "0 of 60" in console.text()
        for number in (1, 2):
            console.clock.now += 10
            await console.press("1", "enter")
            console.link.publish(replace(sent_vote(number), rater="anna"))
            await console.settle()
        assert "2 of 60, 9:40 left at this pace" in console.text()
        await console.press("G", "backspace", "backspace", "enter")
        assert "session: 2 rated, 6.0/min" in console.text()


async def test_a_refused_vote_asks_whether_to_override() -> None:
    link = RefusingLink(waiting(2))
    async with run_console(link=link, places=PLACES, at="rate", rating=BY_ENTER) as console:
        await console.press("1", "enter")
        assert "Override another rater?" in console.text()
        assert "“Question 1”: ada rated group g0001 3 s ago: 2 best." in console.text()
        await console.press("enter")  # keeps the other vote
        assert names(link) == ["group.rate"]
        assert "2 to rate" in console.text()
        await console.press("1", "enter")
        assert "Override another rater?" in console.text()
        await console.press("y")
        first, second = [args for name, args in link.commands if name == "group.rate"][1:]
        assert second == {**first, "override": True}
        assert not console.messages


async def test_a_refused_vote_in_the_group_detail_asks_whether_to_override() -> None:
    link = RefusingLink(waiting(1))
    async with run_console(link=link, places=PLACES, at="requests") as console:
        await console.press("enter", "2")
        assert "Override another rater?" in console.text()
        await console.press("y")
        first, second = (args for name, args in link.commands if name == "group.rate")
        assert second == {**first, "override": True}


# --- around the answers --------------------------------------------------------------------------


async def test_a_banner_does_not_move_the_answers() -> None:
    async with run_console(waiting(2), places=PLACES, at="rate", rating=BY_ENTER) as console:
        for size in ((80, 24), (160, 48)):
            await console.pilot.resize_terminal(*size)
            await console.settle()
            before = console.app.screen.query_one(Candidates).region
            console.link.publish(
                HELD, EngineChanged(server="embedded", state="ROLLING_POST", step=2)
            )
            await console.settle()
            assert "hold up the weight update" in console.text()
            assert console.app.screen.query_one(Candidates).region == before
            await console.press("3")
            assert console.app.screen.query_one(Candidates).region == before
            console.link.publish(AlertCleared(key="hold:embedded"))
            await console.press("backspace")
            assert console.app.screen.query_one(Candidates).region == before


async def test_a_wide_footer_shows_the_spare_keys() -> None:
    async with run_console(waiting(2), places=SCREENS, at="rate", size=(160, 48)) as console:
        foot = console.text().splitlines()[-1]
        keys = ("e Edit", "n Note", "d Compare", "g Guidelines", "z Zoom", "Select", "w Why")
        for key in (*keys, "1-4 Best", "? Help", "^q Quit"):
            assert key in foot, foot


async def test_identical_answers_are_marked() -> None:
    texts = ["Berlin", "Paris", "Berlin", "Rome"]
    async with run_console(
        waiting(1, texts=texts), places=PLACES, at="rate", size=(160, 40)
    ) as console:
        places = sorted(order_of(1).index(index) + 1 for index in (0, 2))
        assert console.text().count("= same as") == 1
        assert f"{places[1]}  = same as {places[0]}" in console.text()


async def test_the_pace_of_the_session_and_its_goal_are_shown() -> None:
    async with run_console(
        waiting(4), places=PLACES, at="rate", rating=BY_ENTER, size=(120, 30)
    ) as console:
        assert "session:" not in console.text()
        await console.press("1", "enter")
        assert "session: 1 rated" in console.text()
        console.clock.now += 1
        await console.press("1", "enter")
        assert "session: 2 rated, 60.0/min" in console.text()
        console.link.publish(replace(sent_vote(2), rater="anna", at=console.clock.now))
        await console.settle()
        await console.press("u")
        assert "session: 1 rated" in console.text()
        await console.press("k")
        assert "session: 1 rated, 1 skipped" in console.text()


async def test_the_unsure_filter_shows_the_number_of_hidden_groups() -> None:
    async with run_console(waiting(3), places=PLACES, at="rate") as console:
        await console.press("f")
        assert "unsure only, 3 left out" in console.text()
        assert "The automatic rewards are sure about 3 open groups; f shows them." in console.text()


async def test_held_votes_do_not_count_as_open() -> None:
    rated = GroupRated(group_id="g0001", rating="tie", rewards=(0.5,) * 4, rater="anna", at=NOW)
    events = group_events(1, at=NOW - 5, until="AWAITING_RATING")
    async with run_console(state_of(*events, rated), places=PLACES, at="rate") as console:
        assert "0 to rate" in console.text().splitlines()[0]
        assert "0 to rate  1 rated, held" in console.text()


async def test_a_held_skip_does_not_count_as_rated() -> None:
    skip = GroupRated(group_id="g0001", rating="skip", rater="anna", at=NOW)
    events = group_events(1, at=NOW - 5, until="AWAITING_RATING")
    async with run_console(state_of(*events, skip), places=PLACES, at="rate") as console:
        assert "0 to rate  1 skipped, held" in console.text()
        assert "rated" not in console.text()


# --- clocks and room -----------------------------------------------------------------------------


def held_for(number: int, since: float, seconds: float, clock: float = 170) -> list[Event]:
    """A held group whose client waits `seconds` in all."""
    opened, *rest = held(number, since=since, clock=clock)
    assert isinstance(opened, GroupOpened)
    return [replace(opened, client_timeout=seconds), *rest]


async def test_the_clock_shows_when_the_client_of_a_held_user_gives_up() -> None:
    events = [*held(1, since=14, clock=100), *held_for(2, since=14, seconds=60)]
    state = state_of(RatingModeChanged(mode="hold"), *events)
    async with run_console(state, places=PLACES, at="rate", size=(160, 48)) as console:
        for size in ((160, 48), (80, 24)):
            await console.pilot.resize_terminal(*size)
            await console.settle()
            shown = console.text()
            assert "Held 2" in shown, "its client gives up before the clock of the other one ends"
            assert "user waits 0:14, its client gives up in 0:46, open for 2:50" in shown
        console.clock.now += 50
        for size in ((80, 24), (160, 48)):
            await console.pilot.resize_terminal(*size)
            await console.settle()
            assert "gave up by its own timeout" in console.text()
        await console.press("right_square_bracket")
        assert "user waits 1:04, open for 0:50" in console.text()


async def test_a_click_selects_an_answer_and_a_double_click_votes_for_it() -> None:
    async with run_console(held_state(1), places=PLACES, at="rate", rating=BY_ENTER) as console:
        card = console.app.screen.query_one(Candidates).children[1]
        await console.pilot.click(card)
        await console.press("enter")
        assert names(console.link) == []
        await console.pilot.double_click(card)
        await console.press("enter")
        name, args = console.link.commands[0]
        assert (name, list(args["order"])) == ("group.rate", [order_of(1)[1]])


async def test_a_digit_votes_although_nothing_has_the_focus() -> None:
    """As in a terminal that lost the focus before the screen was shown."""
    async with run_console(waiting(1), places=PLACES, at="rate", rating=BY_ENTER) as console:
        console.app.screen.set_focus(None)
        await console.press("2", "enter")
        assert names(console.link) == ["group.rate"]
