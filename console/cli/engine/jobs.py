"""`engine job` and `engine apply`: show or save an engine's job, and restart the engine with it."""

import asyncio

from ajet_swarm.common.errors import UsageError
from console.cli.common import say, say_json, settings_of
from console.cli.engine.job_source import (
    JOB_SOURCE,
    NO_WAIT,
    base_job,
    job_args,
    job_info,
    remote_model,
    requested_job,
)
from console.cli.engine.target import (
    RESULT,
    Aim,
    Target,
    agreed,
    aimed,
    each,
    send,
    send_with_steps,
)
from console.cli.options import PROXY, SERVERS, SWARM_URL, YES, Args, flag, one_of, takes
from console.cli.output import output


@takes(
    SERVERS,
    JOB_SOURCE,
    SWARM_URL,
    PROXY,
    one_of(
        flag("--check", "check the job, save nothing"),
        flag("--diff", "show the differences from the server's running job"),
        flag("--running", "show the server's running job"),
    ),
    notes=(RESULT,),
)
def job(args: Args) -> int:
    """Show, check or save the job of a server."""
    aim = aimed(args)
    if args.diff or args.running:
        return _show_running(args, aim)
    changes = args.file is not None or args.preset is not None or args.set
    if not changes and not args.check:
        return _show(args, aim)

    async def one(target: Target) -> str:
        text = await requested_job(args, aim, target, needed=True)
        if args.check:
            return await _check_for_server(args, aim, target, text)
        if aim.proxy:
            return await send(args, aim, "engine.job", {"server": target.name or None, "job": text})
        from proxy.control.job_store import JobStore

        _check(target, text, embedded=False)
        if output().dry_run:
            return output().plan(f"would save the job of {target.name}")
        file = JobStore.beside(aim.home.journal).save(target.name, text)
        return f"{target.name}: the job is saved in {file}; the next start takes it"

    return each(args, aim, one)


@takes(SERVERS, JOB_SOURCE, NO_WAIT, YES, SWARM_URL, PROXY, notes=(RESULT,))
def apply(args: Args) -> int:
    """Stop the engine, send the job and start again, after showing what is lost."""
    from console.cli.engine.job_source import show_first_jobs

    aim = aimed(args, with_state=not args.yes)
    if not args.yes:
        show_first_jobs(args, aim, keeps=False)
    if not agreed(args, aim, "engine.apply"):
        return 1
    from console.cli.engine.direct import apply_directly

    async def one(target: Target) -> str:
        if not aim.proxy:
            text = await requested_job(args, aim, target, needed=True)
            return await apply_directly(target.name, target.url, text, waits=not args.no_wait)
        values = await job_args(args, aim, target)
        return await send_with_steps(args, aim, target, "engine.apply", values)

    return each(args, aim, one)


# --- which job -----------------------------------------------------------------------------------


async def _check_for_server(args: Args, aim: Aim, target: Target, text: str) -> str:
    """Check a job and describe the result, with the keys that are added for an AgentJet server.

    Raises:
        JobError: the job cannot be sent to this server.
    """
    from console.cli.engine.direct import answers_as_embedded
    from console.models.job_form import for_server, needs_text

    if aim.proxy:
        info = await job_info(args, aim, target)
        embedded, model = info.embedded, info.model
    else:
        own = settings_of(aim.home, args.swarm_url).servers().get(target.name) == "embedded"
        embedded = own or await answers_as_embedded(target.name, target.url)
        model = remote_model()
    result = _check(target, text, embedded=embedded)
    if embedded:
        return result
    made = for_server(text, model, str(args.file or "job"))
    added = (
        f"; {len(made.added)} keys that an AgentJet server needs are added" if made.added else ""
    )
    return f"{result}; it trains {needs_text(made.text)}{added}"


def _check(target: Target, text: str, *, embedded: bool) -> str:
    from console.models.job_form import check_job

    notices = map(str, check_job(text).notices_for(embedded=embedded))
    return "; ".join([f"{target.name or 'the job'}: it can be sent", *notices])


# --- show ----------------------------------------------------------------------------------------


def _show(args: Args, aim: Aim) -> int:
    """Print the job that a start would use."""
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


def _show_running(args: Args, aim: Aim) -> int:
    """Print the server's running job, or its differences from the job of the next start."""
    from console.models.job_form import change_words, difference

    if not aim.proxy:
        raise UsageError(
            "only a proxy knows the running job of a server",
            todo="Start a proxy, or name one with --url",
        )
    for target in aim.targets:
        info = asyncio.run(job_info(args, aim, target))
        head = f"# {info.server}: {info.source or 'its running job is unknown'}"
        if args.running and args.json:
            say_json({"server": info.server, "source": info.source, "job": info.running})
            continue
        if args.running:
            say(head + (f"\n{info.running}" if info.running else ""))
            continue
        text = asyncio.run(requested_job(args, aim, target, needed=True))
        changes = difference(info.running, text, info.whole)
        rows = [change_words(change) for change in changes]
        if args.json:
            say_json({"server": info.server, "source": info.source, "changes": rows})
            continue
        say(head)
        for name, before, after in rows:
            say(f"{name}: {before} -> {after}")
        if not rows and info.running:
            say("no difference")
    return 0
