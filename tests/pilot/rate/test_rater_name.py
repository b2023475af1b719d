"""The rater's name is requested once, by the first vote of a home."""

from functools import partial
from pathlib import Path

import pytest

from console.backend.options import ConsoleOptions
from console.backend.startup import open_session
from console.screens.dialogs.confirm import AskScreen
from console.session.app_state import Session
from console.session.rater_name import save_name, saved_name
from core.events import GroupSealed
from core.runtime.home import Home
from core.settings import load
from tests.pilot.rate.test_screen import PLACES, votes, waiting
from tests.support.console import BY_ENTER, RunningConsole, run_console


@pytest.fixture(autouse=True)
def _system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("console.screens.group.rater.proposed", lambda: "ann")


def raters(console: RunningConsole) -> list[object]:
    """The name of each vote."""
    return [args.get("rater") for name, args in console.link.commands if name == "group.rate"]


def started(home: Home) -> Session:
    """As a console of that home begins."""
    return open_session(ConsoleOptions(home=home, settings=load(home.config, {})))[0]


async def test_the_first_vote_asks_for_a_name_and_enter_casts_it(tmp_path: Path) -> None:
    home = Home.open(tmp_path)
    async with run_console(
        waiting(3), places=PLACES, at="rate", rating=BY_ENTER, rater=""
    ) as console:
        console.session.save_rater = partial(save_name, home)
        await console.press("1", "enter")
        assert isinstance(console.app.screen, AskScreen)
        for words in ("Who rates?", "Votes are recorded with this name", "ann"):
            assert words in console.text()
        assert votes(console) == []
        await console.press("escape")  # no vote, and the next one asks again
        assert votes(console) == []
        await console.press("enter")
        assert isinstance(console.app.screen, AskScreen)
        console.clock.now += 30  # not the time the vote took
        await console.press("enter")
        assert [group for group, _, _ in votes(console)] == ["g0001"]
        assert console.link.commands[-1][1]["looked"] < 30
        assert saved_name(home) == "ann"
        await console.press("1", "enter")
        assert len(votes(console)) == 2
        await console.press("N", "ctrl+u", *"bea", "enter", "1", "enter")
        assert raters(console) == ["ann", "ann", "bea"]
        assert saved_name(home) == "bea"
        await console.press("ctrl+p", *"your name", "enter", "ctrl+u", "enter")
        assert saved_name(home) == ""
    assert started(home).rater_asked  # no name is an answer, too


async def test_a_vote_in_the_group_detail_asks_for_a_name(tmp_path: Path) -> None:
    home = Home.open(tmp_path)
    assert not started(home).rater_asked
    async with run_console(waiting(1), at="requests", rater="") as console:
        console.session.save_rater = partial(save_name, home)
        await console.press("home", "enter", "2")
        assert votes(console) == []
        await console.press("ctrl+u", *"bea", "enter")
        assert raters(console) == ["bea"]
    again = started(home)
    assert (again.rater, again.rater_asked) == ("bea", True)


async def test_a_group_that_closed_meanwhile_gets_no_vote() -> None:
    async with run_console(
        waiting(1), places=PLACES, at="rate", rating=BY_ENTER, rater=""
    ) as console:
        await console.press("1", "enter")
        console.link.publish(
            GroupSealed(server="embedded", group_id="g0001", rewards=(), best=0, source="auto")
        )
        await console.settle()
        await console.press("enter")
        assert votes(console) == []
        assert console.session.rater == "ann"
