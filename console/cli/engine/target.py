"""The swarm servers that a command is sent to: their choice, what each loses, the way to them.

`Aim.of` chooses the servers; an action is a coroutine for one of them, and `Aim.each` runs it for
all and prints a line for each. It goes through the proxy, or without one to the server directly.
"""

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from ajet_swarm.common.errors import AjetError, UsageError
from ajet_swarm.common.tasks import Tasks
from ajet_swarm.common.text import one_line
from console.backend.swarm_report import (
    PATIENCE,
    ServerReport,
    addresses,
    choose,
    open_client,
    report,
)
from console.cli.common import (
    NotRunning,
    connected,
    existing_home,
    need_proxy,
    proxy_url,
    send_command,
    settings_of,
    snapshot,
)
from console.cli.options import Args
from console.cli.output import agree, output, say, say_json
from core.commands import COMMANDS
from core.commands.plan import Plan, plan
from core.events import Event, WorkChanged
from core.events.server import PoolChanged
from core.runtime.home import Home
from core.state import Server, State

if TYPE_CHECKING:
    from ajet_swarm.api.wire import SwarmWire
    from proxy.control.client import ControlClient

RESULT = "One result line per server. Exit code: 0 all done, 1 one or more failed, 2 wrong use."
POLL = 0.3
"""Seconds between two readings of an operation."""
LEFT_LIMIT = 30.0
"""Seconds in which an interrupted operation must reach a safe state; a stop takes 19."""


class Target(NamedTuple):
    """A server that the command is sent to."""

    name: str
    """Empty for the first server; the proxy chooses it."""
    url: str = ""


Action = Callable[[Target], Coroutine[Any, Any, str]]


@dataclass(frozen=True, slots=True)
class Aim:
    """The servers that a command is sent to, and how they are reached.

    Attributes:
        args: The parsed command line.
        home: The home.
        proxy: URL of the proxy; empty when the command talks to the servers directly.
        targets: The servers.
        state: The proxy's state; None without a proxy, or when it was not read.
    """

    args: Args
    home: Home
    proxy: str
    targets: Sequence[Target]
    state: State | None = None

    @classmethod
    def of(cls, args: Args, *, with_state: bool = False, needs_proxy: bool = False) -> Self:
        """Return the servers that the command line chooses, and how they are reached.

        Args:
            args: The parsed command line.
            with_state: Read the proxy's state as well, to show what the command loses.
            needs_proxy: The command cannot be sent to a server directly.

        Raises:
            UsageError: there is no server of that name.
            NotRunning: the command needs a proxy, and none runs.
        """
        home = existing_home(args)
        direct = getattr(args, "swarm_url", None) and not args.url
        proxy = "" if direct else (need_proxy if needs_proxy else proxy_url)(args, home)
        every = getattr(args, "all", False)
        if proxy and not (every or with_state):
            return cls(args, home, proxy, [Target(args.server or "")])
        state = asyncio.run(snapshot(args, proxy)) if proxy else None
        if state is not None:
            known = {server.name: server.url for server in state.servers.values()}
        else:
            known = addresses(settings_of(home, args.swarm_url), home)
        if not known:
            raise AjetError("the proxy knows no swarm server", proxy)
        chosen = known.items() if every else [choose(known, args.server)]
        return cls(args, home, proxy, [Target(*item) for item in chosen], state)

    async def send(self, name: str, values: Mapping[str, Any]) -> str:
        """Send a command to the proxy and return its message."""
        return (await send_command(self.args, name, values, self.proxy)).message

    def each(self, action: Action) -> int:
        """Run the action for all servers at once, print each result, return the exit code."""
        args = self.args
        if not (getattr(args, "all", False) or args.json):
            say(asyncio.run(action(self.targets[0])))
            return 0
        results = asyncio.run(self._every(action))
        if args.json:
            say_json([{"server": name, "ok": ok, "message": text} for name, ok, text in results])
        else:
            for name, ok, text in results:
                mark = "done  " if ok else "FAILED"
                say(f"{one_line(name, 40):<12} {mark}  {one_line(text, 1000)}")
        return 0 if all(ok for _, ok, _ in results) else 1

    async def _every(self, action: Action) -> list[tuple[str, bool, str]]:
        async def guarded(target: Target) -> tuple[str, bool, str]:
            try:
                return target.name, True, await action(target)
            except UsageError:
                raise  # the same for all of them
            except AjetError as error:
                return target.name, False, str(error)

        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(guarded(target)) for target in self.targets]
        return [task.result() for task in running]

    def agree(self, command: str, act: str = "", /, **values: Any) -> None:
        """Ask once for all servers, showing what a command loses on each.

        Args:
            command: Name of the command; its plan says what is lost.
            act: What is asked; the title of the command by default.
            **values: Its arguments besides the server.

        Raises:
            AjetError: The command is refused on the only server.
            Declined: The operator says no.
        """
        if self.args.yes or not (losses := self._losses(command, values)):
            return
        act = act or COMMANDS[command].title.partition(": ")[2]
        if len(losses) == 1:
            ((where, lost),) = losses
            agree(f"{act}: {where}", lost)
        else:
            lost = [f"{where}: {' '.join(filter(None, lines))}" for where, lines in losses]
            agree(f"{act} of {len(losses)} servers", lost)

    def _losses(self, command: str, values: Mapping[str, Any]) -> list[tuple[str, Sequence[str]]]:
        """Return each server that a command has an effect on, and what is lost there."""
        state = self.state or asyncio.run(_reported(self.targets))
        losses: list[tuple[str, Sequence[str]]] = []
        for target in self.targets:
            try:
                planned = plan(state, command, {**values, "server": target.name}, time.time())
            except AjetError:
                if len(self.targets) == 1:
                    raise
                continue  # its line of the result says why
            if not planned.done:
                where = f"{target.name} ({target.url}, {state.servers[target.name].state})"
                losses.append((where, planned.consequences))
        return losses


