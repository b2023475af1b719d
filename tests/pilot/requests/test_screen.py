"""The Requests screen: keys, commands, filter, list."""

import time

from console.models.screen_registry import SCREENS
from console.screens.group import GroupScreen
from console.screens.requests import RequestsScreen
from console.widgets.filter_line import FilterLine
from console.widgets.group_list import GroupList
from core.events import Event, GroupMarked, GroupRated, ProxyStarted
from core.state import State
from tests.support.console import HOSTILE, NOW, RunningConsole, group_events, run_console, state_of
from tests.support.stopwatch import slowness

PLACES = [place for place in SCREENS if place.name in ("requests", "rate")]
STARTED = ProxyStarted(
    client_uuid="c",
    pid=1,
    url="http://127.0.0.1:8000",
    version="1",
    servers={"embedded": "http://127.0.0.1:10086"},
    rewards="builtin",
)


def some(count: int = 5, until: str = "AWAITING_RATING", query: str = "Question") -> State:
    """A few groups, g0001 the oldest."""
    events: list[Event] = [STARTED]
    for number in range(1, count + 1):
        events += group_events(number, query=f"{query} {number}", at=NOW + number, until=until)
    return state_of(*events)


def listed(here: RunningConsole) -> GroupList:
    """The list on screen."""
    return here.app.screen.query_one(GroupList)


async def test_the_newest_group_is_on_top_and_followed() -> None:
    async with run_console(some(), places=PLACES, at="requests") as here:
        assert listed(here).cursor == "g0005"
        here.link.publish(*group_events(6, query="Question 6", at=NOW + 9))
        await here.settle()
        assert listed(here).cursor == "g0006"
        lines = here.text().splitlines()
        first = next(line for line in lines if "Question" in line)
        assert "Question 6" in first
        assert "finished" in first


async def test_the_cursor_stays_on_its_group_when_new_ones_arrive() -> None:
    async with run_console(some(60), places=PLACES, at="requests") as here:
        await here.press("end")
        assert listed(here).cursor == "g0001"
        top = listed(here).scroll_offset.y
        here.link.publish(*group_events(99, query="new", at=NOW + 99))
        await here.settle()
        assert listed(here).cursor == "g0001"
        assert listed(here).scroll_offset.y == top + 1
        await here.press("f")
        assert listed(here).cursor == "g0099"


async def test_keys_pages_and_mouse_move_the_cursor() -> None:
    async with run_console(some(60), places=PLACES, at="requests") as here:
        for keys, cursor in (
            (["down"], "g0059"),
            (["j", "j", "k"], "g0058"),
            (["end"], "g0001"),
            (["up"], "g0002"),
            (["home"], "g0060"),
        ):
            await here.pilot.press(*keys)
            assert listed(here).cursor == cursor
        await here.press("pagedown")
        assert listed(here).cursor not in ("g0060", "g0001")
        await here.press("home")
        await here.pilot.click(GroupList, offset=(10, 3))
        assert listed(here).cursor == "g0057"
        await here.pilot.click(GroupList, offset=(10, 3))
        await here.settle()
        assert isinstance(here.app.screen, GroupScreen)
        assert here.app.screen.target_group == "g0057"


async def test_group_keys_send_their_commands() -> None:
    rated = GroupRated(server="embedded", group_id="g0005", rating="tie", rewards=(0.5,) * 4)
    async with run_console(some(), places=PLACES, at="requests") as here:
        await here.press("m", "a", "u")
        assert here.link.commands == [
            ("group.mark", {"group_id": "g0005", "marked": True}),
            ("group.accept", {"group_id": "g0005"}),
        ]
        here.link.commands.clear()
        here.link.publish(rated)
        await here.settle()
        await here.press("u", "n")
        await here.press(*"good", "enter")
        assert here.link.commands == [
            ("group.unrate", {"group_id": "g0005", "rater": "anna"}),
            ("group.note", {"group_id": "g0005", "note": "good"}),
        ]


async def test_a_mark_is_shown_in_the_list_without_a_toast() -> None:
    async with run_console(some(), places=PLACES, at="requests") as here:
        await here.press("m")
        assert here.link.commands == [("group.mark", {"group_id": "g0005", "marked": True})]
        assert not here.app._notifications
        await here.press("a")
        assert [one.severity for one in here.app._notifications] == ["information"]


async def test_the_footer_shows_more_keys_where_there_is_room() -> None:
    async with run_console(some(until="DONE"), places=PLACES, at="requests") as here:
        await here.press("down")
        foot = here.text().splitlines()[-1]
        assert "o Sort m Mark n Note c Copy" in foot
        assert foot.endswith("^q Quit ? Help")
        await here.press("enter")
        foot = here.text().splitlines()[-1]
        assert "esc Back d Diff r Raw m Mark" in foot
        assert foot.endswith("^q Quit ? Help")


async def test_abort_asks_and_states_the_loss() -> None:
    async with run_console(some(), places=PLACES, at="requests") as here:
        await here.press("x")
        shown = here.text()
        assert "4 episodes" in shown
        assert "The user has been answered, with candidate 2" in shown
        await here.press("n")
        assert here.link.commands == []
        await here.press("x")
        await here.press("y")
        assert here.link.commands == [("group.abort", {"group_id": "g0005"})]


