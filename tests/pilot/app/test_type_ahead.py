"""A burst of keys, as a slow line delivers it, reaches the field that one of them opens."""

import asyncio

import pytest
from textual import events
from textual.command import CommandPalette
from textual.keys import _character_to_key
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Input, OptionList
from textual.worker import active_worker

from console.app import ConsoleApp
from console.screens.dialogs.confirm import AskScreen, LineScreen
from console.screens.log.screen import LogScreen
from console.screens.requests.marked import BulkScreen
from console.screens.requests.screen import RequestsScreen
from console.screens.requests.widgets import GroupList
from core.events import GroupMarked
from core.state import State
from tests.support.console import RunningConsole, rest, run_console
from tests.support.sample import NOW, group_events, state_of

WANTED = "reward<0.5 dead:no n>=1"
WIDE = (160, 48)


def full() -> State:
    """A list of 40 groups, all of them to be rated."""
    result = []
    for number in range(1, 41):
        result += group_events(
            number, query=f"Question {number}", at=NOW + number - 50, until="AWAITING_RATING"
        )
    return state_of(*result)


async def burst(console: RunningConsole, *typed: str, turns: int = 0) -> None:
    """Keys as reads of the terminal return them, then their effect.

    Args:
        typed: Names of keys, or text after a space.
        turns: Turns of the event loop between two of them.
    """
    keys: list[events.Key] = []
    for one in typed:
        if one.startswith(" "):
            keys += [events.Key(_character_to_key(char), char) for char in one[1:]]
        else:
            keys.append(events.Key(one, None))
    for key in keys:
        console.app.post_message(key)
        for _ in range(turns):
            await asyncio.sleep(0)
    await console.pilot.pause()
    await rest(console.app)


async def turns(count: int) -> None:
    """Wait for turns of the event loop."""
    for _ in range(count):
        await asyncio.sleep(0)


def typed_into(console: RunningConsole) -> str:
    """The text of the field with the focus."""
    field = console.app.focused
    assert isinstance(field, Input), field
    return field.value


TYPED_AT = {("rate", 0), ("overview", 1), ("requests", 5), ("rate", 20)}
"""Every screen and every pace once; the other pairs are for the long form."""


@pytest.mark.parametrize(
    ("at", "turns"),
    [
        pytest.param(at, turns, marks=() if (at, turns) in TYPED_AT else pytest.mark.soak)
        for at in ("rate", "overview", "requests")
        for turns in (0, 1, 5, 20)
    ],
)
async def test_a_filter_typed_ahead_of_its_screen_is_complete(at: str, turns: int) -> None:
    async with run_console(full(), at=at, size=WIDE) as console:
        await burst(console, "f2", f" /{WANTED}", turns=turns)
        assert typed_into(console) == WANTED
        screen = console.app.screen
        assert isinstance(screen, RequestsScreen)
        assert screen.query_one(GroupList).model.filter.text == WANTED
        assert console.link.commands == []


@pytest.mark.parametrize(
    ("keys", "screen"),
    [
        (["f7", " /"], LogScreen),
        (["f2", " n"], AskScreen),
        (["f2", " :"], LineScreen),
        (["f2", "ctrl+p"], CommandPalette),
    ],
)
async def test_text_typed_ahead_of_any_field_is_complete(keys: list[str], screen: type) -> None:
    async with run_console(full(), at="rate") as console:
        await burst(console, *keys, f" {WANTED}")
        assert isinstance(console.app.screen, screen)
        assert (typed_into(console), console.link.commands) == (WANTED, [])


async def test_a_key_after_leaving_a_field_goes_to_the_list() -> None:
    async with run_console(full(), at="rate") as console:
        await burst(console, "f2", " /dead:no", "enter", " jm")
        screen = console.app.screen
        assert isinstance(screen, RequestsScreen)
        assert screen.query_one(GroupList).model.filter.text == "dead:no"
        assert [(name, args["group_id"]) for name, args in console.link.commands] == [
            ("group.mark", "g0039")
        ]
        await burst(console, " /x", "escape", " j", " /dead:no", "enter", "end", " m")
        assert screen.query_one(GroupList).model.filter.text == "dead:no"
        assert console.link.commands[1][1]["group_id"] == "g0001"


async def test_text_typed_ahead_of_a_question_after_another_is_complete(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    replace, choose = ConsoleApp._replace_screen, BulkScreen.on_option_list_option_selected

    async def replace_slowly(app: ConsoleApp, screen: Screen[object]) -> Screen[object]:
        await turns(20_000)  # longer than a repaint
        return await replace(app, screen)

    async def choose_while_the_app_is_busy(
        screen: BulkScreen, event: OptionList.OptionSelected
    ) -> None:
        screen.app.call_later(turns, 30)  # so the worker removes the answered dialog
        await turns(5)
        choose(screen, event)

    monkeypatch.setattr(ConsoleApp, "_replace_screen", replace_slowly)
    monkeypatch.setattr(BulkScreen, "on_option_list_option_selected", choose_while_the_app_is_busy)
    marked = GroupMarked(server="embedded", group_id="g0001", marked=True)
    async with run_console(state_of(*group_events(1), marked), at="requests") as console:
        await burst(console, " ;")
        options = console.app.screen.query_one(OptionList)
        options.highlighted = options.get_option_index("n")
        await burst(console, "enter", f" {WANTED}", "enter", " ;m")
        assert console.link.commands == [
            ("group.note", {"group_id": "g0001", "note": WANTED}),
            ("group.mark", {"group_id": "g0001", "marked": False}),
        ]


async def test_a_question_opens_slowly_after_an_answer_and_gets_its_keys(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    flush = ConsoleApp._flush_next_callbacks

    async def flush_slowly(app: ConsoleApp) -> None:
        await flush(app)
        for _ in range(40 if active_worker.get(None) else 0):
            await asyncio.sleep(0)

    marked = GroupMarked(server="embedded", group_id="g0001", marked=True)
    async with run_console(state_of(*group_events(1), marked), at="requests") as console:
        monkeypatch.setattr(ConsoleApp, "_flush_next_callbacks", flush_slowly)
        await burst(console, " ;n", f" {WANTED}", "enter", " ;m")
        assert console.link.commands == [
            ("group.note", {"group_id": "g0001", "note": WANTED}),
            ("group.mark", {"group_id": "g0001", "marked": False}),
        ]


async def test_a_paste_after_a_key_goes_to_the_target_of_the_key() -> None:
    async with run_console(full(), at="rate") as console:
        console.app.post_message(events.Key("f2", None))
        console.app.post_message(events.Key("slash", "/"))
        console.app.post_message(events.Paste("dead:no "))
        await burst(console, " n>=1")
        assert typed_into(console) == "dead:no n>=1"


async def test_a_stalled_machine_misdirects_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    async with run_console(full(), at="rate") as console:
        loop, stood = asyncio.get_running_loop(), 0.0
        clock, handle = loop.time, Widget.on_event

        async def stand_still(self: Widget, event: events.Event) -> None:
            nonlocal stood
            if isinstance(event, events.Key):
                stood += 60
            await handle(self, event)

        monkeypatch.setattr(loop, "time", lambda: clock() + stood)
        monkeypatch.setattr(Widget, "on_event", stand_still)
        await burst(console, "f2", f" /{WANTED}")
        assert stood >= 60 * len(WANTED)
        assert typed_into(console) == WANTED


async def test_keys_after_quit_are_dropped() -> None:
    async with run_console(full(), at="rate") as console:
        await burst(console, "ctrl+q", " yx")
        assert not console.app.is_running
    assert console.link.commands == []
