"""`engine start`, `engine stop`, `progress rewind` and the like: all but the job."""

import asyncio
import sys

from ajet_swarm.common.errors import AjetError
from ajet_swarm.common.text import did_you_mean, one_line
from console.cli.commands import about
from console.cli.common import confirm, connected, existing_home, need_proxy
from console.cli.engine.job_source import JOB_SOURCE, NO_WAIT
from console.cli.engine.target import RESULT, Aim, Target, agreed, aimed, each, send
from console.cli.options import (
    PROXY,
    REASON,
    SERVER,
    SERVERS,
    SWARM_URL,
    YES,
    Args,
    argument,
    option,
    takes,
)
from core.commands import COMMANDS
from core.control_payloads import DETAILS_CAP, RewindPlan


@takes(SERVERS, JOB_SOURCE, NO_WAIT, YES, SWARM_URL, PROXY, notes=(RESULT,))
def start(args: Args) -> int:
    """Send the job and start the engine."""
    from console.cli.engine.direct import start_directly
    from console.cli.engine.job_source import agreed_to_start, job_args, requested_job
    from console.cli.engine.target import send_with_steps

    aim = aimed(args)
    if not agreed_to_start(args, aim):
        return 1

    async def one(target: Target) -> str:
        if aim.proxy:
            order = await job_args(args, aim, target)
            return await send_with_steps(args, aim, target, "engine.start", order)
        job = await requested_job(args, aim, target, needed=True)
        for_job = bool(args.file or args.preset or args.set)
        waits = not args.no_wait
        return await start_directly(target.name, target.url, job, for_job=for_job, waits=waits)

    return each(args, aim, one)


@takes(SERVERS, YES, SWARM_URL, PROXY, notes=(RESULT,))
def stop(args: Args) -> int:
    """Stop the engine after showing what is lost."""
    from console.cli.engine.direct import stop_directly

    aim = aimed(args, with_state=not args.yes)
    if not agreed(args, aim, "engine.stop"):
        return 1

    async def one(target: Target) -> str:
        if aim.proxy:
            return await send(args, aim, "engine.stop", {"server": target.name or None})
        return await stop_directly(target.name, target.url)

    return each(args, aim, one)


@takes(SERVERS, PROXY, notes=(RESULT,))
def plain(args: Args) -> int:
    """Send a command that needs a proxy but no confirmation."""
    aim = aimed(args, proxy=need_proxy(args, existing_home(args)))
    return each(args, aim, lambda target: _send_plain(args, aim, target))


@takes(SERVERS, YES, PROXY, notes=(RESULT,))
def reset(args: Args) -> int:
    """Send a command that destroys something after showing what is lost."""
    aim = aimed(args, with_state=not args.yes, proxy=need_proxy(args, existing_home(args)))
    if not agreed(args, aim, args.order_name):
        return 1
    return each(args, aim, lambda target: _send_plain(args, aim, target))


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
    aim = aimed(args, with_state=not args.yes, proxy=need_proxy(args, existing_home(args)))
    if not args.yes:
        asyncio.run(_check_episode(args, aim))
    loss = "the episode, also for the client that claimed it"
    if not confirm(f"Abort an episode {args.episode}", loss, args.yes):
        return 1
    return each(args, aim, lambda target: _send_plain(args, aim, target))


async def _check_episode(args: Args, aim: Aim) -> None:
    """Check that the episode exists, before asking the operator.

    Raises:
        AjetError: no claimed episode has this id, or several do.
    """
    async with connected(args) as client:
        details = await client.server_details(aim.targets[0].name)
    uuids = [episode.uuid for episode in details.episodes]
    matches = [uuid for uuid in uuids if uuid.startswith(args.episode)]
    if len(matches) == 1 or len(uuids) >= DETAILS_CAP:
        return
    what = f"{len(matches)} claimed episodes begin" if matches else "no claimed episode begins"
    todo = "Give more of its id" if matches else did_you_mean(args.episode, uuids)
    raise AjetError(f"{what} with `{one_line(args.episode, 60)}`", todo=todo)


async def _send_plain(args: Args, aim: Aim, target: Target) -> str:
    known = {arg.name for arg in COMMANDS[args.order_name].args} - {"server"}
    values = {name: getattr(args, name, None) for name in known}
    return await send(args, aim, args.order_name, {**values, "server": target.name or None})


COMMAND = "progress.rewind"
_TEXT = 1000
"""Maximum length of one line of a plan."""


@takes(
    option("--path", "PATH", about(COMMAND, "path"), default=""),
    SERVER,
    YES,
    PROXY,
    notes=(RESULT,),
)
def rewind(args: Args) -> int:
    """Show what the rewind restores and loses, ask, and rewind."""
    aim = aimed(args, with_state=True, proxy=need_proxy(args, existing_home(args)))
    plan = asyncio.run(_plan(args, aim))
    if plan.problem:
        todo = f"{plan.todo}: {plan.command}" if plan.command else plan.todo
        raise AjetError(plan.problem, plan.server, todo)
    if not args.yes:
        sys.stderr.write(plan_text(plan))
        if not agreed(args, aim, COMMAND, f"Rewind to step {plan.step}"):
            return 1

    async def one(target: Target) -> str:
        values = {"server": plan.server, "plan_id": plan.plan_id, "path": args.path or None}
        return await send(args, aim, COMMAND, values)

    return each(args, aim, one)


async def _plan(args: Args, aim: Aim) -> RewindPlan:
    async with connected(args, aim.proxy) as client:
        return await client.rewind_plan(aim.targets[0].name, args.path)


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
