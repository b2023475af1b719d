"""The whole conversation, opened from Rate and from a group's detail."""

from msgspec.structs import replace

from console.models.screen_registry import SCREENS
from core.events import Event, GroupOpened, RatingModeChanged
from core.state import State
from tests.support.console import NOW, FakeLink, RunningConsole, group_events, run_console, state_of
from tests.unit.console.views.test_conversation import BODY

PLACES = [place for place in SCREENS if place.name in ("rate", "requests")]


def conversation_events() -> list[Event]:
    """A group that asks for the third answer of a conversation with tools."""
    events = group_events(1, query="And Oslo?", at=NOW - 10, until="AWAITING_RATING")
    return [
        replace(one, body=BODY, turns=3) if isinstance(one, GroupOpened) else one for one in events
    ]


def state() -> State:
    return state_of(RatingModeChanged(mode="answer_first"), *conversation_events())


async def opened(here: RunningConsole) -> None:
    """The context line is read, and the conversation is open."""
    await here.shows("turn 3, system prompt of 3 words, 1 tool, 1 tool call")
    await here.press("i")
    await here.shows("Conversation, turn 3")


async def test_rate_shows_the_conversation_folded_and_searched() -> None:
    link = FakeLink(state())
    link.detail = conversation_events()
    async with run_console(link=link, places=PLACES, at="rate", size=(80, 24)) as here:
        await opened(here)
        await here.press("Z", "home")
        shown = here.text()
        for words in ("▾ 1 tool", "▾ system", "You are terse.", "Weather of a city"):
            assert words in shown
        await here.press("slash", *"sunny", "enter")
        assert "“sunny”: match 1 of 22" in here.text()
        assert "▾ result of get_weather" in here.text()
        await here.press("escape")
        assert "Conversation, turn 3" not in here.text()
        await here.press("2", "enter")
        assert [name for name, _ in here.link.commands] == ["group.rate"]


async def test_the_detail_shows_it_too_and_the_list_counts_turns() -> None:
    async with run_console(state(), places=PLACES, at="requests", size=(120, 30)) as here:
        here.link.detail = conversation_events()
        await here.press("enter")
        await opened(here)
        assert "And Oslo?" in here.text()
        await here.press("home")
        assert "▾ 1 tool" in here.text()
        await here.press("z")
        assert "▸ 1 tool" in here.text()


async def test_a_request_that_is_not_stored_is_reported() -> None:
    async with run_console(state(), places=PLACES, at="rate") as here:
        await here.press("i")
        assert "The request of this group is no" in here.text()
