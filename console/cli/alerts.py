"""`alert-dismiss`: list the alerts, or remove some."""

import argparse
import asyncio
import sys
from typing import Any

from ajet_swarm.common.errors import UsageError
from ajet_swarm.common.text import known_names, one_line
from console.cli.commands import add_common
from console.cli.common import (
    cert_of,
    changed_keys,
    look_home,
    need_proxy,
    say,
    say_json,
    token_of,
)
from console.models.advice import advice_context
from console.text.alerts import AdviceContext, alert_text
from core.commands import COMMANDS
from core.runtime.home import Home
from core.state import Alert


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    add_common(parser, dismiss)
    parser.description = f"{COMMANDS['alert.dismiss'].help}.\n\nWithout a key: lists them."
    parser.add_argument("keys", nargs="*", metavar="KEY", help="key of the alert")
    parser.add_argument("--all", action="store_true", help="all of them")


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
        state = await client.snapshot()
        alerts = state.alerts
        if not (given.keys or given.all):
            context = advice_context(changed_keys(home), watch_only=state.watch_only)
            _list(given, [_listed(one, context) for one in alerts.values()])
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


def _listed(alert: Alert, context: AdviceContext) -> dict[str, Any]:
    cause, todo = alert_text(alert, context)
    return {
        "key": alert.key,
        "level": alert.level,
        "cause": cause,
        "todo": todo,
        "groups": alert.groups,
        "alert_kind": alert.alert_kind,
        "params": alert.params,
    }


def _list(given: argparse.Namespace, alerts: list[dict[str, Any]]) -> None:
    if given.json:
        say_json({"alerts": alerts})
        return
    if not alerts:
        say("no alert")
    for one in alerts:
        todo = f". {one['todo']}" if one["todo"] else ""
        say(f"{one_line(one['key'])}  {one['level']}  {one_line(one['cause'] + todo)}")
