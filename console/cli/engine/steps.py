"""Commands of the proxy that take several steps: print each step, cancel on an interrupt."""

import argparse
import asyncio
import contextlib
import sys
from typing import TYPE_CHECKING

from ajet_swarm.common.errors import AjetError
from ajet_swarm.common.text import one_line
from console.cli.common import cert_of, token_of
from console.cli.engine.target import Aim, Target, send
from console.cli.output import output
from core.events import WorkChanged

if TYPE_CHECKING:
    from core.state import State
    from proxy.control.client import ControlClient

LEFT_LIMIT = 30.0
"""Seconds in which an interrupted operation must reach a safe state; a stop takes 19."""


async def send_with_steps(
    args: argparse.Namespace, aim: Aim, target: Target, name: str, values: dict[str, str | None]
) -> str:
    """Send a command and print its steps meanwhile; an interrupt cancels it."""
    if args.json or output().dry_run:
        return await send(args, aim, name, values)
    from proxy.control.client import ControlClient

    token, cert = token_of(args, aim.home), cert_of(aim.home)
    async with ControlClient(aim.proxy, token, cert=cert) as client, asyncio.TaskGroup() as tasks:
        steps = tasks.create_task(_print_steps(client, target, await client.snapshot()))
        try:
            return await send(args, aim, name, values)
        except AjetError as error:
            failure = error  # raised outside the task group, which would wrap it
        except asyncio.CancelledError:
            with contextlib.suppress(AjetError, TimeoutError):
                await send(args, aim, "engine.cancel", {"server": target.name or None})
                async with asyncio.timeout(LEFT_LIMIT):
                    await _print_result(client, target)
            raise
        finally:
            steps.cancel()
    raise failure


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
        await asyncio.sleep(0.2)


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
