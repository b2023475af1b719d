"""`engine-start`, `engine-stop` and the other engine commands except those about the job."""

import argparse
import asyncio

from ajet_swarm.common.errors import AjetError
from ajet_swarm.common.text import did_you_mean, one_line
from console.cli.common import (
    cert_of,
    confirm,
    existing_home,
    need_proxy,
    token_of,
)
from console.cli.engine.job_source import add_job_source, add_wait
from console.cli.engine.target import Aim, Target, add_targets, agreed, aimed, each, send
from console.cli.options import add_swarm_url, add_yes
from core.commands import COMMANDS
from core.control_payloads import DETAILS_CAP


def add_start(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `engine-start`."""
    add_targets(parser, start)
    add_swarm_url(parser)
    add_yes(parser)
    add_job_source(parser)
    add_wait(parser)


def add_stop(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `engine-stop`."""
    add_targets(parser, stop)
    add_swarm_url(parser)
    add_yes(parser)


def add_plain(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `engine-cancel` and `engine-resume`."""
    add_targets(parser, plain)


def add_reset(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `engine-reset`."""
    add_targets(parser, confirmed)
    add_yes(parser)


def add_abort_episode(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `engine-abort-episode`."""
    add_targets(parser, confirmed, every=False)
    about = COMMANDS["engine.abort_episode"].args[0].help
    parser.add_argument("episode", metavar="EPISODE", help=about)
    parser.add_argument("--reason", metavar="TEXT", help="why")
    add_yes(parser)


def start(args: argparse.Namespace) -> int:
    """Send the job and start the engine."""
    from console.cli.engine.direct import start_directly
    from console.cli.engine.job_source import job_args, requested_job
    from console.cli.engine.start import agreed_to_start
    from console.cli.engine.steps import send_with_steps

    aim = aimed(args)
    if not agreed_to_start(args, aim):
        return 1

    async def one(target: Target) -> str:
        if aim.proxy:
            order = await job_args(args, aim, target)
            return await send_with_steps(args, aim, target, "engine.start", order)
        job = await requested_job(args, aim, target, needed=True)
        for_job = bool(args.file or args.preset or args.set)
        waits = not args.no_wait
        return await start_directly(target.name, target.url, job, for_job=for_job, waits=waits)

    return each(args, aim, one)


def stop(args: argparse.Namespace) -> int:
    """Stop the engine after showing what is lost."""
    from console.cli.engine.direct import stop_directly

    aim = aimed(args, with_state=not args.yes)
    if not agreed(args, aim, "engine.stop"):
        return 1

    async def one(target: Target) -> str:
        if aim.proxy:
            return await send(args, aim, "engine.stop", {"server": target.name or None})
        return await stop_directly(target.name, target.url)

    return each(args, aim, one)


def plain(args: argparse.Namespace) -> int:
    """Send a command that needs a proxy but no confirmation."""
    aim = aimed(args, proxy=need_proxy(args, existing_home(args)))
    return each(args, aim, lambda target: _send_plain(args, aim, target))


def confirmed(args: argparse.Namespace) -> int:
    """Send a command that needs a proxy and, because it destroys something, a confirmation."""
    proxy = need_proxy(args, existing_home(args))
    aim = aimed(args, with_state=not args.yes, proxy=proxy)
    if args.order_name == "engine.abort_episode":
        if not args.yes:
            asyncio.run(_check_episode(args, aim))
        loss = "the episode, also for the client that claimed it"
        yes = confirm(f"Abort an episode {args.episode}", loss, args.yes)
    else:
        yes = agreed(args, aim, args.order_name)
    if not yes:
        return 1
    return each(args, aim, lambda target: _send_plain(args, aim, target))


async def _check_episode(args: argparse.Namespace, aim: Aim) -> None:
    """Check that the episode exists, before asking the operator.

    Raises:
        AjetError: no claimed episode has this id, or several do.
    """
    from proxy.control.client import ControlClient

    home = aim.home
    async with ControlClient(aim.proxy, token_of(args, home), cert=cert_of(home)) as client:
        details = await client.server_details(aim.targets[0].name)
    uuids = [episode.uuid for episode in details.episodes]
    matches = [uuid for uuid in uuids if uuid.startswith(args.episode)]
    if len(matches) == 1 or len(uuids) >= DETAILS_CAP:
        return
    what = f"{len(matches)} claimed episodes begin" if matches else "no claimed episode begins"
    todo = "Give more of its id" if matches else did_you_mean(args.episode, uuids)
    raise AjetError(f"{what} with `{one_line(args.episode, 60)}`", todo=todo)


async def _send_plain(args: argparse.Namespace, aim: Aim, target: Target) -> str:
    known = {arg.name for arg in COMMANDS[args.order_name].args} - {"server"}
    values = {name: getattr(args, name, None) for name in known}
    return await send(args, aim, args.order_name, {**values, "server": target.name or None})
