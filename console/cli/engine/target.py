"""The swarm servers that a command is sent to: their choice, their URLs, and what each loses."""

import argparse
import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ajet_swarm.common.errors import AjetError, UsageError
from ajet_swarm.common.text import one_line
from console.backend.swarm_report import addresses, choose, report
from console.cli.common import (
    cert_of,
    confirm,
    count,
    existing_home,
    proxy_url,
    say,
    say_json,
    send_command,
    settings_of,
    snapshot,
    token_of,
)
from console.cli.options import add_json, add_note, add_proxy_access, add_server
from core.runtime.home import Home
from core.state import State

RESULT = "One result line per server. Exit code: 0 all done, 1 one or more failed, 2 wrong use."


def add_targets(
    parser: argparse.ArgumentParser,
    run: Callable[[argparse.Namespace], int],
    *,
    every: bool = True,
) -> None:
    """Add the options of all engine commands: `--json`, the servers and the proxy.

    Args:
        parser: The command's parser.
        run: Carries out the command and returns the exit code.
        every: Whether the command can be sent to all servers at once.
    """
    parser.set_defaults(handler=run)
    add_note(parser, RESULT)
    add_json(parser, "print the results as JSON")
    which = parser.add_mutually_exclusive_group()
    add_server(which)
    if every:
        which.add_argument("--all", action="store_true", help="every swarm server")
    add_proxy_access(parser)


@dataclass(frozen=True, slots=True)
class Target:
    """A server that the command is sent to."""

    name: str
    """Empty for the first server; the proxy chooses it."""
    url: str = ""


@dataclass(frozen=True, slots=True)
class Aim:
    """The servers that a command is sent to, and how they are reached.

    Attributes:
        proxy: URL of the proxy; empty when the command talks to the servers directly.
        state: The proxy's state; None without a proxy, or when it was not read.
    """

    home: Home
    proxy: str
    targets: Sequence[Target]
    state: State | None = None


Action = Callable[[Target], Awaitable[str]]


def aimed(args: argparse.Namespace, *, with_state: bool = False, proxy: str | None = None) -> Aim:
    """Return the servers that the command line chooses, and how they are reached.

    Args:
        args: The parsed command line.
        with_state: Read the proxy's state as well, to show what the command loses.
        proxy: URL of the proxy when it is known already.

    Raises:
        UsageError: there is no server of that name.
    """
    home = existing_home(args)
    if proxy is None:
        direct = getattr(args, "swarm_url", None) and not args.url
        proxy = "" if direct else proxy_url(args, home)
    every = getattr(args, "all", False)
    if proxy and not (every or with_state):
        return Aim(home, proxy, [Target(args.server or "")])
    if proxy:
        state = asyncio.run(snapshot(args, home, proxy))
        known = {one.name: one.url for one in state.servers.values()}
    else:
        state = None
        known = addresses(settings_of(home, args.swarm_url), home)
    if not known:
        raise AjetError("the proxy knows no swarm server", proxy)
    if every:
        return Aim(home, proxy, [Target(*one) for one in known.items()], state)
    return Aim(home, proxy, [Target(*choose(known, args))], state)


async def send(args: argparse.Namespace, aim: Aim, name: str, values: dict[str, Any]) -> str:
    """Send a command to the proxy and return its message."""
    home = aim.home
    return await send_command(aim.proxy, token_of(args, home), name, values, cert_of(home))


def each(args: argparse.Namespace, aim: Aim, action: Action) -> int:
    """Run the action for all servers at once and print each result.

    Returns:
        The exit code.
    """
    every = getattr(args, "all", False)
    if not every and not args.json:
        say(asyncio.run(_one(action, aim.targets[0])))
        return 0
    results = asyncio.run(_every(action, aim.targets))
    if args.json:
        say_json([{"server": name, "ok": ok, "message": text} for name, ok, text in results])
    else:
        for name, ok, text in results:
            mark = "done  " if ok else "FAILED"
            say(f"{one_line(name, 40):<12} {mark}  {one_line(text, 1000)}")
    return 0 if all(ok for _, ok, _ in results) else 1


async def _one(action: Action, target: Target) -> str:
    return await action(target)


async def _every(action: Action, targets: Sequence[Target]) -> list[tuple[str, bool, str]]:
    async def guarded(target: Target) -> tuple[str, bool, str]:
        try:
            return target.name, True, await action(target)
        except UsageError:
            raise  # the same for all of them
        except AjetError as error:
            return target.name, False, str(error)

    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(guarded(target)) for target in targets]
    return [task.result() for task in running]


def agreed(args: argparse.Namespace, aim: Aim, act: str) -> bool:
    """Ask once for all servers, showing what each would lose."""
    if args.yes:
        return True
    losses = asyncio.run(_losses(aim))
    if len(losses) == 1:
        where, lost = losses[0]
        act = f"{act} of {where}"
    else:
        act = f"{act} of {len(losses)} servers"
        lost = "; ".join(f"{where}: {one}" for where, one in losses)
    if confirm(act, lost, args.yes):
        return True
    say("nothing was changed")
    return False


async def _losses(aim: Aim) -> list[tuple[str, str]]:
    own = aim.state.client_uuid if aim.state is not None else ""
    async with asyncio.TaskGroup() as tasks:
        running = [
            tasks.create_task(_server_loss(one.name, one.url, own, aim.state))
            for one in aim.targets
        ]
    return [task.result() for task in running]


async def _server_loss(
    name: str, url: str, own: str, state: State | None = None
) -> tuple[str, str]:
    server = await report(name, url)
    losses: list[str] = []
    if server.claimed is not None:
        others = {who: n for who, n in server.claimed_by.items() if who != own}
        mine = server.claimed - sum(others.values())
        if mine:
            losses.append(f"{count(mine, 'episode')} of yours")
        if others:
            kind = "other client" if own else "client"
            losses.append(f"{count(sum(others.values()), 'episode')} of {count(len(others), kind)}")
    elif state is not None and (pool := state.servers[name].pool) is not None:
        losses.append(f"{count(pool.running, 'running episode')} at the last poll")
    if state is not None:
        unrated = [
            group for group in state.waiting() if group.server == name and group.rating is None
        ]
        if unrated:
            losses.append(f"{count(len(unrated), 'unrated group')} of yours")
    if server.pool and server.pool["episodes"]:
        losses.append(f"{count(server.pool['episodes'], 'finished episode')} of this batch")
    lost = ", ".join(losses) or (
        "no claimed episode" if not server.error else "episodes that it does not report"
    )
    return f"{name} ({url}, {server.state})", lost
