"""The screen, and the key there, with which an alert is handled; what open ratings hold up."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ajet_swarm.common.text import one_line
from console.models.advice import advice_context, context_of
from console.models.screen_registry import SCREENS, ScreenSpec
from console.session.app_state import ChildProcess, Session
from console.session.server_facts import ended
from console.text.alerts import AdviceContext, alert_kind, alert_text, in_words
from console.text.format import plural
from core.events.alerts import ProcessEnded
from core.runtime.sockets import TAKEN
from core.state import Alert, State

PATIENCE = 3.0
"""Seconds a request may wait for its episodes before it counts as held up."""
HOLD = "hold:"
"""Prefix of the key of an alert about stalling ratings; a server's name follows."""


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


@dataclass(frozen=True, slots=True)
class Remedy:
    """Where alerts of one kind are handled, and with which action."""

    screen: str
    does: str | Callable[[Mapping[str, str]], str]
    """The effect, in a word or two; a function of the keys where it names some."""
    action: str = ""
    """Id of the action; empty when there is nothing to do but read."""
    looks: str = ""
    """What the same screen shows on a read-only console; empty: the same."""


def _hold(keys: Mapping[str, str]) -> str:
    return f"{keys['rating.accept_all']} accepts all, {keys['rating.abort_all']} aborts them"


def _boot(keys: Mapping[str, str]) -> str:
    return f"stop it, then {keys['engine.start']} starts it"


def _unscored(keys: Mapping[str, str]) -> str:
    return f"{keys['group.rescore']} re-scores, {keys['group.abort']} aborts"


def _judge(keys: Mapping[str, str]) -> str:
    return f"its counts; {keys['rewards.edit']} opens the file"


_PARTS = Remedy("rewards", "the values of each part")
_GROUPS = Remedy("requests", "their outcome")
_EPISODES = "the episodes it waits for"
_PROCESS = "its last log lines"
REMEDIES: Mapping[str, Remedy] = {
    "hold": Remedy("rate", _hold, looks="what waits for a rating"),
    "held": Remedy(
        "engine", "the episodes it waits for", "engine.inside", looks="the episodes it waits for"
    ),
    "refused": Remedy("engine", "start it", "engine.start", looks="its state"),
    "off": Remedy("engine", "start it", "engine.start", looks="its state"),
    "taken": Remedy("engine", "its clients", "engine.inside", looks="its clients"),
    "tokens": _GROUPS,
    "observe": Remedy("engine", "the upstream"),
    "port": Remedy("log", "its address"),
    "hacking": _PARTS,
    "key": Remedy("log", "its questions"),
    "start": Remedy("engine", "start it again", "engine.start", looks="its state"),
    "boot": Remedy("engine", _boot, "engine.stop", looks="its state"),
    "lost": Remedy("engine", "its last state"),
    "upstream": Remedy("engine", "its messages"),
    "recovered": _GROUPS,
    "waited": _GROUPS,
    "strays": _GROUPS,
    "cut": Remedy("requests", "truncated:yes finds them"),
    "session": Remedy("requests", "its questions"),
    "dead": _PARTS,
    "unscored": Remedy("requests", _unscored, looks="these groups"),
    "room": Remedy("engine", "the job's batch", "engine.job", looks="its batch"),
    "rewards": Remedy("rewards", "its last fault"),
    "rewards_ended": Remedy("rewards", "its last fault"),
    "rewards_gone": Remedy("rewards", "its last fault"),
    "reward_outlier": _PARTS,
    "reward_scale": _PARTS,
    "judge": Remedy("rewards", _judge, looks="its counts"),
    "hook": Remedy("log", "the traceback"),
    "journal": Remedy("log", "why it cannot be written"),
    "journal_file": Remedy("log", "the cause"),
    "journal_damage": Remedy("log", "what is damaged"),
    "process": Remedy("engine", "start it again", looks=_PROCESS),
    "process:engine": Remedy("engine", "start it again", "engine.restart_process", looks=_PROCESS),
    "process:proxy": Remedy("engine", "start it again", "proxy.restart", looks=_PROCESS),
    "process:mock": Remedy("mock", "start it again", "mock.start", looks=_PROCESS),
}
"""By kind, or by key where it has an entry of its own; every kind is listed."""
_ANY = Remedy("log", "what happened")
"""For an unknown kind, as of a newer proxy."""


