"""The screens: name, title, key; imported when they are first shown."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from textual.screen import Screen

    from core.state import State


@dataclass(frozen=True, slots=True)
class ScreenSpec:
    """One screen of the console."""

    name: str
    """What `:name` opens, and the name of its mode."""
    title: str
    number: int
    """F<number> opens it everywhere; its last digit where digits do not vote."""
    target: str
    """`module:Class`."""
    help: str

    @property
    def digit(self) -> int:
        """The digit that opens it where digits do not vote: 0 for the tenth screen."""
        return self.number % 10

    def load(self) -> "type[Screen[None]]":
        """Import the class of the screen."""
        module, _, name = self.target.partition(":")
        return cast("type[Screen[None]]", getattr(import_module(module), name))

    def __call__(self) -> "Screen[None]":
        """Create the screen; Textual calls this when the mode is first entered."""
        return self.load()()


SCREENS: Sequence[ScreenSpec] = (
    ScreenSpec(
        "overview",
        "Overview",
        1,
        "console.screens.overview.screen:OverviewScreen",
        "Engine states, learning progress, alerts",
    ),
    ScreenSpec(
        "requests",
        "Requests",
        2,
        "console.screens.requests.screen:RequestsScreen",
        "Every request with its candidates",
    ),
    ScreenSpec(
        "rate",
        "Rate",
        3,
        "console.screens.rate.screen:RateScreen",
        "Groups that wait for your rating, shortest clock first",
    ),
    ScreenSpec(
        "mock",
        "Mock user",
        4,
        "console.screens.mock.screen:MockScreen",
        "Send the questions of a dataset",
    ),
    ScreenSpec(
        "engine",
        "Engine",
        5,
        "console.screens.engine.screen:EngineScreen",
        "Each swarm server: state, pool, steps; start and stop",
    ),
    ScreenSpec(
        "rewards",
        "Rewards",
        6,
        "console.screens.rewards.screen:RewardsScreen",
        "The parts of the reward, their influence, the last fault",
    ),
    ScreenSpec(
        "log", "Log", 7, "console.screens.log.screen:LogScreen", "The logs of the processes"
    ),
    ScreenSpec(
        "progress",
        "Progress",
        8,
        "console.screens.progress.screen:ProgressScreen",
        "Is the policy better: looks at held-out prompts, verdict, what changed",
    ),
    ScreenSpec(
        "servers",
        "Servers",
        9,
        "console.screens.servers:ServersScreen",
        "All swarm servers side by side: state, pool, slots, clients, calls",
    ),
    ScreenSpec(
        "history",
        "History",
        10,
        "console.screens.history.screen:HistoryScreen",
        "All runs of the engines: job, rewards, verdict; open one as of its time, compare two",
    ),
)

_WATCHING = frozenset({"overview", "engine", "log", "servers", "history"})
"""Screens with content for a watch-only proxy."""
_OF_GROUPS = frozenset({"requests", "rewards"})
"""Screens with content where the journal has groups of an earlier run."""


def shown_screens(places: Sequence[ScreenSpec], state: "State") -> list[ScreenSpec]:
    """Return the screens to offer: for a watch-only proxy only those with content."""
    if not state.watch_only:
        return list(places)
    of_use = _WATCHING | (_OF_GROUPS if state.groups else frozenset())
    return [place for place in places if place.name in of_use]
