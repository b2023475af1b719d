"""The list beyond memory: journal pages, sorting, backward search."""

import asyncio
import time

from ajet_swarm.common.errors import AjetError
from console.models.screen_registry import SCREENS
from console.screens.group import GroupScreen
from console.session.history import PAGE
from console.widgets.filter_line import FilterLine
from console.widgets.group_list import GroupList
from core.events import GroupNoted
from core.state import Group
from tests.support.console import NOW, FakeLink, RunningConsole, group_events, run_console, state_of
from tests.support.stopwatch import slowness

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
    fields = {name: getattr(like, name) for name in Group.__struct_fields__}
    fields |= {
        "group_id": f"o{number:06}",
        "query": f"old {number}",
        "opened_at": NOW - 1_000 - old + number,
    }
    return Group(**fields)


def listed(here: RunningConsole) -> GroupList:
    """The list on screen."""
    return here.app.screen.query_one(GroupList)


async def read(here: RunningConsole) -> None:
    """Wait for the pages in sight."""
    async with asyncio.timeout(20):
        await here.settle()
        while any(
            one.is_running
            for one in here.app.workers
            if one.group.startswith(("history", "search"))
        ):
            await here.pilot.pause(0.01)
    await here.settle()


async def test_the_list_continues_from_the_journal() -> None:
    async with run_console(link=link_of(120), places=PLACES, at="requests") as here:
        await read(here)
        shown = here.text()
        assert "125" in shown.splitlines()[1]
        assert "new 0" in shown
        assert "old 119" in shown
        await here.press("end")
        await read(here)
        assert listed(here).cursor == "o000000"
        assert "old 0 " in here.text()
        await here.press("up", "enter")
        assert isinstance(here.app.screen, GroupScreen)
        assert "old 1" in here.text()
        await here.press("right_square_bracket")
        assert here.app.screen.target_group == "o000000"


async def test_a_list_of_100_000_groups_paints_only_visible_rows() -> None:
    link = link_of(100_000)
    async with run_console(link=link, places=PLACES, at="requests", size=(120, 30)) as here:
        groups = listed(here)
        began = time.process_time()
        await here.press("end")
        await read(here)
        for _ in range(10):
            await here.pilot.press("pageup")
        await read(here)
        cpu_seconds = time.process_time() - began
        print(f"100,000 groups, to the end and ten pages up: {cpu_seconds:.2f} s of CPU")
        assert groups.model.count == 100_005
        assert groups.cursor == f"o{groups.model.count - 1 - (groups.place or 0):06}"
        assert cpu_seconds < 5.0 * slowness()
        history = here.session.history
        for first in range(0, 100 * PAGE, PAGE):
            history.put(first, link.journal[first : first + PAGE])
        assert len(history._pages) <= 40


async def test_new_groups_do_not_move_the_visible_journal_page() -> None:
    async with run_console(link=link_of(200), places=PLACES, at="requests") as here:
        await here.press("end", *["up"] * 30)
        await read(here)
        groups = listed(here)
        before, top = groups.cursor, groups.scroll_offset.y
        assert before == "o000030"
        here.link.publish(*group_events(900, query="newest", at=NOW + 9))
        here.link.state.totals.groups = 206
        await here.settle()
        assert (groups.cursor, groups.scroll_offset.y) == (before, top + 1)
        await here.press("home")
        assert groups.cursor == "g0900"


async def test_commands_apply_to_journal_groups_and_reload_them() -> None:
    async with run_console(link=link_of(60), places=PLACES, at="requests", size=(140, 40)) as here:
        await here.press("end")
        await read(here)
        await here.press("m", "S")
        assert here.link.commands == [("group.mark", {"group_id": "o000000", "marked": True})]
        here.link.journal[0].note = "seen by anna"
        here.link.publish(GroupNoted(server="embedded", group_id="o000000", note="seen by anna"))
        await here.settle()
        await read(here)
        assert "seen by anna" in here.text()


