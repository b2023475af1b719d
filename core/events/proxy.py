"""Events of the proxy itself and of the consoles attached to it."""

from typing import Any

import msgspec

from core.events.base import Event


class ProxyStarted(Event, frozen=True, kw_only=True):
    """The fake vLLM started: a new run begins."""

    client_uuid: str
    pid: int
    url: str
    version: str
    servers: dict[str, str]
    """Name of each swarm server -> its URL."""
    embedded: tuple[str, ...] = ("embedded",)
    """Names of those that are the home's own engine, whose address changes with its port."""
    rewards: str
    """Source of the rewards: `builtin` or the hook folder."""
    rating_mode: str = "off"
    watch_only: bool = False
    """It only watches: it claims nothing and serves no requests."""


class ProxyStopped(Event, frozen=True, kw_only=True):
    """The fake vLLM ended in order; a killed process leaves no such event."""

    reason: str = ""


class ConsoleAttached(Event, frozen=True, kw_only=True):
    """A console began to follow the feed."""

    consoles: int
    """Number of consoles that follow it now."""
    holder: str = ""
    """Id of this console, as in a lease; empty if it sent none."""
    rater: str = ""
    """Name of its rater; empty if unknown."""


class ConsoleDetached(Event, frozen=True, kw_only=True):
    """A console stopped following the feed; its leases end."""

    consoles: int
    holder: str = ""
    """Id of this console, as in a lease; empty if it sent none."""


class RatingModeChanged(Event, frozen=True, kw_only=True):
    """The operator switched the rating mode: off, answer_first or hold."""

    mode: str


class RequestRefused(Event, frozen=True, kw_only=True):
    """A user's request was answered with an error before it became a group."""

    status: int
    cause: str
    query: str = ""


class AlertRaised(Event, frozen=True, kw_only=True):
    """An alert for the operator; `key` identifies it until it is cleared."""

    key: str
    cause: str = ""
    """Cause as a sentence, filled in by the console."""
    todo: str = ""
    """Advice as a sentence, likewise."""
    level: str = "warning"
    """info, warning or error."""
    groups: tuple[str, ...] = ()
    """Ids of the groups concerned, oldest first."""
    alert_kind: str = ""
    """Kind of the alert, see `core.events.alerts`."""
    params: dict[str, Any] = msgspec.field(default_factory=dict)
    """Parameters of its kind."""


class AlertCleared(Event, frozen=True, kw_only=True):
    """The cause of an alert is gone, or the operator dismissed the alert."""

    key: str
    note: str = ""
    """Note for the operator on how it ended."""
    dismissed: bool = False
    """The operator dismissed it while its cause persists."""
