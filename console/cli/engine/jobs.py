"""`engine-job` and `engine-apply`: what an engine is started with, and putting it into force."""

import argparse
import asyncio
import contextlib
import sys
from typing import TYPE_CHECKING

from ajet_swarm.common.errors import AjetError, UsageError
from ajet_swarm.common.text import one_line
from console.cli.common import cert_of, say, say_json, settings_of, token_of
from console.cli.engine.job_source import (
    add_job_source,
    base_job,
    given_job,
    job_args,
    remote_model,
    sheet_of,
)
from console.cli.engine.target import Aim, Target, add_targets, agreed, aimed, each, send
from console.cli.options import add_swarm_url, add_yes
from core.events import WorkChanged

if TYPE_CHECKING:
    from core.state import State
    from proxy.control.client import ControlClient

LEFT_LIMIT = 30.0
"""Seconds an interrupted work may take to come to a safe place; a stop takes 19."""


def add_job(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `engine-job`."""
    add_targets(parser, job)
    add_swarm_url(parser)
    add_job_source(parser)
    show = parser.add_mutually_exclusive_group()
    show.add_argument("--check", action="store_true", help="check it, save nothing")
    show.add_argument("--diff", action="store_true", help="against the job the server runs")
    show.add_argument("--running", action="store_true", help="the job the server runs")


def add_apply(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `engine-apply`."""
    add_targets(parser, apply)
    add_swarm_url(parser)
    add_yes(parser)
    add_job_source(parser)


def job(args: argparse.Namespace) -> int:
    """Show, check or save the job of a server."""
    aim = aimed(args)
    if args.diff or args.running:
        return _look(args, aim)
    changes = args.file is not None or args.preset is not None or args.set
    if not changes and not args.check:
        return _show(args, aim)

    async def one(target: Target) -> str:
        text = await given_job(args, aim, target, needed=True)
        if args.check:
            return await _checked_for(args, aim, target, text)
        if aim.proxy:
            return await send(args, aim, "engine.job", {"server": target.name or None, "job": text})
        from proxy.control.job_store import JobStore

        _checked(target, text)
        file = JobStore.beside(aim.home.journal).save(target.name, text)
        return f"{target.name}: the job is saved in {file}; the next start takes it"

    return each(args, aim, one)


def apply(args: argparse.Namespace) -> int:
    """Stop, wait, send the job and start, after saying what is lost."""
    from console.cli.engine.start import show_first_jobs

    aim = aimed(args, look=not args.yes)
    if not args.yes:
        show_first_jobs(args, aim, keeps=False)
    if not agreed(args, aim, "Stop and start again with the job: the engine"):
        return 1
    from console.cli.engine.direct import apply_directly

    async def one(target: Target) -> str:
        if not aim.proxy:
            text = await given_job(args, aim, target, needed=True)
            return await apply_directly(target.name, target.url, text)
        values = await job_args(args, aim, target)
        return await _followed(args, aim, target, values)

    return each(args, aim, one)


async def _followed(
    args: argparse.Namespace, aim: Aim, target: Target, values: dict[str, str | None]
) -> str:
    """Give the order and tell its steps meanwhile; an interrupt cancels it."""
    if args.json:
        return await send(args, aim, "engine.apply", values)
    from proxy.control.client import ControlClient

    token, cert = token_of(args, aim.home), cert_of(aim.home)
    async with ControlClient(aim.proxy, token, cert=cert) as client, asyncio.TaskGroup() as tasks:
        steps = tasks.create_task(_tell_steps(client, target, await client.snapshot()))
        try:
            return await send(args, aim, "engine.apply", values)
        except AjetError as error:
            failure = error  # raised outside of the group, which would wrap it
        except asyncio.CancelledError:
            with contextlib.suppress(AjetError, TimeoutError):
                await send(args, aim, "engine.cancel", {"server": target.name or None})
                async with asyncio.timeout(LEFT_LIMIT):
                    await _tell_left(client, target)
            raise
        finally:
            steps.cancel()
    raise failure


async def _tell_left(client: "ControlClient", target: Target) -> None:
    """Say what a cancelled work has left the server in, once it is over."""
    while True:
        servers = (await client.snapshot()).servers
        name = target.name or next(iter(servers), "")
        work = servers[name].work
        if work is None or work.over:
            said = work.said if work is not None else "nothing was begun"
            sys.stderr.write(f"{one_line(name, 40)}: {one_line(said, 300)}\n")
            return
        await asyncio.sleep(0.2)


async def _tell_steps(client: "ControlClient", target: Target, state: "State") -> None:
    """Say each step of the server's work that begins after `state`."""
    name = target.name or next(iter(state.servers), "")
    told: set[str] = set()
    with contextlib.suppress(AjetError):  # the order itself says what is wrong
        async for event in client.events(state.seq, run_id=state.run_id):
            if not isinstance(event, WorkChanged) or event.server != name:
                continue
            for step in event.steps:
                if step.began and step.title not in told:
                    told.add(step.title)
                    sys.stderr.write(f"{one_line(name, 40)}: {step.title}\n")
                    sys.stderr.flush()


# --- which job -----------------------------------------------------------------------------------


async def _checked_for(args: argparse.Namespace, aim: Aim, target: Target, text: str) -> str:
    """What a check says of a job, with what an AgentJet server will get beside it.

    Raises:
        JobError: it cannot be sent to this server.
    """
    from console.cli.engine.direct import answers_as_embedded
    from console.models.job_form import for_server

    if aim.proxy:
        sheet = await sheet_of(args, aim, target)
        embedded, model = sheet.embedded, sheet.model
    else:
        own = settings_of(aim.home, args.swarm_url).servers().get(target.name) == "embedded"
        embedded = own or await answers_as_embedded(target.name, target.url)
        model = remote_model()
    said = _checked(target, text)
    if embedded:
        return said
    added = len(for_server(text, model, str(args.file or "job")).added)
    return f"{said}; {added} keys that start an AgentJet server are added" if added else said


def _checked(target: Target, text: str) -> str:
    from console.models.job_form import check_job

    notices = [
        f"line {one.line}: {one.text}" if one.line else one.text for one in check_job(text).notices
    ]
    return "; ".join([f"{target.name or 'the job'}: it can be sent", *notices])


# --- looking -------------------------------------------------------------------------------------


def _show(args: argparse.Namespace, aim: Aim) -> int:
    """Print the job a start would take."""
    from ajet_swarm.protocol.job_secrets import masked

    several = len(aim.targets) > 1
    for target in aim.targets:
        text, where = asyncio.run(base_job(args, aim, target, True))
        text = masked(text)
        if args.json:
            say_json({"server": target.name, "from": where, "job": text})
        else:
            say(f"# {target.name}: {where}\n{text}" + ("---" if several else "").rstrip())
    return 0


def _look(args: argparse.Namespace, aim: Aim) -> int:
    """What the server runs, or what a start would change."""
    from console.models.job_form import change_words, difference

    if not aim.proxy:
        raise UsageError(
            "what a server runs is known to a proxy alone", todo="Start one, or name it with --url"
        )
    for target in aim.targets:
        sheet = asyncio.run(sheet_of(args, aim, target))
        known = f"# {sheet.server}: {sheet.source or 'what it runs is not known'}"
        if args.running:
            say(known + (f"\n{sheet.running}" if sheet.running else ""))
            continue
        text = asyncio.run(given_job(args, aim, target, needed=True))
        found = difference(sheet.running, text, sheet.whole)
        rows = [change_words(one) for one in found]
        if args.json:
            say_json({"server": sheet.server, "source": sheet.source, "changes": rows})
            continue
        say(known)
        for name, before, after in rows:
            say(f"{name}: {before} -> {after}")
        if not rows and sheet.running:
            say("no difference")
    return 0
