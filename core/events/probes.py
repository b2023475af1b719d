"""Events of prompts the operator tries: asked once, answered, trained on never."""

from core.events.base import Event


class TryAsked(Event, frozen=True, kw_only=True):
    """The operator had one prompt sent as an eval episode."""

    try_id: str
    group_id: str
    prompt: str
    step: int | None = None
    """Global step of the policy that is asked; None when the server does not say."""


class TryAnswered(Event, frozen=True, kw_only=True):
    """A try is over: answered, cancelled or failed."""

    try_id: str
    text: str = ""
    reasoning: str = ""
    tool_calls: str = ""
    """JSON text; empty when there are none."""
    finish_reason: str = ""
    tokens: int = 0
    seconds: float = 0.0
    """From the order to the answer."""
    step: int | None = None
    """Global step when the answer came."""
    error: str = ""
    """Why there is no answer; empty when there is one."""
