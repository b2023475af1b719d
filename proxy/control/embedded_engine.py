"""Backend and model of an embedded engine, as it reports them; a job for it depends on both."""

import msgspec

from ajet_swarm.api.interface import SwarmApi
from ajet_swarm.api.outcomes import decoded
from ajet_swarm.http.interface import Request
from ajet_swarm.protocol.errors import SwarmError
from core.settings import SHIPPED_MODEL, EngineSettings
from proxy.servers.extensions import INFO

_LIMIT = 10.0
"""Seconds the engine gets to answer."""


class _Backend(msgspec.Struct, frozen=True):
    """The used part of the response of `INFO`."""

    backend: str | None = None
    model: str = ""


async def engine_of(client: SwarmApi, settings: EngineSettings) -> EngineSettings:
    """Return the settings with backend and model of the engine that runs.

    An engine may have been started with other options than the settings have. They are unchanged
    where it does not report them.

    Args:
        client: Client of the server; only the embedded engine has the route.
        settings: Those of this process.
    """
    try:
        if INFO not in await client.features():
            return settings
        request = Request("GET", client.url + INFO, timeout=_LIMIT, repeatable=True)
        info = decoded(await client.transport.request(request), _Backend, client.url)
    except (SwarmError, msgspec.MsgspecError):
        return settings
    if info.backend == "torch":
        return msgspec.structs.replace(settings, backend="torch", model=info.model or SHIPPED_MODEL)
    if info.backend == "numpy":
        return msgspec.structs.replace(settings, backend="numpy", model=SHIPPED_MODEL)
    return settings
