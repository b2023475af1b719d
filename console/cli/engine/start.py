"""The confirmation before the first start of an AgentJet server: it shows the job to send."""

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from ajet_swarm.common.text import one_line
from console.cli.common import confirm, say, snapshot
from console.cli.engine.target import Aim, Target
from console.cli.options import Args


@dataclass(frozen=True, slots=True)
class FirstStart:
    """A start that the operator has not confirmed yet."""

    target: Target
    text: str
    """The job as it will be sent, with its secrets masked."""


def agreed_to_start(args: Args, aim: Aim) -> bool:
    """Show the job for each AgentJet server that never got one from here, and ask once.

    Without a proxy, the earlier jobs of a server are unknown: its job is always shown.

    Raises:
        UsageError: standard input is not a terminal, and `--yes` is not given.
        JobError: a server cannot start with its job.
    """
    if args.yes or not (names := show_first_jobs(args, aim)):
        return True
    if confirm(f"Start {names} with this job", "", False):
        return True
    say("nothing was changed")
    return False


def show_first_jobs(args: Args, aim: Aim, *, keeps: bool = True) -> str:
    """Print the first job of each AgentJet server as it will be sent.

    The job of the embedded engine is not shown.

    Args:
        args: The parsed command line.
        aim: The servers, and how they are reached.
        keeps: A server that another client started keeps its job: nothing is sent to it.

    Returns:
        The names of these servers; empty when there are none.

    Raises:
        JobError: a server cannot start with its job.
    """
    from console.models.job_form import needs_text

    first = asyncio.run(_first_starts(args, aim, keeps))
    for start in first:
        sys.stderr.write(
            f"# to {one_line(start.target.name, 40)}: {needs_text(start.text)}\n{start.text}"
        )
    return ", ".join(one_line(start.target.name, 40) for start in first)


async def _first_starts(args: Args, aim: Aim, keeps: bool) -> Sequence[FirstStart]:
    starts = [await _first_start(args, aim, target, keeps) for target in aim.targets]
    return [start for start in starts if start is not None]


async def _first_start(args: Args, aim: Aim, target: Target, keeps: bool) -> FirstStart | None:
    from console.cli.engine.job_source import job_info, requested_job
    from console.models.job_form import for_server, masked

    if not aim.proxy:
        from console.cli.engine.direct import reached

        text = await requested_job(args, aim, target, needed=True)
        async with reached(target.name, target.url) as client:
            if await client.is_embedded():
                return None
            return FirstStart(target, masked(await client.prepared(text)))
    info = await job_info(args, aim, target)
    keeps = keeps and info.last and not (args.preset or args.file or args.set)
    if info.embedded or keeps:
        return None
    state = aim.state or await snapshot(args, aim.proxy)
    if state.servers[info.server].job is not None:
        return None
    text = await requested_job(args, aim, target, needed=True)
    return FirstStart(Target(info.server), masked(for_server(text, info.model).text))
