"""The screens there are: name, title, key; imported when they are first shown."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from textual.screen import Screen

    from core.state import State


@dataclass(frozen=True, slots=True)
class Place:
    """One screen of the console."""

    name: str
    """What `:name` opens and the mode it lives in."""
    title: str
    digit: int
    """Opened by F<digit> everywhere and by the digit where digits do not vote."""
    target: str
    """`module:Class`."""
    help: str

    def load(self) -> "type[Screen[None]]":
        """The class of the screen."""
        module, _, name = self.target.partition(":")
        return cast("type[Screen[None]]", getattr(import_module(module), name))

    def __call__(self) -> "Screen[None]":
        """A new screen; Textual calls this when the mode is first entered."""
        return self.load()()


SCREENS: Sequence[Place] = (
    Place(
        "overview",
        "Overview",
        1,
        "console.screens.overview:OverviewScreen",
        "What the engine does, what was learned, what needs you",
    ),
    Place(
        "requests",
        "Requests",
        2,
        "console.screens.requests:RequestsScreen",
        "Every request with its candidates",
    ),
    Place(
        "rate",
        "Rate",
        3,
        "console.screens.rate.screen:RateScreen",
        "Groups that wait for your rating, shortest clock first",
    ),
    Place(
        "mock",
        "Mock user",
        4,
        "console.screens.mock:MockScreen",
        "Drive the application from a dataset",
    ),
    Place(
        "engine",
        "Engine",
        5,
        "console.screens.engine:EngineScreen",
        "Each swarm server: state, pool, steps; start and stop",
    ),
    Place(
        "rewards",
        "Rewards",
        6,
        "console.screens.rewards.screen:RewardsScreen",
        "What scores the answers: the parts, what each decided, the last fault",
    ),
    Place("log", "Log", 7, "console.screens.log:LogScreen", "The logs of the processes"),
    Place(
        "servers",
        "Servers",
        9,
        "console.screens.servers:ServersScreen",
        "All swarm servers side by side: state, pool, slots, clients, calls",
    ),
)

_WATCHING = frozenset({"overview", "engine", "log", "servers"})
"""Screens that show something of a proxy that only watches."""
_OF_GROUPS = frozenset({"requests", "rewards"})
"""Screens that do so where the journal has groups of an earlier run."""


def shown_places(places: Sequence[Place], state: "State") -> list[Place]:
    """The screens that something leads to: beside a proxy that only watches, those of use."""
    if not state.watch_only:
        return list(places)
    of_use = _WATCHING | (_OF_GROUPS if state.groups else frozenset())
    return [place for place in places if place.name in of_use]
