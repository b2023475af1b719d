"""`engine start`, `engine job` and `engine apply`: the job of an engine, and a start with it."""

import asyncio
import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

from ajet_swarm.common.errors import AjetError, UsageError
from ajet_swarm.common.text import one_line
from console.cli.common import connected, read_text, settings_of, snapshot
from console.cli.engine.target import (
    RESULT,
    Aim,
    Target,
    answers_as_embedded,
    reached,
    send_with_steps,
    start_directly,
)
from console.cli.options import (
    PROXY,
    SERVERS,
    SWARM_URL,
    YES,
    Args,
    flag,
    one_of,
    option,
    takes,
)
from console.cli.output import agree, output, say, say_json
from core.commands.table import PRESETS
from core.control_payloads import JobInfo

NO_WAIT = flag("--no-wait", "do not wait until the engine rolls")
JOB_SOURCE = (
    one_of(
        option("--file FILE", "the job as YAML; - is standard input", type=Path),
        option("--preset", "a shipped job, or the one last sent", choices=PRESETS),
    ),
    option(
        "--set FIELD=VALUE",
        "change one field: model, gpus, nodes, batch, repeats, lr, epochs, kl, temperature, rule, "
        "prompt, response, turn, window",
        multiple=True,
    ),
)


# --- which job -----------------------------------------------------------------------------------


async def requested_job(aim: Aim, target: Target) -> str:
    """Return the job that the flags choose for one server, as YAML.

    Without flags it is the job that the server would be started with.

    Raises:
        JobError: the job is invalid; the error contains file and line.
    """
    from console.models.job_form import check_job, parse_set, values, with_values
    from proxy.control.job_commands import remote_model
    from proxy.control.job_store import JobStore

    file = aim.args.file
    if file is not None:
        text, where = read_text(file), str(file)
    else:
        text, where = await base_job(aim, target)
    if not aim.proxy:  # a proxy restores masked secrets itself
        text = JobStore.beside(aim.home.journal).restored(target.name, text)
    check_job(text, where)
    fields = parse_set(aim.args.set)
    if (model := remote_model()) and not values(text)["model"]:
        fields = {"model": model, **fields}
    return with_values(text, fields) if fields else text


async def base_job(aim: Aim, target: Target) -> tuple[str, str]:
    """Return the job before single fields are changed, and where it comes from."""
    info, preset = await job_info(aim, target), aim.args.preset
    if preset:
        text = getattr(info, "sent" if preset == "last" else preset)
        if not text:
            todo = "Use `--preset default`"
            raise UsageError("no job was sent from here", info.server, todo)
        return text, preset
    if info.saved:
        return info.saved, info.path
    if info.last:
        note = "default; a start keeps the server's job, which another client sent"
        return info.default, note
    return info.next, "the job last sent" if info.sent else "default"


async def job_info(aim: Aim, target: Target) -> JobInfo:
    """Return what the proxy, or without one the home, has of the jobs of a server."""
    if aim.proxy:
        async with connected(aim.args, aim.proxy) as client:
            name = target.name or next(iter((await client.snapshot()).servers), "")
            return await client.job(name)
    from ajet_swarm.job.tree import dump_job, load_job
    from core.jobs import preset_job
    from proxy.control.job_commands import engine_of, remote_model
    from proxy.control.job_store import JobStore

    settings = settings_of(aim.home, aim.args.swarm_url)
    store, engine, sent, like = JobStore.beside(aim.home.journal), None, "", None
    saved, _ = store.load(target.name) or ("", 0.0)
    own = settings.servers().get(target.name) == "embedded"
    if own or await answers_as_embedded(*target):
        engine = settings.engine
        with contextlib.suppress(AjetError):  # nothing answers there: as of the settings
            async with reached(target) as client:
                engine = await engine_of(client, engine)
    else:
        sent = _last_sent(aim, target)
        like = load_job(saved or sent) if saved or sent else None
    default, hand = (
        dump_job(preset_job(name, engine, remote_model(), like)) for name in ("default", "hand")
    )
    return JobInfo(
        server=target.name,
        saved=saved,
        path=str(store.path(target.name)),
        default=default,
        hand=hand,
        embedded=engine is not None,
        model=remote_model(),
        sent=sent,
    )


def _last_sent(aim: Aim, target: Target) -> str:
    """Return the job that a proxy of this home sent last, from the journal; empty for none."""
    from core.journal.read_only import JournalFile

    with contextlib.suppress(AjetError):
        server = JournalFile(aim.home.journal).load_state().servers.get(target.name)
        return server.job.yaml if server is not None and server.job is not None else ""
    return ""  # there is no journal, or it cannot be read


# --- start and apply -----------------------------------------------------------------------------


@takes(SERVERS, JOB_SOURCE, NO_WAIT, YES, SWARM_URL, PROXY, notes=(RESULT,))
def start(args: Args) -> int:
    """Send the job and start the engine.

    The job of an AgentJet server that never got one from here is shown, and the operator is asked.
    """
    aim = Aim.of(args)
    if not args.yes and (names := show_first_jobs(aim)):
        agree(f"Start {names} with this job")
    return _send_job(aim, stops=False)


@takes(SERVERS, JOB_SOURCE, NO_WAIT, YES, SWARM_URL, PROXY, notes=(RESULT,))
def apply(args: Args) -> int:
    """Stop the engine, send the job and start again, after showing what is lost."""
    aim = Aim.of(args, with_state=not args.yes)
    if not args.yes:
        show_first_jobs(aim, keeps=False)
    aim.agree("engine.apply")
    return _send_job(aim, stops=True)


