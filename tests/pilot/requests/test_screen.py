"""The Requests screen: keys, commands, filter, list."""

import time

from console.models.screen_registry import SCREENS
from console.screens.group.screen import GroupScreen
from console.screens.requests.screen import RequestsScreen
from console.screens.requests.widgets import FilterLine, GroupList
from core.events import Event, GroupMarked, GroupRated, ProxyStarted
from core.state import State
from tests.support.console import HOSTILE, NOW, RunningConsole, group_events, run_console, state_of

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


def listed(console: RunningConsole) -> GroupList:
    """The list on screen."""
    return console.app.screen.query_one(GroupList)


async def test_the_newest_group_is_on_top_and_followed_and_enter_opens_one() -> None:
    async with run_console(some(), places=PLACES, at="requests") as console:
        assert listed(console).cursor == "g0005"
        console.link.publish(*group_events(6, query="Question 6", at=NOW + 9))
        await console.settle()
        assert listed(console).cursor == "g0006"
        lines = console.text().splitlines()
        first = next(line for line in lines if "Question" in line)
        assert "Question 6" in first
        assert "finished" in first
        await console.press("down", "enter")
        assert isinstance(console.app.screen, GroupScreen)
        assert console.app.screen.target_group == "g0005"
        await console.press("escape")
        assert isinstance(console.app.screen, RequestsScreen)
        assert listed(console).cursor == "g0005"


async def test_the_cursor_stays_on_its_group_when_new_ones_arrive() -> None:
    async with run_console(some(60), places=PLACES, at="requests") as console:
        await console.press("end")
        assert listed(console).cursor == "g0001"
        top = listed(console).scroll_offset.y
        console.link.publish(*group_events(99, query="new", at=NOW + 99))
        await console.settle()
        assert listed(console).cursor == "g0001"
        assert listed(console).scroll_offset.y == top + 1
        await console.press("f")
        assert listed(console).cursor == "g0099"


async def test_keys_pages_and_mouse_move_the_cursor() -> None:
    async with run_console(some(60), places=PLACES, at="requests") as console:
        for keys, cursor in (
            (["down"], "g0059"),
            (["j", "j", "k"], "g0058"),
            (["end"], "g0001"),
            (["up"], "g0002"),
            (["home"], "g0060"),
        ):
            await console.pilot.press(*keys)
            assert listed(console).cursor == cursor
        await console.press("pagedown")
        assert listed(console).cursor not in ("g0060", "g0001")
        await console.press("home")
        await console.pilot.click(GroupList, offset=(10, 3))
        assert listed(console).cursor == "g0057"
        await console.pilot.click(GroupList, offset=(10, 3))
        await console.settle()
        assert isinstance(console.app.screen, GroupScreen)
        assert console.app.screen.target_group == "g0057"


async def test_group_keys_send_their_commands() -> None:
    rated = GroupRated(server="embedded", group_id="g0005", rating="tie", rewards=(0.5,) * 4)
    async with run_console(some(), places=PLACES, at="requests") as console:
        await console.press("m")
        assert not console.messages  # the list shows the mark
        await console.press("a", "u")
        assert console.messages[0] == "done"
        assert console.link.commands == [
            ("group.mark", {"group_id": "g0005", "marked": True}),
            ("group.accept", {"group_id": "g0005"}),
        ]
        console.link.commands.clear()
        console.link.publish(rated)
        await console.settle()
        await console.press("u", "n")
        await console.press(*"good", "enter")
        assert console.link.commands == [
            ("group.unrate", {"group_id": "g0005", "rater": "anna"}),
            ("group.note", {"group_id": "g0005", "note": "good"}),
        ]


async def test_the_footer_shows_more_keys_where_there_is_room() -> None:
    async with run_console(some(until="DONE"), places=PLACES, at="requests") as console:
        await console.press("x", "y")
        assert console.link.commands == []  # they are closed
        await console.press("down")
        foot = console.text().splitlines()[-1]
        assert "o Sort m Mark n Note c Copy" in foot
        assert foot.endswith("^q Quit ? Help")
        await console.press("enter")
        foot = console.text().splitlines()[-1]
        assert "esc Back d Diff r Raw m Mark" in foot
        assert foot.endswith("^q Quit ? Help")


