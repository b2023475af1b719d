"""`engine-start`, `engine-stop` and the other commands that need no job."""

import argparse
import asyncio

from ajet_swarm.common.errors import AjetError
from ajet_swarm.common.text import did_you_mean, one_line
from console.cli.common import (
    cert_of,
    confirm,
    look_home,
    need_proxy,
    token_of,
)
from console.cli.engine.job_source import add_job_source
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
    add_targets(parser, asked)
    add_yes(parser)


def add_abort_episode(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `engine-abort-episode`."""
    add_targets(parser, asked, every=False)
    about = COMMANDS["engine.abort_episode"].args[0].help
    parser.add_argument("episode", metavar="EPISODE", help=about)
    parser.add_argument("--reason", metavar="TEXT", help="why")
    add_yes(parser)


def start(given: argparse.Namespace) -> int:
    """Send the job and start the engine."""
    from console.cli.engine.direct import start_directly
    from console.cli.engine.job_source import given_job, job_args
    from console.cli.engine.start import agreed_to_start

    aim = aimed(given)
    if not agreed_to_start(given, aim):
        return 1

    async def one(target: Target) -> str:
        if aim.proxy:
            order = await job_args(given, aim, target)
            return await send(given, aim, "engine.start", order)
        return await start_directly(
            target.name, target.url, await given_job(given, aim, target, needed=True)
        )

    return each(given, aim, one)


def stop(given: argparse.Namespace) -> int:
    """Stop the engine, after saying what is lost."""
    from console.cli.engine.direct import stop_directly

    aim = aimed(given, look=not given.yes)
    if not agreed(given, aim, "Stop the engine"):
        return 1

    async def one(target: Target) -> str:
        if aim.proxy:
            return await send(given, aim, "engine.stop", {"server": target.name or None})
        return await stop_directly(target.name, target.url)

    return each(given, aim, one)


def plain(given: argparse.Namespace) -> int:
    """An order that needs a proxy and no question."""
    aim = aimed(given, proxy=need_proxy(given, look_home(given)))
    return each(given, aim, lambda target: _ordered(given, aim, target))


def asked(given: argparse.Namespace) -> int:
    """An order that needs a proxy and destroys something."""
    proxy = need_proxy(given, look_home(given))
    aim = aimed(given, look=not given.yes, proxy=proxy)
    act = COMMANDS[given.order_name].title.partition(": ")[2]
    if given.order_name == "engine.abort_episode":
        if not given.yes:
            asyncio.run(_check_episode(given, aim))
        yes = confirm(f"{act} {given.episode}", "it: the client that holds it loses it", given.yes)
    else:
        yes = agreed(given, aim, act)
    if not yes:
        return 1
    return each(given, aim, lambda target: _ordered(given, aim, target))


async def _check_episode(given: argparse.Namespace, aim: Aim) -> None:
    """See that there is an episode to abort, before the operator is asked.

    Raises:
        AjetError: no claimed episode, or several, begin so.
    """
    from proxy.control.client import ControlClient

    home = aim.home
    async with ControlClient(aim.proxy, token_of(given, home), cert=cert_of(home)) as client:
        looked = await client.look(aim.targets[0].name)
    uuids = [one.uuid for one in looked.episodes]
    found = [uuid for uuid in uuids if uuid.startswith(given.episode)]
    if len(found) == 1 or len(uuids) >= DETAILS_CAP:
        return
    what = f"{len(found)} claimed episodes begin" if found else "no claimed episode begins"
    todo = "Give more of its id" if found else did_you_mean(given.episode, uuids)
    raise AjetError(f"{what} with `{one_line(given.episode, 60)}`", todo=todo)


async def _ordered(given: argparse.Namespace, aim: Aim, target: Target) -> str:
    known = {arg.name for arg in COMMANDS[given.order_name].args} - {"server"}
    args = {name: getattr(given, name, None) for name in known}
    return await send(given, aim, given.order_name, {**args, "server": target.name or None})
