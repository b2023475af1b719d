"""The whole conversation, opened from Rate and from a group's detail."""

from msgspec.structs import replace

from console.models.screen_registry import SCREENS
from core.events import Event, GroupOpened, RatingModeChanged
from core.state import State
from tests.support.console import NOW, FakeLink, RunningConsole, group_events, run_console, state_of
from tests.unit.console.screens.test_group import BODY

PLACES = [place for place in SCREENS if place.name in ("rate", "requests")]


def conversation_events() -> list[Event]:
    """A group that asks for the third answer of a conversation with tools."""
    events = group_events(1, query="And Oslo?", at=NOW - 10, until="AWAITING_RATING")
    return [
        replace(event, body=BODY, turns=3) if isinstance(event, GroupOpened) else event
        for event in events
    ]


def state() -> State:
    return state_of(RatingModeChanged(mode="answer_first"), *conversation_events())


async def opened(console: RunningConsole) -> None:
    """The context line is read, and the conversation is open."""
    await console.shows("turn 3, system prompt of 3 words, 1 tool, 1 tool call")
    await console.press("i")
    await console.shows("Conversation, turn 3")


async def test_rate_shows_the_conversation_folded_and_searched() -> None:
    link = FakeLink(state())
    link.detail = conversation_events()
    async with run_console(link=link, places=PLACES, at="rate", size=(80, 24)) as console:
        console.clock.now += 1
        await opened(console)
        await console.press("Z", "home")
        shown = console.text()
        for words in ("▾ 1 tool", "▾ system", "You are terse.", "Weather of a city"):
            assert words in shown
        await console.press("slash", *"sunny", "enter")
        assert "“sunny”: match 1 of 22" in console.text()
        assert "▾ result of get_weather" in console.text()
        await console.press("escape")
        assert "Conversation, turn 3" not in console.text()
        await console.press("2")
        assert [name for name, _ in console.link.commands] == ["group.rate"]


async def test_the_detail_shows_it_too_and_the_list_counts_turns() -> None:
    async with run_console(state(), places=PLACES, at="requests", size=(120, 30)) as console:
        console.link.detail = conversation_events()
        await console.press("enter")
        await opened(console)
        assert "And Oslo?" in console.text()
        await console.press("home")
        assert "▾ 1 tool" in console.text()
        await console.press("z")
        assert "▸ 1 tool" in console.text()


async def test_a_request_that_is_not_stored_is_reported() -> None:
    async with run_console(state(), places=PLACES, at="rate") as console:
        await console.press("i")
        assert "The request of this group is no" in console.text()