async def test_abort_of_a_closed_group_is_refused() -> None:
    async with run_console(some(until="DONE"), places=PLACES, at="requests") as here:
        await here.press("x", "y")
        assert here.link.commands == []


async def test_a_read_only_console_has_no_writing_keys() -> None:
    async with run_console(some(), places=PLACES, at="requests", read_only=True) as here:
        await here.press("m", "a", "x", "y")
        assert here.link.commands == []
        assert isinstance(here.app.screen, RequestsScreen)


async def test_the_filter_line_filters_and_clears() -> None:
    async with run_console(some(), places=PLACES, at="requests") as here:
        here.link.publish(GroupMarked(server="embedded", group_id="g0002", marked=True))
        await here.press("slash")
        await here.pilot.press(*"marked:yes")
        assert listed(here).model.ids == ["g0002"]
        assert here.link.commands == []
        await here.press("enter")
        assert listed(here).has_focus
        assert "1 of 5" in here.text()
        await here.press("escape")
        assert len(listed(here).model.ids) == 5


async def test_a_filter_error_is_shown_at_its_character_and_no_match_is_reported() -> None:
    async with run_console(some(), places=PLACES, at="requests") as here:
        await here.press("slash")
        await here.pilot.press(*"dead:no stat:x")
        await here.settle()
        lines = here.text().splitlines()
        line = next(line for line in lines if "no field" in line)
        typed = next(line for line in lines if "stat:x" in line)
        assert line.index("▾") == typed.index("stat:x")
        await here.press("enter")
        assert "no field" in here.text()
        assert here.app.focused is here.app.screen.query_one(FilterLine).line
        await here.press("escape")
        assert "no field" not in here.text()
        await here.press("slash")
        await here.pilot.press(*"zzz", "enter")
        await here.settle()
        assert "No request matches" in here.text()
        assert "Esc clears it" in here.text()


async def test_an_empty_list_names_the_next_step() -> None:
    async with run_console(state_of(STARTED), places=PLACES, at="requests", size=(60, 15)) as here:
        footer = here.text().splitlines()[-1]
        assert "Open" not in footer
        assert "Abort" not in footer
        assert footer.endswith("? Help")
        assert "http://127.0.0.1:8000/v1" in here.text()
        assert "F4" in here.text()


async def test_enter_opens_the_group_and_escape_comes_back() -> None:
    async with run_console(some(), places=PLACES, at="requests") as here:
        await here.press("down", "enter")
        assert isinstance(here.app.screen, GroupScreen)
        assert here.app.screen.target_group == "g0004"
        await here.press("escape")
        assert isinstance(here.app.screen, RequestsScreen)
        assert listed(here).cursor == "g0004"


async def test_hostile_text_is_shown_safely_at_every_size() -> None:
    query = HOSTILE + "x" * 1_000_000
    async with run_console(some(query=query), places=PLACES, at="requests") as here:
        for size in ((80, 24), (160, 48), (60, 15), (140, 20)):
            await here.pilot.resize_terminal(*size)
            await here.settle()
            assert "\x1b" not in here.text()
            assert "\u202e" not in here.text()
            assert "[/b]" in here.text()
        await here.press("slash")
        await here.pilot.press(*"[/b]", "enter", "enter")
        await here.settle()
        assert isinstance(here.app.screen, GroupScreen)
        assert "[/b]" in here.text()


async def test_the_detail_is_shown_beside_the_list_if_there_is_room() -> None:
    async with run_console(some(), places=PLACES, at="requests", size=(160, 48)) as here:
        assert "answer 0 to: Question 5" in here.text()
        await here.press("down")
        assert "answer 0 to: Question 4" in here.text()
        await here.pilot.resize_terminal(100, 30)
        await here.settle()
        assert "answer 0 to" not in here.text()
        await here.pilot.resize_terminal(160, 48)
        await here.settle()
        assert "answer 0 to: Question 4" in here.text()


async def test_several_servers_have_a_column() -> None:
    state = some()
    await_names = state_of(
        ProxyStarted(
            client_uuid="c",
            pid=1,
            url="http://127.0.0.1:8000",
            version="1",
            servers={"embedded": "http://a", "large": "http://b"},
            rewards="builtin",
        )
    )
    state.servers = await_names.servers
    async with run_console(state, places=PLACES, at="requests", size=(120, 24)) as here:
        assert "server" in here.text()
        assert "embedded" in here.text().splitlines()[3]


async def test_a_page_of_twenty_thousand_paints_only_what_is_visible() -> None:
    async with run_console(some(3), places=PLACES, at="requests") as here:
        groups = here.session.state.groups
        first = next(iter(groups.values()))
        for number in range(20_000):
            groups[f"x{number}"] = first
        began = time.process_time()
        here.app.screen.update_view(frozenset({"*"}))  # type: ignore[attr-defined]  # our screen
        await here.settle()
        cpu_seconds = time.process_time() - began
        print(f"20,000 groups on screen: {cpu_seconds:.3f} s of CPU")
        assert len(listed(here).model.ids) == 20_003
        assert cpu_seconds < 2.0 * slowness()
