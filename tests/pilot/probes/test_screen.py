"""The Try screen: prompts are sent, answered, compared, cancelled."""

from collections.abc import Iterator

import pytest

from ajet_swarm.common.errors import AjetError
from console.screens.progress.tries import ProbesScreen
from console.widgets.item_list import ItemList
from core.events import Event, TryAnswered, TryAsked
from tests.support.console import (
    HOSTILE,
    Clock,
    FakeLink,
    RunningConsole,
    run_console,
    sample_events,
    state_of,
)

SIZES = [(80, 24), (160, 48)]


def try_asked(
    name: str, prompt: str = "Capital of France?", step: int = 3, at: float = 0.0
) -> Event:
    return TryAsked(
        try_id=name, group_id=f"g-{name}", prompt=prompt, step=step, server="swarm", at=at
    )


def try_answered(
    name: str, text: str = "", error: str = "", step: int = 3, reasoning: str = ""
) -> Event:
    return TryAnswered(
        try_id=name,
        text=text,
        error=error,
        step=step,
        reasoning=reasoning,
        seconds=1.5,
        server="swarm",
    )


def some() -> Iterator[Event]:
    yield from sample_events()
    yield try_asked("t1", step=1)
    yield try_answered("t1", "London, I think.", step=1)
    yield try_asked("t2", "Something else", step=2)
    yield try_answered("t2", "Yes.", step=2)
    yield try_asked("t3", step=3)
    yield try_answered("t3", "Paris.", step=3)


async def opened(console: RunningConsole) -> ProbesScreen:
    await console.press("ctrl+t")
    screen = console.app.screen
    assert isinstance(screen, ProbesScreen)
    return screen


async def test_a_prompt_is_sent_and_its_answer_shown() -> None:
    async with run_console(state_of(*sample_events())) as console:
        await opened(console)
        assert "Prompt for the policy" in console.text()
        await console.press(*"Why?", "enter")
        name, args = console.link.commands[-1]
        assert (name, args["prompt"]) == ("engine.try", "Why?")
        console.link.publish(try_asked("t1", "Why?", at=console.clock.now))
        await console.settle()
        assert "waits for an episode" in console.text()
        console.link.publish(try_answered("t1", "Because."))
        await console.settle()
        assert "Because." in console.text()
        assert "waits for" not in console.text()


async def test_several_prompts_can_be_sent_in_a_row() -> None:
    async with run_console(state_of(*some())) as console:
        await opened(console)
        for text in ("one", "two"):
            await console.press(*text, "enter")
            assert console.link.commands[-1][1]["prompt"] == text
            assert isinstance(console.app.focused, ItemList)
            await console.press("r")
            assert console.link.commands[-1][1]["prompt"] == "Capital of France?"
            await console.press("p")


@pytest.mark.parametrize("size", SIZES)
async def test_the_answer_is_shown_beside_that_of_an_earlier_step(size: tuple[int, int]) -> None:
    async with run_console(state_of(*some()), size=size) as console:
        await opened(console)
        shown = console.text()
        assert "Paris." in shown
        assert "London, I think." in shown
        assert "step 3" in shown
        assert "step 1" in shown


async def test_a_running_try_can_be_cancelled() -> None:
    async with run_console(state_of(*some(), try_asked("t4"))) as console:
        await opened(console)
        await console.press("escape", "x")
        assert console.link.commands[-1] == ("engine.try_stop", {"try_id": "t4"})
        console.link.publish(try_answered("t4", error="cancelled"))
        await console.settle()
        assert "no answer: cancelled" in console.text()
        before = list(console.link.commands)
        await console.press("x")
        assert console.link.commands == before


async def test_a_refused_prompt_stays_in_the_line() -> None:
    async with run_console(state_of(*sample_events())) as console:
        await opened(console)
        console.link.refuse = AjetError("it cannot be tried now: swarm is OFFLINE")
        await console.press(*"Why?", "enter")
        assert "OFFLINE" in console.text()
        assert "Why?" in console.text()


@pytest.mark.parametrize("size", SIZES)
async def test_hostile_answers_are_shown_safely(size: tuple[int, int]) -> None:
    events = [
        *sample_events(),
        try_asked("t1", HOSTILE),
        try_answered("t1", HOSTILE, reasoning=HOSTILE),
    ]
    async with run_console(state_of(*events), size=size) as console:
        await opened(console)
        assert "\x1b" not in console.text()


async def test_a_read_only_console_shows_answers_and_sends_nothing() -> None:
    link = FakeLink(state_of(*some()))
    async with run_console(link=link, clock=Clock(), read_only=True) as console:
        screen = await opened(console)
        assert "Paris." in console.text()
        await console.press("p", "r", "x", "s")
        assert not link.commands
        for action in ("prompt", "again", "cancel", "server"):
            assert not screen.check_action(action, ())
