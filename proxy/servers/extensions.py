"""Client of the embedded engine's own routes, which AgentJet does not have: checkpoints, tokens."""

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from ajet_swarm.api.wire import SwarmWire, decoded
from ajet_swarm.common.errors import AjetError
from ajet_swarm.http.interface import Request
from core.control_payloads import EngineInfo, EpisodeTokens
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
"""Maximum number of checkpoints in an event; the command line lists them all."""
LIMIT = 60.0
"""Maximum number of seconds for an engine to write or read a checkpoint."""
INFO_LIMIT = 10.0
"""The same for what an engine reports of itself."""
_JSON = {"content-type": "application/json"}


class NotOffered(AjetError):
    """The server has no such route."""


class CheckpointResult(msgspec.Struct, frozen=True):
    """Response of the engine to a command about its checkpoints."""

    step: int = 0
    deleted: tuple[str, ...] = ()


async def offers(server: ServerHandle, path: str) -> bool:
    """Return whether the server has the route, according to its `/openapi.json`.

    Raises:
        SwarmError: The server does not answer.
    """
    return path in await server.client.features()


async def ask(
    server: ServerHandle,
    kind: type[T],
    path: str,
    body: Mapping[str, Any] | None = None,
    *,
    limit: float = LIMIT,
    **at: str,
) -> T:
    """Call one of these routes: POST with a body, else GET.

    Args:
        server: The embedded engine.
        kind: Type of the answer.
        path: The route, with a query if it needs one.
        body: JSON object to send.
        limit: Maximum seconds of the answer.
        at: Values of the parameters in `path`.

    Raises:
        NotOffered: The server has no such route.
        SwarmError: The server refused with a reason, or did not answer.
    """
    if not await offers(server, path.partition("?")[0]):
        what = "token log" if path == TOKENS else "checkpoints"
        raise NotOffered(
            f"this server has no {what}", server.name, "Only the embedded engine has this"
        )
    client = server.client
    url = client.url + path.format(**at)
    response = await client.transport.request(
        Request(
            "GET" if body is None else "POST",
            url,
            body=None if body is None else msgspec.json.encode(body),
            headers=None if body is None else _JSON,
            timeout=limit,
            repeatable=body is None,
        )
    )
    return decoded(response, kind, server.name)


async def engine_info(client: SwarmWire) -> EngineInfo:
    """Return what a server reports of itself.

    Raises:
        SwarmError: The server refused with a reason, or did not answer.
    """
    if INFO not in await client.features():
        return EngineInfo()
    request = Request("GET", client.url + INFO, timeout=INFO_LIMIT, repeatable=True)
    return decoded(await client.transport.request(request), EngineInfo, client.name)


async def refresh_checkpoints(
    context: ProxyContext, server: ServerHandle
) -> tuple[Checkpoint, ...]:
    """Read the list of checkpoints, and publish it if it has changed.

    Returns:
        All checkpoints, newest first; empty for a server without checkpoints.
    """
    known = context.bus.state.servers.get(server.name)
    if not await offers(server, CHECKPOINTS):
        if known is not None and known.checkpoints is not None:
            context.bus.publish(CheckpointsListed(server=server.name, offered=False))
        return ()
    checkpoints = await ask(server, tuple[Checkpoint, ...], CHECKPOINTS)
    listed, more = checkpoints[:LISTED], max(0, len(checkpoints) - LISTED)
    if known is None or (known.checkpoints, known.checkpoints_more) != (listed, more):
        context.bus.publish(CheckpointsListed(server=server.name, checkpoints=listed, more=more))
    return checkpoints


async def tokens(context: ProxyContext, episode_uuid: str, name: str) -> EpisodeTokens:
    """Return the token log of an episode.

    Args:
        context: The shared parts of the proxy.
        episode_uuid: The episode.
        name: Its server.

    Raises:
        AjetError: The server is unknown, has no token log, or does not have the episode.
    """
    server = context.servers.get(name)
    if server is None:
        raise AjetError(
            f"there is no server `{name}` now", todo=f"Known: {', '.join(context.servers)}"
        )
    if not _is_url_safe(episode_uuid):
        raise AjetError("this is not the id of an episode", f"{episode_uuid!r:.80}")
    return await ask(server, EpisodeTokens, TOKENS, episode_uuid=episode_uuid)


def _is_url_safe(text: str) -> bool:
    """Return whether a text needs no escaping in a URL."""
    return bool(text) and all(char.isalnum() or char in "-_." for char in text) and text.isascii()
