"""State of the proxy: alerts and totals."""

from typing import Any

import msgspec


class Alert(msgspec.Struct, kw_only=True):
    """One alert for the operator."""

    key: str
    level: str
    at: float
    """Unix seconds when it was first raised; unchanged by later figures."""
    figures_at: float = msgspec.field(default=0.0, name="told_at")
    """Unix seconds of its newest figures."""
    groups: tuple[str, ...] = ()
    """Ids of the groups concerned, oldest first."""
    alert_kind: str = ""
    """Kind of the alert, see `core.events.alerts`."""
    params: dict[str, Any] = msgspec.field(default_factory=dict)
    """Parameters of its kind."""
    cause: str = ""
    """Cause as a sentence, filled in by the console."""
    todo: str = ""
    """Advice as a sentence, likewise."""


class Totals(msgspec.Struct, kw_only=True):
    """Counts over the whole journal."""

    groups: int = 0
    done: int = 0
    """Groups that ended in order and are not `lost`."""
    lost: int = 0
    """Groups that ended in order and whose episodes their server discarded before an update."""
    aborted: int = 0
    failed: int = 0
    dead: int = 0
    rated: int = 0
    answered: int = 0
    """Requests that received an answer."""
    refused: int = 0
    """Requests that received an error."""
    joined: int = 0
    """Repeated requests that waited with the first one."""
    replayed: int = 0
    """Repeated requests that received the first one's answer."""
    helpers: int = 0
    """Groups of helper calls."""


class AttachedConsole(msgspec.Struct, kw_only=True):
    """A console that follows the feed now."""

    rater: str = ""
    """Name of its rater, as last sent; empty if unknown."""
    feeds: int = 1
    """Its connections: two for a moment when it connects again."""
