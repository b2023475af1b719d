"""`proxy restart` and `engine restart`: restart a process of this home."""

import asyncio

from ajet_swarm.common.errors import AjetError
from console.cli.commands import EXIT
from console.cli.common import (
    NotRunning,
    cert_of,
    confirm,
    existing_home,
    say,
    say_json,
    settings_of,
)
from console.cli.options import YES, Args, takes
from console.cli.output import output
from core.commands import COMMANDS
from core.runtime.home import Home, running
from core.state import State


@takes(YES, notes=(EXIT,))
def restart(args: Args) -> int:
    """Stop a process of this home and start it again with the same command line.

    Raises:
        NotRunning: the process does not run.
    """
    role = "proxy" if args.order_name == "proxy.restart" else "engine"
    home = existing_home(args)
    info = running(home, role)
    if info is None:
        raise NotRunning(
            f"no {role} runs in this home", str(home.root), f"Start it: `ajet-console run {role}`"
        )
    lost = [] if args.yes else asyncio.run(losses(role, home))
    if not confirm(f"Restart the {role} (pid {info.pid})", "", args.yes, consequences=lost):
        say("nothing was changed")
        return 1
    if output().dry_run:
        say(output().plan(f"would restart the {role} (pid {info.pid})"))
        return 0
    pid, url = asyncio.run(_restart(home, role))
    message = f"The {role} runs again, pid {pid}, {url}"
    if args.json:
        say_json(
            {"command": args.order_name, "ok": True, "message": message, "pid": pid, "url": url}
        )
    else:
        say(message)
    return 0


async def losses(role: str, home: Home) -> list[str]:
    """Return what a restart of the proxy or of the engine loses; also when the proxy hangs."""
    from core.commands.plan_engines import restart_loss
    from proxy.control.client import ControlClient

    info = running(home, "proxy")
    if info is None:
        return restart_loss(State(), role)
    try:
        async with (
            asyncio.timeout(5),
            ControlClient(info.url, home.token(), cert=cert_of(home)) as client,
        ):
            return restart_loss(await client.snapshot(), role)
    except (AjetError, TimeoutError):
        return ["The proxy does not answer, so the groups that wait for a rating are unknown."]


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
