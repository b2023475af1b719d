"""`status`: the proxy, the engines, the mock user and waiting ratings, as text or JSON."""

import asyncio
import time
from typing import Any

from ajet_swarm.common.errors import AjetError
from ajet_swarm.common.text import ended_words, one_line
from console.backend.swarm_report import ServerReport, addresses, report
from console.cli.common import existing_home, proxy_url, say, say_json, settings_of, snapshot
from console.cli.options import PROXY, SWARM_URL, Args, takes
from console.models.advice import advice_context
from console.models.progress.standing import standing
from console.session.open_ratings import current_alerts
from console.text.alerts import alert_text
from console.text.contact import address_of, is_starting
from core.events.causes import TooFewAnswers
from core.runtime.home import Home, missing_home, running
from core.settings import Settings
from core.state import Mock, State

SHORT = 5
"""Number of the newest groups with too few candidates that are listed with their causes."""


@takes(SWARM_URL, PROXY)
def status(args: Args) -> int:
    """Print the status of all processes.

    Raises:
        AjetError: a proxy named with --url does not answer; or nothing is named and the home does
            not exist.
    """
    home = existing_home(args)
    if not (home.exists or args.url or args.swarm_url):
        raise missing_home(home)
    data = asyncio.run(_gather(args, home))
    if args.json:
        say_json(data)
    else:
        for line in _lines(data):
            say(line)
    return 0


async def _gather(args: Args, home: Home) -> dict[str, Any]:
    settings = settings_of(home, args.swarm_url)
    url = "" if args.swarm_url and not args.url else proxy_url(args, home)
    state: State | None = None
    problem = ""
    if url:
        try:
            state = await snapshot(args, home, url)
        except AjetError as error:
            if args.url or args.token_file:
                raise
            problem = str(error)
    servers = (
        {server.name: address_of(server) for server in state.servers.values()}
        if state is not None and state.servers
        else addresses(settings, home)
    )
    reports = await asyncio.gather(
        *(_query(name, where, state, settings) for name, where in servers.items())
    )
    return {
        "home": str(home.root),
        "proxy": _proxy(url, state, problem),
        "engine_process": _process(home, "engine"),
        "mock_process": _process(home, "mock"),
        "servers": [_server(server_report, state) for server_report in reports],
        "progress": _progress(state) if state is not None else {},
        "mock": _mock(state.mock) if state is not None and state.mock is not None else None,
        "short": [
            {
                "group_id": group.group_id,
                "phase": group.phase,
                "weights": state.weights_of(group).text,
                "cause": one_line(group.cause, 300),
            }
            for group in state.groups.values()
            if group.cause_kind == TooFewAnswers.kind
        ][-SHORT:]
        if state is not None
        else [],
        "waiting": [
            {
                "group_id": group.group_id,
                "weights": state.weights_of(group).text,
                "query": one_line(group.query, 60),
                "until": group.until,
                "user_waits": group.user_waits,
                "opened_at": group.opened_at,
            }
            for group in state.waiting()
            if group.rating is None
        ]
        if state is not None
        else [],
    }


async def _query(name: str, where: str, state: State | None, settings: Settings) -> ServerReport:
    """Query a server; for an upstream in observe mode, use the proxy's state."""
    watched = state.servers.get(name) if state is not None else None
    if watched is not None and watched.state == "OBSERVING":
        shown = "CANNOT_CONNECT" if watched.lost else watched.state
        return ServerReport(name, where, shown, watched.raw, watched.detail, error=watched.lost)
    if watched is None and settings.upstream.url:
        return ServerReport(name, where, "OBSERVING", error="no proxy runs that uses it")
    if watched is not None and not where:
        return ServerReport(name, where, error="it is not up: its port is not known yet")
    return await report(name, where)


def _proxy(url: str, state: State | None, problem: str) -> dict[str, Any] | None:
    if not url:
        return None
    data: dict[str, Any] = {"url": url, "error": problem}
    if state is not None:
        data |= {
            "pid": state.proxy_pid,
            "since": state.started_at,
            "rating_mode": state.rating_mode,
            "rewards": state.rewards.source,
            "open_groups": len(state.open_groups()),
            "groups": state.totals.groups,
            "answered": state.totals.answered,
            "lost_groups": state.totals.lost,
            "consoles": state.consoles,
            "alerts": [
                one_line(alert_text(alert, advice_context()).cause)
                for alert in current_alerts(state).values()
            ],
        }
    return data


def _process(home: Home, role: str) -> dict[str, Any] | None:
    info = running(home, role)
    return {"pid": info.pid, "url": info.url, "since": info.started_at} if info else None


