"""The colour of each swarm server: by its position in the list, the same on every screen."""

from core.state import Group, State

COLORS = ("$server-1", "$server-2", "$server-3", "$server-4")


def server_color(state: State, name: str) -> str:
    """Return the server's colour variable; it depends on the order of the servers."""
    names = list(state.servers)
    return COLORS[names.index(name) % len(COLORS)] if name in state.servers else "$muted"


def server_colors(state: State) -> dict[str, str]:
    """Return the colour of each server by name; empty when there is only one."""
    return {name: server_color(state, name) for name in state.servers if len(state.servers) > 1}


def group_color(state: State, group: Group) -> str:
    """Return the colour of a group's server; empty when there is only one server."""
    return server_color(state, group.server) if len(state.servers) > 1 else ""
