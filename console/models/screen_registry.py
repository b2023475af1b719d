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
    """One screen of the console: for `rate` the class `RateScreen` of its folder's `screen.py`."""

    name: str
    """What `:name` opens, and the name of its mode."""
    title: str
    number: int
    """F<number> opens it everywhere; its last digit where digits do not vote."""
    help: str

    @property
    def digit(self) -> int:
        """The digit that opens it where digits do not vote: 0 for the tenth screen."""
        return self.number % 10

    def load(self) -> "type[Screen[None]]":
        """Import the class of the screen."""
        module = import_module(f"console.screens.{self.name}.screen")
        return cast("type[Screen[None]]", getattr(module, f"{self.name.capitalize()}Screen"))

    def __call__(self) -> "Screen[None]":
        """Create the screen; Textual calls this when the mode is first entered."""
        return self.load()()


_SCREENS = (
    ("overview", "Overview", "Engine states, learning progress, alerts"),
    ("requests", "Requests", "Every request with its candidates"),
    ("rate", "Rate", "Groups that wait for your rating, shortest clock first"),
    ("mock", "Mock user", "Send the questions of a dataset"),
    ("engine", "Engine", "Each swarm server: state, pool, steps; start and stop"),
    ("rewards", "Rewards", "The parts of the reward, their influence, the last fault"),
    ("log", "Log", "The logs of the processes"),
    (
        "progress",
        "Progress",
        "Is the policy better: looks at held-out prompts, verdict, what changed",
    ),
    ("servers", "Servers", "All swarm servers side by side: state, pool, slots, clients, calls"),
    (
        "history",
        "History",
        "All runs of the engines: job, rewards, verdict; open one as of its time, compare two",
    ),
)
SCREENS: Sequence[ScreenSpec] = [
    ScreenSpec(name, title, number, about)
    for number, (name, title, about) in enumerate(_SCREENS, 1)
]

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
