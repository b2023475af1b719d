"""`alerts`: list the alerts, or dismiss some of them."""

import asyncio
from typing import Any

from ajet_swarm.common.errors import UsageError
from ajet_swarm.common.text import known_names, one_line
from console.cli.commands import EXIT
from console.cli.common import changed_keys, connected, existing_home, say, say_json, snapshot
from console.cli.options import PROXY, Args, argument, flag, takes
from console.cli.output import output
from console.cli.output.dry_run import order
from console.json_view import alert_view
from console.models.advice import advice_context
from console.models.alerts import current_alerts


@takes(PROXY)
def listed(args: Args) -> int:
    """List the alerts."""
    state = asyncio.run(snapshot(args))
    context = advice_context(changed_keys(existing_home(args)), watch_only=state.watch_only)
    _list(args, [alert_view(alert, context) for alert in current_alerts(state).values()])
    return 0


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
    return asyncio.run(_dismiss(args))


async def _dismiss(args: Args) -> int:
    async with connected(args) as client:
        state = await client.snapshot()
        alerts = state.alerts
        done: list[dict[str, Any]] = []
        for key in list(alerts) if args.all else args.keys:
            if key in alerts:
                message = (await order(client, "alert.dismiss", {"key": key})).message
            elif key in state.dismissed:
                message = "dismissed already"
            else:
                todo = known_names(key, alerts) if alerts else "There is none at present"
                message = f"there is no alert `{one_line(key, 60)}`. {todo}"
                output().refuse(message)
            ok = key in alerts or key in state.dismissed
            done.append({"key": key, "ok": ok, "message": message})
    ok = all(row["ok"] for row in done)
    if args.json:
        say_json({"command": "alert.dismiss", "ok": ok, "alerts": done})
    else:
        for row in done:
            if row["ok"]:
                say(f"{one_line(row['key'])}: {row['message']}")
    return 0 if ok else 1


def _list(args: Args, alerts: list[dict[str, Any]]) -> None:
    if args.json:
        say_json({"alerts": alerts})
        return
    if not alerts:
        say("no alert")
    for alert in alerts:
        todo = f". {alert['todo']}" if alert["todo"] else ""
        say(f"{one_line(alert['key'])}  {alert['level']}  {one_line(alert['cause'] + todo)}")
