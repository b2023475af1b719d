"""Read-only consoles: which screens they offer, and which keys the footer shows."""

import pytest

from console.models.screen_registry import SCREENS, shown_screens
from console.shell.palette import entries
from core.state import State
from tests.pilot.rate.test_screen import PLACES, waiting
from tests.support.checks import missing
from tests.support.console import run_console
from tests.support.sample import NOW, group_events, state_of


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
