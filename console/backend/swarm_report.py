"""Queries swarm servers directly: their URLs, their states, and who has claimed which episodes."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from ajet_swarm.common.errors import AjetError, UsageError
from ajet_swarm.common.text import known_names
from core.runtime.home import Home, running
from core.settings import Settings

if TYPE_CHECKING:
    from ajet_swarm.api.wire import SwarmWire

PATIENCE = 5.0
"""Seconds a server gets to answer."""


@dataclass(slots=True)
class ServerReport:
    """The state of one swarm server, from its own answers."""

    name: str
    url: str
    state: str = "CANNOT_CONNECT"
    raw: str = ""
    """The state in the server's own spelling."""
    detail: str = ""
    step: int | None = None
    claimed: int | None = None
    """Number of claimed episodes in the server's buffer; None when it does not report them."""
    claimed_by: dict[str, int] = field(default_factory=dict)
    """The same number by client."""
    pool: dict[str, Any] | None = None
    error: str = ""
    """Why some of these fields are missing."""

    def data(self) -> dict[str, Any]:
        """Return the report as JSON data."""
        return asdict(self)


def addresses(settings: Settings, home: Home) -> dict[str, str]:
    """Return the URL of each server of the settings, by name.

    The URL of the embedded engine comes from its run file; it is empty when that engine does not
    run, because the port of the settings may belong to the engine of another home.
    """
    urls = settings.servers()
    for name, url in urls.items():
        if url == "embedded":
            info = running(home, "engine")
            urls[name] = info.url if info is not None else ""
    return urls


def no_engine(name: str) -> AjetError:
    """Return the error for an embedded engine that does not run."""
    return AjetError(
        f"no engine runs in this home ({name})",
        todo="Start it with `ajet-console run engine`, or name a server with --swarm-url",
    )


def choose(servers: dict[str, str], named: str | None) -> tuple[str, str]:
    """Return name and URL of the server of that name; of the first server without one.

    Raises:
        UsageError: there is no server of that name.
    """
    name = named or next(iter(servers))
    if name not in servers:
        raise UsageError(f"there is no server `{name}`", todo=known_names(name, servers))
    return name, servers[name]


@asynccontextmanager
async def open_client(name: str, url: str) -> AsyncIterator["SwarmWire"]:
    """Open a client of one server, to query it without claiming episodes.

    Raises:
        AjetError: the URL is empty, because the embedded engine does not run.
    """
    if not url:
        raise no_engine(name)
    from ajet_swarm.api.wire import SwarmWire
    from ajet_swarm.http.transport import HttpTransport

    async with HttpTransport(connect_timeout=PATIENCE) as transport:
        yield SwarmWire(url, transport, "ajet-console", name=name)


async def report(name: str, url: str) -> ServerReport:
    """Query one server; for what it does not report, `error` contains the reason."""
    result = ServerReport(name, url)
    try:
        async with open_client(name, url) as client:
            status = await client.status(timeout=PATIENCE)
            result.state, result.raw = status.state.value, status.engine_status or ""
            result.detail, result.step = status.engine_status_detail or "", status.global_step
            owners = [
                episode.client_uuid or "" for episode in await client.buffer() if episode.claimed
            ]
            result.claimed = len(owners)
            result.claimed_by = {owner: owners.count(owner) for owner in sorted(set(owners))}
            pool = await client.pool(timeout=PATIENCE)
            if pool is not None and not pool.stale:
                result.pool = {
                    "method": pool.sample_collection_method or "",
                    "repeats": pool.repeat,
                    "episodes": pool.completed_episodes or 0,
                    "episode_target": pool.completed_episode_target or 0,
                    "tasks": pool.completed_tasks or 0,
                    "task_target": pool.completed_task_target or 0,
                }
    except AjetError as error:
        result.error = str(error)
    return result
