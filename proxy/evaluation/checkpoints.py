"""Checkpoints of the looks: the best verified weights stay restorable.

There are two names. A look saves its weights under the one that the best verified look does not
have, so that a later look never replaces the best.
"""

import logging

from ajet_swarm.common.errors import AjetError
from core.state import Progress
from proxy.context import ProxyContext, ServerHandle
from proxy.servers.extensions import (
    CHECKPOINTS,
    CheckpointResult,
    ask,
    offers,
    refresh_checkpoints,
)

log = logging.getLogger(__name__)

NAMES = ("progress-1", "progress-2")
"""Names of the checkpoints that looks save."""


def free_name(progress: Progress) -> str:
    """Return the name under which the next look may save."""
    best = progress.best
    taken = best.checkpoint if best is not None else ""
    return next(name for name in NAMES if name != taken)


async def save(
    context: ProxyContext, server: ServerHandle, progress: Progress, step: int | None
) -> str:
    """Save the weights of a look; return the name of the checkpoint.

    Args:
        context: The shared parts of the proxy.
        server: The server.
        progress: Its looks so far.
        step: Global step of the sampled weights.

    Returns:
        The name; empty if the server saves no checkpoints, fails to, or has other weights by now.
    """
    try:
        if not await offers(server, CHECKPOINTS):
            return ""
        name = free_name(progress)
        saved = await ask(server, CheckpointResult, CHECKPOINTS, {"name": name})
        await refresh_checkpoints(context, server)
    except AjetError as error:
        log.warning("%s saves no checkpoint for its look: %s", server.name, error)
        return ""
    # A checkpoint counts the updates in it; its weights sample under the next global step.
    return name if saved.step + 1 == step else ""
