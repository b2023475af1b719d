"""Where the operator handles each alert: screen and key; also what open ratings hold up."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from msgspec import structs

from ajet_swarm.common.text import one_line, plural
from console.models.advice import advice_context, context_of
from console.models.screen_registry import SCREENS, ScreenSpec
from console.session.app_state import ChildProcess, Session
from console.session.server_facts import ended
from console.text.alert_words import AdviceContext
from console.text.alerts import ALERTS, Remedy, alert_text, in_words
from core.events import AlertRaised
from core.events.alerts import params_of, read_params
from core.runtime.sockets import TAKEN
from core.state import Group, State

PATIENCE = 3.0
"""Seconds a request may wait for its episodes before it counts as held up."""


@dataclass(frozen=True, slots=True)
class AlertAction:
    """How to handle an alert."""

    screen: ScreenSpec
    keys: str = ""
    """Keys to press on that screen; empty when there is only something to read."""
    effect: str = ""
    """The effect, in a word or two."""
    server: str = ""
    """Server whose detail view opens at once; empty for none."""

    @property
    def key_path(self) -> str:
        """All keys to press, starting on the overview: `5 s`."""
        return f"{self.screen.digit} {self.keys}".rstrip()

    @property
    def summary(self) -> str:
        """Keys, screen and effect: `5 s: Engine, start it`."""
        effect = f", {self.effect}" if self.effect else ""
        return f"{self.key_path}: {self.screen.title}{effect}"


_ACTIONS = {
    "process:engine": ("engine", "engine.restart_process"),
    "process:proxy": ("engine", "proxy.restart"),
    "process:mock": ("mock", "mock.start"),
}
"""Key of an alert about a process -> screen and action that start it again."""
REMEDIES: Mapping[str, Remedy] = {
    **{kind: remedy for kind, (_, remedy) in ALERTS.items()},
    **{
        key: replace(ALERTS["process"][1], screen=screen, action=action)
        for key, (screen, action) in _ACTIONS.items()
    },
}
"""Remedies by the key of an alert, else by its kind."""
_ANY = Remedy("log", "what happened")
"""Remedy for an unknown kind, such as one of a newer proxy."""


def action_for(
    alert: AlertRaised,
    screens: Sequence[ScreenSpec] = SCREENS,
    context: AdviceContext | None = None,
) -> AlertAction | None:
    """Return how to handle an alert; None if its screen is not offered.

    Args:
        alert: The alert.
        screens: The screens that this console offers.
        context: Keys to name, and whether commands are enabled; by default the default keys.
    """
    context = context or advice_context()
    remedy = REMEDIES.get(alert.key) or REMEDIES.get(alert.alert_kind) or _ANY
    keys = context.keys[remedy.action] if remedy.action else ""
    effect = remedy.effect.format_map({"keys": context.keys})
    if context.read_only and remedy.read_only:
        keys, effect = "", remedy.read_only
    by_name = {screen.name: screen for screen in screens}
    screen = by_name.get(remedy.screen)
    if screen is None and remedy.screen == "rewards":  # the log has the traceback too
        screen = by_name.get("log")
    server = alert.key.partition(":")[2] if alert.alert_kind in ("held", "taken") else ""
    return AlertAction(screen, keys, effect, server) if screen is not None else None


def crash_alerts(session: Session) -> list[AlertRaised]:
    """Return an alert, with its text, for each process that ended unexpectedly."""
    context = context_of(session)
    return [in_words(_crash_alert(child), context) for child in session.crashed]


def _crash_alert(child: ChildProcess) -> AlertRaised:
    detail, remedy = child.detail or "ended", ""
    if TAKEN in detail and ". " in detail:  # keep the advice from being cut off
        detail, _, remedy = detail.rpartition(". ")
    params = params_of("process", role=child.role, detail=detail, remedy=remedy)
    return AlertRaised(
        key=f"process:{child.role}",
        alert_kind=params.kind,
        params=params.as_json(),
        level=params.level,
        at=0.0,
    )


def alerts_by_urgency(session: Session) -> list[AlertRaised]:
    """Return all alerts with their texts: crashed processes, then by severity and age.

    A server that does not answer because its process ended is left out.
    """
    explained = {
        f"lost:{server.name}" for server in session.state.servers.values() if ended(server, session)
    }
    alerts = current_alerts(session.state)
    raised = (alert for key, alert in alerts.items() if key not in explained)
    since = session.state.alerts_since
    aged = (structs.replace(alert, at=since.get(alert.key, alert.at)) for alert in raised)
    ordered = sorted(aged, key=lambda alert: (alert.level != "error", -alert.at))
    context = context_of(session)
    return [*crash_alerts(session), *(in_words(alert, context) for alert in ordered)]


# --- what open ratings hold up -------------------------------------------------------------------


def held_up(state: State, now: float) -> dict[str, str]:
    """Return the servers on which open ratings hold something up, each with the cause.

    A user counts only after `PATIENCE` seconds, because every request waits for a moment.
    """
    context = advice_context()
    return {
        name: alert_text(alert, context).cause
        for key, alert in current_alerts(state).items()
        if key.startswith(HOLD) and _is_stalled(state, name := key.removeprefix(HOLD), now)
    }


def stall_words(state: State, now: float) -> str:
    """Return what waits for a rating, as text; empty if nothing does."""
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


def _is_stalled(state: State, name: str, now: float) -> bool:
    server = state.servers.get(name)
    if server is not None and server.state == "ROLLING_POST":
        return True
    return any(
        group.server == name and group.phase == "CLAIMING" and now - group.opened_at > PATIENCE
        for group in state.groups.values()
    )


HOLD = "hold:"
"""Prefix of the key of an alert about stalling ratings; a server's name follows."""


def current_alerts(state: State) -> dict[str, AlertRaised]:
    """Return the alerts by key; those about open ratings without what was rated or closed since.

    The proxy looks at them from time to time; a vote is in the state before.
    """
    shown = {}
    for key, alert in state.alerts.items():
        present = _with_open_ratings(state, alert) if key.startswith(HOLD) else alert
        if present is not None:
            shown[key] = present
    return shown


def _with_open_ratings(state: State, alert: AlertRaised) -> AlertRaised | None:
    """Return an alert about open ratings with those that are open now; None without any."""
    if not alert.groups:
        return alert
    known = [(name, state.groups.get(name)) for name in alert.groups]
    closed = {name: group for name, group in known if group is None or not _is_unrated(group)}
    if not closed:
        return alert
    params = read_params(alert.alert_kind, alert.params)
    if len(closed) == len(known):
        return None
    if params is not None and params.kind == "hold":
        unscored = sum(group is not None and bool(group.abstained) for group in closed.values())
        figures = params.as_json()
        figures["ratings"] -= len(closed)
        figures["unscored"] = max(0, figures.get("unscored", 0) - unscored)
        alert = structs.replace(alert, params=figures)
    return structs.replace(alert, groups=tuple(name for name in alert.groups if name not in closed))


def _is_unrated(group: Group) -> bool:
    """Return whether a group waits for a rating."""
    return group.phase == "AWAITING_RATING" and group.rating is None
