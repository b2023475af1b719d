"""Which screen, and which key there, an alert is acted on with."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from console.models.screen_registry import SCREENS, Place
from console.session.app_state import ChildProcess, Session
from console.text.contact import ended
from core.runtime.sockets import TAKEN
from core.state import Alert


@dataclass(frozen=True, slots=True)
class Way:
    """A way out of what an alert tells."""

    place: Place
    keys: str = ""
    """What is pressed there; empty when looking is what there is to do."""
    does: str = ""
    """What that does, a word or two."""
    inside: str = ""
    """Server whose episodes are what there is to act on; its view opens at once."""

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
    "taken": ("engine", "i", "who is on it"),
    "tokens": ("requests", "", "what became of them"),
    "observe": ("engine", "", "the upstream"),
    "port": ("log", "", "where it listens"),
    "hacking": ("rewards", "", "what each part gives"),
    "key": ("log", "", "what it asks"),
    "start": ("engine", "s", "start it again"),
    "boot": ("engine", "k", "stop it, then s starts it"),
    "lost": ("engine", "", "its last state"),
    "upstream": ("engine", "", "what it says"),
    "recovered": ("requests", "", "what became of them"),
    "cut": ("requests", "", "truncated:yes finds them"),
    "session": ("requests", "", "what it asks"),
    "dead": ("rewards", "", "what each part gives"),
    "unscored": ("requests", "", "S re-scores, x aborts"),
    "room": ("engine", "e", "the job's batch"),
    "rewards": ("rewards", "", "its last fault"),
    "rewards:outlier": ("rewards", "", "what each part gives"),
    "rewards:scale": ("rewards", "", "what each part gives"),
    "judge": ("rewards", "", "its counts; e opens the file"),
    "hook": ("log", "", "the traceback"),
    "journal": ("log", "", "why it cannot be written"),
    "journal_file": ("log", "", "what happened to it"),
    "journal_damage": ("log", "", "what is damaged"),
    "process:engine": ("engine", "r", "start it again"),
    "process:proxy": ("engine", "p", "start it again"),
    "process:mock": ("mock", "s", "start it again"),
}
"""By the alert's key, or what stands before its first colon: every alert there is."""
_ANY = ("log", "", "what happened")
"""Of an alert nobody knows, as of a newer proxy."""
_LOOKS = {
    "hold": "what waits for a rating",
    "held": "the episodes it waits for",
    "refused": "its state",
    "off": "its state",
    "taken": "who is on it",
    "room": "its batch",
    "start": "its state",
    "boot": "its state",
    "judge": "its counts",
    "unscored": "which groups they are",
    "process": "its last log lines",
}
"""What the same screen is for where nothing can be ordered."""
_KEY = re.compile(r"`\S`")


def way_of(key: str, places: Sequence[Place] = SCREENS, *, read_only: bool = False) -> Way | None:
    """How to act on the alert of that key; None for one that needs no key.

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
    return Way(there[0], keys, does, inside) if there else None


def fallen(session: Session) -> list[Alert]:
    """Processes that ended unasked, as alerts."""
    return [_fallen(child, session.read_only) for child in session.fallen]


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
    """All alerts, the worst and newest first; processes that fell lead.

    That a server does not answer is left out while the end of its process is the cause.
    """
    silent = {f"lost:{one.name}" for one in session.state.servers.values() if ended(one, session)}
    raised = (one for key, one in session.state.alerts.items() if key not in silent)
    told = sorted(raised, key=lambda one: (one.level != "error", -one.at))
    return [*fallen(session), *(map(_looked_at, told) if session.read_only else told)]


def _looked_at(alert: Alert) -> Alert:
    """Without advice that names the key of an order."""
    orders = alert.key.partition(":")[0] in _LOOKS
    return msgspec.structs.replace(alert, todo="") if orders and _KEY.search(alert.todo) else alert
