"""Words for a server that does not answer: starting, gone, silent."""

from core.state import Server

LOST = frozenset({"gone", "frozen", "silent", "unrecognized"})
"""Words before the colon of a lost server's cause."""


def address_of(server: Server) -> str:
    """Return the URL of a server; empty until its engine has a port.

    The proxy gives an engine port 0 until then if another process has the port of the settings.
    """
    return "" if server.url.endswith(":0") else server.url


def is_starting(server: Server, now: float) -> bool:
    """Return whether a server that has not answered yet may still be starting."""
    return bool(server.lost) and not server.seen_at and now < server.expected_until


def lost_word(server: Server) -> str:
    """Return the trouble of a lost server in one word: GONE, SILENT."""
    why = server.lost.partition(":")[0]
    return why.upper() if why in LOST else "LOST"


def lost_text(server: Server, now: float) -> str:
    """Return the state of a server without contact: `GONE 36s (was ROLLING)`, `STARTING`."""
    if is_starting(server, now):
        return "STARTING"
    if not server.seen_at:
        return "NOT REACHED"
    state = server.state.replace("_", " ")
    return f"{lost_word(server)} {max(0, int(now - server.seen_at))}s (was {state})"
