"""Events of the proxy itself and of the consoles attached to it."""

from core.events.base import Event


class ProxyStarted(Event, frozen=True, kw_only=True):
    """The fake vLLM came up: a new run begins."""

    client_uuid: str
    pid: int
    url: str
    version: str
    servers: dict[str, str]
    """Name of each swarm server -> its URL."""
    embedded: tuple[str, ...] = ("embedded",)
    """Those of them that are the home's own engine, whose address changes with its port."""
    rewards: str
    """What computes the rewards: `builtin` or the hook folder."""
    rating_mode: str = "off"
    watch_only: bool = False
    """It only looks on: it claims nothing and serves no requests."""


class ProxyStopped(Event, frozen=True, kw_only=True):
    """The fake vLLM ended in order; a kill leaves no such event."""

    reason: str = ""


class ConsoleAttached(Event, frozen=True, kw_only=True):
    """An operator's console follows the feed."""

    consoles: int
    """How many follow it now."""


class ConsoleDetached(Event, frozen=True, kw_only=True):
    """A console left."""

    consoles: int


class RatingModeChanged(Event, frozen=True, kw_only=True):
    """The operator switched how people rate: off, answer_first or hold."""

    mode: str


class RequestRefused(Event, frozen=True, kw_only=True):
    """A user's request was answered with an error before it became a group."""

    status: int
    cause: str
    query: str = ""


class AlertRaised(Event, frozen=True, kw_only=True):
    """Something the operator should know; `key` names it until it is cleared."""

    key: str
    cause: str
    todo: str = ""
    level: str = "warning"
    """info, warning or error."""
    groups: tuple[str, ...] = ()
    """Ids of the groups it is about, oldest first."""


class AlertCleared(Event, frozen=True, kw_only=True):
    """The cause of an alert is gone, or the operator has dismissed it."""

    key: str
    note: str = ""
    """What there is to know of it now that it is over."""
    dismissed: bool = False
    """The operator has dismissed it: its cause lasts."""
