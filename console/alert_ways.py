"""Which screen, and which key there, an alert is acted on with."""

from collections.abc import Sequence
from dataclasses import dataclass

from console.places import SCREENS, Place
from console.session import Session
from core.state import Alert


@dataclass(frozen=True, slots=True)
class Way:
    """A way out of what an alert tells."""

    place: Place
    keys: str = ""
    """What is pressed there; empty when looking is what there is to do."""
    does: str = ""
    """What that does, a word or two."""

    @property
    def pressed(self) -> str:
        """All keys from the overview on: `5 s`."""
        return f"{self.place.digit} {self.keys}".rstrip()

    @property
    def said(self) -> str:
        """`5 s: Engine, start it`."""
        return f"{self.pressed}: {self.place.title}" + (f", {self.does}" if self.does else "")


_WAYS = {
    "hold": ("rate", "", "A accepts all, X aborts them"),
    "refused": ("engine", "s", "start it"),
    "start": ("engine", "s", "start it again"),
    "boot": ("engine", "k", "stop it, then s starts it"),
    "lost": ("engine", "", "its last state"),
    "upstream": ("engine", "", "what it says"),
    "recovered": ("requests", "", "what became of them"),
    "session": ("requests", "", "what it asks"),
    "dead": ("requests", "", "look at the reward parts"),
    "room": ("engine", "", "the job's batch"),
    "rewards": ("rewards", "", "what is wrong"),
    "judge": ("rewards", "", "its counts; e opens the file"),
    "hook": ("log", "", "the traceback"),
    "hooks": ("log", "", "the traceback"),
    "reward": ("log", "", "the traceback"),
    "journal": ("log", "", "why it cannot be written"),
    "process:engine": ("engine", "r", "start it again"),
    "process:proxy": ("engine", "p", "start it again"),
    "process:mock": ("mock", "s", "start it again"),
}
"""By the alert's key, or what stands before its first colon."""


def way_of(key: str, places: Sequence[Place] = SCREENS) -> Way | None:
    """How to act on the alert of that key; None for one that needs no key."""
    name, keys, does = _WAYS.get(key) or _WAYS.get(key.partition(":")[0]) or ("", "", "")
    there = [place for place in places if place.name == name]
    if not there and name == "rewards":  # the log has the traceback too
        there = [place for place in places if place.name == "log"]
    return Way(there[0], keys, does) if there else None


def fallen(session: Session) -> list[Alert]:
    """Processes that ended unasked, as alerts."""
    return [
        Alert(
            key=f"process:{child.role}",
            cause=f"{child.role} {child.detail or 'ended'}",
            todo="Press 5 to see its last words and to start it again; 7 for its log",
            level="error",
            at=0.0,
        )
        for child in session.fallen
    ]


def by_need(session: Session) -> list[Alert]:
    """All alerts, the worst and newest first; processes that fell lead."""
    told = sorted(session.state.alerts.values(), key=lambda one: (one.level != "error", -one.at))
    return [*fallen(session), *told]
