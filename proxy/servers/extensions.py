"""What the embedded engine tells beyond an AgentJet server: its checkpoints, tokens and job."""

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from ajet_swarm.api.outcomes import decoded
from ajet_swarm.common.errors import AjetError
from ajet_swarm.http.interface import Request
from core.control_payloads import EpisodeTokens
from core.events import Checkpoint, CheckpointsListed
from proxy.context import ProxyContext, ServerHandle

T = TypeVar("T")

CHECKPOINTS = "/ajetc/checkpoints"
RESTORE = "/ajetc/restore"
PRUNE = "/ajetc/prune"
RESET = "/ajetc/reset"
INFO = "/ajetc/info"
TOKENS = "/ajetc/tokens/{episode_uuid}"

LISTED = 30
"""Checkpoints an event carries; the command line lists them all."""
LIMIT = 60.0
"""Seconds an engine may take to write or read a checkpoint."""
_JSON = {"content-type": "application/json"}


class NotOffered(AjetError):
    """The server has no such route."""


class CheckpointResult(msgspec.Struct, frozen=True):
    """What the engine answers to an order about its checkpoints."""

    step: int = 0
    deleted: tuple[str, ...] = ()


class _EngineInfo(msgspec.Struct, frozen=True):
    job: dict[str, Any] | None = None


async def offers(server: ServerHandle, path: str) -> bool:
    """Whether the server has the route, by its `/openapi.json`.

    Raises:
        SwarmError: it does not answer.
    """
    return path in await server.client.features()


async def ask(
    server: ServerHandle, kind: type[T], path: str, body: Mapping[str, Any] | None = None, **at: str
) -> T:
    """Ask one of the routes above: POST with a body, else GET.

    Raises:
        NotOffered: the server has no such route.
        SwarmError: it refused, with its reason, or did not answer.
    """
    if not await offers(server, path):
        what = "token log" if path == TOKENS else "checkpoints"
        raise NotOffered(
            f"this server has no {what}", server.name, "Only the embedded engine gives that"
        )
    client = server.client
    url = client.url + path.format(**at)
    response = await client.transport.request(
        Request(
            "GET" if body is None else "POST",
            url,
            body=None if body is None else msgspec.json.encode(body),
            headers=None if body is None else _JSON,
            timeout=LIMIT,
            repeatable=body is None,
        )
    )
    return decoded(response, kind, server.name)


async def has_job(server: ServerHandle) -> bool:
    """Whether the engine has a job that it can be started with."""
    return (await ask(server, _EngineInfo, INFO)).job is not None


async def refresh_checkpoints(
    context: ProxyContext, server: ServerHandle
) -> tuple[Checkpoint, ...]:
    """Read the list of checkpoints, and publish it when it differs from what is known.

    Returns:
        All of them, newest first; none of a server that keeps none.
    """
    known = context.bus.state.servers.get(server.name)
    if not await offers(server, CHECKPOINTS):
        if known is not None and known.checkpoints is not None:
            context.bus.publish(CheckpointsListed(server=server.name, offered=False))
        return ()
    found = await ask(server, tuple[Checkpoint, ...], CHECKPOINTS)
    listed, more = found[:LISTED], max(0, len(found) - LISTED)
    if known is None or (known.checkpoints, known.checkpoints_more) != (listed, more):
        context.bus.publish(CheckpointsListed(server=server.name, checkpoints=listed, more=more))
    return found


async def tokens(context: ProxyContext, episode_uuid: str, name: str) -> EpisodeTokens:
    """The token log of an episode.

    Args:
        episode_uuid: Of the episode.
        name: Of its server.

    Raises:
        AjetError: the server is not known, gives no token log, or does not have the episode.
    """
    server = context.servers.get(name)
    if server is None:
        raise AjetError(
            f"there is no server `{name}` now", todo=f"Known: {', '.join(context.servers)}"
        )
    if not _plain(episode_uuid):
        raise AjetError("this is no id of an episode", f"{episode_uuid!r:.80}")
    return await ask(server, EpisodeTokens, TOKENS, episode_uuid=episode_uuid)


def _plain(text: str) -> bool:
    """Whether it can stand in a URL as it is."""
    return bool(text) and all(one.isalnum() or one in "-_." for one in text) and text.isascii()
