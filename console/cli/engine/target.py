"""The swarm servers that a command is sent to: their choice, what each loses, and its steps."""

import asyncio
import contextlib
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ajet_swarm.common.errors import AjetError, UsageError
from ajet_swarm.common.text import one_line
from console.backend.swarm_report import ServerReport, addresses, choose, report
from console.cli.common import (
    confirm,
    connected,
    existing_home,
    proxy_url,
    say,
    say_json,
    send_command,
    settings_of,
    snapshot,
)
from console.cli.options import Args
from console.cli.output import output
from core.commands import COMMANDS
from core.commands.plan import plan
from core.events import WorkChanged
from core.events.server import PoolChanged
from core.runtime.home import Home
from core.state import Server, State

if TYPE_CHECKING:
    from core.state import State
    from proxy.control.client import ControlClient


RESULT = "One result line per server. Exit code: 0 all done, 1 one or more failed, 2 wrong use."


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


def aimed(args: Args, *, with_state: bool = False, proxy: str | None = None) -> Aim:
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
        state = asyncio.run(snapshot(args, proxy))
        known = {server.name: server.url for server in state.servers.values()}
    else:
        state = None
        known = addresses(settings_of(home, args.swarm_url), home)
    if not known:
        raise AjetError("the proxy knows no swarm server", proxy)
    if every:
        return Aim(home, proxy, [Target(*item) for item in known.items()], state)
    return Aim(home, proxy, [Target(*choose(known, args.server))], state)


async def send(args: Args, aim: Aim, name: str, values: dict[str, Any]) -> str:
    """Send a command to the proxy and return its message."""
    return await send_command(args, name, values, aim.proxy)


def each(args: Args, aim: Aim, action: Action) -> int:
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


def agreed(args: Args, aim: Aim, command: str, act: str = "", /, **values: Any) -> bool:
    """Ask once for all servers, showing what a command loses on each.

    Args:
        args: The parsed command line.
        aim: The servers.
        command: Name of the command; its plan says what is lost.
        act: What is asked; the title of the command by default.
        **values: Its arguments besides the server.

    Raises:
        AjetError: The command is refused on the only server.
    """
    if args.yes or not (losses := _losses(aim, command, values)):
        return True
    act = act or COMMANDS[command].title.partition(": ")[2]
    if len(losses) == 1:
        where, lost = losses[0]
        act = f"{act}: {where}"
    else:
        act = f"{act} of {len(losses)} servers"
        lost = [f"{where}: {' '.join(filter(None, lines))}" for where, lines in losses]
    if confirm(act, "", args.yes, consequences=lost):
        return True
    say("nothing was changed")
    return False


def _losses(aim: Aim, command: str, values: Mapping[str, Any]) -> list[tuple[str, Sequence[str]]]:
    """Return each server that a command has an effect on, and what is lost there.

    Raises:
        AjetError: There is one server, and the command is refused.
    """
    state = aim.state or asyncio.run(reported(aim.targets))
    losses: list[tuple[str, Sequence[str]]] = []
    for target in aim.targets:
        try:
            planned = plan(state, command, {**values, "server": target.name}, time.time())
        except AjetError:
            if len(aim.targets) == 1:
                raise
            continue  # its line of the result says why
        if not planned.done:
            where = f"{target.name} ({target.url}, {state.servers[target.name].state})"
            losses.append((where, planned.consequences))
    return losses


async def reported(targets: Sequence[Target]) -> State:
    """Return what is known of some servers without a proxy: what they answer."""
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(report(target.name, target.url)) for target in targets]
    return State(servers={task.result().name: _server(task.result()) for task in running})


def _server(seen: ServerReport) -> Server:
    pool = None
    if seen.claimed is not None:
        others = tuple(seen.claimed_by)
        tasks = (seen.pool or {}).get("tasks", 0)
        pool = PoolChanged(
            running=seen.claimed,
            running_others=seen.claimed,
            other_clients=others,
            completed_tasks=tasks,
        )
    lost = seen.error if seen.state == "CANNOT_CONNECT" else ""
    return Server(name=seen.name, url=seen.url, state=seen.state, lost=lost, pool=pool)


POLL = 0.3
"""Seconds between two looks at an operation."""
LEFT_LIMIT = 30.0
"""Seconds in which an interrupted operation must reach a safe state; a stop takes 19."""


async def send_with_steps(
    args: Args, aim: Aim, target: Target, name: str, values: dict[str, str | None]
) -> str:
    """Send a command, print its steps, and wait until the engine rolls; an interrupt cancels it.

    Raises:
        AjetError: a step failed, or the engine did not boot.
    """
    if output().dry_run:
        return await send(args, aim, name, values)
    async with connected(args, aim.proxy) as client, asyncio.TaskGroup() as tasks:
        before = await client.snapshot()
        if not args.json:
            steps = tasks.create_task(_print_steps(client, target, before))
        try:
            message = await send(args, aim, name, values)
            return message if args.no_wait else await _booted(client, target, before, message)
        except AjetError as error:
            failure = error  # raised outside the task group, which would wrap it
        except asyncio.CancelledError:
            with contextlib.suppress(AjetError, TimeoutError):
                await send(args, aim, "engine.cancel", {"server": target.name or None})
                async with asyncio.timeout(LEFT_LIMIT):
                    await _print_result(client, target)
            raise
        finally:
            if not args.json:
                steps.cancel()
    raise failure


async def _booted(client: "ControlClient", target: Target, before: "State", message: str) -> str:
    """Wait until the operation that `message` reports has ended; return the result of both.

    Raises:
        AjetError: the operation failed or was cancelled.
    """
    name = target.name or next(iter(before.servers), "")
    earlier = _work(before, name)
    while True:
        state = await client.snapshot()
        work = _work(state, name)
        if work is None or (work.over and earlier is not None and work.began == earlier.began):
            return message  # nothing was started
        if work.phase == "done":
            return f"{message}; {work.said}"
        if work.over:
            alert = state.alerts.get(f"start:{name}")
            remedy = str(alert.params.get("remedy", "")) if alert is not None else ""
            raise AjetError(work.said, name, remedy)
        await asyncio.sleep(POLL)


def _work(state: "State", name: str) -> WorkChanged | None:
    server = state.servers.get(name)
    return server.work if server is not None else None


async def _print_result(client: "ControlClient", target: Target) -> None:
    """Print in which state a cancelled operation leaves the server, once it has ended."""
    while True:
        servers = (await client.snapshot()).servers
        name = target.name or next(iter(servers), "")
        work = servers[name].work
        if work is None or work.over:
            result = work.said if work is not None else "no operation was started"
            sys.stderr.write(f"{one_line(name, 40)}: {one_line(result, 300)}\n")
            return
        await asyncio.sleep(POLL)


async def _print_steps(client: "ControlClient", target: Target, state: "State") -> None:
    """Print each step of the server's operation that begins after `state`."""
    name = target.name or next(iter(state.servers), "")
    printed: set[str] = set()
    with contextlib.suppress(AjetError):  # the command itself reports the error
        async for event in client.events(state.seq, run_id=state.run_id):
            if not isinstance(event, WorkChanged) or event.server != name:
                continue
            for step in event.steps:
                if step.began and step.title not in printed:
                    printed.add(step.title)
                    sys.stderr.write(f"{one_line(name, 40)}: {step.title}\n")
                    sys.stderr.flush()
