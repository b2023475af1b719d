"""The state as JSON data: the same fields in `status --json`, `watch --json` and the MCP tools."""

import time
from typing import Any

import msgspec

from ajet_swarm.common.text import one_line
from console.models.advice import advice_context
from console.screens.progress.model import Standing, standing
from console.session.open_ratings import current_alerts
from console.text.alert_words import AdviceContext
from console.text.alerts import alert_text
from console.text.contact import is_starting
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
        "run_id": state.run_id,
        "proxy_url": state.proxy_url,
        "proxy_pid": state.proxy_pid,
        "proxy_version": state.proxy_version,
        "proxy_up": state.proxy_up,
        "started_at": state.started_at,
        "watch_only": state.watch_only,
        "rating_mode": state.rating_mode,
        "consoles": state.consoles,
        "rewards": {"source": state.rewards.source, "ok": state.rewards.ok},
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
        "group_id": group.group_id,
        "server": group.server,
        "phase": group.phase,
        "episode_type": group.episode_type,
        "weights": state.weights_of(group).text,
        "opened_at": group.opened_at,
        "closed_at": group.closed_at,
        "until": group.until,
        "candidates": group.n,
        "automatic_rewards": [candidate.auto_reward for candidate in group.candidates],
        "best": group.best,
        "rated": rating.rating if rating is not None else None,
        "rateable": group.rateable,
        "user_waits": group.user_waits,
        "marked": group.marked,
        "dead": bool(group.dead),
        "cause_kind": group.cause_kind,
        "query": one_line(group.query, 300),
        "note": group.note,
        "cause": one_line(group.cause, 300),
    }


def whole_group(state: State, group: Group) -> dict[str, Any]:
    """Return a group with its candidates and its rating."""
    rating = group.rating
    return {
        **group_view(state, group),
        "query": group.query,
        "cause": group.cause,
        "returned": group.returned,
        "source": group.source,
        "rewards_version": group.version,
        "rating": {
            "rating": rating.rating,
            "order": list(rating.order),
            "scores": list(rating.scores),
            "rater": rating.rater,
        }
        if rating is not None
        else None,
        "leases": len(group.leases),
        "candidates": [_candidate(candidate) for candidate in group.candidates],
        "reference": group.reference,
        "abstained": group.abstained,
    }


def progress_view(present: Standing) -> dict[str, Any]:
    """Return the verdict about the policy of a server."""
    look, below = present.look, present.below_best
    verdict = look.verdict if look is not None else None
    return {
        "outcome": present.outcome,
        "sentence": present.sentence,
        "worse_parts": present.worse_parts,
        "notes": list(present.notes),
        "step": look.step if look is not None else None,
        "effect": verdict.effect if verdict is not None else None,
        "low": verdict.low if verdict is not None else None,
        "high": verdict.high if verdict is not None else None,
        "below_best": {
            "step": below.step,
            "effect": below.effect,
            "low": below.low,
            "high": below.high,
        }
        if below is not None
        else None,
    }


def alert_view(alert: AlertRaised, context: AdviceContext) -> dict[str, Any]:
    """Return an alert in words."""
    cause, todo = alert_text(alert, context)
    return {
        "key": alert.key,
        "level": alert.level,
        "at": alert.at,
        "alert_kind": alert.alert_kind,
        "params": alert.params,
        "groups": list(alert.groups),
        "cause": cause,
        "todo": todo,
    }


def _server(state: State, server: Server) -> dict[str, Any]:
    pool = server.pool
    return {
        "url": server.url,
        "state": server.state,
        "step": server.step,
        "weights": state.current_weights(server).text,
        "engine_run": server.engine_run,
        "since": server.since,
        "answers": not server.lost,
        "lost": server.lost,
        "seen_at": server.seen_at,
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
            {"name": checkpoint.name, "step": checkpoint.step, "damaged": checkpoint.damaged}
            for checkpoint in server.checkpoints or ()
        ],
    }


def _mock(mock: Mock) -> dict[str, Any]:
    return {
        "mock_id": mock.mock_id,
        "dataset": mock.dataset,
        "target": mock.target,
        "phase": mock.phase,
        "total": mock.total,
        "done": mock.done + mock.already,
        "failed": mock.failed,
        "skipped": mock.skipped,
        "cause": mock.cause,
    }


def _candidate(candidate: Candidate) -> dict[str, Any]:
    return {
        "index": candidate.index,
        "phase": candidate.phase,
        "automatic_reward": candidate.auto_reward,
        "reward_sent": candidate.reward,
        "parts": [
            {"name": part.name, "value": part.value, "weight": part.weight, "gate": part.gate}
            for part in candidate.parts
        ],
        "tokens": candidate.tokens,
        "seconds": candidate.seconds,
        "finish_reason": one_line(candidate.finish_reason, 20),
        "truncated": candidate.truncated,
        "failed": bool(candidate.error),
        "text": candidate.text,
        "reasoning": candidate.reasoning,
        "tool_calls": candidate.tool_calls,
        "error": candidate.error,
    }
