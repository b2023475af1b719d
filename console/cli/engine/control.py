"""`engine-start`, `engine-stop` and their like, for one server, a named one or all of them.

Through the proxy when one runs, else on the servers themselves.
"""

import argparse
import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ajet_swarm.common.errors import AjetError, UsageError
from ajet_swarm.common.text import did_you_mean, one_line
from console.backend.swarm_report import addresses, choose, report
from console.cli.commands import say_json
from console.cli.common import (
    cert_of,
    confirm,
    count,
    look_home,
    need_proxy,
    order,
    proxy_url,
    say,
    settings_of,
    token_of,
)
from core.commands import COMMANDS
from core.control_payloads import DETAILS_CAP
from core.runtime.home import Home
from core.state import State


@dataclass(frozen=True, slots=True)
class Target:
    """One server an order is for."""

    name: str
    """Empty: the first one, which is the proxy's to know."""
    url: str = ""


@dataclass(frozen=True, slots=True)
class Aim:
    """Where an order goes.

    Attributes:
        proxy: Address of the proxy; empty when the servers are asked themselves.
        state: What that proxy knows; None without one, or when it was not asked.
    """

    home: Home
    proxy: str
    targets: Sequence[Target]
    state: State | None = None


Doing = Callable[[Target], Awaitable[str]]


def start(given: argparse.Namespace) -> int:
    """Send the job and start the engine."""
    from console.cli.engine.direct import start_directly
    from console.cli.engine.jobs import given_job, job_args
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


# --- to whom -------------------------------------------------------------------------------------


def aimed(given: argparse.Namespace, *, look: bool = False, proxy: str | None = None) -> Aim:
    """Which servers are meant, and how they are reached.

    Args:
        look: Read the proxy's state, too: what an order costs is told from it.
        proxy: Address of the proxy when it is known already.

    Raises:
        UsageError: there is no server of that name.
    """
    home = look_home(given)
    if proxy is None:
        direct = getattr(given, "swarm_url", None) and not given.url
        proxy = "" if direct else proxy_url(given, home)
    every = getattr(given, "all", False)
    if proxy and not (every or look):
        return Aim(home, proxy, [Target(given.server or "")])
    if proxy:
        state = asyncio.run(snapshot(given, home, proxy))
        known = {one.name: one.url for one in state.servers.values()}
    else:
        state = None
        known = addresses(settings_of(home, given.swarm_url), home)
    if not known:
        raise AjetError("the proxy knows no swarm server", proxy)
    if every:
        return Aim(home, proxy, [Target(*one) for one in known.items()], state)
    return Aim(home, proxy, [Target(*choose(known, given))], state)


async def snapshot(given: argparse.Namespace, home: Home, proxy: str) -> State:
    """What the proxy knows."""
    from proxy.control.client import ControlClient

    async with ControlClient(proxy, token_of(given, home), cert=cert_of(home)) as client:
        return await client.snapshot()


async def send(given: argparse.Namespace, aim: Aim, name: str, args: dict[str, Any]) -> str:
    """Give an order to the proxy; returns what it says."""
    home = aim.home
    return await order(aim.proxy, token_of(given, home), name, args, cert_of(home))


# --- doing it ------------------------------------------------------------------------------------


def each(given: argparse.Namespace, aim: Aim, doing: Doing) -> int:
    """Do it for every server at once and say how each went.

    Returns:
        The exit code.
    """
    every = getattr(given, "all", False)
    if not every and not given.json:
        say(asyncio.run(_one(doing, aim.targets[0])))
        return 0
    results = asyncio.run(_every(doing, aim.targets))
    if given.json:
        say_json([{"server": name, "ok": ok, "message": text} for name, ok, text in results])
    else:
        for name, ok, text in results:
            mark = "done  " if ok else "FAILED"
            say(f"{one_line(name, 40):<12} {mark}  {one_line(text, 1000)}")
    return 0 if all(ok for _, ok, _ in results) else 1


async def _one(doing: Doing, target: Target) -> str:
    return await doing(target)


async def _every(doing: Doing, targets: Sequence[Target]) -> list[tuple[str, bool, str]]:
    async def guarded(target: Target) -> tuple[str, bool, str]:
        try:
            return target.name, True, await doing(target)
        except UsageError:
            raise  # the same for all of them
        except AjetError as error:
            return target.name, False, str(error)

    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(guarded(target)) for target in targets]
    return [task.result() for task in running]


# --- what it costs -------------------------------------------------------------------------------


def agreed(given: argparse.Namespace, aim: Aim, act: str) -> bool:
    """Ask once for all servers, naming what each would lose."""
    if given.yes:
        return True
    told = asyncio.run(_losses(aim))
    if len(told) == 1:
        where, lost = told[0]
        act = f"{act} of {where}"
    else:
        act = f"{act} of {len(told)} servers"
        lost = "; ".join(f"{where}: {one}" for where, one in told)
    if confirm(act, lost, given.yes):
        return True
    say("left as it is")
    return False


async def _losses(aim: Aim) -> list[tuple[str, str]]:
    own = aim.state.client_uuid if aim.state is not None else ""
    async with asyncio.TaskGroup() as tasks:
        asking = [
            tasks.create_task(_server_loss(one.name, one.url, own, aim.state))
            for one in aim.targets
        ]
    return [task.result() for task in asking]


async def _server_loss(
    name: str, url: str, own: str, state: State | None = None
) -> tuple[str, str]:
    seen = await report(name, url)
    losses: list[str] = []
    if seen.claimed is not None:
        others = {who: n for who, n in seen.claimed_by.items() if who != own}
        mine = seen.claimed - sum(others.values())
        if mine:
            losses.append(f"{count(mine, 'episode')} of yours")
        if others:
            kind = "other client" if own else "client"
            losses.append(f"{count(sum(others.values()), 'episode')} of {count(len(others), kind)}")
    elif state is not None and (pool := state.servers[name].pool) is not None:
        losses.append(f"{count(pool.running, 'running episode')} as last seen")
    if state is not None:
        unrated = [
            group for group in state.waiting() if group.server == name and group.rating is None
        ]
        if unrated:
            losses.append(f"{count(len(unrated), 'unrated group')} of yours")
    if seen.pool and seen.pool["episodes"]:
        losses.append(f"{count(seen.pool['episodes'], 'finished episode')} of this batch")
    lost = ", ".join(losses) or (
        "nothing that is claimed" if not seen.error else "what it does not report"
    )
    return f"{name} ({url}, {seen.state})", lost