def _send_job(aim: Aim, *, stops: bool) -> int:
    from proxy.control.job_commands import remote_model

    args = aim.args

    async def act(target: Target) -> str:
        if not aim.proxy:
            named = bool(args.file or args.preset or args.set)
            job = await requested_job(aim, target)
            waits = not args.no_wait
            return await start_directly(target, job, stops=stops, for_job=named, waits=waits)
        values = {"server": target.name or None, "model": remote_model() or None}
        if args.file is not None or args.set:
            values["job"] = await requested_job(aim, target)
        else:
            values["preset"] = args.preset
        return await send_with_steps(aim, target, args.order_name, values)

    return aim.each(act)


def show_first_jobs(aim: Aim, *, keeps: bool = True) -> str:
    """Print the first job of each AgentJet server as it will be sent, with its secrets masked.

    Without a proxy, the earlier jobs of a server are unknown: its job is always shown.

    Args:
        aim: The servers, and how they are reached.
        keeps: A server that another client started keeps its job: nothing is sent to it.

    Returns:
        The names of these servers; empty when there are none.

    Raises:
        JobError: a server cannot start with its job.
    """
    from console.models.job_form import masked, needs_text

    names: list[str] = []
    for target in aim.targets:
        if (first := asyncio.run(_first_job(aim, target, keeps))) is not None:
            names.append(one_line(first[0], 40))
            text = masked(first[1])
            sys.stderr.write(f"# to {names[-1]}: {needs_text(text)}\n{text}")
    return ", ".join(names)


async def _first_job(aim: Aim, target: Target, keeps: bool) -> tuple[str, str] | None:
    """Return a server and its job; None if it has one from here, or is the embedded engine."""
    from console.models.job_form import for_server

    args = aim.args
    if not aim.proxy:
        async with reached(target):  # raises if nothing answers there
            pass
    info = await job_info(aim, target)
    if info.embedded or (keeps and info.last and not (args.preset or args.file or args.set)):
        return None
    if aim.proxy:
        state = aim.state or await snapshot(args, aim.proxy)
        if state.servers[info.server].job is not None:
            return None
    return info.server, for_server(await requested_job(aim, target), info.model).text


# --- show, check and save ------------------------------------------------------------------------


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
    aim = Aim.of(args)
    if args.diff or args.running:
        return _show_running(aim)
    changes = args.file is not None or args.preset is not None or args.set
    if not changes and not args.check:
        return _show(aim)

    async def act(target: Target) -> str:
        text = await requested_job(aim, target)
        if args.check:
            return await _check_for_server(aim, target, text)
        if aim.proxy:
            return await aim.send("engine.job", {"server": target.name or None, "job": text})
        from proxy.control.job_store import JobStore

        if output().dry_run:
            return output().plan(f"would save the job of {target.name}")
        file = JobStore.beside(aim.home.journal).save(target.name, text)
        return f"{target.name}: the job is saved in {file}; the next start takes it"

    return aim.each(act)


async def _check_for_server(aim: Aim, target: Target, text: str) -> str:
    """Check a job and describe the result, with the keys that are added for an AgentJet server.

    Raises:
        JobError: the job cannot be sent to this server.
    """
    from console.models.job_form import check_job, for_server, needs_text

    info = await job_info(aim, target)
    notices = map(str, check_job(text).notices_for(embedded=info.embedded))
    result = "; ".join([f"{target.name or 'the job'}: it can be sent", *notices])
    if info.embedded:
        return result
    made = for_server(text, info.model, str(aim.args.file or "job"))
    added = f"; {len(made.added)} keys that an AgentJet server needs are added"
    return f"{result}; it trains {needs_text(made.text)}{added if made.added else ''}"


def _show(aim: Aim) -> int:
    """Print the job that a start would use."""
    from ajet_swarm.protocol.job_secrets import masked

    several = len(aim.targets) > 1
    for target in aim.targets:
        text, where = asyncio.run(base_job(aim, target))
        text = masked(text)
        if aim.args.json:
            say_json({"server": target.name, "from": where, "job": text})
        else:
            say(f"# {target.name}: {where}\n{text}" + ("---" if several else "").rstrip())
    return 0


def _show_running(aim: Aim) -> int:
    """Print the server's running job, or its differences from the job of the next start."""
    if not aim.proxy:
        raise UsageError(
            "only a proxy knows the running job of a server",
            todo="Start a proxy, or name one with --url",
        )
    for target in aim.targets:
        info = asyncio.run(job_info(aim, target))
        shown = {"server": info.server, "source": info.source}
        rows = [] if aim.args.running else list(_differences(aim, target, info))
        if aim.args.json:
            say_json(
                {**shown, **({"job": info.running} if aim.args.running else {"changes": rows})}
            )
            continue
        say(f"# {info.server}: {info.source or 'its running job is unknown'}")
        if aim.args.running and info.running:
            say(info.running)
        for name, before, after in rows:
            say(f"{name}: {before} -> {after}")
        if not (rows or aim.args.running) and info.running:
            say("no difference")
    return 0


def _differences(aim: Aim, target: Target, info: JobInfo) -> Iterator[tuple[str, str, str]]:
    from console.models.job_form import change_words, difference

    text = asyncio.run(requested_job(aim, target))
    return map(change_words, difference(info.running, text, info.whole))
