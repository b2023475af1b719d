"""The state as JSON data: the same fields in `status --json`, `watch --json` and the MCP tools."""

import time
from typing import Any

import msgspec

from ajet_swarm.common.text import one_line
from console.models.advice import advice_context
from console.models.alerts import current_alerts
from console.screens.progress.model import Standing, standing
from console.text.alert_words import AdviceContext
from console.text.alerts import alert_text
from console.text.format import is_starting
from console.text.values import fields_of
from core.events import AlertRaised
from core.state import Candidate, Group, Mock, Server, State

TEXTS = frozenset(
    {
        *("abstained", "cause", "dataset", "error", "lost", "note", "notes", "params", "prompt"),
        *("query", "rater", "reasoning", "reference", "target", "text", "todo", "tool_calls"),
    }
)
"""Names of the fields with texts of models, users and operators."""


def json_view(state: State, context: AdviceContext | None = None) -> dict[str, Any]:
    """Return the state in a few hundred bytes, without the groups that need nobody.

    Args:
        state: The state.
        context: What the advice of alerts depends on; None for the default keys.
    """
    context = context or advice_context(watch_only=state.watch_only)
    waiting = [group for group in state.waiting() if group.rating is None]
    return {
        **fields_of(state, "run_id proxy_url proxy_pid proxy_version proxy_up started_at"),
        **fields_of(state, "watch_only rating_mode consoles"),
        "rewards": fields_of(state.rewards, "source ok"),
        "servers": {name: _server(state, server) for name, server in state.servers.items()},
        "progress": {name: progress_view(standing(state, name)) for name in state.progress},
        "alerts": {key: alert_view(alert, context) for key, alert in current_alerts(state).items()},
        "groups": len(state.groups),
        "open_groups": [group.group_id for group in state.open_groups()],
        "waiting": [group_view(state, group) for group in waiting],
        "mock": _mock(state.mock) if state.mock is not None else None,
        "totals": msgspec.to_builtins(state.totals),
    }


def group_view(state: State, group: Group) -> dict[str, Any]:
    """Return what a list of groups says of one."""
    rating = group.rating
    return {
        **fields_of(group, "group_id server phase episode_type opened_at closed_at until best"),
        **fields_of(group, "rateable user_waits marked cause_kind note"),
        "weights": state.weights_of(group).text,
        "candidates": group.n,
        "automatic_rewards": [candidate.auto_reward for candidate in group.candidates],
        "rated": rating.rating if rating is not None else None,
        "dead": bool(group.dead),
        "query": one_line(group.query, 300),
        "cause": one_line(group.cause, 300),
    }


def whole_group(state: State, group: Group) -> dict[str, Any]:
    """Return a group with its candidates and its rating."""
    rating = group.rating
    return {
        **group_view(state, group),
        **fields_of(group, "query cause returned source reference abstained"),
        "rewards_version": group.version,
        "rating": rating and msgspec.to_builtins(fields_of(rating, "rating order scores rater")),
        "leases": len(group.leases),
        "candidates": [_candidate(candidate) for candidate in group.candidates],
    }


def progress_view(present: Standing) -> dict[str, Any]:
    """Return the verdict about the policy of a server."""
    look, below = present.look, present.below_best
    verdict = look.verdict if look is not None else None
    return {
        **fields_of(present, "outcome sentence worse_parts"),
        "notes": list(present.notes),
        **fields_of(look, "step"),
        **fields_of(verdict, "effect low high"),
        "below_best": fields_of(below, "step effect low high") if below is not None else None,
    }


def alert_view(alert: AlertRaised, context: AdviceContext) -> dict[str, Any]:
    """Return an alert in words."""
    cause, todo = alert_text(alert, context)
    return {
        **fields_of(alert, "key level at alert_kind params"),
        "groups": list(alert.groups),
        "cause": cause,
        "todo": todo,
    }


def _server(state: State, server: Server) -> dict[str, Any]:
    pool = server.pool
    return {
        **fields_of(server, "url state step engine_run since lost seen_at"),
        "weights": state.current_weights(server).text,
        "answers": not server.lost,
        "starting": is_starting(server, time.time()),
        "pool": {
            "tasks": pool.completed_tasks,
            "task_target": pool.task_target,
            "episodes": pool.completed_episodes,
            "episode_target": pool.episode_target,
            "running": pool.running,
        }
        if pool is not None
        else None,
        "checkpoints": [
            fields_of(checkpoint, "name step damaged") for checkpoint in server.checkpoints or ()
        ],
    }


def _mock(mock: Mock) -> dict[str, Any]:
    return {
        **fields_of(mock, "mock_id dataset target phase total failed skipped cause"),
        "done": mock.done + mock.already,
    }


def _candidate(candidate: Candidate) -> dict[str, Any]:
    return {
        **fields_of(candidate, "index phase tokens seconds truncated"),
        **fields_of(candidate, "text reasoning tool_calls error"),
        "automatic_reward": candidate.auto_reward,
        "reward_sent": candidate.reward,
        "parts": [fields_of(part, "name value weight gate") for part in candidate.parts],
        "finish_reason": one_line(candidate.finish_reason, 20),
        "failed": bool(candidate.error),
    }
