"""Raises alerts, keeps their figures those of now, and clears them with their cause.

An alert the operator has dismissed stays away until its cause has gone, or becomes an error.
"""

import asyncio
from collections.abc import Iterable

from core.bus import Bus
from core.events import AlertCleared, AlertRaised

GROUPS = 200
"""Groups one alert names at most; the newest are kept."""
EXPIRE_EVERY = 5.0
"""Seconds between two looks for alerts about the past that are over."""
PAST = {
    "taken": 600.0,
    "cut": 900.0,
    "tokens": 3_600.0,
    "recovered": 86_400.0,
    "journal_file": 86_400.0,
}
"""Seconds from its newest figures after which an alert about the past goes by itself.

By what its key begins with, before the colon.
"""


def show_alert(
    bus: Bus,
    key: str,
    cause: str,
    todo: str = "",
    *,
    level: str = "warning",
    groups: Iterable[str] = (),
    server: str = "",
) -> None:
    """Raise an alert, or give a raised one other figures; the same once more changes nothing.

    Args:
        bus: Where it goes.
        key: Names it until it is cleared.
        cause: What is wrong now.
        todo: The way out.
        level: info, warning or error.
        groups: Ids of the groups it is about, oldest first.
        server: The server it is about.
    """
    named = tuple(groups)[-GROUPS:]
    known, dismissed = bus.state.alerts.get(key), bus.state.dismissed.get(key)
    if dismissed is not None and (level != "error" or dismissed == "error"):
        return
    figures = (cause, todo, level, named)
    if known is None or (known.cause, known.todo, known.level, known.groups) != figures:
        bus.publish(
            AlertRaised(server=server, key=key, cause=cause, todo=todo, level=level, groups=named)
        )


def replace_alert(
    bus: Bus,
    key: str,
    cause: str,
    todo: str = "",
    *,
    level: str = "warning",
    groups: Iterable[str] = (),
    server: str = "",
) -> None:
    """Raise an alert about one event: it replaces the one before, and its age begins again."""
    clear_alert(bus, key)
    show_alert(bus, key, cause, todo, level=level, groups=groups, server=server)


def clear_alert(bus: Bus, key: str, note: str = "") -> None:
    """Clear an alert whose cause has gone, dismissed or not; without one nothing happens."""
    if key in bus.state.alerts or key in bus.state.dismissed:
        bus.publish(AlertCleared(key=key, note=note))


def dismiss_alert(bus: Bus, key: str) -> None:
    """Take an alert off the screen for as long as its cause lasts."""
    bus.publish(AlertCleared(key=key, dismissed=True))


def expire(bus: Bus) -> None:
    """Clear the alerts about the past that were there long enough, see `PAST`."""
    now = bus.clock()
    for alert in list(bus.state.alerts.values()):
        limit = PAST.get(alert.key.partition(":")[0])
        if limit is not None and now - alert.told_at > limit:
            bus.publish(AlertCleared(key=alert.key, note="it is past"))


async def expire_alerts(bus: Bus) -> None:
    """Run `expire` now and then until cancelled."""
    while True:
        await asyncio.sleep(EXPIRE_EVERY)
        expire(bus)
