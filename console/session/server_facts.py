"""Facts about a server that follow from the state and from the processes of this console."""

from msgspec.structs import replace

from console.session.app_state import Session
from core.state import Server


def ended(server: Server, session: Session) -> bool:
    """Whether the process of a server that does not answer is known to have ended unasked."""
    return server.own and bool(server.lost) and any(one.role == "engine" for one in session.fallen)


def as_ended(server: Server, session: Session) -> Server:
    """The server; not about to answer for the first time once its process has ended."""
    return replace(server, expected_until=0.0) if ended(server, session) else server
