"""`progress rewind`: back to the weights of the best verified step."""

import asyncio
import sys

from ajet_swarm.common.errors import AjetError
from ajet_swarm.common.text import one_line
from console.cli.commands import about
from console.cli.common import connected, existing_home, need_proxy
from console.cli.engine.target import RESULT, Aim, Target, agreed, aimed, each, send
from console.cli.options import PROXY, SERVER, YES, Args, option, takes
from core.control_payloads import RewindPlan

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
