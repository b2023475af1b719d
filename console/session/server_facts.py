"""Facts about a server, derived from its state and from the processes of this console."""

from msgspec.structs import replace

from console.session.app_state import Session
from core.state import Server


def ended(server: Server, session: Session) -> bool:
    """Return whether a server does not answer because its process, started here, has crashed."""
    return server.own and bool(server.lost) and any(one.role == "engine" for one in session.crashed)


def as_ended(server: Server, session: Session) -> Server:
    """Return the server; without a pending first answer when its process has ended."""
    return replace(server, expected_until=0.0) if ended(server, session) else server