def _server(server_report: ServerReport, state: State | None) -> dict[str, Any]:
    data = server_report.data()
    own = state.client_uuid if state is not None else ""
    data["claimed_by_proxy"] = server_report.claimed_by.get(own, 0) if own else None
    if server_report.name in (known := state.servers if state is not None else {}):
        watched = known[server_report.name]
        data["watched"] = {
            "state": watched.state,
            "step": watched.step,
            "weights": state.current_weights(watched).text if state is not None else "",
            "since": watched.since,
            "seen_at": watched.seen_at,
            "starting": is_starting(watched, time.time()),
        }
    return data


def _progress(state: State) -> dict[str, Any]:
    """Return the verdict about each server whose policy is measured."""
    verdicts = {name: standing(state, name) for name in state.progress}
    return {
        name: {
            "outcome": verdict.outcome,
            "sentence": verdict.sentence,
            "notes": list(verdict.notes),
        }
        for name, verdict in verdicts.items()
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


def _lines(data: dict[str, Any]) -> list[str]:
    lines = [f"home     {data['home']}", _proxy_line(data["proxy"])]
    if data["proxy"]:
        lines += [f"  alert  {alert}" for alert in data["proxy"].get("alerts", ())]
    lines += [_server_line(server) for server in data["servers"]]
    for name, look in data["progress"].items():
        lines.append(f"progress {one_line(name, 30)}  {look['sentence']}")
        lines += [f"  {note}" for note in look["notes"]]
    unknown = bool(data["proxy"] and data["proxy"]["error"])
    lines.append(_mock_line(data["mock"], data["mock_process"]))
    lines += [f"short    {entry['group_id']}  {entry['cause']}" for entry in data["short"]]
    waiting = data["waiting"]
    users = sum(entry["user_waits"] for entry in waiting)
    number = "unknown: the proxy reports them" if unknown else f"{len(waiting)} waiting"
    lines.append(f"ratings  {number}" + (f", {_users(users)}" if users else ""))
    for entry in waiting[:5]:
        if entry["user_waits"]:
            waited = max(0.0, time.time() - entry["opened_at"])
            lines.append(f"  {entry['group_id']}  user waits {waited:.0f} s  {entry['query']}")
            continue
        left = f"{max(0.0, entry['until'] - time.time()):.0f} s left  " if entry["until"] else ""
        lines.append(f"  {entry['group_id']}  {left}{entry['query']}")
    return lines


def _users(count: int) -> str:
    return "1 user waits for a rating" if count == 1 else f"{count} users wait for a rating"


def _proxy_line(proxy: dict[str, Any] | None) -> str:
    if proxy is None:
        return "proxy    not running"
    if proxy["error"]:
        return f"proxy    {proxy['url']}  its state is unknown: {proxy['error']}"
    lost = proxy["lost_groups"]
    return (
        f"proxy    {proxy['url']}  pid {proxy['pid']}  rating {proxy['rating_mode']}  "
        f"{proxy['open_groups']} open, {proxy['groups']} groups, {proxy['answered']} answered"
        + (f", {lost} finished but lost: will not train" if lost else "")
    )


def _server_line(server: dict[str, Any]) -> str:
    step = "" if server["step"] is None else f"  step {server['step']}"
    url = server["url"] or "no address yet"
    line = f"engine   {one_line(server['name'], 30)}  {url}  {_state(server)}{step}"
    if (pool := server["pool"]) is not None:
        line += (
            f"  {pool['tasks']}/{pool['task_target']} tasks"
            f"  {pool['episodes']}/{pool['episode_target']} episodes"
        )
    if server["claimed"] is not None:
        line += f"  {server['claimed']} claimed"
    return line + (f"  ({one_line(server['error'])})" if server["error"] else "")


def _state(server: dict[str, Any]) -> str:
    watched = server.get("watched")
    if server["state"] == "CANNOT_CONNECT" and watched is not None and watched["starting"]:
        return "STARTING"
    if server["state"] == "CANNOT_CONNECT" and watched is not None and watched["seen_at"]:
        return f"GONE {time.time() - watched['seen_at']:.0f}s (was {watched['state']})"
    if server["state"] != "UNKNOWN":
        return str(server["state"])
    return f"unknown ({one_line(server['raw'], 40)})"


def _mock_line(mock: dict[str, Any] | None, process: dict[str, Any] | None) -> str:
    if mock is None:
        return f"mock     running, pid {process['pid']}" if process else "mock     not running"
    no_process = mock["phase"] in ("running", "paused", "stopping") and process is None
    phase = ended_words(mock["phase"], mock["cause"])
    return (
        f"mock     {phase}{' (no process here)' if no_process else ''}  "
        f"{mock['done']}/{mock['total']} rows, {mock['failed']} failed, {mock['skipped']} skipped  "
        f"{mock['dataset']}"
    )