async def test_an_unreadable_journal_is_reported_once() -> None:
    link = link_of(500)
    async with run_console(link=link, places=PLACES, at="requests") as here:
        link.broken = AjetError("the proxy does not answer")
        await here.press("end")
        await read(here)
        await here.press("pageup", "pageup")
        await read(here)
        messages = [one.message for one in here.app._notifications]
        assert len([one for one in messages if "cannot be read" in one]) == 1
        assert "…" in here.text()


async def test_a_filter_searches_back_until_it_has_enough_matches() -> None:
    async with run_console(link=link_of(5_000), places=PLACES, at="requests") as here:
        groups = listed(here)
        await here.press("slash")
        await here.pilot.press(*'"old 7"', "enter")
        await read(here)
        search = groups.model.search
        assert search is not None
        assert groups.model.ids == []
        assert search.below > 0
        assert "End searches further" in here.text()
        for _ in range(8):
            await here.press("end")
            await read(here)
        assert search.finished
        assert groups.model.ids[0] == "o000799"
        assert groups.model.ids[-1] == "o000007"
        await here.press("end", "enter")
        assert "old 7" in here.text()


async def test_keys_sort_the_list_and_reverse_the_order() -> None:
    events = [
        event
        for number, rewards in enumerate([(0.1, 0.2), (0.9, 0.0), (0.5, 0.4)], 1)
        for event in group_events(number, rewards=rewards, at=NOW - 50 + number)
    ]
    async with run_console(state_of(*events), places=PLACES, at="requests", size=(120, 24)) as here:
        groups = listed(here)
        await here.press("o")
        assert groups.model.ids == ["g0002", "g0003", "g0001"]
        assert groups.cursor == "g0002"
        await here.press("down")
        assert "by best reward ▾" in here.text()
        assert "best▾" in here.text()
        await here.press("O")
        assert groups.model.ids == ["g0001", "g0003", "g0002"]
        assert groups.cursor == "g0001"  # the top of the new order
        for _ in range(4):
            await here.press("o")
        await here.press("O")
        assert groups.model.plain
        assert groups.model.ids == ["g0003", "g0002", "g0001"]


async def test_tab_completes_fields_and_values() -> None:
    async with run_console(link=link_of(0), places=PLACES, at="requests") as here:
        await here.press("slash", *"sta")
        line = here.app.screen.query_one(FilterLine).line
        await here.press("tab")
        assert line.value == "state:"
        assert "awaiting_rating" in here.text()
        await here.press(*"fi")
        await here.press("tab")
        assert line.value == "state:finished"
        await here.press("space", "r", "tab", "tab", "shift+tab")
        assert line.value == "state:finished row~"
        await here.press("tab")
        assert line.value == "state:finished reward<"
        await here.press("0", ".", "8", "enter")
        assert listed(here).has_focus
        assert listed(here).model.filter.text == "state:finished reward<0.8"


async def test_a_pruned_journal_ends_where_its_history_starts() -> None:
    link = link_of(120)
    link.pruned = 70
    async with run_console(link=link, places=PLACES, at="requests", size=(120, 30)) as here:
        await read(here)
        groups = listed(here)
        assert "history starts 20" in here.text().splitlines()[1]
        assert groups.model.count == 125 - 70
        await here.press("end")
        await read(here)
        assert groups.cursor == "o000070"
        assert "old 70 " in here.text()
        await here.press("enter")
        await here.press("right_square_bracket")
        assert here.app.screen.target_group == "o000070"
        await here.press("escape")
        # the proxy continues to prune; the rows read before are shown until the next page
        link.pruned = 90
        await here.press("home")
        here.session.history.clear()
        await here.press("end")
        await read(here)
        assert groups.cursor == "o000090"
        await here.press("slash", *"old", "enter")
        await read(here)
        await here.press("end")
        await read(here)
        search = groups.model.search
        assert search is not None
        assert search.finished
        assert list(search.groups)[-1] == "o000090"
