"""The list beyond memory: journal pages, sorting, backward search."""

import asyncio
import copy
import time

from ajet_swarm.common.errors import AjetError
from console.models.screen_registry import SCREENS
from console.screens.group.screen import GroupScreen
from console.screens.requests.widgets import FilterLine, GroupList
from console.session.history import PAGE
from core.events import GroupNoted
from core.state import Group
from tests.support.console import NOW, FakeLink, RunningConsole, group_events, run_console, state_of

PLACES = [place for place in SCREENS if place.name in ("requests", "rate")]


def link_of(old: int, live: int = 5) -> FakeLink:
    """A proxy whose journal has `old` groups more than its state, of one text each."""
    events = []
    for number in range(live):
        events += group_events(old + number, query=f"new {number}", at=NOW - live + number)
    link = FakeLink(state_of(*events))
    made = state_of(*group_events(0, rewards=(0.3, 0.7))).groups["g0000"]
    link.journal = [old_group(made, number, old) for number in range(old)]
    link.state.totals.groups = old + live
    return link


def old_group(like: Group, number: int, old: int) -> Group:
    """A copy under its own name."""
    group = copy.copy(like)  # a hundred thousand: a fifth of the time of the constructor
    group.group_id, group.query = f"o{number:06}", f"old {number}"
    group.opened_at = NOW - 1_000 - old + number
    return group


def listed(console: RunningConsole) -> GroupList:
    """The list on screen."""
    return console.app.screen.query_one(GroupList)


async def read(console: RunningConsole) -> None:
    """Wait for the pages in sight."""
    async with asyncio.timeout(20):
        await console.settle()
        while any(
            worker.is_running
            for worker in console.app.workers
            if worker.group.startswith(("history", "search"))
        ):
            await console.pilot.pause(0.01)
    await console.settle()


async def test_the_list_continues_from_the_journal() -> None:
    async with run_console(link=link_of(120), places=PLACES, at="requests") as console:
        await read(console)
        shown = console.text()
        assert "125" in shown.splitlines()[1]
        assert "new 0" in shown
        assert "old 119" in shown
        await console.press("end")
        await read(console)
        assert listed(console).cursor == "o000000"
        assert "old 0 " in console.text()
        await console.press("up", "enter")
        assert isinstance(console.app.screen, GroupScreen)
        assert "old 1" in console.text()
        await console.press("right_square_bracket")
        assert console.app.screen.target_group == "o000000"


async def test_a_list_of_100_000_groups_paints_only_visible_rows() -> None:
    link = link_of(100_000)
    async with run_console(link=link, places=PLACES, at="requests", size=(120, 30)) as console:
        groups = listed(console)
        began = time.process_time()
        await console.press("end")
        await read(console)
        for _ in range(10):
            await console.pilot.press("pageup")
        await read(console)
        cpu_seconds = time.process_time() - began
        print(f"100,000 groups, to the end and ten pages up: {cpu_seconds:.2f} s of CPU")
        assert groups.model.count == 100_005
        assert groups.cursor == f"o{groups.model.count - 1 - (groups.place or 0):06}"
        assert cpu_seconds < 5.0
        history = console.session.history
        for first in range(0, 100 * PAGE, PAGE):
            history.put(first, link.journal[first : first + PAGE])
        assert len(history._pages) <= 40


async def test_new_groups_do_not_move_the_visible_journal_page() -> None:
    async with run_console(link=link_of(200), places=PLACES, at="requests") as console:
        await console.press("end", *["up"] * 30)
        await read(console)
        groups = listed(console)
        before, top = groups.cursor, groups.scroll_offset.y
        assert before == "o000030"
        console.link.publish(*group_events(900, query="newest", at=NOW + 9))
        console.link.state.totals.groups = 206
        await console.settle()
        assert (groups.cursor, groups.scroll_offset.y) == (before, top + 1)
        await console.press("home")
        assert groups.cursor == "g0900"


async def test_commands_apply_to_journal_groups_and_reload_them() -> None:
    async with run_console(
        link=link_of(60), places=PLACES, at="requests", size=(190, 40)
    ) as console:
        await console.press("end")
        await read(console)
        await console.press("m", "S")
        assert console.link.commands == [("group.mark", {"group_id": "o000000", "marked": True})]
        console.link.journal[0].note = "seen by anna"
        console.link.publish(GroupNoted(server="embedded", group_id="o000000", note="seen by anna"))
        await console.settle()
        await read(console)
        assert "seen by anna" in console.text()


