"""What a swarm server tells when it is asked for everything; the journal keeps none of it."""

import msgspec

from core.events import ClientSeen

EPISODES = 60
"""Claimed episodes, finished tasks and log lines that are handed on."""


class EpisodeLook(msgspec.Struct, frozen=True, kw_only=True):
    """A claimed episode."""

    uuid: str
    client: str
    kind: str = "train"
    idle: float | None = None
    """Seconds since its last call."""
    limit: float | None = None
    """Idle seconds after which the server takes it back."""
    calls: int | None = None
    task: str = ""


class TaskLook(msgspec.Struct, frozen=True, kw_only=True):
    """A task of the batch that is collected now."""

    task: str
    episodes: int = 0
    rewards: tuple[float | None, ...] = ()
    clients: tuple[str, ...] = ()


class LogLook(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the server's own log."""

    at: float | None
    tag: str
    text: str


class ServerLook(msgspec.Struct, frozen=True, kw_only=True):
    """One reading of one server."""

    server: str
    at: float
    """Unix seconds of the reading."""
    free: int | None = None
    claimed: int | None = None
    clients: tuple[ClientSeen, ...] = ()
    episodes: tuple[EpisodeLook, ...] = ()
    """The longest idle first."""
    tasks: tuple[TaskLook, ...] = ()
    """Those with most episodes first."""
    folder: str = ""
    """Where the server writes its run."""
    booting_since: float | None = None
    log: tuple[LogLook, ...] = ()
    asked: str = ""
    """Last user text of the newest call that the server keeps."""
    answered: str = ""
    missing: tuple[str, ...] = ()
    """What the server did not tell, and why."""
