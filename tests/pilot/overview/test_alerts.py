"""Alerts open their groups or their screen; `:` and the palette open groups by id."""

import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from console.models.advice import advice_context
from console.models.alerts import REMEDIES, action_for, alerts_by_urgency
from console.screens.engine.inside import InsideScreen
from console.screens.engine.screen import EngineScreen
from console.screens.group.screen import GroupScreen
from console.screens.open_group import id_matches
from console.screens.overview.text import alert_lines
from console.screens.requests.screen import RequestsScreen
from console.screens.requests.widgets import GroupList
from console.session.app_state import Session
from console.shell.palette import ConsoleCommands
from console.widgets.item_list import ItemList
from core.events import AlertCleared, AlertRaised, EngineLost, Event
from core.runtime.sockets import PortInUse
from core.state import State
from tests.pilot.overview.test_screen import session_of
from tests.support.console import (
    NOW,
    FakeChild,
    FakeProcessManager,
    RunningConsole,
    group_events,
    run_console,
    sample_events,
    sample_state,
    state_of,
)
from tests.support.groups import text_of


def raised(*alerts: AlertRaised) -> State:
    groups: list[Event] = []
    for number in range(900, 906):
        groups += group_events(number, query=f"question {number}")
    return state_of(*sample_events()[:2], *groups, *alerts)


MANY = AlertRaised(
    key="unscored", cause="3 of the last 10 groups", groups=("g0901", "g0903", "g0905"), at=NOW
)
ONE = AlertRaised(key="rewards:outlier", cause="far", groups=("g0902",), at=NOW - 9)
NONE = AlertRaised(key="off:embedded", alert_kind="off", cause="embedded is off", at=NOW - 20)


async def to_alerts(console: RunningConsole) -> ItemList:
    panel = console.app.screen.query_one("#alerts", ItemList)
    for _ in range(4):
        if panel.has_focus:
            break
        await console.press("tab")
    assert panel.has_focus
    return panel


@pytest.mark.parametrize("size", [(80, 24), (160, 48)])
async def test_enter_on_an_alert_lists_exactly_its_groups(size: tuple[int, int]) -> None:
    async with run_console(raised(MANY, ONE, NONE), size=size) as console:
        await to_alerts(console)
        await console.press("enter")
        screen = console.app.screen
        assert isinstance(screen, RequestsScreen)
        assert set(screen.query_one(GroupList).model.ids) == {"g0901", "g0903", "g0905"}
        await console.press("escape")
        assert len(screen.query_one(GroupList).model.ids) == 6


async def test_enter_on_an_alert_about_one_group_opens_it() -> None:
    async with run_console(raised(MANY, ONE, NONE)) as console:
        await to_alerts(console)
        await console.press("down", "enter")
        assert isinstance(console.app.screen, GroupScreen)
        assert console.app.screen.target_group == "g0902"


async def test_enter_on_an_alert_without_groups_opens_its_screen() -> None:
    async with run_console(raised(MANY, ONE, NONE)) as console:
        panel = await to_alerts(console)
        await console.press("end")
        assert panel.cursor == "off:embedded"
        assert "embedded is off" in console.text()
        await console.press("enter")
        assert isinstance(console.app.screen, EngineScreen)


async def test_the_key_of_the_first_alert_opens_its_groups_too() -> None:
    async with run_console(raised(MANY)) as console:
        await console.press("a")
        screen = console.app.screen
        assert isinstance(screen, RequestsScreen)
        assert set(screen.query_one(GroupList).model.ids) == {"g0901", "g0903", "g0905"}


async def test_an_alert_about_taken_episodes_opens_the_server_detail() -> None:
    alert = AlertRaised(key="taken:embedded", alert_kind="taken", cause="taken", groups=("g0901",))
    async with run_console(raised(alert)) as console:
        await console.press("a")
        assert isinstance(console.app.screen, InsideScreen)


async def test_the_alert_under_the_cursor_is_dismissed_and_the_focus_moves_on() -> None:
    async with run_console(raised(MANY, ONE)) as console:
        panel = await to_alerts(console)
        await console.press("down", "d")
        assert ("alert.dismiss", {"key": "rewards:outlier"}) in console.link.commands
        for key in ("unscored", "rewards:outlier"):
            console.link.publish(AlertCleared(key=key))
        await console.settle()
        assert not panel.can_focus
        assert not panel.has_focus


@pytest.mark.parametrize("key", [*REMEDIES, "of-a-newer-proxy"])
def test_every_alert_has_an_action(key: str) -> None:
    alert = AlertRaised(key=key, alert_kind=key, level="error", at=NOW)
    assert action_for(alert) is not None
    assert action_for(alert, context=advice_context(read_only=True)) is not None


def test_the_alerts_page_documents_every_alert() -> None:
    page = (Path(__file__).parents[3] / "docs" / "guide" / "alerts.md").read_text()
    listed = {one.partition(":")[0] for one in re.findall(r"`([a-z_]+(?::[A-Za-z]+)?)`", page)}
    assert {key.partition(":")[0] for key in REMEDIES} <= listed


