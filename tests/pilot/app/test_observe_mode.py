"""A proxy in observe mode: no screen claims that anything is trained."""

import msgspec
import pytest

from core.events import AlertRaised, EngineChanged, EpisodesEnded, Event, GroupOpened, PoolChanged
from tests.support.console import run_console
from tests.support.proxy.singles import with_outcome
from tests.support.sample import NOW, group_events, state_of


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
