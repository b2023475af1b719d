"""`engine stop`, `progress rewind` and the like: all but the job, and `engine try`."""

import asyncio
import secrets
import sys
import time
from contextlib import nullcontext
from typing import TYPE_CHECKING

from click import IntRange

from ajet_swarm.common.errors import AjetError, UsageError
from ajet_swarm.common.text import did_you_mean, one_line, plain
from console.cli.commands import about, send, values_of
from console.cli.common import connected, order
from console.cli.engine.target import RESULT, Aim, Target, stop_directly
from console.cli.options import (
    PROXY,
    REASON,
    SERVER,
    SERVERS,
    SWARM_URL,
    YES,
    Args,
    Range,
    argument,
    option,
    takes,
)
from console.cli.output import agree, output, progress, say, say_json
from core.control_payloads import DETAILS_CAP, RewindPlan
from core.state import Probe, State

if TYPE_CHECKING:
    from proxy.control.client import ControlClient


@takes(SERVERS, YES, SWARM_URL, PROXY, notes=(RESULT,))
def stop(args: Args) -> int:
    """Stop the engine after showing what is lost."""
    aim = Aim.of(args, with_state=not args.yes)
    aim.agree("engine.stop")
    return _send_each(aim) if aim.proxy else aim.each(stop_directly)


@takes(SERVERS, PROXY, notes=(RESULT,))
def plain_order(args: Args) -> int:
    """Send a command that needs a proxy but no confirmation."""
    return _send_each(Aim.of(args, needs_proxy=True))


@takes(SERVERS, YES, PROXY, notes=(RESULT,))
def reset(args: Args) -> int:
    """Send a command that destroys something after showing what is lost."""
    aim = Aim.of(args, with_state=not args.yes, needs_proxy=True)
    aim.agree(args.order_name)
    return _send_each(aim)


@takes(
    argument("episode", about("engine.abort_episode", "episode")),
    REASON,
    SERVER,
    YES,
    PROXY,
    notes=(RESULT,),
)
def abort_episode(args: Args) -> int:
    """Abort an episode after a question."""
    aim = Aim.of(args, with_state=not args.yes, needs_proxy=True)
    if not args.yes:
        asyncio.run(_check_episode(aim))
    lost = ["The episode is lost, also for the client that claimed it."]
    agree(f"Abort an episode {args.episode}", lost, args.yes)
    return _send_each(aim)


async def _check_episode(aim: Aim) -> None:
    """Check that the episode exists, before asking the operator.

    Raises:
        AjetError: no claimed episode has this id, or several do.
    """
    wanted = aim.args.episode
    async with connected(aim.args) as client:
        details = await client.server_details(aim.targets[0].name)
    uuids = [episode.uuid for episode in details.episodes]
    matches = [uuid for uuid in uuids if uuid.startswith(wanted)]
    if len(matches) == 1 or len(uuids) >= DETAILS_CAP:
        return
    what = f"{len(matches)} claimed episodes begin" if matches else "no claimed episode begins"
    todo = "Give more of its id" if matches else did_you_mean(wanted, uuids)
    raise AjetError(f"{what} with `{one_line(wanted, 60)}`", todo=todo)


def _send_each(aim: Aim) -> int:
    """Send the command of the verb to each server, with the options that are its arguments."""
    name = aim.args.order_name

    async def act(target: Target) -> str:
        return await aim.send(name, {**values_of(aim.args, name), "server": target.name or None})

    return aim.each(act)


# --- rewind --------------------------------------------------------------------------------------

COMMAND = "progress.rewind"
_TEXT = 1000
"""Maximum length of one line of a plan."""


@takes(
    option("--path PATH", about(COMMAND, "path"), default=""), SERVER, YES, PROXY, notes=(RESULT,)
)
def rewind(args: Args) -> int:
    """Show what the rewind restores and loses, ask, and rewind."""
    aim = Aim.of(args, with_state=True, needs_proxy=True)
    plan = asyncio.run(_rewind_plan(aim))
    if plan.problem:
        todo = f"{plan.todo}: {plan.command}" if plan.command else plan.todo
        raise AjetError(plan.problem, plan.server, todo)
    if not args.yes:
        sys.stderr.write(plan_text(plan))
        aim.agree(COMMAND, f"Rewind to step {plan.step}")
    values = {"server": plan.server, "plan_id": plan.plan_id, "path": args.path or None}
    return aim.each(lambda _: aim.send(COMMAND, values))


async def _rewind_plan(aim: Aim) -> RewindPlan:
    async with connected(aim.args, aim.proxy) as client:
        return await client.rewind_plan(aim.targets[0].name, aim.args.path)


