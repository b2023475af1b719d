"""What open ratings hold up, as of the present votes."""

from msgspec.structs import replace

from core.events import AlertRaised
from core.events.alerts import read_params
from core.state import Group, State

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
        alert = replace(alert, params=figures)
    return replace(alert, groups=tuple(name for name in alert.groups if name not in closed))


def _is_unrated(group: Group) -> bool:
    """Return whether a group waits for a rating."""
    return group.phase == "AWAITING_RATING" and group.rating is None
