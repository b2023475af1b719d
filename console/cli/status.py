"""`status`: the proxy, the engines, the mock user and waiting ratings, as text or JSON."""

import asyncio
import time
from typing import Any

from ajet_swarm.common.errors import AjetError
from ajet_swarm.common.text import ended_words, one_line
from console.backend.swarm_report import ServerReport, addresses, report
from console.cli.common import existing_home, proxy_url, say_result, settings_of, snapshot
from console.cli.options import PROXY, SWARM_URL, Args, takes
from console.json_view import group_view, json_view
from console.text.format import address_of
from core.events.causes import TooFewAnswers
from core.runtime.home import Home, missing_home, running
from core.settings import Settings
from core.state import State

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
    return say_result(args, data, _lines(data))


async def _gather(args: Args, home: Home) -> dict[str, Any]:
    settings = settings_of(home, args.swarm_url)
    url = "" if args.swarm_url and not args.url else proxy_url(args, home)
    state: State | None = None
    problem = ""
    if url:
        try:
            state = await snapshot(args, url)
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
    view = json_view(state) if state is not None else None
    return {
        "home": str(home.root),
        "proxy": {"url": url, "error": problem, **(view or {})} if url else None,
        "engine_process": _process(home, "engine"),
        "mock_process": _process(home, "mock"),
        "servers": [_server(server_report, state, view) for server_report in reports],
        "short": [
            group_view(state, group)
            for group in state.groups.values()
            if group.cause_kind == TooFewAnswers.kind
        ][-SHORT:]
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


def _process(home: Home, role: str) -> dict[str, Any] | None:
    info = running(home, role)
    return {"pid": info.pid, "url": info.url, "since": info.started_at} if info else None


def _server(
    server_report: ServerReport, state: State | None, view: dict[str, Any] | None
) -> dict[str, Any]:
    own = state.client_uuid if state is not None else ""
    return {
        **server_report.data(),
        "claimed_by_proxy": server_report.claimed_by.get(own, 0) if own else None,
        "watched": view["servers"].get(server_report.name) if view is not None else None,
    }


def _lines(data: dict[str, Any]) -> list[str]:
    proxy = data["proxy"] or {}
    lines = [f"home     {data['home']}", _proxy_line(proxy)]
    lines += [f"  alert  {one_line(alert['cause'])}" for alert in proxy.get("alerts", {}).values()]
    lines += [_server_line(server) for server in data["servers"]]
    for name, progress in proxy.get("progress", {}).items():
        lines.append(f"progress {one_line(name, 30)}  {progress['sentence']}")
        lines += [f"  {note}" for note in progress["notes"]]
    lines.append(_mock_line(proxy.get("mock"), data["mock_process"]))
    lines += [f"short    {group['group_id']}  {group['cause']}" for group in data["short"]]
    waiting = proxy.get("waiting", [])
    users = sum(group["user_waits"] for group in waiting)
    number = f"{len(waiting)} waiting"
    if proxy.get("error"):
        number = "unknown: the proxy reports them"
    lines.append(f"ratings  {number}" + (f", {_users(users)}" if users else ""))
    for group in waiting[:5]:
        query = one_line(group["query"], 60)
        if group["user_waits"]:
            waited = max(0.0, time.time() - group["opened_at"])
            lines.append(f"  {group['group_id']}  user waits {waited:.0f} s  {query}")
            continue
        left = f"{max(0.0, group['until'] - time.time()):.0f} s left  " if group["until"] else ""
        lines.append(f"  {group['group_id']}  {left}{query}")
    return lines


def _users(count: int) -> str:
    return "1 user waits for a rating" if count == 1 else f"{count} users wait for a rating"


def _proxy_line(proxy: dict[str, Any]) -> str:
    if not proxy:
        return "proxy    not running"
    if "totals" not in proxy:
        return f"proxy    {proxy['url']}  its state is unknown: {proxy['error']}"
    totals = proxy["totals"]
    return (
        f"proxy    {proxy['url']}  pid {proxy['proxy_pid']}  rating {proxy['rating_mode']}  "
        f"{len(proxy['open_groups'])} open, {totals['groups']} groups, "
        f"{totals['answered']} answered"
        + (f", {totals['lost']} finished but lost: will not train" if totals["lost"] else "")
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
    watched = server["watched"]
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
