"""The Servers screen: several servers, the age of their figures, no commands."""

from collections.abc import Callable, Iterator

import pytest
from rich.cells import cell_len

from console.screens.engine.text import table_head, table_row
from console.screens.servers.screen import ServersScreen
from console.shell.palette import entries
from core.commands import COMMANDS
from core.control_payloads import EpisodeDetails, LogLine, ServerDetails, TaskDetails
from core.events import (
    ClientSeen,
    EngineChanged,
    EngineLost,
    Event,
    PoolChanged,
    ProxyStarted,
    SlotsSeen,
)
from core.state import State, reduce
from tests.support.console import HOSTILE, NOW, FakeLink, RunningConsole, run_console, stamp

SIZES = [(80, 24), (160, 48)]
METHOD = "rollout_until_finish_enough_tasks"


def events(watch_only: bool = True) -> Iterator[Event]:
    servers = {"gpu": "http://gpu:1", "spare": "http://spare:1", "far": "http://far:1"}
    yield ProxyStarted(
        client_uuid="me",
        pid=1,
        url="",
        version="1",
        servers=servers,
        rewards="builtin",
        watch_only=watch_only,
        at=NOW - 120,
    )
    for state, step, at in (("ROLLING", 6, 100), ("WEIGHT_SYNCING", 6, 40), ("ROLLING", 7, 30)):
        yield EngineChanged(server="gpu", state=state, raw=state, step=step, at=NOW - at)
    yield EngineChanged(server="spare", state="OFFLINE", raw="ENGINE.OFFLINE", at=NOW - 90)
    yield PoolChanged(
        server="gpu",
        method=METHOD,
        completed_episodes=11,
        episode_target=16,
        completed_tasks=2,
        task_target=4,
        non_dummy_tasks=1,
        repeats=4,
        running=3,
        model="Qwen",
    )
    clients = (
        ClientSeen(name="trainer-a", running=2, active=True),
        ClientSeen(name="b", running=1),
    )
    yield SlotsSeen(server="gpu", free=5, claimed=3, clients=clients)
    yield EngineLost(server="far", error="gone: connection refused", seen_at=0.0)


def state(watch_only: bool = True) -> State:
    result = State()
    for seq, event in enumerate(events(watch_only), 1):
        reduce(result, stamp(event, seq))
    return result


def details(text: str = "hello") -> ServerDetails:
    episode = EpisodeDetails(
        uuid="e-1", client="trainer-a", idle=230.0, limit=240.0, calls=2, task="q"
    )
    return ServerDetails(
        server="gpu",
        at=NOW,
        free=5,
        claimed=3,
        clients=(ClientSeen(name="trainer-a", running=2, active=True, agreed=True),),
        episodes=(episode,),
        tasks=(TaskDetails(task="task-7", episodes=4, rewards=(0.5, 0.5)),),
        folder="/srv/run",
        log=(LogLine(at=NOW, tag="server", text=text),),
        asked=text,
        answered="an answer",
        missing=("its folder: 500",),
    )


async def until(console: RunningConsole, test: Callable[[], bool]) -> None:
    for _ in range(1_000):
        await console.settle()
        if test():
            await console.settle()
            return
    raise AssertionError("not in time")


def line(console: RunningConsole, name: str) -> str:
    return next(
        splitline for splitline in console.text().splitlines() if splitline.startswith(f"  {name} ")
    )


@pytest.mark.parametrize("size", SIZES)
async def test_each_server_has_a_line(size: tuple[int, int]) -> None:
    async with run_console(state(), size=size, at="servers") as console:
        gpu = line(console, "gpu").split()
        assert gpu[1:3] == ["●", "ROLLING"]
        assert "30s" in gpu
        assert "7" in gpu
        assert "2/4" in gpu
        assert "3/5" in gpu
        assert gpu[-2:] == ["2", "live"]
        assert "OFFLINE" in line(console, "spare")
        assert "–" in line(console, "spare"), "what is not known is no zero"
        assert " 0 " not in line(console, "spare")
        assert "NOT REACHED" in line(console, "far")
        assert line(console, "far").endswith("never")
        assert "watching" in console.text()


