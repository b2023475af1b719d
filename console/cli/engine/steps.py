"""Commands of the proxy that take several steps: print each step, cancel on an interrupt."""

import asyncio
import contextlib
import sys
from typing import TYPE_CHECKING

from ajet_swarm.common.errors import AjetError
from ajet_swarm.common.text import one_line
from console.cli.common import connected
from console.cli.engine.target import Aim, Target, send
from console.cli.options import Args
from console.cli.output import output
from core.events import WorkChanged

if TYPE_CHECKING:
    from core.state import State
    from proxy.control.client import ControlClient

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
