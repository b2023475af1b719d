"""Aborts with their reason, and one order for all marked groups."""

from console.places import SCREENS
from console.screens.bulk import BulkScreen
from core.events import Event, GroupMarked
from core.state import State
from tests.support.console import NOW, group_events, seat, state_of

PLACES = [place for place in SCREENS if place.name in ("requests", "rate")]


def marked() -> State:
    """Four groups, three of them marked: two wait for a rating, one is over."""
    events: list[Event] = []
    for number in (1, 2, 3, 4):
        until = "DONE" if number == 3 else "AWAITING_RATING"
        events += group_events(number, at=NOW + number, until=until)
    events += [
        GroupMarked(server="embedded", group_id=f"g000{number}", marked=True)
        for number in (1, 2, 3)
    ]
    return state_of(*events)


async def test_an_abort_keeps_a_reason() -> None:
    async with seat(marked(), places=PLACES, at="requests") as here:
        await here.press("x")
        await here.press("3")
        assert "▸3 debugging" in here.text()
        await here.press("y")
        await here.press("x")
        await here.press("t", *"yes no", "enter")
        await here.press("y")
        await here.press("x")
        await here.press("t", *"oops", "escape", "escape")
        assert here.link.commands == [
            ("group.abort", {"group_id": "g0004", "reason": "debugging"}),
            ("group.abort", {"group_id": "g0004", "reason": "yes no"}),
        ]


async def test_all_marked_groups_are_aborted_with_one_question() -> None:
    async with seat(marked(), places=PLACES, at="requests") as here:
        assert "★ 3" in here.text()
        await here.press("semicolon")
        assert isinstance(here.app.screen, BulkScreen)
        assert "2 of 3" in here.text()
        await here.press("x")
        shown = " ".join(here.text().split())
        assert "8 episodes of 2 groups" in shown
        assert "8 scored answers will not be trained on" in shown
        assert here.link.commands == []
        await here.press("1", "y")
        reason = "reward miscalculation"
        assert here.link.commands == [
            ("group.abort", {"group_id": f"g000{number}", "reason": reason}) for number in (1, 2)
        ]
        assert "Abort: 2 of 2 marked groups" in here.text()


async def test_other_verbs_for_all_marked_groups() -> None:
    async with seat(marked(), places=PLACES, at="requests") as here:
        orders = {"S": ["group.rescore"] * 2, "A": ["group.rerun"] * 3, "a": ["group.accept"] * 2}
        for key, names in orders.items():
            here.link.commands.clear()
            await here.press("semicolon", key)
            assert here.link.commands == []
            await here.press("y")
            assert [name for name, _ in here.link.commands] == names
        here.link.commands.clear()
        await here.press("semicolon", "n", *"see", "enter")
        await here.press("semicolon", "m")
        assert here.link.commands == [
            *(("group.note", {"group_id": f"g000{n}", "note": "see"}) for n in (1, 2, 3)),
            *(("group.mark", {"group_id": f"g000{n}", "marked": False}) for n in (1, 2, 3)),
        ]


async def test_without_marks_it_says_how_to_mark() -> None:
    state = state_of(*group_events(1))
    async with seat(state, places=PLACES, at="requests") as here:
        assert "Marked" not in here.text().splitlines()[-1]
        await here.press("semicolon")
        assert not isinstance(here.app.screen, BulkScreen)
        assert "No group is marked: m marks the one" in here.text()
