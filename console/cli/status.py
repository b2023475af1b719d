"""`status` and `alerts`: processes, engines, mock user, waiting ratings and alerts."""

import asyncio
import time
from typing import Any

from ajet_swarm.common.errors import AjetError, UsageError
from ajet_swarm.common.text import ended_words, known_names, one_line, plural
from console.backend.swarm_report import ServerReport, addresses, report
from console.cli.commands import EXIT
from console.cli.common import (
    changed_keys,
    connected,
    existing_home,
    order,
    proxy_url,
    settings_of,
    snapshot,
)
from console.cli.options import PROXY, SWARM_URL, Args, argument, flag, takes
from console.cli.output import output, say_result
from console.json_view import alert_view, group_view, json_view
from console.models.advice import advice_context
from console.models.alerts import current_alerts
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
    state, problem = State(), ""
    seen = False
    if url:
        try:
            state, seen = await snapshot(args, url), True
        except AjetError as error:
            if args.url or args.token_file:
                raise
            problem = str(error)
    servers = {server.name: address_of(server) for server in state.servers.values()}
    servers = servers or addresses(settings, home)
    reports = await asyncio.gather(
        *(_query(name, where, state, settings) for name, where in servers.items())
    )
    view = json_view(state) if seen else {}
    short = [
        group_view(state, group)
        for group in state.groups.values()
        if group.cause_kind == TooFewAnswers.kind
    ]
    return {
        "home": str(home.root),
        "proxy": {"url": url, "error": problem, **view} if url else None,
        "engine_process": _process(home, "engine"),
        "mock_process": _process(home, "mock"),
        "servers": [
            {
                **server.data(),
                "claimed_by_proxy": server.claimed_by.get(state.client_uuid, 0)
                if state.client_uuid
                else None,
                "watched": view.get("servers", {}).get(server.name),
            }
            for server in reports
        ],
        "short": short[-SHORT:],
    }


async def _query(name: str, where: str, state: State, settings: Settings) -> ServerReport:
    """Query a server; for an upstream in observe mode, use the proxy's state."""
    watched = state.servers.get(name)
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
    number = "unknown: the proxy reports them" if proxy.get("error") else f"{len(waiting)} waiting"
    waits = plural(users, "user waits", "users wait")
    lines.append(f"ratings  {number}" + (f", {waits} for a rating" if users else ""))
    for group in waiting[:5]:
        query = one_line(group["query"], 60)
        if group["user_waits"]:
            waited = max(0.0, time.time() - group["opened_at"])
            lines.append(f"  {group['group_id']}  user waits {waited:.0f} s  {query}")
            continue
        left = f"{max(0.0, group['until'] - time.time()):.0f} s left  " if group["until"] else ""
        lines.append(f"  {group['group_id']}  {left}{query}")
    return lines


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


# --- alerts --------------------------------------------------------------------------------------


@takes(PROXY)
def alerts(args: Args) -> int:
    """List the alerts."""
    state = asyncio.run(snapshot(args))
    context = advice_context(changed_keys(existing_home(args)), watch_only=state.watch_only)
    shown = [alert_view(alert, context) for alert in current_alerts(state).values()]
    lines = [
        f"{one_line(alert['key'])}  {alert['level']}  "
        + one_line(". ".join(filter(None, (alert["cause"], alert["todo"]))))
        for alert in shown
    ]
    return say_result(args, {"alerts": shown}, lines or ["no alert"])


@takes(
    argument("keys", "key of the alert", nargs=-1, metavar="KEY"),
    flag("--all", "dismiss all alerts"),
    PROXY,
    notes=(EXIT,),
)
def dismiss(args: Args) -> int:
    """Dismiss alerts."""
    if bool(args.keys) == args.all:
        raise UsageError("give keys, or --all", "alerts dismiss")
    done = asyncio.run(_dismiss(args))
    ok = all(row["ok"] for row in done)
    lines = (f"{one_line(row['key'])}: {row['message']}" for row in done if row["ok"])
    say_result(args, {"command": "alert.dismiss", "ok": ok, "alerts": done}, lines)
    return 0 if ok else 1


async def _dismiss(args: Args) -> list[dict[str, Any]]:
    done: list[dict[str, Any]] = []
    async with connected(args) as client:
        state = await client.snapshot()
        for key in list(state.alerts) if args.all else args.keys:
            ok = key in state.alerts or key in state.dismissed
            if key in state.alerts:
                message = (await order(client, "alert.dismiss", {"key": key})).message
            elif ok:
                message = "dismissed already"
            else:
                known = (
                    known_names(key, state.alerts) if state.alerts else "There is none at present"
                )
                message = f"there is no alert `{one_line(key, 60)}`. {known}"
                output().refuse(message)
            done.append({"key": key, "ok": ok, "message": message})
    return done
