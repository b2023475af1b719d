"""Orders about alerts and about the processes of the home."""

import argparse
import asyncio
import sys
from typing import Any

from ajet_swarm.common.errors import AjetError, UsageError
from ajet_swarm.common.text import known_names, one_line
from console.cli.commands import say_json
from console.cli.common import (
    NotRunning,
    cert_of,
    confirm,
    look_home,
    need_proxy,
    say,
    settings_of,
    token_of,
)
from core.commands import COMMANDS
from core.runtime.home import Home, running


def dismiss(given: argparse.Namespace) -> int:
    """Take alerts off the screen; without a key list them."""
    if given.keys and given.all:
        raise UsageError("not both: keys, or --all", "alert-dismiss")
    home = look_home(given)
    return asyncio.run(_dismiss(given, home))


async def _dismiss(given: argparse.Namespace, home: Home) -> int:
    from proxy.control.client import ControlClient

    url = need_proxy(given, home)
    async with ControlClient(url, token_of(given, home), cert=cert_of(home)) as client:
        alerts = (await client.snapshot()).alerts
        if not (given.keys or given.all):
            listed = [
                {
                    "key": one.key,
                    "level": one.level,
                    "cause": one.cause,
                    "todo": one.todo,
                    "groups": one.groups,
                }
                for one in alerts.values()
            ]
            _list(given, listed)
            return 0
        done: list[dict[str, Any]] = []
        for key in list(alerts) if given.all else given.keys:
            if known := key in alerts:
                await client.command("alert.dismiss", {"key": key})
            told = "dismissed" if known else f"there is no such alert. {known_names(key, alerts)}"
            done.append({"key": key, "ok": known, "message": told})
    ok = all(one["ok"] for one in done)
    if given.json:
        say_json({"command": "alert.dismiss", "ok": ok, "alerts": done})
    else:
        for one in done:
            line = f"{one_line(one['key'])}: {one['message']}"
            if one["ok"]:
                say(line)
            else:
                sys.stderr.write(f"ajet-console: {line}\n")
    return 0 if ok else 1


def _list(given: argparse.Namespace, alerts: list[dict[str, Any]]) -> None:
    if given.json:
        say_json({"alerts": alerts})
        return
    if not alerts:
        say("no alert")
    for one in alerts:
        todo = f". {one['todo']}" if one["todo"] else ""
        say(f"{one_line(one['key'])}  {one['level']}  {one_line(one['cause'] + todo)}")


def restart(given: argparse.Namespace) -> int:
    """Stop a process of this home and start it as it was started.

    Raises:
        NotRunning: there is none.
    """
    role = "proxy" if given.order_name == "proxy.restart" else "engine"
    home = look_home(given)
    info = running(home, role)
    if info is None:
        raise NotRunning(
            f"no {role} runs in this home", str(home.root), f"Start it: `ajet-console {role}`"
        )
    lost = "what is claimed, and what was trained since its last update"
    if role == "proxy":
        lost = "no request: those in flight are finished first, new ones are refused meanwhile"
        if not given.yes:
            lost = "; ".join([lost, *asyncio.run(_waiting(info.url, home))])
    if not confirm(f"Restart the {role} (pid {info.pid})", lost, given.yes):
        say("left as it is")
        return 1
    again = asyncio.run(_restart(home, role))
    told = f"The {role} runs again, pid {again[0]}, {again[1]}"
    if given.json:
        say_json(
            {
                "command": given.order_name,
                "ok": True,
                "message": told,
                "pid": again[0],
                "url": again[1],
            }
        )
    else:
        say(told)
    return 0


async def _waiting(url: str, home: Home) -> list[str]:
    """What becomes of groups that wait for a rating; one that hangs is restarted all the same."""
    from console.models.consequences import waiting_loss
    from proxy.control.client import ControlClient

    try:
        async with (
            asyncio.timeout(5),
            ControlClient(url, home.token(), cert=cert_of(home)) as client,
        ):
            return waiting_loss(await client.snapshot())
    except (AjetError, TimeoutError):
        return ["it does not answer, so groups that wait for a rating are not known"]


async def _restart(home: Home, role: str) -> tuple[int, str]:
    from console.backend.supervisor import Supervisor

    supervisor = Supervisor(home, settings_of(home))
    try:
        await supervisor.restart(role)
        info = await supervisor.wait_ready(role)
    except AjetError as error:
        title = COMMANDS[f"{role}.restart" if role == "proxy" else "engine.restart_process"].title
        raise AjetError(f"{title}: {error.what}", error.where, error.todo) from error
    finally:
        supervisor.release()
    return info.pid, info.url
