"""The inbox: open it, read, vote late, ask again."""

from typing import Any

from console.models.screen_registry import SCREENS
from core.events import ConsoleAttached, Event, GroupLeased, VoteWithdrawn
from core.state import State
from core.state.brief import brief_groups
from tests.support.console import (
    BY_ENTER,
    NOW,
    FakeReply,
    RunningConsole,
    group_events,
    run_console,
)
from tests.support.ratings import late, missed
from tests.support.sample import state_of

PLACES = [place for place in SCREENS if place.name in ("rate", "requests")]
QUESTIONS = ("Why is the sky blue?", "What is a prime?", "Who wrote Faust?")


def inbox(*more: Event) -> State:
    events: list[Event] = []
    for number, query in enumerate(QUESTIONS, 1):
        events += missed(number, query=query, at=NOW - 600 + 60 * number, sent=number != 2)
    return state_of(*events, *more)


def rates(console: RunningConsole) -> list[tuple[Any, ...]]:
    return [
        (args["group_id"], args["rating"], *args.get("order", ()))
        for name, args in console.link.commands
        if name == "group.rate"
    ]


async def test_a_late_vote_from_the_list_to_the_next_group() -> None:
    async with run_console(inbox(), places=PLACES, at="rate", rating=BY_ENTER) as console:
        assert "3 in the inbox" in console.text()
        await console.press("I")
        rows = console.text()
        assert rows.index("Faust") < rows.index("prime") < rows.index("sky")
        assert "3 to rate" in rows
        await console.press("enter")
        shown = console.text()
        assert "Who wrote Faust?" in shown
        assert "Late vote (sent unrated): recorded, never sent" in shown
        console.clock.now += 1
        await console.press("1")
        assert "Enter records it" in console.text()
        await console.press("enter")
        ((group_id, kind, index),) = rates(console)
        assert (group_id, kind) == ("g0003", "best")
        console.link.publish(*late(3, index, "anna"))
        await console.settle()
        assert "What is a prime?" in console.text()
        assert "Late vote (aborted)" in console.text()
        assert "recorded as a late vote" in console.text()
        await console.press("u")
        (args,) = [args for name, args in console.link.commands if name == "group.unrate"]
        assert (args["group_id"], args["rater"]) == ("g0003", "anna")
        place = {"server": "embedded", "group_id": "g0003", "rater": "anna"}
        console.link.publish(VoteWithdrawn(**place))
        await console.settle()
        assert "Who wrote Faust?" in console.text()
        await console.press("k")
        assert "What is a prime?" in console.text()
        await console.press("escape")
        assert "newest first" in console.text()


async def test_a_group_is_asked_again_and_opens_on_rate() -> None:
    async with run_console(inbox(), places=PLACES, at="rate", rating=BY_ENTER) as console:
        await console.press("I", "enter")
        console.link.reply = FakeReply(result={"group_id": "g0009"})
        await console.press("A")
        assert ("group.rerun", {"group_id": "g0003"}) in console.link.commands
        await console.settle()
        assert "Asked again" in console.text()
        assert not [message for message in console.messages if "stall" in message]
        other = group_events(8, query="Another?", until="AWAITING_RATING")
        again = group_events(9, query=QUESTIONS[2], until="AWAITING_RATING")
        console.link.publish(*other)
        await console.settle()
        assert "Another?" in console.text()
        console.link.publish(*again)
        await console.settle()
        assert QUESTIONS[2] in console.text()


async def test_order_filter_and_groups_that_have_their_vote() -> None:
    async with run_console(
        inbox(*late(2, 1)), places=PLACES, at="rate", rating=BY_ENTER
    ) as console:
        await console.press("I")
        assert "2 to rate" in console.text()
        await console.press("o")
        rows = console.text()
        assert rows.index("sky") < rows.index("prime") < rows.index("Faust")
        await console.press("slash")
        await console.press(*"prime")
        await console.press("enter")
        assert "1 of 3: prime" in console.text()
        assert "sky" not in console.text()
        await console.press("enter")
        assert "rated" in console.text()
        await console.press("1")
        assert not rates(console)
        assert "takes a late one" in console.messages[-1]
        await console.press("escape", "escape")
        assert "sky" in console.text()
        await console.press("escape")
        assert "The rating mode is off" in console.text()


async def test_texts_that_are_not_in_memory_are_read_and_missing_ones_are_named() -> None:
    state = inbox()
    whole = dict(state.groups)
    state.groups = brief_groups(state.groups, 0)
    del state.groups["g0003"]
    async with run_console(state, places=PLACES, at="rate", rating=BY_ENTER) as console:
        console.link.detail = []
        await console.press("I", "enter")
        await console.settle()
        assert any("answers of group g0003 are no longer stored" in m for m in console.messages)
        assert whole["g0002"].query in console.text()


async def test_a_group_is_leased_while_it_is_read_and_skipped_while_another_reads_it() -> None:
    def lease(number: int) -> GroupLeased:
        name = f"g{number:04}"
        return GroupLeased(
            server="embedded", group_id=name, holder="x", rater="bob", until=NOW + 20
        )

    state = inbox(ConsoleAttached(consoles=2), lease(3))
    async with run_console(state, places=PLACES, at="rate", rating=BY_ENTER) as console:
        await console.press("I", "enter")
        assert "bob is rating this group" in console.messages[-1]
        await console.press("down", "enter")
        assert "What is a prime?" in console.text()
        (args,) = [args for name, args in console.link.commands if name == "group.lease"]
        assert (args["group_id"], args["seconds"], args["shared"]) == ("g0002", 20.0, False)
        console.link.publish(lease(2))  # he took it over
        await console.shows("bob is rating the group that was here")
        assert "Why is the sky blue?" in console.text()


async def test_the_key_says_that_the_inbox_is_empty() -> None:
    state = state_of(*group_events(1, until="AWAITING_RATING"))
    async with run_console(state, places=PLACES, at="rate", rating=BY_ENTER) as console:
        await console.press("I")
        assert "The inbox is empty" in console.text()
