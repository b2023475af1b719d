"""Stalls caused by open ratings: servers that cannot sync, and waiting users."""

from ajet_swarm.common.text import one_line
from console.text.format import plural
from core.state import State

PATIENCE = 3.0
"""Seconds a request may wait for its episodes before it counts as stalled."""


HOLD = "hold:"
"""Prefix of the key of an alert about stalling ratings; a server's name follows."""


def stalled_servers(state: State, now: float) -> dict[str, str]:
    """Return the servers that open ratings stall, with the cause.

    A short wait, as of every request, does not count.
    """
    return {
        name: alert.cause
        for key, alert in state.alerts.items()
        if key.startswith(HOLD) and _lasting(state, name := key.removeprefix(HOLD), now)
    }


def stall_words(state: State, now: float) -> str:
    """Return why requests wait for ratings; empty while none does."""
    if causes := stalled_servers(state, now):
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
