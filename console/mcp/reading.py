"""The tools that read: the state of the proxy as data, without texts unless they are shown."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from ajet_swarm.common.errors import UsageError
from ajet_swarm.common.text import known_names, one_line
from console.mcp.content import ContentPolicy
from console.models.advice import advice_context
from console.models.history.runs import run_data
from console.screens.progress.model import standing
from console.session.filters import parse
from console.session.open_ratings import current_alerts
from console.text.alerts import alert_text
from core.commands.plan_groups import find_group
from core.events import AlertRaised
from core.state import Candidate, Group, Server, State

_MOST_GROUPS = 200
_GROUPS = 20


class Reading:
    """Answers the tools that read.

    Args:
        content: What becomes of the texts of models and users.
    """

    def __init__(self, content: ContentPolicy) -> None:
        self._content = content
        self.table: Mapping[str, Callable[[State, Mapping[str, Any]], dict[str, Any]]] = {
            "status": self._status,
            "groups": self._groups,
            "group": self._group,
            "runs": self._runs,
            "progress": self._progress,
            "alerts": self._alerts,
            "tries": self._tries,
        }

    def _status(self, state: State, args: Mapping[str, Any]) -> dict[str, Any]:
        mock = state.mock
        return {
            "proxy": {
                "url": state.proxy_url,
                "pid": state.proxy_pid,
                "version": state.proxy_version,
                "since": state.started_at,
                "watch_only": state.watch_only,
                "rating_mode": state.rating_mode,
                "consoles": state.consoles,
            },
            "servers": [_server(state, server) for server in state.servers.values()],
            "groups": {
                "open": len(state.open_groups()),
                "waiting_for_a_rating": sum(group.rating is None for group in state.waiting()),
                "total": state.totals.groups,
                "answered": state.totals.answered,
                "lost": state.totals.lost,
            },
            "mock": {
                "mock_id": mock.mock_id,
                "phase": mock.phase,
                "total": mock.total,
                "done": mock.done + mock.already,
                "failed": mock.failed,
                "skipped": mock.skipped,
                **self._content.fields(cause=mock.cause),
            }
            if mock is not None
            else None,
            "alerts": [
                {"key": alert.key, "level": alert.level} for alert in current_alerts(state).values()
            ],
        }

    # --- groups ---------------------------------------------------------------------------------

    def _groups(self, state: State, args: Mapping[str, Any]) -> dict[str, Any]:
        limit = _GROUPS if args.get("limit") is None else args["limit"]
        if not 1 <= limit <= _MOST_GROUPS:
            raise UsageError(f"`limit` cannot be {limit}", todo=f"From 1 to {_MOST_GROUPS}")
        where = parse(args.get("where") or "")
        matches = [group for group in reversed(state.groups.values()) if where.matches(group)]
        return {
            "matches": len(matches),
            "in_memory": len(state.groups),
            "groups": [self._summary(match) for match in matches[:limit]],
        }

    def _summary(self, group: Group) -> dict[str, Any]:
        rating = group.rating
        return {
            "group_id": group.group_id,
            "server": group.server,
            "phase": group.phase,
            "episode_type": group.episode_type,
            "opened_at": group.opened_at,
            "candidates": group.n,
            "automatic_rewards": [candidate.auto_reward for candidate in group.candidates],
            "best": group.best,
            "rated": rating.rating if rating is not None else None,
            "rateable": group.rateable,
            "user_waits": group.user_waits,
            "marked": group.marked,
            "dead": bool(group.dead),
            **self._content.fields(query=group.query, note=group.note),
        }

    def _group(self, state: State, args: Mapping[str, Any]) -> dict[str, Any]:
        group = find_group(state, args["group_id"])
        rating = group.rating
        return {
            **self._summary(group),
            "weights": state.weights_of(group).text,
            "returned": group.returned,
            "until": group.until,
            "closed_at": group.closed_at,
            "source": group.source,
            "rewards_version": group.version,
            "cause_kind": group.cause_kind,
            "rating": {
                "rating": rating.rating,
                "order": list(rating.order),
                "scores": list(rating.scores),
                **self._content.fields(rater=rating.rater),
            }
            if rating is not None
            else None,
            "leases": len(group.leases),
            "candidates": [self._candidate(candidate) for candidate in group.candidates],
            **self._content.fields(
                reference=group.reference, cause=group.cause, abstained=group.abstained
            ),
        }

    def _candidate(self, candidate: Candidate) -> dict[str, Any]:
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
            **self._content.fields(
                text=candidate.text,
                reasoning=candidate.reasoning,
                tool_calls=candidate.tool_calls,
                error=candidate.error,
            ),
        }

    # --- the rest -------------------------------------------------------------------------------

    def _runs(self, state: State, args: Mapping[str, Any]) -> dict[str, Any]:
        known, now = state.engine_runs, time.time()
        runs = []
        for run in reversed(known.runs):
            data = run_data(known, run, now)
            texts = {name: data.pop(name) for name in ("name", "note")}
            runs.append({**data, **self._content.fields(**texts)})
        return {"runs": runs}

    def _progress(self, state: State, args: Mapping[str, Any]) -> dict[str, Any]:
        name = args.get("server")
        if name is not None and name not in {*state.servers, *state.progress}:
            what = f"there is no server `{one_line(name, 60)}`"
            raise UsageError(what, todo=known_names(name, state.servers))
        shown = [name] if name is not None else list(state.progress)
        standings = {name: _standing(state, name) for name in shown}
        for data in standings.values():
            notes = data.pop("notes")
            if self._content.shown:
                data["notes"] = self._content.marked(notes)
        return {"servers": standings}

    def _alerts(self, state: State, args: Mapping[str, Any]) -> dict[str, Any]:
        return {"alerts": [self._alert(state, alert) for alert in current_alerts(state).values()]}

    def _alert(self, state: State, alert: AlertRaised) -> dict[str, Any]:
        cause, todo = alert_text(alert, advice_context(watch_only=state.watch_only))
        return {
            "key": alert.key,
            "level": alert.level,
            "kind": alert.alert_kind,
            "groups": list(alert.groups),
            **self._content.fields(cause=cause, todo=todo),
        }

    def _tries(self, state: State, args: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "tries": [
                {
                    "try_id": try_.try_id,
                    "server": try_.server,
                    "over": try_.over,
                    "failed": bool(try_.error),
                    **self._content.fields(prompt=try_.prompt, text=try_.text, error=try_.error),
                }
                for try_ in reversed(state.tries)
            ]
        }


def _server(state: State, server: Server) -> dict[str, Any]:
    pool = server.pool
    return {
        "name": server.name,
        "url": server.url,
        "state": server.state,
        "answers": not server.lost,
        "step": server.step,
        "weights": state.current_weights(server).text,
        "engine_run": server.engine_run,
        "since": server.since,
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


def _standing(state: State, name: str) -> dict[str, Any]:
    one = standing(state, name)
    look = one.look
    verdict, below = look.verdict if look is not None else None, one.below_best
    return {
        "outcome": one.outcome,
        "sentence": one.sentence,
        "worse_parts": one.worse_parts,
        "notes": list(one.notes),
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
