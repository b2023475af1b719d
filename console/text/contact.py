"""Whether a server answers, in words: what it is while it does not."""

from collections.abc import Sequence
from typing import Protocol

from msgspec.structs import replace

from core.state import Server


class EndedProcess(Protocol):
    """A process that ended unasked."""

    @property
    def role(self) -> str: ...


class Processes(Protocol):
    """What tells which processes ended unasked; a `Session`."""

    @property
    def fallen(self) -> Sequence[EndedProcess]: ...


LOST = frozenset({"gone", "frozen", "mute", "strange"})
"""What the cause of a lost server begins with, before its colon."""


def is_starting(server: Server, now: float) -> bool:
    """Whether a server that has not answered yet may still be about to."""
    return bool(server.lost) and not server.seen_at and now < server.expected_until


def ended(server: Server, session: Processes) -> bool:
    """Whether the process of a server that does not answer is known to have ended unasked."""
    return server.own and bool(server.lost) and any(one.role == "engine" for one in session.fallen)


def as_ended(server: Server, session: Processes) -> Server:
    """The server; not about to answer for the first time once its process has ended."""
    return replace(server, expected_until=0.0) if ended(server, session) else server


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