async def test_the_details_show_everything_the_server_reports() -> None:
    link = FakeLink(state())
    link.looks["gpu"] = details()
    async with run_console(link=link, size=(110, 60), at="servers") as console:
        screen = console.app.screen
        assert isinstance(screen, ServersScreen)
        screen.read()
        await until(console, lambda: bool(link.looked))
        shown = console.text()
        for word in (
            "episodes    ",
            "11/16",
            "with signal",
            "1/4",
            "STATES",
            "WEIGHT SYNCING      10s",
            "step 6",
            "trainer-a",
            "agreed to sync",
            "3 held, 5 free",
            "3m50 / 4m00",
            "task-7",
            "all equal",
            "/srv/run",
            "an answer",
            "its folder: 500",
        ):
            assert word in shown, word
        assert set(link.looked) == {"gpu"}
        await console.press("down")
        assert screen.target_server == "spare"
        await until(console, lambda: "spare" in link.looked)


async def test_a_lost_server_keeps_its_figures_with_their_age() -> None:
    async with run_console(state(), size=(110, 40), at="servers") as console:
        console.link.publish(EngineLost(server="gpu", error="frozen: no answer", seen_at=NOW - 5))
        console.clock.now += 20
        await console.settle()
        gpu = line(console, "gpu")
        assert "2/4" in gpu
        assert gpu.endswith("25s")
        assert "last answered 25s ago" in console.text()
        assert "frozen" in console.text()


async def test_a_narrow_table_drops_the_least_important_columns() -> None:
    for width, clients in ((60, False), (71, False), (72, True), (160, True)):
        head = "".join(text for text, _ in table_head(width))
        assert cell_len(head) <= width
        assert head.endswith(" age")
        assert ("clients" in head) is clients
        for at, server in enumerate(state().servers.values()):
            row = "".join(text for text, _ in table_row(server, at, NOW, width))
            assert cell_len(row) == cell_len(head)
    async with run_console(state(), size=(60, 15), at="servers") as console:
        assert line(console, "gpu").split()[-5:] == ["7", "2/4", "tasks", "3/5", "live"]
        assert line(console, "far").endswith("never")


@pytest.mark.parametrize("size", SIZES)
async def test_hostile_names_and_texts_are_shown_safely(size: tuple[int, int]) -> None:
    link = FakeLink(state())
    link.looks["gpu"] = details(HOSTILE)
    async with run_console(link=link, size=size, at="servers") as console:
        screen = console.app.screen
        assert isinstance(screen, ServersScreen)
        screen.read()
        await until(console, lambda: bool(link.looked))
        assert "\x1b" not in console.text()


@pytest.mark.parametrize("place", ["servers", "engine", "requests", "overview"])
async def test_a_watch_only_console_offers_no_commands(place: str) -> None:
    async with run_console(state(), at=place) as console:
        titles = [title for title, _, _ in entries(console.app)]
        areas = {title.partition(":")[0] for title in titles}
        assert "Group" not in areas
        assert "Rating" not in areas
        orders = {COMMANDS[name].title for name in COMMANDS if not console.session.allows(name)}
        assert not [title for title in titles if title.startswith(tuple(orders))]
        for key in ("s", "k", "h", "a", "x", "m", "w"):
            await console.press(key)
        assert not console.link.commands


@pytest.mark.parametrize("watch_only", [True, False])
async def test_a_read_only_console_shows_only_keys_that_work(watch_only: bool) -> None:
    shown = state(watch_only=watch_only)
    async with run_console(shown, at="overview", read_only=not watch_only) as console:
        for place in ("overview", "requests", "rate", "mock", "engine", "rewards"):
            console.app.action_go(place)
            await console.settle()
            result = " ".join(console.text().split())
            for key in ("press 5 then s", "ress 4 then s", "F4 and then s", "F4 sends", "s starts"):
                assert key not in result, place
            assert ("loading" not in result and "send one to" not in result) or not watch_only
        console.app.action_go("rate")
        await console.settle()
        assert ("view only: it claims no episodes" in console.text()) is watch_only


async def test_the_screen_also_works_with_a_serving_proxy() -> None:
    async with run_console(state(watch_only=False), at="servers") as console:
        assert "3/5" in line(console, "gpu")
        assert "watching" not in console.text()
        assert "Engine: Stop gpu" in [title for title, _, _ in entries(console.app)]
