"""The tools that read: the state of the proxy as data, without texts unless they are shown."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from ajet_swarm.common.errors import UsageError
from ajet_swarm.common.text import known_names, one_line
from console.json_view import group_view, json_view, progress_view, whole_group
from console.models.advice import advice_context
from console.screens.history.model import run_data
from console.screens.progress.model import standing
from console.session.filters import parse
from console.text.alert_words import AdviceContext
from console.text.values import fields_of
from core.commands.plan_groups import find_group
from core.state import State

_MOST_GROUPS = 200
_GROUPS = 20


View = Callable[[Any], Any]
"""What becomes of the texts of models and users: `ContentPolicy.view`."""
Args = Mapping[str, Any]


def _status(view: View, state: State, args: Args) -> dict[str, Any]:
    data = json_view(state, _advice(state))
    named = {key: data.pop(key) for key in ("servers", "progress", "alerts")}
    return {**view(data), **{key: _each(view, named[key]) for key in named}}


def _each(view: View, views: Mapping[str, Any]) -> dict[str, Any]:
    """Return views by names that may be those of fields."""
    return {name: view(data) for name, data in views.items()}


def _groups(view: View, state: State, args: Args) -> dict[str, Any]:
    limit = _GROUPS if args.get("limit") is None else args["limit"]
    if not 1 <= limit <= _MOST_GROUPS:
        raise UsageError(f"`limit` cannot be {limit}", todo=f"From 1 to {_MOST_GROUPS}")
    where = parse(args.get("where") or "")
    matches = [group for group in reversed(state.groups.values()) if where.matches(group)]
    return {
        "matches": len(matches),
        "in_memory": len(state.groups),
        "groups": [view(group_view(state, match)) for match in matches[:limit]],
    }


def _group(view: View, state: State, args: Args) -> dict[str, Any]:
    found: dict[str, Any] = view(whole_group(state, find_group(state, args["group_id"])))
    return found


def _runs(view: View, state: State, args: Args) -> dict[str, Any]:
    known, now = state.engine_runs, time.time()
    runs = []
    for run in reversed(known.runs):
        data = run_data(known, run, now)
        texts = view({"note": data.pop("note"), "text": data.pop("name")})
        runs.append({**data, **texts})
    return {"runs": runs}


def _progress(view: View, state: State, args: Args) -> dict[str, Any]:
    name = args.get("server")
    if name is not None and name not in {*state.servers, *state.progress}:
        what = f"there is no server `{one_line(name, 60)}`"
        raise UsageError(what, todo=known_names(name, state.servers))
    shown = [name] if name is not None else list(state.progress)
    views = {name: progress_view(standing(state, name)) for name in shown}
    return {"servers": _each(view, views)}


def _alerts(view: View, state: State, args: Args) -> dict[str, Any]:
    return {"alerts": list(_each(view, json_view(state, _advice(state))["alerts"]).values())}


def _tries(view: View, state: State, args: Args) -> dict[str, Any]:
    return {
        "tries": [
            {
                **fields_of(try_, "try_id server over"),
                "failed": bool(try_.error),
                **view(fields_of(try_, "prompt text error")),
            }
            for try_ in reversed(state.tries)
        ]
    }


READERS: Mapping[str, Callable[[View, State, Args], dict[str, Any]]] = {
    "status": _status,
    "groups": _groups,
    "group": _group,
    "runs": _runs,
    "progress": _progress,
    "alerts": _alerts,
    "tries": _tries,
}
"""Name of a tool that reads -> what answers it: the state of the proxy as data."""


def _advice(state: State) -> AdviceContext:
    """Return the context of alerts for a reader without keys: the advice names none."""
    return advice_context(read_only=True, watch_only=state.watch_only)
