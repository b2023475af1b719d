"""Whether a server answers, in words: what it is while it does not."""

from core.state import Server

LOST = frozenset({"gone", "frozen", "mute", "strange"})
"""What the cause of a lost server begins with, before its colon."""


def is_starting(server: Server, now: float) -> bool:
    """Whether a server that has not answered yet may still be about to."""
    return bool(server.lost) and not server.seen_at and now < server.expected_until


def lost_word(server: Server) -> str:
    """Why a lost server does not answer, in one word: GONE, FROZEN."""
    why = server.lost.partition(":")[0]
    return why.upper() if why in LOST else "LOST"


def lost_text(server: Server, now: float) -> str:
    """What a server is that does not answer: `GONE 36s (was ROLLING)`, `STARTING`."""
    if is_starting(server, now):
        return "STARTING"
    if not server.seen_at:
        return "NOT REACHED"
    state = server.state.replace("_", " ")
    return f"{lost_word(server)} {max(0, int(now - server.seen_at))}s (was {state})"