async def test_abort_asks_and_states_the_loss() -> None:
    async with run_console(some(), places=PLACES, at="requests") as console:
        await console.press("x")
        shown = console.text()
        assert "4 episodes" in shown
        assert "The user has been answered, with candidate 2" in shown
        await console.press("n")
        assert console.link.commands == []
        await console.press("x")
        await console.press("y")
        assert console.link.commands == [("group.abort", {"group_id": "g0005"})]


async def test_a_read_only_console_has_no_writing_keys() -> None:
    async with run_console(some(), places=PLACES, at="requests", read_only=True) as console:
        await console.press("m", "a", "x", "y")
        assert console.link.commands == []
        assert isinstance(console.app.screen, RequestsScreen)


async def test_the_filter_line_filters_clears_and_shows_errors_at_their_character() -> None:
    async with run_console(some(), places=PLACES, at="requests") as console:
        console.link.publish(GroupMarked(server="embedded", group_id="g0002", marked=True))
        await console.press("slash")
        await console.pilot.press(*"marked:yes")
        assert listed(console).model.ids == ["g0002"]
        assert console.link.commands == []
        await console.press("enter")
        assert listed(console).has_focus
        assert "1 of 5" in console.text()
        console.link.publish(GroupMarked(server="embedded", group_id="g0004", marked=True))
        await console.settle()
        assert listed(console).model.ids == ["g0004", "g0002"]
        await console.press("escape")
        assert len(listed(console).model.ids) == 5
        await console.press("slash")
        await console.pilot.press(*"dead:no stat:x")
        await console.settle()
        lines = console.text().splitlines()
        line = next(line for line in lines if "no field" in line)
        typed = next(line for line in lines if "stat:x" in line)
        assert line.index("▾") == typed.index("stat:x")
        await console.press("enter")
        assert "no field" in console.text()
        assert console.app.focused is console.app.screen.query_one(FilterLine).line
        await console.press("escape")
        assert "no field" not in console.text()
        await console.press("slash")
        await console.pilot.press(*"zzz", "enter")
        await console.settle()
        assert "No request matches" in console.text()
        assert "Esc clears it" in console.text()


async def test_an_empty_list_names_the_next_step() -> None:
    async with run_console(
        state_of(STARTED), places=PLACES, at="requests", size=(60, 15)
    ) as console:
        footer = console.text().splitlines()[-1]
        assert "Open" not in footer
        assert "Abort" not in footer
        assert footer.endswith("? Help")
        assert "http://127.0.0.1:8000/v1" in console.text()
        assert "F4" in console.text()


async def test_hostile_text_is_shown_safely_at_every_size() -> None:
    query = HOSTILE + "x" * 1_000_000
    async with run_console(some(query=query), places=PLACES, at="requests") as console:
        for size in ((80, 24), (160, 48), (60, 15), (140, 20)):
            await console.pilot.resize_terminal(*size)
            await console.settle()
            assert "\x1b" not in console.text()
            assert "\u202e" not in console.text()
            assert "[/b]" in console.text()
        await console.press("slash")
        await console.pilot.press(*"[/b]", "enter", "enter")
        await console.settle()
        assert isinstance(console.app.screen, GroupScreen)
        assert "[/b]" in console.text()


async def test_the_detail_is_shown_beside_the_list_if_there_is_room() -> None:
    async with run_console(some(), places=PLACES, at="requests", size=(190, 48)) as console:
        assert "answer 0 to: Question 5" in console.text()
        await console.press("down")
        assert "answer 0 to: Question 4" in console.text()
        await console.pilot.resize_terminal(160, 48)
        await console.settle()
        assert "answer 0 to" not in console.text()
        await console.pilot.resize_terminal(190, 48)
        await console.settle()
        assert "answer 0 to: Question 4" in console.text()


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
    async with run_console(state, places=PLACES, at="requests", size=(120, 24)) as console:
        assert "server" in console.text()
        assert "embedded" in console.text().splitlines()[3]


async def test_a_page_of_twenty_thousand_paints_only_what_is_visible() -> None:
    async with run_console(some(3), places=PLACES, at="requests") as console:
        groups = console.session.state.groups
        first = next(iter(groups.values()))
        for number in range(20_000):
            groups[f"x{number}"] = first
        began = time.process_time()
        console.app.screen.update_view(frozenset({"*"}))  # type: ignore[attr-defined]  # our screen
        await console.settle()
        cpu_seconds = time.process_time() - began
        print(f"20,000 groups on screen: {cpu_seconds:.3f} s of CPU")
        assert len(listed(console).model.ids) == 20_003
        assert cpu_seconds < 2.0
