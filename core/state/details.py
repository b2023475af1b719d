"""Parts of the state: who holds a server's episodes, prompts that were tried."""

import msgspec

from core.events import ClientSeen

TRY_CAP = 50


class Slots(msgspec.Struct, kw_only=True):
    """Episodes of a server by who holds them."""

    free: int = 0
    claimed: int = 0
    clients: tuple[ClientSeen, ...] = ()
    more: int = 0
    """Clients that are not in the list."""
    at: float = 0.0


class Try(msgspec.Struct, kw_only=True):
    """A prompt the operator tried."""

    try_id: str
    server: str
    group_id: str
    prompt: str
    step: int | None = None
    at: float = 0.0
    over: bool = False
    text: str = ""
    reasoning: str = ""
    tool_calls: str = ""
    cut: bool = False
    """The texts above are not whole; the journal has them."""
    finish_reason: str = ""
    tokens: int = 0
    seconds: float = 0.0
    error: str = ""