def plan_text(plan: RewindPlan) -> str:
    """Return what a rewind restores, how the job changes and what is lost, as lines."""
    from console.models.job_form import change_words, difference

    why = "the baseline" if plan.effect is None else f"{plan.effect:+.2f} against the baseline"
    lines = [f"step {plan.step} ({why}): {plan.weights}"]
    if plan.job:
        for name, before, after in map(change_words, difference(plan.before, plan.job, True)):
            lines.append(f"{name}: {before} -> {after}")
    lines += plan.loss
    return "".join(f"{one_line(line, _TEXT)}\n" for line in lines)


# --- one prompt, without training on it ----------------------------------------------------------

PROGRESS_AFTER = 2.0
"""Seconds until the first progress line, when standard error is not a terminal."""
PROGRESS_EVERY = 30.0
"""Seconds between two progress lines."""
STOP_SECONDS = 20.0
"""Seconds in which the proxy must report the end of a cancelled try."""
LAST = 3
"""Number of earlier answers shown after the new one."""


@takes(argument("try_id", about("engine.try_stop", "try_id"), required=False, metavar="TRY"), PROXY)
def try_stop(args: Args) -> int:
    """Cancel a try."""
    return send(args, "engine.try_stop", {"try_id": args.try_id})


@takes(
    argument("prompt", "the prompt; - reads standard input"),
    SERVER,
    option("--last N", f"show N earlier answers ({LAST})", type=IntRange(0), default=LAST),
    option(
        "--timeout S", "cancel after S seconds (600)", type=Range(0, min_open=True), default=600.0
    ),
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
    from console.screens.progress.text import compared

    prompt = sys.stdin.read() if args.prompt == "-" else args.prompt
    if not prompt.strip():
        raise UsageError("the prompt is empty", todo="Give a prompt")
    tried = asyncio.run(_try(args, prompt))
    if tried is None:
        return 0
    shown = compared(*tried, 1 + args.last)
    if args.json:
        say_json({"try": shown[0], "last": shown[1:]})
    else:
        for earlier in shown:
            for line in _lines(earlier, shown[0]):
                say(line)
    return 1 if shown[0].error else 0


async def _try(args: Args, prompt: str) -> tuple[State, str] | None:
    """Return the state with the try's result, and its id; None in a dry run."""
    try_id = secrets.token_hex(4)
    values = {"prompt": prompt, "server": args.server, "try_id": try_id}
    async with connected(args) as client:
        try:  # when interrupted, the command may already have reached the proxy
            reply = await order(client, "engine.try", values)
            if output().dry_run:
                say(reply.message)
                return None
            async with asyncio.timeout(args.timeout):
                return await _finished(client, try_id, quiet=args.json), try_id
        except (TimeoutError, asyncio.CancelledError) as error:
            await _cancel(client, try_id)
            if isinstance(error, asyncio.CancelledError):
                raise
        try:
            async with asyncio.timeout(STOP_SECONDS):
                return await _finished(client, try_id, quiet=True), try_id
        except TimeoutError:
            raise AjetError("the proxy no longer has this try", todo="Try again") from None


async def _cancel(client: "ControlClient", try_id: str) -> None:
    try:
        await asyncio.shield(client.command("engine.try_stop", {"try_id": try_id}))
    except AjetError:
        return  # it was answered meanwhile


async def _finished(client: "ControlClient", try_id: str, *, quiet: bool) -> State:
    """Wait until a try has finished; return the state.

    Progress goes to standard error: one updated line on a terminal, otherwise a line now and then.
    """
    from console.screens.progress.text import waits_for

    terminal = not quiet and sys.stderr.isatty()
    next_line = time.monotonic() + PROGRESS_AFTER
    pause = 0.1
    with progress("sent to the proxy") if terminal else nullcontext() as show:
        while True:
            state = await client.snapshot()
            probe = next((try_ for try_ in state.tries if try_.try_id == try_id), None)
            if probe is not None and probe.over:
                return state
            text = waits_for(probe, state, time.time()) if probe else "sent to the proxy"
            if show is not None:
                show(text)
            elif time.monotonic() >= next_line:
                next_line += PROGRESS_EVERY
                sys.stderr.write(f"try: {text}\n")
                sys.stderr.flush()
            await asyncio.sleep(pause)
            pause = min(1.0, pause * 1.3)


def _lines(probe: Probe, newest: Probe) -> list[str]:
    """Format a try as text; an earlier try's prompt is shown only when it differs."""
    from console.text.format import clock, duration

    step = "step unknown" if probe.step is None else f"step {probe.step}"
    head = f"{clock(probe.at)}  {one_line(probe.server, 30)}  {step}  {duration(probe.seconds)}"
    if probe.prompt != newest.prompt:
        head += f"  prompt: {one_line(probe.prompt, 60)}"
    lines = [] if probe is newest else [""]
    lines.append(f"--- {head}")
    if probe.error:
        return [*lines, f"no answer: {one_line(probe.error, 300)}"]
    if probe.text or not probe.tool_calls:
        lines.append(plain(probe.text) or "(an empty answer)")
    if probe.tool_calls:
        lines.append(plain(probe.tool_calls))
    return lines
