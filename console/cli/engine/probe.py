"""`try` and `try-stop`: ask the policy one thing, from the command line; nothing is trained."""

import argparse
import asyncio
import secrets
import sys
import time

from ajet_swarm.common.errors import AjetError, UsageError
from ajet_swarm.common.text import one_line, plain
from console.cli.commands import send
from console.cli.common import cert_of, existing_home, need_proxy, say, say_json, token_of
from console.cli.options import add_json, add_proxy_access, add_server
from console.text.format import clock, duration
from console.views.probes import compared, progress
from core.commands import COMMANDS, validate
from core.state import Probe, State
from proxy.control.client import ControlClient

TELLS_AFTER = 2.0
"""Seconds of waiting after which a standard error that is no terminal is told so."""
TELLS_EVERY = 30.0
"""Seconds between that and the next."""
GIVEN_BACK = 20.0
"""Seconds until the proxy says so of a try that was given back."""


LAST = 3
"""Earlier answers that are shown beside the new one."""


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `try`."""
    parser.set_defaults(handler=try_prompt)
    parser.add_argument("prompt", metavar="PROMPT", help="what to ask; - reads standard input")
    add_server(parser)
    parser.add_argument(
        "--last", type=int, default=LAST, metavar="N", help=f"earlier answers shown; {LAST}"
    )
    parser.add_argument(
        "--timeout", type=float, default=600.0, metavar="S", help="give it back after S seconds"
    )
    add_json(parser, "for scripts")
    add_proxy_access(parser)


def add_stop(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `try-stop`."""
    parser.set_defaults(handler=stop)
    about = COMMANDS["engine.try_stop"].args[0].help
    parser.add_argument("try_id", nargs="?", metavar="TRY", help=about)
    add_json(parser, "for scripts")
    add_proxy_access(parser)


def stop(args: argparse.Namespace) -> int:
    """Cancel a try."""
    return send(args, existing_home(args), "engine.try_stop", {"try_id": args.try_id})


def try_prompt(args: argparse.Namespace) -> int:
    """Ask, wait, show the answer and the last ones.

    Returns:
        0 with an answer, 1 without, 130 when it was interrupted; the episode is given back.

    Raises:
        UsageError: there is nothing to ask.
        AjetError: no proxy runs, or it refuses.
    """
    prompt = sys.stdin.read() if args.prompt == "-" else args.prompt
    if not prompt.strip():
        raise UsageError("there is nothing to try", todo="Give a prompt")
    if args.last < 0 or not args.timeout > 0:
        raise UsageError("--last counts from 0 and --timeout is above 0")
    return asyncio.run(_tried(args, prompt))


async def _tried(args: argparse.Namespace, prompt: str) -> int:
    home = existing_home(args)
    try_id = secrets.token_hex(4)
    values = validate("engine.try", {"prompt": prompt, "server": args.server, "try_id": try_id})
    async with ControlClient(
        need_proxy(args, home), token_of(args, home), cert=cert_of(home)
    ) as client:
        try:  # interrupted before its answer, the command may have reached the proxy
            await client.command("engine.try", values)
            async with asyncio.timeout(args.timeout):
                state, one = await _answered(client, try_id, quiet=args.json)
        except (TimeoutError, asyncio.CancelledError) as error:
            await _give_back(client, try_id)
            if isinstance(error, asyncio.CancelledError):
                raise
            state, one = await _ended(client, try_id)
    _show(args, state, one)
    return 1 if one.error else 0


async def _give_back(client: ControlClient, try_id: str) -> None:
    try:
        await asyncio.shield(client.command("engine.try_stop", {"try_id": try_id}))
    except AjetError:
        return  # it was answered meanwhile


async def _ended(client: ControlClient, try_id: str) -> tuple[State, Probe]:
    """What became of one that was given back.

    Raises:
        AjetError: the proxy does not know of it: it began anew meanwhile.
    """
    try:
        async with asyncio.timeout(GIVEN_BACK):
            return await _answered(client, try_id, quiet=True)
    except TimeoutError:
        raise AjetError("the proxy no longer has this try", todo="Ask again") from None


async def _answered(client: ControlClient, try_id: str, *, quiet: bool) -> tuple[State, Probe]:
    """The state and the try in it once that is over; how far it is goes to standard error.

    A terminal has it in one line that is kept new, anything else a line now and then.
    """
    shows = not quiet and sys.stderr.isatty()
    told_next = time.monotonic() + TELLS_AFTER
    pause = 0.1
    while True:
        state = await client.snapshot()
        one = next((one for one in state.tries if one.try_id == try_id), None)
        if one is not None and one.over:
            if shows:
                sys.stderr.write("\r\x1b[K")
            return state, one
        if shows and one is not None:
            sys.stderr.write(f"\r\x1b[K{progress(one, state, time.time())}")
            sys.stderr.flush()
        elif not shows and time.monotonic() >= told_next:
            told_next += TELLS_EVERY
            said = progress(one, state, time.time()) if one is not None else "the proxy has it"
            sys.stderr.write(f"try: {said}\n")
            sys.stderr.flush()
        await asyncio.sleep(pause)
        pause = min(1.0, pause * 1.3)


def _show(args: argparse.Namespace, state: State, one: Probe) -> None:
    shown = compared(state, one.try_id, 1 + args.last)
    if args.json:
        told = {"try": one, "last": shown[1:]}
        say_json(told)
        return
    for line in _told(one, None):
        say(line)
    for earlier in shown[1:]:
        say("")
        for line in _told(earlier, one):
            say(line)


def _told(one: Probe, beside: Probe | None) -> list[str]:
    """A try for people; the prompt of an earlier one only where it is another."""
    step = "step unknown" if one.step is None else f"step {one.step}"
    head = f"{clock(one.at)}  {one_line(one.server, 30)}  {step}  {duration(one.seconds)}"
    if beside is not None and one.prompt != beside.prompt:
        head += f"  asked: {one_line(one.prompt, 60)}"
    lines = [f"--- {head}"]
    if one.error:
        return [*lines, f"no answer: {one_line(one.error, 300)}"]
    if one.text or not one.tool_calls:
        lines.append(plain(one.text) or "(an empty answer)")
    if one.tool_calls:
        lines.append(plain(one.tool_calls))
    return lines
