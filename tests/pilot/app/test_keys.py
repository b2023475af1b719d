"""Keys and commands: those that texts name work, and none is offered that has no function."""

import msgspec
import pytest
from textual.command import CommandList, CommandPalette
from textual.widgets import Input, OptionList

from console.models.advice import advice_context
from console.models.alerts import REMEDIES, action_for
from console.models.screen_registry import SCREENS, shown_screens
from console.screens.group.text import DetailOptions, header_lines
from console.shell.palette import entries
from console.widgets.key_bar import MAX_KEYS, KeyBar
from core.events import (
    AlertRaised,
    EngineChanged,
    EpisodesEnded,
    Event,
    GroupOpened,
    GroupRated,
    PoolChanged,
)
from core.events.alerts import params_of
from core.state import State
from proxy.alerts import alert_raised
from tests.pilot.rate.test_screen import PLACES, waiting
from tests.support.checks import missing, present
from tests.support.console import FakeChild, FakeProcessManager, rest, run_console
from tests.support.groups import text_of
from tests.support.proxy.singles import with_outcome
from tests.support.sample import NOW, group_events, state_of

ALERTS = (
    AlertRaised(
        key="hold:embedded", alert_kind="hold", cause="3 open ratings hold up the weight update"
    ),
    alert_raised("refused:embedded", params_of("refused", server="embedded", state="OFFLINE")),
    AlertRaised(key="judge", alert_kind="judge", cause="the judge failed", todo="Read its counts"),
)


ORDERS = ("`s`", "(k)", "(s)", "start it", " 5 s", " 5 r")


@pytest.mark.parametrize("read_only", [False, True])
async def test_overview_and_engine_show_only_keys_that_work(read_only: bool) -> None:
    boots = EngineChanged(server="embedded", state="BOOTING", raw="BOOTING", at=NOW - 100)
    processes = FakeProcessManager({"engine": FakeChild("engine", phase="exited", exit_code=1)})
    shown = state_of(boots, *ALERTS)
    async with run_console(
        shown, size=(160, 48), processes=processes, read_only=read_only
    ) as console:
        text = console.text()
        await console.press("a")
        text += console.text()
        console.app.action_go("engine")
        await console.settle()
        text += console.text()
        named = [words for words in ORDERS if words in text]
        assert named == ([] if read_only else list(ORDERS))
        assert not missing(
            text, "hold up the weight update", "BOOTING for", "Read its counts", "last log lines"
        )


def test_a_read_only_group_head_shows_no_keys() -> None:
    rated = GroupRated(
        server="embedded", group_id="g0003", rating="best", order=(2,), rewards=(0.0, 0.0, 1.0, 0.0)
    )
    events = [*group_events(1, rewards=[0.5] * 4), *group_events(2, until="AWAITING_RATING")]
    groups = state_of(*events, *group_events(3, until="AWAITING_RATING"), rated).groups
    groups["g0002"].abstained = "ValueError"
    named = ("A sends it again", "score it again with S", "; u undoes it")
    stored = ("dead", "Otherwise it is", "held, sends in")
    for group, key, fact in zip(groups.values(), named, stored, strict=True):
        result = " ".join(text_of(header_lines(group, NOW, 100, DetailOptions())).split())
        actual = " ".join(
            text_of(header_lines(group, NOW, 100, DetailOptions(read_only=True))).split()
        )
        assert (key in result, key in actual) == (True, False)
        assert fact in actual


def test_read_only_alerts_say_what_to_look_at_instead_of_a_command() -> None:
    orders = [
        name for name, remedy in REMEDIES.items() if remedy.action or "{keys" in remedy.effect
    ]
    assert [name for name in orders if not REMEDIES[name].read_only] == []
    hold = AlertRaised(key="hold:embedded", alert_kind="hold", level="error", at=NOW)
    held = present(action_for(hold, context=advice_context(read_only=True)))
    assert held.summary == "3: Rate, what waits for a rating"


async def test_a_wide_footer_has_a_limited_number_of_keys() -> None:
    async with run_console(waiting(2), size=(200, 48)) as console:
        for place in SCREENS:
            console.app.action_go(place.name)
            await console.settle()
            keys = [key.key for key in console.app.screen.query_one(KeyBar).shown_keys]
            most = 20 if place.name == "rate" else MAX_KEYS  # a rater uses all of its keys
            assert len(keys) <= most + 1, place  # and the palette
            assert keys[-3:] == ["ctrl+q", "question_mark", "ctrl+p"], place
        await console.press("f3")
        lines = console.text().splitlines()[-1]
        assert lines.index("Best") < lines.index("Score") < lines.index("Tie") < lines.index("Help")


async def test_a_click_presses_the_key_and_the_mouse_shows_its_tooltip() -> None:
    async with run_console(waiting(2), size=(120, 30)) as console:
        bar = console.app.screen.query_one(KeyBar)
        line = console.text().splitlines()[-1]
        help_at = line.index("? Help")
        await console.pilot.hover(KeyBar, (help_at + 2, 0))
        await console.settle()
        shown = {key.key: key for key in bar.shown_keys}
        assert bar.tooltip == (shown["question_mark"].tooltip or None)
        await console.pilot.hover(KeyBar, (line.index("▏") + 2, 0))
        await console.settle()
        assert bar.tooltip == shown["ctrl+p"].tooltip != ""
        before = console.app.screen
        await console.pilot.click(KeyBar, (help_at + 2, 0))
        await console.settle()
        assert console.app.screen is not before, "help is open"


