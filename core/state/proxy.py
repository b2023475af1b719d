"""State of the proxy: alerts and totals."""

import msgspec


class Alert(msgspec.Struct, kw_only=True):
    """Something the operator should know."""

    key: str
    cause: str
    todo: str
    level: str
    at: float
    """When it was raised first; later figures of it keep that time."""
    told_at: float = 0.0
    """When its newest figures came."""
    groups: tuple[str, ...] = ()
    """Ids of the groups it is about, oldest first."""


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
    """Users that got an answer."""
    refused: int = 0
    """Users that got an error."""
    joined: int = 0
    """Requests sent again that waited with the first."""
    replayed: int = 0
    """Requests sent again that got the first one's answer."""
    helpers: int = 0
    """Groups of helper calls."""
    episodes_ended: int = 0
    judge_calls: int = 0
    judge_tokens: int = 0
    judge_hits: int = 0
    judge_cost: float = 0.0
    """Of judges whose prices are known."""
