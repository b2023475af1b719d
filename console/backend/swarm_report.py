"""Swarm servers asked directly: which there are, what each does, who has claimed what."""

import argparse
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from ajet_swarm.common.errors import AjetError, UsageError
from ajet_swarm.common.text import known_names
from core.runtime.home import Home, running
from core.settings import Settings

if TYPE_CHECKING:
    from ajet_swarm.api.engine import AsyncSwarmClient

PATIENCE = 5.0
"""Seconds a server gets to say how it is."""


@dataclass(slots=True)
class ServerReport:
    """One swarm server as it answers now."""

    name: str
    url: str
    state: str = "CANNOT_CONNECT"
    raw: str = ""
    """The state as the server writes it."""
    detail: str = ""
    step: int | None = None
    claimed: int | None = None
    """Episodes that are claimed, by the server's own buffer; None when it does not tell."""
    claimed_by: dict[str, int] = field(default_factory=dict)
    """The same by client."""
    pool: dict[str, Any] | None = None
    error: str = ""
    """Why something of this is missing."""

    def data(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def addresses(settings: Settings, home: Home) -> dict[str, str]:
    """URL of each server of the settings; the embedded one is found by its run file.

    It is empty for an embedded engine that does not run: at the port of the settings may be the
    engine of another home.
    """
    found = settings.servers()
    for name, url in found.items():
        if url == "embedded":
            info = running(home, "engine")
            found[name] = info.url if info is not None else ""
    return found


def no_engine(name: str) -> AjetError:
    """What a command says of an embedded engine that does not run."""
    return AjetError(
        f"no engine runs in this home ({name})",
        todo="Start it with `ajet-console engine`, or name a server with --swarm-url",
    )


def choose(servers: dict[str, str], given: argparse.Namespace) -> tuple[str, str]:
    """Name and URL of the server that was named, else of the first one.

    Raises:
        UsageError: there is none of that name.
    """
    name = given.server or next(iter(servers))
    if name not in servers:
        raise UsageError(f"there is no server `{name}`", todo=known_names(name, servers))
    return name, servers[name]


@asynccontextmanager
async def open_client(name: str, url: str) -> AsyncIterator["AsyncSwarmClient"]:
    """A client that claims nothing.

    Raises:
        AjetError: the URL is that of an embedded engine that does not run.
    """
    if not url:
        raise no_engine(name)
    from ajet_swarm.api.engine import AsyncSwarmClient
    from ajet_swarm.http.transport import HttpTransport

    async with HttpTransport(connect_timeout=PATIENCE) as transport:
        yield AsyncSwarmClient(url, transport, "ajet-console", name=name)


async def report(name: str, url: str) -> ServerReport:
    """Ask one server; what it does not report is missing and `error` says why."""
    told = ServerReport(name, url)
    try:
        async with open_client(name, url) as client:
            status = await client.status(timeout=PATIENCE)
            told.state, told.raw = status.state.value, status.engine_status or ""
            told.detail, told.step = status.engine_status_detail or "", status.global_step
            owners = [one.client_uuid or "" for one in await client.buffer() if one.claimed]
            told.claimed = len(owners)
            told.claimed_by = {owner: owners.count(owner) for owner in sorted(set(owners))}
            pool = await client.pool(timeout=PATIENCE)
            if pool is not None and not pool.stale:
                told.pool = {
                    "method": pool.sample_collection_method or "",
                    "repeats": pool.repeat,
                    "episodes": pool.completed_episodes or 0,
                    "episode_target": pool.completed_episode_target or 0,
                    "tasks": pool.completed_tasks or 0,
                    "task_target": pool.completed_task_target or 0,
                }
    except AjetError as error:
        told.error = str(error)
    return told