def way_of(
    alert: Alert, places: Sequence[ScreenSpec] = SCREENS, context: AdviceContext | None = None
) -> AlertAction | None:
    """Return how to handle an alert; None when no key is needed.

    Args:
        alert: The alert.
        places: The screens there are.
        context: The keys, and whether commands can be given; by default the keys of the program.
    """
    context = context or advice_context()
    kind = alert_kind(alert)
    remedy = REMEDIES.get(alert.key) or REMEDIES.get(kind) or _ANY
    keys = context.keys[remedy.action] if remedy.action else ""
    does = remedy.does if isinstance(remedy.does, str) else remedy.does(context.keys)
    if context.read_only and remedy.looks:
        keys, does = "", remedy.looks
    there = [place for place in places if place.name == remedy.screen]
    if not there and remedy.screen == "rewards":  # the log has the traceback too
        there = [place for place in places if place.name == "log"]
    inside = alert.key.partition(":")[2] if kind in ("held", "taken") else ""
    return AlertAction(there[0], keys, does, inside) if there else None


def fallen(session: Session) -> list[Alert]:
    """Return alerts, in words, for processes that ended unexpectedly."""
    context = context_of(session)
    return [in_words(_fallen(child), context) for child in session.crashed]


def _fallen(child: ChildProcess) -> Alert:
    detail, remedy = child.detail or "ended", ""
    if TAKEN in detail and ". " in detail:  # its advice names the setting: it must not be cut off
        detail, _, remedy = detail.rpartition(". ")
    params = ProcessEnded(role=child.role, detail=detail, remedy=remedy)
    return Alert(
        key=f"process:{child.role}",
        alert_kind=params.kind,
        params=params.as_json(),
        level="error",
        at=0.0,
    )


def by_need(session: Session) -> list[Alert]:
    """Return all alerts in words, the worst and newest first; crashed processes lead.

    That a server does not answer is left out while the end of its process is the cause.
    """
    silent = {f"lost:{one.name}" for one in session.state.servers.values() if ended(one, session)}
    raised = (one for key, one in session.state.alerts.items() if key not in silent)
    ordered = sorted(raised, key=lambda one: (one.level != "error", -one.at))
    context = context_of(session)
    return [*fallen(session), *(in_words(one, context) for one in ordered)]


# --- what open ratings hold up -------------------------------------------------------------------


def held_up(state: State, now: float) -> dict[str, str]:
    """Return the servers on which open ratings hold something up, with the cause.

    Users who wait for only a moment, as every request does, do not count.
    """
    context = advice_context()
    return {
        name: alert_text(alert, context).cause
        for key, alert in state.alerts.items()
        if key.startswith(HOLD) and _lasting(state, name := key.removeprefix(HOLD), now)
    }


def stall_words(state: State, now: float) -> str:
    """Return why requests wait as long as no one rates; empty while no rating holds them up."""
    if causes := held_up(state, now):
        return "; ".join(one_line(cause, 120) for cause in causes.values())
    count = sum(
        group.rating is None
        and group.waited is None
        and group.awaiting != "window"
        and now - (group.scored_at or group.opened_at) > PATIENCE
        for group in state.waiting()
    )
    if not count:
        return ""
    return f"{plural(count, 'request')} {'waits' if count == 1 else 'wait'} for your rating"


def _lasting(state: State, name: str, now: float) -> bool:
    server = state.servers.get(name)
    if server is not None and server.state == "ROLLING_POST":
        return True
    return any(
        group.server == name and group.phase == "CLAIMING" and now - group.opened_at > PATIENCE
        for group in state.groups.values()
    )
