"""`engine try` and `engine try-stop`: send the policy one prompt, without training on it."""

import asyncio
import secrets
import sys
import time
from typing import TYPE_CHECKING

from click import IntRange

from ajet_swarm.common.errors import AjetError, UsageError
from ajet_swarm.common.text import one_line, plain
from console.cli.commands import about, send
from console.cli.common import connected, say, say_json
from console.cli.options import PROXY, SERVER, Args, Range, argument, option, takes
from console.cli.output import output
from console.cli.output.dry_run import order
from console.screens.progress.tries_text import compared, waits_for
from console.text.format import clock, duration
from core.commands import validate
from core.state import Probe, State

if TYPE_CHECKING:
    from proxy.control.client import ControlClient

PROGRESS_AFTER = 2.0
"""Seconds until the first progress line, when standard error is not a terminal."""
PROGRESS_EVERY = 30.0
"""Seconds between two progress lines."""
STOP_SECONDS = 20.0
"""Seconds in which the proxy must report the end of a cancelled try."""

LAST = 3
"""Number of earlier answers shown after the new one."""
_COUNT, _SECONDS = IntRange(0), Range(0, min_open=True)


@takes(argument("try_id", about("engine.try_stop", "try_id"), required=False, metavar="TRY"), PROXY)
def stop(args: Args) -> int:
    """Cancel a try."""
    return send(args, "engine.try_stop", {"try_id": args.try_id})


@takes(
    argument("prompt", "the prompt; - reads standard input"),
    SERVER,
    option("--last", "N", f"show N earlier answers ({LAST})", type=_COUNT, default=LAST),
    option("--timeout", "S", "cancel after S seconds (600)", type=_SECONDS, default=600.0),
    PROXY,
)
def try_prompt(args: Args) -> int:
    """Send the prompt, wait, and show the answer with earlier ones.

    Returns:
        0 with an answer, 1 without, 130 when interrupted; then the episode is released.

    Raises:
        UsageError: the prompt is empty.
        AjetError: no proxy runs, or it refuses.
    """
    prompt = sys.stdin.read() if args.prompt == "-" else args.prompt
    if not prompt.strip():
        raise UsageError("the prompt is empty", todo="Give a prompt")
    return asyncio.run(_try(args, prompt))


async def _try(args: Args, prompt: str) -> int:
    try_id = secrets.token_hex(4)
    values = validate("engine.try", {"prompt": prompt, "server": args.server, "try_id": try_id})
    async with connected(args) as client:
        try:  # when interrupted, the command may already have reached the proxy
            reply = await order(client, "engine.try", values)
            if output().dry_run:
                say(reply.message)
                return 0
            async with asyncio.timeout(args.timeout):
                state, probe = await _wait_finished(client, try_id, quiet=args.json)
        except (TimeoutError, asyncio.CancelledError) as error:
            await _cancel(client, try_id)
            if isinstance(error, asyncio.CancelledError):
                raise
            state, probe = await _wait_cancelled(client, try_id)
    _show(args, state, probe)
    return 1 if probe.error else 0


async def _cancel(client: "ControlClient", try_id: str) -> None:
    try:
        await asyncio.shield(client.command("engine.try_stop", {"try_id": try_id}))
    except AjetError:
        return  # it was answered meanwhile


async def _wait_cancelled(client: "ControlClient", try_id: str) -> tuple[State, Probe]:
    """Wait for the end of a cancelled try.

    Raises:
        AjetError: the proxy does not know the try, because it restarted meanwhile.
    """
    try:
        async with asyncio.timeout(STOP_SECONDS):
            return await _wait_finished(client, try_id, quiet=True)
    except TimeoutError:
        raise AjetError("the proxy no longer has this try", todo="Try again") from None


async def _wait_finished(
    client: "ControlClient", try_id: str, *, quiet: bool
) -> tuple[State, Probe]:
    """Wait until a try has finished; return the state and the try.

    Progress goes to standard error: one updated line on a terminal, otherwise a line now and then.
    """
    terminal = not quiet and sys.stderr.isatty()
    next_line = time.monotonic() + PROGRESS_AFTER
    pause = 0.1
    while True:
        state = await client.snapshot()
        probe = next((try_ for try_ in state.tries if try_.try_id == try_id), None)
        if probe is not None and probe.over:
            if terminal:
                sys.stderr.write("\r\x1b[K")
            return state, probe
        if terminal and probe is not None:
            sys.stderr.write(f"\r\x1b[K{waits_for(probe, state, time.time())}")
            sys.stderr.flush()
        elif not terminal and time.monotonic() >= next_line:
            next_line += PROGRESS_EVERY
            text = (
                waits_for(probe, state, time.time()) if probe is not None else "sent to the proxy"
            )
            sys.stderr.write(f"try: {text}\n")
            sys.stderr.flush()
        await asyncio.sleep(pause)
        pause = min(1.0, pause * 1.3)


def _show(args: Args, state: State, probe: Probe) -> None:
    shown = compared(state, probe.try_id, 1 + args.last)
    if args.json:
        say_json({"try": probe, "last": shown[1:]})
        return
    for line in _lines(probe, None):
        say(line)
    for earlier in shown[1:]:
        say("")
        for line in _lines(earlier, probe):
            say(line)


def _lines(probe: Probe, beside: Probe | None) -> list[str]:
    """Format a try as text; an earlier try's prompt is shown only when it differs."""
    step = "step unknown" if probe.step is None else f"step {probe.step}"
    head = f"{clock(probe.at)}  {one_line(probe.server, 30)}  {step}  {duration(probe.seconds)}"
    if beside is not None and probe.prompt != beside.prompt:
        head += f"  prompt: {one_line(probe.prompt, 60)}"
    lines = [f"--- {head}"]
    if probe.error:
        return [*lines, f"no answer: {one_line(probe.error, 300)}"]
    if probe.text or not probe.tool_calls:
        lines.append(plain(probe.text) or "(an empty answer)")
    if probe.tool_calls:
        lines.append(plain(probe.tool_calls))
    return lines