def alerts_of(session: Session) -> list[str]:
    """The first line of each alert, and its advice."""
    raised = alerts_by_urgency(session)
    return [text_of(alert_lines(session, alert, 100, whole=True)) for alert in raised]


def test_the_worst_alerts_come_first() -> None:
    first, second = alerts_of(session_of(sample_state()))
    assert "ValueError" in first
    assert "traceback" in first
    assert "equal rewards" in second


def test_a_crashed_process_comes_first_in_the_alerts() -> None:
    session = session_of(sample_state())
    session.processes = FakeProcessManager(
        {"engine": FakeChild("engine", "exited", None, "", -9, "killed by SIGKILL")}
    )
    first, *others = alerts_of(session)
    assert len(others) == 2
    assert "engine killed by SIGKILL" in first
    assert "Press 5" in first


# --- ids ----------------------------------------------------------------------------------------


def toast_text(console: RunningConsole) -> str:
    """The messages so far, on one line."""
    return " ".join(" ".join(console.messages).split())


async def type_line(console: RunningConsole, text: str) -> None:
    await console.press("colon", *text, "enter")


async def test_a_group_is_opened_by_its_id_or_the_beginning_of_it() -> None:
    async with run_console(raised()) as console:
        await type_line(console, "g0903")
        assert isinstance(console.app.screen, GroupScreen)
        assert console.app.screen.target_group == "g0903"
        await console.press("escape")
        await type_line(console, "g090")
        assert isinstance(console.app.screen, RequestsScreen)
        assert len(console.app.screen.query_one(GroupList).model.ids) == 6


async def test_an_episode_is_opened_by_its_id() -> None:
    async with run_console(raised()) as console:
        await type_line(console, "ep-904-2")
        screen = console.app.screen
        assert isinstance(screen, GroupScreen)
        assert screen.target_group == "g0904"
        assert screen.target.candidate == 2


async def test_an_unknown_name_suggests_the_closest_one() -> None:
    async with run_console(raised()) as console:
        await type_line(console, "reqeusts")
        assert "Did you mean `requests`?" in toast_text(console)


async def test_a_group_of_the_journal_is_opened_by_its_id() -> None:
    async with run_console(raised()) as console:
        result = [
            replace(event, group_id="g0000777")
            for event in group_events(777, query="an older question")
        ]
        console.link.detail = result
        await type_line(console, "g0000777")
        assert isinstance(console.app.screen, GroupScreen)
        assert "an older question" in console.text()
        await console.press("escape")
        console.link.detail = []
        await type_line(console, "g0000778")
        assert "There is no group or episode `g0000778`" in toast_text(console)


async def test_the_palette_finds_groups_and_episodes_by_their_ids() -> None:
    async with run_console(raised()) as console:
        provider = ConsoleCommands(console.app.screen)
        titles = [hit.text async for hit in provider.search("g0903")]
        assert titles[0] == "Group: g0903"
        titles = [hit.text async for hit in provider.search("ep-904-")]
        assert titles[0] == "Episode: ep-904-0"


def test_ids_match_by_their_beginning() -> None:
    groups = raised().groups.values()
    assert [match.group.group_id for match in id_matches(groups, "r905")] == ["g0905"]
    assert id_matches(groups, "905") == []
    assert id_matches(groups, " ") == []


@pytest.mark.parametrize("size", [(80, 24), (160, 48)])
async def test_an_engine_without_a_port_is_one_alert_that_names_the_setting(
    size: tuple[int, int],
) -> None:
    """Its process has ended: it is not starting, and its silence is no second cause."""
    error = PortInUse(
        "the port is taken by python (pid 41)",
        "127.0.0.1:10086",
        "Stop that process, or set `engine.port` to another port (0 takes any free one)",
    )
    detail = f"ended with exit code 2: ajet-console: {error}"
    child = FakeChild("engine", "exited", None, "", 2, detail)
    silent = EngineLost(server="embedded", error="gone: no answer", seen_at=0.0)
    lost = AlertRaised(key="lost:embedded", cause="embedded does not answer: gone", at=NOW)
    off = AlertRaised(key="lost:far", cause="far does not answer", at=NOW)
    state = state_of(replace(sample_events()[0], at=NOW - 2), silent, lost)
    assert state.servers["embedded"].expected_until > NOW
    async with run_console(
        state, size=size, processes=FakeProcessManager({"engine": child})
    ) as console:
        text = console.text()
        assert "STARTING" not in text
        assert "waiting for its first answer" not in text
        assert "NOT REACHED" in text
        assert re.search(r"! ?1\b", text)
        assert "embedded does not answer" not in text
        assert "`engine.port`" in text
        assert "pid 41" in text
        console.link.publish(off)
        await console.settle()
        assert re.search(r"! ?2\b", console.text())
