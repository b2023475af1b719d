"""The question before the first start of an AgentJet server: what will be sent."""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from ajet_swarm.common.text import one_line
from console.cli.common import confirm, say
from console.cli.engine.target import Aim, Target, snapshot


@dataclass(frozen=True, slots=True)
class FirstStart:
    """A start that the operator has not agreed to yet."""

    target: Target
    text: str
    """The job as the server will get it, with its secrets masked."""


def agreed_to_start(args: argparse.Namespace, aim: Aim) -> bool:
    """Show what AgentJet servers that never got a job from here will be sent, and ask once.

    Without a proxy it is not known what a server got before: its job is always shown.

    Raises:
        UsageError: there is no terminal to ask on, and no `--yes`.
        JobError: a server cannot start with its job.
    """
    if args.yes or not (names := show_first_jobs(args, aim)):
        return True
    if confirm(f"Start {names} with this job", "", False):
        return True
    say("nothing was changed")
    return False


def show_first_jobs(args: argparse.Namespace, aim: Aim, *, keeps: bool = True) -> str:
    """Print the first job of each AgentJet server, as it will be sent.

    The embedded engine's is not shown.

    Args:
        keeps: A server that another client started keeps the job it has: nothing is sent to it.

    Returns:
        The names of these servers; empty when there are none.

    Raises:
        JobError: a server cannot start with its job.
    """
    first = asyncio.run(_first_starts(args, aim, keeps))
    for one in first:
        sys.stderr.write(f"# to {one_line(one.target.name, 40)}\n{one.text}")
    return ", ".join(one_line(one.target.name, 40) for one in first)


async def _first_starts(args: argparse.Namespace, aim: Aim, keeps: bool) -> Sequence[FirstStart]:
    starts = [await _first_start(args, aim, one, keeps) for one in aim.targets]
    return [one for one in starts if one is not None]


async def _first_start(
    args: argparse.Namespace, aim: Aim, target: Target, keeps: bool
) -> FirstStart | None:
    from console.cli.engine.job_source import given_job, sheet_of
    from console.models.job_form import for_server, masked

    if not aim.proxy:
        from console.cli.engine.direct import reached

        text = await given_job(args, aim, target, needed=True)
        async with reached(target.name, target.url) as client:
            if await client.is_embedded():
                return None
            return FirstStart(target, masked(await client.prepared(text)))
    sheet = await sheet_of(args, aim, target)
    keeps = keeps and sheet.last and not (args.preset or args.file or args.set)
    if sheet.embedded or keeps:
        return None
    state = aim.state or await snapshot(args, aim.home, aim.proxy)
    if state.servers[sheet.server].job is not None:
        return None
    text = await given_job(args, aim, target, needed=True)
    return FirstStart(Target(sheet.server), masked(for_server(text, sheet.model).text))
