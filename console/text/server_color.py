"""The colour of each swarm server: by its place, the same on every screen."""

from core.state import Group, State

COLORS = ("$server-1", "$server-2", "$server-3", "$server-4")


def server_color(state: State, name: str) -> str:
    """A colour variable; the same for as long as the servers keep their order."""
    names = list(state.servers)
    return COLORS[names.index(name) % len(COLORS)] if name in state.servers else "$muted"


def server_colors(state: State) -> dict[str, str]:
    """The colour of each server by name; empty when there is one alone."""
    return {name: server_color(state, name) for name in state.servers if len(state.servers) > 1}


def group_color(state: State, group: Group) -> str:
    """The colour of a group's server; empty when there is one server alone."""
    return server_color(state, group.server) if len(state.servers) > 1 else ""
