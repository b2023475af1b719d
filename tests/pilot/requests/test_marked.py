"""Aborts with a reason, and commands for all marked groups."""

from console.models.screen_registry import SCREENS
from console.screens.requests.marked import BulkScreen
from core.events import Event, GroupMarked
from core.state import State
from tests.support.console import NOW, FakeLink, group_events, run_console, state_of

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


async def test_an_abort_records_a_reason() -> None:
    async with run_console(marked(), places=PLACES, at="requests") as console:
        await console.press("x")
        await console.press("3")
        assert "▸3 debugging" in console.text()
        await console.press("y")
        await console.press("x")
        await console.press("t", *"yes no", "enter")
        await console.press("y")
        await console.press("x")
        await console.press("t", *"oops", "escape", "escape")
        assert console.link.commands == [
            ("group.abort", {"group_id": "g0004", "reason": "debugging"}),
            ("group.abort", {"group_id": "g0004", "reason": "yes no"}),
        ]


async def test_all_marked_groups_are_aborted_after_one_confirmation() -> None:
    async with run_console(marked(), places=PLACES, at="requests") as console:
        assert "★ 3" in console.text()
        await console.press("semicolon")
        assert isinstance(console.app.screen, BulkScreen)
        assert "2 of 3" in console.text()
        await console.press("x")
        shown = " ".join(console.text().split())
        assert "8 episodes of 2 groups" in shown
        assert "8 scored answers will not be trained on" in shown
        assert console.link.commands == []
        await console.press("1", "y")
        reason = "reward miscalculation"
        assert console.link.commands == [
            ("group.abort", {"group_id": f"g000{number}", "reason": reason}) for number in (1, 2)
        ]
        assert "Abort: 2 of 2 marked groups" in console.text()


async def test_other_commands_apply_to_all_marked_groups() -> None:
    async with run_console(marked(), places=PLACES, at="requests") as console:
        orders = {"S": ["group.rescore"] * 2, "A": ["group.rerun"] * 3, "a": ["group.accept"] * 2}
        for key, names in orders.items():
            console.link.commands.clear()
            await console.press("semicolon", key)
            assert console.link.commands == []
            await console.press("y")
            assert [name for name, _ in console.link.commands] == names
        console.link.commands.clear()
        await console.press("semicolon", "n", *"see", "enter")
        await console.press("semicolon", "m")
        assert console.link.commands == [
            *(("group.note", {"group_id": f"g000{n}", "note": "see"}) for n in (1, 2, 3)),
            *(("group.mark", {"group_id": f"g000{n}", "marked": False}) for n in (1, 2, 3)),
        ]


async def test_without_marks_a_hint_explains_marking() -> None:
    state = state_of(*group_events(1))
    async with run_console(state, places=PLACES, at="requests") as console:
        assert "Marked" not in console.text().splitlines()[-1]
        await console.press("semicolon")
        assert not isinstance(console.app.screen, BulkScreen)
        assert "No group is marked: m marks the one" in console.text()


class HistoryLink(FakeLink):
    """Has the events of each group but one."""

    async def group_events(self, group_id: str) -> list[Event]:
        number = int(group_id[1:])
        if number == 2:
            return []
        texts = [f"{index} of {number}, whole" for index in range(4)]
        return group_events(number, texts=texts, at=NOW + number)


async def test_winners_and_requests_of_all_marked_groups_are_copied() -> None:
    link = HistoryLink(marked())
    async with run_console(link=link, places=PLACES, at="requests") as console:
        best = {key: group.best or 0 for key, group in link.state.groups.items()}
        cut = link.state.groups["g0002"].candidates[best["g0002"]].text
        await console.press("semicolon", "c")
        texts = [f"{best['g0001']} of 1, whole", cut, f"{best['g0003']} of 3, whole"]
        assert console.app.clipboard == "\n\n".join(texts)
        await console.press("semicolon", "C")
        first, second = console.app.clipboard.split("\n\n")
        assert (first.split(" ")[0], second.split(" ")[0]) == ("curl", "curl")
        answers, requests = console.messages
        assert answers.startswith("3 answers copied (")
        assert requests.startswith("2 requests of 3 groups copied as curl")
        assert console.link.commands == []


async def test_a_read_only_console_may_copy_marked_groups() -> None:
    async with run_console(
        marked(), size=(80, 15), places=PLACES, at="requests", read_only=True
    ) as console:
        assert "; for all of them" in console.text()
        await console.press("semicolon")
        shown = console.text()
        assert "Copy the winners" in shown
        assert "Abort" not in shown
        await console.press("x")
        assert isinstance(console.app.screen, BulkScreen)
        await console.press("c")
        assert console.app.clipboard.count("\n\n") == 2
        assert console.link.commands == []
