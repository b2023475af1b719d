"""Available commands about jobs, for one server and for all servers."""

from collections.abc import Iterator

from ajet_swarm.common.text import one_line
from console.models.consequences import loss
from console.session.app_state import Session
from core.state import Server

NAMES = 6
"""Most servers that a title or a question names."""


def commands_of(server: Server) -> Iterator[str]:
    """Return the names of the commands that start, stop or change the engine of a server now."""
    if server.lost or server.state == "OBSERVING":
        return
    busy = server.work is not None and not server.work.over
    if busy:
        yield "engine.cancel"
    if server.state != "OFFLINE":
        yield "engine.stop"
    elif not busy:
        yield "engine.start"
    if not busy and server.state != "OFFLINE":
        yield "engine.apply"


def commands_for_all(session: Session) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Return each command with the servers it applies to, when there are several servers."""
    servers = session.state.servers
    if len(servers) < 2:
        return
    for name in ("engine.start", "engine.stop", "engine.apply"):
        fit = tuple(one.name for one in servers.values() if name in commands_of(one))
        if fit:
            yield name, fit


def servers_text(names: tuple[str, ...], of: int) -> str:
    """Return `all 3 servers`, or their names."""
    if len(names) == of:
        return f"all {of} servers"
    text = ", ".join(one_line(name, 24) for name in names[:NAMES])
    return text + (f" and {len(names) - NAMES} more" if len(names) > NAMES else "")


def loss_of_all(session: Session, command: str, names: tuple[str, ...]) -> str:
    """Return the body of the question before a command to several servers."""
    if len(names) == 1:
        return loss(session, command, {"server": names[0]})
    losses = []
    for name in names[:NAMES]:
        body = loss(session, command, {"server": name})
        losses.append(f"{one_line(name, 30)}:\n{body}" if body else one_line(name, 30))
    if len(names) > NAMES:
        losses.append(f"and {len(names) - NAMES} more servers")
    return "\n\n".join(losses)