async def _reported(targets: Sequence[Target]) -> State:
    """Return what is known of some servers without a proxy: what they answer."""
    reports = await asyncio.gather(*(report(target.name, target.url) for target in targets))
    return State(servers={seen.name: _server(seen) for seen in reports})


def _server(seen: ServerReport) -> Server:
    pool = None
    if seen.claimed is not None:
        pool = PoolChanged(
            running=seen.claimed,
            running_others=seen.claimed,
            other_clients=tuple(seen.claimed_by),
            completed_tasks=(seen.pool or {}).get("tasks", 0),
        )
    lost = seen.error if seen.state == "CANNOT_CONNECT" else ""
    return Server(name=seen.name, url=seen.url, state=seen.state, lost=lost, pool=pool)


# --- through the proxy ---------------------------------------------------------------------------


async def send_with_steps(aim: Aim, target: Target, name: str, values: Mapping[str, Any]) -> str:
    """Send a command, print its steps, and wait until the engine rolls; an interrupt cancels it.

    Raises:
        AjetError: a step failed, or the engine did not boot.
    """
    if output().dry_run:
        return await aim.send(name, values)
    async with connected(aim.args, aim.proxy) as client, Tasks("engine") as tasks:
        state = await client.snapshot()
        server = target.name or next(iter(state.servers), "")
        operation = _Operation(client, server, _work(state, server), quiet=aim.args.json)
        tasks.spawn(operation.print_steps(), "steps")
        try:
            message = await aim.send(name, values)
            return message if aim.args.no_wait else await operation.result(message)
        except asyncio.CancelledError:
            with contextlib.suppress(AjetError, TimeoutError):
                await aim.send("engine.cancel", {"server": target.name or None})
                async with asyncio.timeout(LEFT_LIMIT):
                    await operation.print_result()
            raise


@dataclass
class _Operation:
    """The operation on an engine that a command starts; `earlier` is the one before it."""

    client: "ControlClient"
    server: str
    earlier: WorkChanged | None
    quiet: bool
    shown: set[str] = field(default_factory=set)
    """Steps that were printed."""

    async def states(self) -> AsyncIterator[tuple[State, WorkChanged | None]]:
        """Yield the state and the server's operation now and then; print each step that begins."""
        while True:
            state = await self.client.snapshot()
            work = _work(state, self.server)
            if work is not None and self._is_new(work) and not self.quiet:
                show_steps(self.server, work, self.shown)
            yield state, work
            await asyncio.sleep(POLL)

    def _is_new(self, work: WorkChanged) -> bool:
        return self.earlier is None or work.began != self.earlier.began

    async def print_steps(self) -> None:
        """Print the steps until cancelled."""
        with contextlib.suppress(AjetError):  # the command itself reports the error
            async for _ in self.states():
                pass

    async def result(self, message: str) -> str:
        """Wait until the operation that `message` reports has ended; return the result of both.

        Raises:
            AjetError: the operation failed or was cancelled.
        """
        async for state, work in self.states():
            if work is None or (work.over and not self._is_new(work)):
                break  # nothing was started
            if work.phase == "done":
                return f"{message}; {work.said}"
            if work.over:
                alert = state.alerts.get(f"start:{self.server}")
                remedy = str(alert.params.get("remedy", "")) if alert is not None else ""
                raise AjetError(work.said, self.server, remedy)
        return message

    async def print_result(self) -> None:
        """Print in which state a cancelled operation leaves the server, once it has ended."""
        async for _, work in self.states():
            if work is None or work.over:
                result = work.said if work is not None else "no operation was started"
                sys.stderr.write(f"{one_line(self.server, 40)}: {one_line(result, 300)}\n")
                return