async def test_an_unreadable_journal_is_reported_once() -> None:
    link = link_of(500)
    async with run_console(link=link, places=PLACES, at="requests") as console:
        link.broken = AjetError("the proxy does not answer")
        await console.press("end")
        await read(console)
        await console.press("pageup", "pageup")
        await read(console)
        errors = [message for message in console.messages if "cannot be read" in message]
        assert len(errors) == 1
        assert "…" in console.text()


async def test_a_filter_searches_back_until_it_has_enough_matches() -> None:
    async with run_console(link=link_of(5_000), places=PLACES, at="requests") as console:
        groups = listed(console)
        await console.press("slash")
        await console.pilot.press(*'"old 7"', "enter")
        await read(console)
        search = groups.model.search
        assert search is not None
        assert groups.model.ids == []
        assert search.below > 0
        assert "End searches further" in console.text()
        for _ in range(8):
            await console.press("end")
            await read(console)
        assert search.finished
        assert groups.model.ids[0] == "o000799"
        assert groups.model.ids[-1] == "o000007"
        await console.press("end", "enter")
        assert "old 7" in console.text()


async def test_keys_sort_the_list_and_reverse_the_order() -> None:
    events = [
        event
        for number, rewards in enumerate([(0.1, 0.2), (0.9, 0.0), (0.5, 0.4)], 1)
        for event in group_events(number, rewards=rewards, at=NOW - 50 + number)
    ]
    async with run_console(
        state_of(*events), places=PLACES, at="requests", size=(120, 24)
    ) as console:
        groups = listed(console)
        await console.press("o")
        assert groups.model.ids == ["g0002", "g0003", "g0001"]
        assert groups.cursor == "g0002"
        await console.press("down")
        assert "by best reward ▾" in console.text()
        assert "best▾" in console.text()
        await console.press("O")
        assert groups.model.ids == ["g0001", "g0003", "g0002"]
        assert groups.cursor == "g0001"  # the top of the new order
        for _ in range(4):
            await console.press("o")
        await console.press("O")
        assert groups.model.plain
        assert groups.model.ids == ["g0003", "g0002", "g0001"]


async def test_tab_completes_fields_and_values() -> None:
    async with run_console(link=link_of(0), places=PLACES, at="requests") as console:
        await console.press("slash", *"sta")
        line = console.app.screen.query_one(FilterLine).line
        await console.press("tab")
        assert line.value == "state:"
        assert "awaiting_rating" in console.text()
        await console.press(*"fi")
        await console.press("tab")
        assert line.value == "state:finished"
        await console.press("space", "r", "tab", "tab", "shift+tab")
        assert line.value == "state:finished row~"
        await console.press("tab")
        assert line.value == "state:finished reward<"
        await console.press("0", ".", "8", "enter")
        assert listed(console).has_focus
        assert listed(console).model.filter.text == "state:finished reward<0.8"


async def test_a_pruned_journal_ends_where_its_history_starts() -> None:
    link = link_of(120)
    link.pruned = 70
    async with run_console(link=link, places=PLACES, at="requests", size=(120, 30)) as console:
        await read(console)
        groups = listed(console)
        assert "history starts 20" in console.text().splitlines()[1]
        assert groups.model.count == 125 - 70
        await console.press("end")
        await read(console)
        assert groups.cursor == "o000070"
        assert "old 70 " in console.text()
        await console.press("enter")
        await console.press("right_square_bracket")
        assert console.app.screen.target_group == "o000070"
        await console.press("escape")
        # the proxy continues to prune; the rows read before are shown until the next page
        link.pruned = 90
        await console.press("home")
        console.session.history.clear()
        await console.press("end")
        await read(console)
        assert groups.cursor == "o000090"
        await console.press("slash", *"old", "enter")
        await read(console)
        await console.press("end")
        await read(console)
        search = groups.model.search
        assert search is not None
        assert search.finished
        assert list(search.groups)[-1] == "o000090"