async def test_a_click_between_two_keys_presses_nothing() -> None:
    async with run_console(waiting(2), size=(120, 30)) as console:
        line = console.text().splitlines()[-1]
        before = console.app.screen
        await console.pilot.click(KeyBar, (line.index("? Help") - 1, 0))
        await console.pilot.click(KeyBar, (line.index("▏") - 3, 0))
        await console.settle()
        assert console.app.screen is before


@pytest.mark.parametrize("how", ["clicks", "keys"])
async def test_two_selections_at_once_run_one_command_and_leave_the_screen(how: str) -> None:
    async with run_console(at="rate") as console:
        await console.press("ctrl+p")
        await rest(console.app)
        palette = console.app.screen
        assert isinstance(palette, CommandPalette)
        below, ran = console.app.screen_stack[-2], []
        entries = palette.query_one(CommandList)
        option = entries.get_option_at_index(0)
        option.hit.command = lambda: ran.append(1)  # type: ignore[attr-defined]
        field = palette.query_one(Input)
        palette.post_message(OptionList.OptionSelected(entries, option, 0))
        palette.post_message(
            OptionList.OptionSelected(entries, option, 0)
            if how == "clicks"
            else Input.Submitted(field, "")
        )
        await rest(console.app)
        assert console.app.screen is below
        assert ran == [1]


def watched(*groups: int) -> State:
    """The state of a proxy that only watches; its groups are of an earlier run of its home."""
    state = state_of(*(event for number in groups for event in group_events(number)))
    state.watch_only = True
    state.proxy_url = "http://127.0.0.1:8000"
    return state


def test_empty_screens_of_a_watch_only_proxy_are_not_offered() -> None:
    def names(state: State) -> list[str]:
        return [place.name for place in shown_screens(SCREENS, state)]

    assert names(State()) == [place.name for place in SCREENS]
    assert names(watched()) == ["overview", "engine", "log", "servers", "history"]
    of_groups = ["overview", "requests", "engine", "rewards", "log", "servers", "history"]
    assert names(watched(1)) == of_groups


@pytest.mark.parametrize("size", [(80, 24), (160, 48)])
async def test_no_key_leads_to_a_screen_without_function(size: tuple[int, int]) -> None:
    async with run_console(watched(), at="overview", size=size) as console:
        for words in ("Requests", "Rate", "Mock user ", "Rewards", "/v1"):
            assert words not in console.text(), words
        assert "9 Servers" in console.text() or size[0] < 160
        for digit in "2346":
            await console.press(digit)
            assert console.app.current_mode == "overview"
        await console.press("5")
        assert console.app.current_mode == "engine"
        titles = [title for title, *_ in entries(console.app) if title.startswith("Screen:")]
        assert titles == [
            "Screen: Overview  (F1)",
            "Screen: Log  (F7)",
            "Screen: Servers  (F9)",
            "Screen: History  (F10)",
            "Screen: Prompts that were tried  (ctrl+t)",
        ]


async def test_requests_of_a_watch_only_proxy_show_no_address() -> None:
    async with run_console(watched(), at="requests") as console:
        assert "This console is view only: it serves no requests." in console.text()
        assert "/v1" not in console.text()


@pytest.mark.parametrize("watch_only", [True, False])
async def test_the_footer_of_an_empty_queue_shows_only_keys_that_work(watch_only: bool) -> None:
    state = watched() if watch_only else waiting(0, mode="off")
    places = SCREENS if watch_only else PLACES
    async with run_console(state, at="rate", places=places, read_only=not watch_only) as console:
        assert console.text().splitlines()[-1] == "^q Quit ? Help"


async def test_the_footer_of_a_read_only_console_has_the_keys_of_a_group() -> None:
    async with run_console(waiting(0), at="rate", places=PLACES, read_only=True) as console:
        console.link.publish(*group_events(1, at=NOW, until="AWAITING_RATING"))
        await console.settle()
        await console.settle()
        foot = console.text().splitlines()[-1]
        assert not missing(foot, "v Show", "g Guidelines")
        assert "Enter" not in foot


def observed() -> list[Event]:
    events: list[Event] = [
        EngineChanged(
            server="embedded",
            url="http://gpu:8000/v1",
            state="OBSERVING",
            raw="OBSERVING",
            detail="observe: nothing is trained",
        ),
        PoolChanged(server="embedded", repeats=4, model="large"),
        AlertRaised(key="observe:embedded", cause="observe mode: nothing is trained", level="info"),
    ]
    for event in group_events(1, at=NOW):
        if isinstance(event, GroupOpened):
            event = msgspec.structs.replace(event, episode_type="observe")
        elif isinstance(event, EpisodesEnded):
            event = with_outcome(event, "recorded")
        events.append(event)
    return events


@pytest.mark.parametrize("place", ["overview", "requests", "rate", "engine", "mock", "log"])
async def test_every_screen_shows_observe_mode(place: str) -> None:
    async with run_console(state_of(*observed()), size=(100, 30), at=place) as console:
        assert "OBSERV" in console.text()
        assert "will train" not in console.text()


async def test_observe_mode_offers_no_engine_commands() -> None:
    async with run_console(state_of(*observed()), at="engine") as console:
        await console.press("k")
        assert "Engine: Stop" not in console.text()
        await console.press("s")
        assert console.link.commands == []
