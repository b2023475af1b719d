"""Raise alerts, keep their figures current, and clear them when their cause is gone.

An alert that the operator dismissed stays hidden until its cause is gone or becomes an error.
"""

import asyncio
from collections.abc import Iterable

from core.bus import Bus
from core.events import AlertCleared, AlertRaised
from core.events.alerts import KINDS, AlertParams

GROUPS = 200
"""Maximum number of groups that one alert names; the newest are kept."""
EXPIRE_EVERY = 5.0
"""Seconds between two checks for expired alerts."""


def show_alert(
    bus: Bus,
    key: str,
    params: AlertParams,
    *,
    level: str | None = None,
    groups: Iterable[str] = (),
    server: str = "",
) -> None:
    """Raise an alert, or update one that is raised; an identical call changes nothing.

    Args:
        bus: Where the event is published.
        key: Identifies the alert until it is cleared.
        params: Kind of the alert and its parameters; the console has the texts.
        level: Another level than the usual one of the kind.
        groups: Ids of the affected groups, oldest first.
        server: The affected server.
    """
    group_ids, level = tuple(groups)[-GROUPS:], level or params.level
    current, dismissed = bus.state.alerts.get(key), bus.state.dismissed.get(key)
    if dismissed is not None and (level != "error" or dismissed == "error"):
        return
    raised = alert_raised(key, params, level=level, groups=group_ids, server=server)
    if current is None or (current.alert_kind, current.params, current.level, current.groups) != (
        raised.alert_kind,
        raised.params,
        level,
        group_ids,
    ):
        bus.publish(raised)


def alert_raised(
    key: str,
    params: AlertParams,
    *,
    level: str | None = None,
    groups: tuple[str, ...] = (),
    server: str = "",
) -> AlertRaised:
    """Return the event that raises an alert; the arguments are those of `show_alert`."""
    return AlertRaised(
        server=server,
        key=key,
        alert_kind=params.kind,
        params=params.as_json(),
        level=level or params.level,
        groups=groups,
    )


def replace_alert(
    bus: Bus,
    key: str,
    params: AlertParams,
    *,
    groups: Iterable[str] = (),
    server: str = "",
) -> None:
    """Raise an alert about a single event: it replaces the previous one and its age restarts."""
    clear_alert(bus, key)
    show_alert(bus, key, params, groups=groups, server=server)


def clear_alert(bus: Bus, key: str, note: str = "") -> None:
    """Clear an alert whose cause is gone, dismissed or not; do nothing if there is none."""
    if key in bus.state.alerts or key in bus.state.dismissed:
        bus.publish(AlertCleared(key=key, note=note))


def dismiss_alert(bus: Bus, key: str) -> None:
    """Hide an alert for as long as its cause lasts."""
    bus.publish(AlertCleared(key=key, dismissed=True))


def expire(bus: Bus) -> None:
    """Clear the alerts about past events that have reached their age limit."""
    now = bus.clock()
    for alert in list(bus.state.alerts.values()):
        kind = KINDS.get(alert.alert_kind)
        limit = kind.lasts if kind is not None else None
        if limit is not None and now - alert.at > limit:
            bus.publish(AlertCleared(key=alert.key, note="it is past"))


async def expire_alerts(bus: Bus) -> None:
    """Call `expire` periodically until cancelled."""
    while True:
        await asyncio.sleep(EXPIRE_EVERY)
        expire(bus)
