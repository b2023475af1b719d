"""What a server can answer: kinds of content, and as many candidates as it has episodes at a time.

A group that requested more would wait for them until its deadline and block all others.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ajet_swarm.common.text import one_line
from core.events.alerts import TooFewEpisodes
from core.settings import Settings
from proxy.alerts import clear_alert, show_alert
from proxy.context import ServerHandle
from proxy.dialects.request import ChatRequest
from proxy.groups.run import GroupRun
from proxy.http.errors import ApiError, bad_request

_FILES = ("file", "input_file", "input_audio", "audio_url", "video_url")
CALM = 20
"""Number of consecutive groups that fit after which the alert about oversized ones is cleared."""


def capacity_of(server: ServerHandle) -> int | None:
    """Return the maximum number of episodes of a server at a time; None while unknown.

    Source: a trainer keeps at most one batch of episodes open (protocol section 7).
    """
    if server.most_episodes is not None:
        return server.most_episodes
    pool = server.watcher.pool
    if pool is None or pool.stale or not pool.completed_episode_target:
        return None
    return max(pool.completed_episode_target, pool.repeat)


def check_servable(request: ChatRequest, server: ServerHandle, settings: Settings) -> None:
    """Refuse a request that its server cannot answer: an image, a file, too many choices.

    Args:
        request: The request.
        server: Its server; in observe mode the upstream decides on images and files.
        settings: Names the servers whose models accept images.

    Raises:
        ApiError: A 400 with the reason.
    """
    if server.trains:
        if request.shown is not None:
            _check_vision(server, settings)
        _check_files(server, request.messages)
    if request.n > 1:
        limit, capacity = settings.proxy.most_choices, capacity_of(server)
        most = limit if capacity is None else min(limit, capacity)  # more would take a whole batch
        if refusal := too_many_choices(request.n, most):
            raise refusal


def _check_vision(server: ServerHandle, settings: Settings) -> None:
    known = settings.server.get(server.name)
    name = one_line(server.name, 60)
    # Only the embedded engine reports its window.
    own = server.info.context is not None or settings.servers().get(server.name) == "embedded"
    if own:
        text = f"Server `{name}` is the embedded engine, which accepts text only, no images."
    elif known is not None and known.vision:
        return
    else:
        text = (
            f"Server `{name}` accepts text only, but the request contains an image. "
            f"Set servers.{name}.vision: true if its model accepts images."
        )
    raise ApiError(400, None, text, param="messages")


def _check_files(server: ServerHandle, messages: Sequence[Mapping[str, Any]]) -> None:
    """Refuse files, audio and video after the last answer: a server that trains drops them."""
    for back, message in enumerate(reversed(messages)):
        if back and message.get("role") == "assistant":  # the last one is the answer's beginning
            return
        content = message.get("content")
        for part in content if isinstance(content, list) else ():
            if isinstance(part, dict) and (kind := part.get("type")) in _FILES:
                name = one_line(server.name, 60)
                text = f"Server `{name}` does not accept content parts of type '{kind}'."
                raise ApiError(400, None, text, param="messages")


def too_many_choices(requested: int, capacity: int | None) -> ApiError | None:
    """Return vLLM's 400 for an `n` that is too large; None if it is not."""
    if capacity is None or requested <= capacity:
        return None
    text = f"n must be at most {capacity}, got {requested}. (parameter=n, value={requested})"
    return bad_request(text, "n")


def fit_to_capacity(run: GroupRun) -> ApiError | None:
    """Reduce the number of candidates of a run to what its server has, and raise an alert.

    Returns:
        The error for the client if its own `n` is too large.
    """
    context, server = run.context, run.facts.server
    capacity = capacity_of(server)
    key = f"room:{server.name}"
    if capacity is None or run.n <= capacity:
        run.facts.fitting += 1
        if run.facts.fitting >= CALM or (
            capacity is not None and capacity >= run.facts.not_fitting
        ):
            clear_alert(context.bus, key)
        return None
    if refusal := too_many_choices(run.request.n, capacity):
        return refusal
    run.facts.fitting, run.facts.not_fitting = 0, run.n
    params = TooFewEpisodes(server=server.name, candidates=run.n, room=capacity)
    show_alert(context.bus, key, params)
    run.n = capacity
    return None
