"""The screen, and the key there, with which an alert is handled."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from console.models.screen_registry import SCREENS, ScreenSpec
from console.session.app_state import ChildProcess, Session
from console.session.server_facts import ended
from core.runtime.sockets import TAKEN
from core.state import Alert


@dataclass(frozen=True, slots=True)
class AlertAction:
    """How to handle an alert."""

    place: ScreenSpec
    keys: str = ""
    """The keys to press there; empty when there is nothing to do but read."""
    does: str = ""
    """The effect, in a word or two."""
    inside: str = ""
    """Server with the episodes in question; its view opens at once."""

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
    "held": ("engine", "i", "the episodes it waits for"),
    "refused": ("engine", "s", "start it"),
    "off": ("engine", "s", "start it"),
    "taken": ("engine", "i", "its clients"),
    "tokens": ("requests", "", "their outcome"),
    "observe": ("engine", "", "the upstream"),
    "port": ("log", "", "its address"),
    "hacking": ("rewards", "", "the values of each part"),
    "key": ("log", "", "its questions"),
    "start": ("engine", "s", "start it again"),
    "boot": ("engine", "k", "stop it, then s starts it"),
    "lost": ("engine", "", "its last state"),
    "upstream": ("engine", "", "its messages"),
    "recovered": ("requests", "", "their outcome"),
    "cut": ("requests", "", "truncated:yes finds them"),
    "session": ("requests", "", "its questions"),
    "dead": ("rewards", "", "the values of each part"),
    "unscored": ("requests", "", "S re-scores, x aborts"),
    "room": ("engine", "e", "the job's batch"),
    "rewards": ("rewards", "", "its last fault"),
    "rewards:outlier": ("rewards", "", "the values of each part"),
    "rewards:scale": ("rewards", "", "the values of each part"),
    "judge": ("rewards", "", "its counts; e opens the file"),
    "hook": ("log", "", "the traceback"),
    "journal": ("log", "", "why it cannot be written"),
    "journal_file": ("log", "", "the cause"),
    "journal_damage": ("log", "", "what is damaged"),
    "process:engine": ("engine", "r", "start it again"),
    "process:proxy": ("engine", "p", "start it again"),
    "process:mock": ("mock", "s", "start it again"),
}
"""By the key of the alert, or its part before the first colon; every alert is listed."""
_ANY = ("log", "", "what happened")
"""For an unknown alert, as of a newer proxy."""
_LOOKS = {
    "hold": "what waits for a rating",
    "held": "the episodes it waits for",
    "refused": "its state",
    "off": "its state",
    "taken": "its clients",
    "room": "its batch",
    "start": "its state",
    "boot": "its state",
    "judge": "its counts",
    "unscored": "these groups",
    "process": "its last log lines",
}
"""What the same screen shows on a read-only console."""
_KEY = re.compile(r"`\S`")


def way_of(
    key: str, places: Sequence[ScreenSpec] = SCREENS, *, read_only: bool = False
) -> AlertAction | None:
    """Return how to handle the alert with that key; None when no key is needed.

    Args:
        key: Of the alert.
        places: The screens there are.
        read_only: Nothing can be ordered: only where to look is told.
    """
    kind = key.partition(":")[0]
    name, keys, does = _WAYS.get(key) or _WAYS.get(kind) or _ANY
    if read_only and kind in _LOOKS:
        keys, does = "", _LOOKS[kind]
    there = [place for place in places if place.name == name]
    if not there and name == "rewards":  # the log has the traceback too
        there = [place for place in places if place.name == "log"]
    inside = key.partition(":")[2] if kind in ("held", "taken") else ""
    return AlertAction(there[0], keys, does, inside) if there else None


def fallen(session: Session) -> list[Alert]:
    """Return alerts for processes that ended unexpectedly."""
    return [_fallen(child, session.read_only) for child in session.crashed]


def _fallen(child: ChildProcess, read_only: bool) -> Alert:
    again = "" if read_only else " and to start it again"
    cause = child.detail or "ended"
    todo = f"Press 5 for its last log lines{again}; 7 for its log"
    if TAKEN in cause and ". " in cause:  # its advice names the setting: it must not be cut off
        cause, _, todo = cause.rpartition(". ")
    return Alert(
        key=f"process:{child.role}",
        cause=f"{child.role} {cause}",
        todo=todo,
        level="error",
        at=0.0,
    )


def by_need(session: Session) -> list[Alert]:
    """Return all alerts, the worst and newest first; crashed processes lead.

    That a server does not answer is left out while the end of its process is the cause.
    """
    silent = {f"lost:{one.name}" for one in session.state.servers.values() if ended(one, session)}
    raised = (one for key, one in session.state.alerts.items() if key not in silent)
    ordered = sorted(raised, key=lambda one: (one.level != "error", -one.at))
    return [*fallen(session), *(map(_looked_at, ordered) if session.read_only else ordered)]


def _looked_at(alert: Alert) -> Alert:
    """Return the alert without advice that names the key of a command."""
    orders = alert.key.partition(":")[0] in _LOOKS
    return msgspec.structs.replace(alert, todo="") if orders and _KEY.search(alert.todo) else alert
