"""Limits the candidates of a group to the number of episodes that its server has at a time.

A group that requested more would wait for them until its deadline and block all others.
"""

from core.events.alerts import TooFewEpisodes
from proxy.alerts import clear_alert, show_alert
from proxy.context import ServerHandle
from proxy.groups.run import GroupRun
from proxy.http.errors import ApiError, bad_request

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


def most_choices(server: ServerHandle, limit: int) -> int:
    """Return the maximum number of choices of one request, at most `limit` and a whole batch."""
    capacity = capacity_of(server)
    return limit if capacity is None else min(limit, capacity)


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