def _work(state: State, name: str) -> WorkChanged | None:
    server = state.servers.get(name)
    return server.work if server is not None else None


def show_steps(server: str, work: WorkChanged, shown: set[str]) -> None:
    """Print the steps of an operation that have begun; `shown` has those that were printed."""
    for step in work.steps:
        if step.began and step.phase != "skipped" and step.title not in shown:
            shown.add(step.title)
            sys.stderr.write(f"{one_line(server, 40)}: {step.title}\n")
            sys.stderr.flush()


# --- directly ------------------------------------------------------------------------------------


@asynccontextmanager
async def reached(target: Target) -> AsyncIterator["SwarmWire"]:
    """Open a client of a server, after checking that the server answers.

    Raises:
        NotRunning: the server does not answer.
    """
    async with open_client(*target) as client:
        try:
            await client.status(timeout=PATIENCE)
        except AjetError as error:
            raise NotRunning(
                f"no engine answers as `{target.name}`: {error.what}",
                target.url,
                "Start one with `ajet-console run engine`, or name another with --swarm-url",
            ) from error
        yield client


async def answers_as_embedded(name: str, url: str) -> bool:
    """Return whether the embedded engine answers at `url`; False when nothing answers."""
    try:
        async with reached(Target(name, url)) as client:
            return await client.is_embedded()
    except AjetError:
        return False


async def start_directly(
    target: Target, job: str, *, stops: bool = False, for_job: bool = True, waits: bool = True
) -> str:
    """Send the job, start the engine and wait until it rolls; print each step.

    Args:
        target: The server.
        job: The job, as YAML.
        stops: Stop the engine and wait for a stable OFFLINE first.
        for_job: Refuse an engine that runs, instead of leaving it as it is.
        waits: Wait until the engine rolls.

    Raises:
        AjetError: a step failed, or the engine is not OFFLINE; names the state of the engine.
    """
    name, url = target
    async with reached(target) as client:
        if not stops:
            more = {"job": job} if for_job else {}
            planned = await _planned(client, name, "engine.start", **more)
            if planned.done:
                return planned.message
        if output().dry_run:
            await client.prepared(job)
            if stops:
                return output().plan(f"would stop {name}, send the job and start it ({url})")
            return output().plan(f"would send the job to {name} and start it ({url})")
        return await _start(client, name, job, waits, stops)


async def stop_directly(target: Target) -> str:
    """Stop the engine in whatever state it is."""
    name, url = target
    async with reached(target) as client:
        planned = await _planned(client, name, "engine.stop")
        if planned.done:
            return planned.message
        if output().dry_run:
            return output().plan(f"would stop {name} ({url})")
        await client.stop_engine()
    return f"{name} is stopped ({url})"


async def _start(client: "SwarmWire", name: str, job: str, waits: bool, stops: bool) -> str:
    from ajet_swarm.api.watcher import Watcher
    from proxy.control.job_operation import ALL_STEPS, JobOperation

    def show(event: Event) -> None:
        if isinstance(event, WorkChanged):
            show_steps(name, event, shown)

    shown: set[str] = set()
    watcher = Watcher(client)
    async with Tasks("engine") as tasks:
        tasks.spawn(watcher.run(), "watcher")
        operation = JobOperation(client, watcher, show, time.time, "Start", ALL_STEPS)
        async with operation.reported():
            if stops:
                await operation.stop_for(job)
            await operation.send(job)
            await operation.start()
            state = await operation.boot() if waits else f"{name} is starting with the job"
    return f"{state} ({client.url})"


async def _planned(client: "SwarmWire", name: str, command: str, **args: str) -> Plan:
    """Return the plan of a command on the engine that a client reaches.

    Raises:
        NotNow: It is refused.
    """
    state = (await client.status()).state.value
    known = State(servers={name: Server(name=name, url=client.url, state=state)})
    return plan(known, command, {"server": name, **args}, time.time())
