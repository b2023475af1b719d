"""`proxy-restart` and `engine-restart-process`: restart a process of this home."""

import argparse
import asyncio

from ajet_swarm.common.errors import AjetError
from console.cli.commands import add_common
from console.cli.common import (
    NotRunning,
    cert_of,
    confirm,
    existing_home,
    say,
    say_json,
    settings_of,
)
from console.cli.options import add_yes
from console.cli.output import output
from core.commands import COMMANDS
from core.runtime.home import Home, running

PROXY_LOSS = "no request: it finishes those in flight and refuses new ones meanwhile"


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of both commands."""
    add_common(parser, restart, proxy=False)
    add_yes(parser)


def restart(args: argparse.Namespace) -> int:
    """Stop a process of this home and start it again with the same command line.

    Raises:
        NotRunning: the process does not run.
    """
    role = "proxy" if args.order_name == "proxy.restart" else "engine"
    home = existing_home(args)
    info = running(home, role)
    if info is None:
        raise NotRunning(
            f"no {role} runs in this home", str(home.root), f"Start it: `ajet-console {role}`"
        )
    lost = "the claimed episodes, and what was trained since its last update"
    if role == "proxy":
        lost = PROXY_LOSS if args.yes else asyncio.run(proxy_loss(info.url, home))
    if not confirm(f"Restart the {role} (pid {info.pid})", lost, args.yes):
        say("nothing was changed")
        return 1
    if output().dry_run:
        say(output().plan(f"would restart the {role} (pid {info.pid})"))
        return 0
    pid, url = asyncio.run(_restart(home, role))
    message = f"The {role} runs again, pid {pid}, {url}"
    if args.json:
        say_json(
            {
                "command": args.order_name,
                "ok": True,
                "message": message,
                "pid": pid,
                "url": url,
            }
        )
    else:
        say(message)
    return 0


async def proxy_loss(url: str, home: Home) -> str:
    """Return what a restart of the proxy loses; also when it hangs."""
    from console.models.consequences import waiting_loss
    from proxy.control.client import ControlClient

    try:
        async with (
            asyncio.timeout(5),
            ControlClient(url, home.token(), cert=cert_of(home)) as client,
        ):
            waiting = waiting_loss(await client.snapshot())
    except (AjetError, TimeoutError):
        waiting = ["it does not answer, so the groups that wait for a rating are unknown"]
    return "; ".join([PROXY_LOSS, *waiting])


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
