"""Each question of an operator is answered within two keys from every screen."""

import random

import pytest

from console.models.screen_registry import SCREENS
from core.events import AlertRaised, EngineChanged, Event, PoolChanged, RatingModeChanged
from core.state import State
from tests.support.console import FakeChild, FakeProcessManager, RunningConsole, run_console
from tests.support.sample import NOW, group_events, state_of

ANYWHERE = [place.name for place in SCREENS]
PLACES = (2, pytest.param(len(ANYWHERE), marks=pytest.mark.soak))
"""Screens from which each question is asked: every time, and all of them."""


def held_state() -> State:
    """A console whose state gives every question a consequence to show."""
    events: list[Event] = [
        EngineChanged(server="embedded", state="ROLLING", step=7, at=NOW - 90),
        RatingModeChanged(mode="answer_first"),
        *group_events(1, at=NOW - 60, rewards=(0.5,) * 4, query="Is it equal?"),
        *group_events(2, at=NOW - 50, query="Why this one?"),
        *group_events(3, at=NOW - 8, query="Who waits here?", until="AWAITING_RATING"),
        *group_events(4, at=NOW - 6, query="Who else waits?", until="AWAITING_RATING"),
        *group_events(5, at=NOW - 1, query="The newest is done", step=7),
        EngineChanged(server="embedded", state="ROLLING_POST", step=7, at=NOW - 26),
        PoolChanged(
            server="embedded",
            method="rollout_until_finish_enough_tasks",
            completed_tasks=4,
            task_target=4,
            running=8,
        ),
        AlertRaised(
            key="hold:embedded",
            cause="2 open ratings hold up the weight update",
            todo="3 opens Rate",
            at=NOW - 5,
        ),
    ]
    return state_of(*events)


QUESTIONS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "what state and since when": ((), ("POST", "26s")),
    "who waits": (("f3",), ("2 open ratings", "Who waits here?", "0:12")),
    "why was this one chosen": (
        ("f2", "enter"),
        ("winner", "0.90", "length", "42 words", "The newest is done"),
    ),
    "is anything dead and why": (("f2",), ("○ dead", "= 0.00")),
    "what is dead, in words": (("f1",), ("dead", "equal rewards")),
    "what holds up the update": (("f3",), ("2 open ratings hold up the weight update", "A", "X")),
    "what holds it up, at a glance": (("f1",), ("2 open ratings hold up the weight update",)),
    "what will a stop cost": (
        ("f5", "k"),
        ("8 claimed episodes", "2 open groups of yours", "2 of them unrated"),
    ),
}


def running() -> FakeProcessManager:
    return FakeProcessManager({"engine": FakeChild("engine"), "proxy": FakeChild("proxy")})


@pytest.mark.parametrize("places", PLACES)
async def test_every_question_is_answered_within_two_keys_from_anywhere(places: int) -> None:
    async with run_console(held_state(), processes=running()) as console:
        for question, (keys, answers) in QUESTIONS.items():
            assert len(keys) <= 2
            for place in random.Random(question).sample(ANYWHERE, places):
                await from_here(console, place)
                await console.press(*keys)
                text = " ".join(console.text().split())
                for answer in answers:
                    assert answer in text, (question, place, answer, console.text())
                await console.press("escape")
        assert {name for name, _ in console.link.commands} <= {"group.lease"}


async def from_here(console: RunningConsole, place: str) -> None:
    """Open the first page of a screen."""
    console.app.action_go(place)
    await console.settle()
    while len(console.app.screen_stack) > 1:
        await console.press("escape")
