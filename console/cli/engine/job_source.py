"""The job that a command sends, and the question before the first start of an AgentJet server."""

import asyncio
import contextlib
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from ajet_swarm.common.errors import AjetError, UsageError
from ajet_swarm.common.text import one_line
from console.cli.common import confirm, connected, say, settings_of, snapshot
from console.cli.engine.target import Aim, Target
from console.cli.options import Args, flag, one_of, option
from core.commands.table import PRESETS
from core.control_payloads import JobInfo

CAP = 1_000_000


NO_WAIT = flag("--no-wait", "do not wait until the engine rolls")
JOB_SOURCE = (
    one_of(
        option("--file", "FILE", "the job as YAML; - is standard input", type=Path),
        option("--preset", None, "a shipped job, or the one last sent", choices=PRESETS),
    ),
    option(
        "--set",
        "FIELD=VALUE",
        "change one field: model, gpus, nodes, batch, repeats, lr, epochs, kl, temperature, rule, "
        "prompt, response, turn, window",
        multiple=True,
    ),
)


async def job_args(args: Args, aim: Aim, target: Target) -> dict[str, str | None]:
    """Return the arguments of the command that starts a server: the job and its model.

    Raises:
        JobError: the job is invalid; the error contains file and line.
    """
    order: dict[str, str | None] = {"server": target.name or None, "model": remote_model() or None}
    if args.file is not None or args.set:
        return {**order, "job": await requested_job(args, aim, target)}
    return {**order, "preset": args.preset}


def remote_model() -> str:
    """Return the model that an AgentJet server trains, from the environment; may be empty."""
    return os.environ.get("REMOTE_MODEL_PATH", "")


async def requested_job(args: Args, aim: Aim, target: Target, *, needed: bool = False) -> str:
    """Return the job that the flags choose for one server, as YAML.

    Args:
        args: The parsed command line.
        aim: How the servers are reached.
        target: The server.
        needed: Without flags, return the job that the server would be started with.

    Raises:
        JobError: the job is invalid; the error contains file and line.
    """
    from console.models.job_form import check_job, parse_set, values, with_values

    if args.file is not None:
        text, where = _read(args.file), str(args.file)
    else:
        text, where = await base_job(args, aim, target, needed)
    if not aim.proxy:  # a proxy restores masked secrets itself
        text = _unmasked(aim, target, text)
    check_job(text, where)
    fields = parse_set(args.set)
    if (model := remote_model()) and not values(text)["model"]:
        fields = {"model": model, **fields}
    return with_values(text, fields) if fields else text


def _unmasked(aim: Aim, target: Target, text: str) -> str:
    from proxy.control.job_store import JobStore

    return JobStore.beside(aim.home.journal).restored(target.name, text)


async def base_job(args: Args, aim: Aim, target: Target, needed: bool) -> tuple[str, str]:
    """Return the job before single fields are changed, and where it comes from."""
    if aim.proxy:
        info = await job_info(args, aim, target)
        if args.preset:
            text = getattr(info, "sent" if args.preset == "last" else args.preset)
            return text or _none_sent(target), args.preset
        if info.last:
            note = "default; a start keeps the server's job, which another client sent"
            return (info.saved, info.path) if info.saved else (info.default, note)
        where = "the job last sent" if info.sent else "default"
        return (info.saved, info.path) if info.saved else (info.next, where)
    from ajet_swarm.job.tree import dump_job, load_job
    from console.cli.engine.direct import answers_as_embedded, running_engine
    from core.jobs import preset_job
    from proxy.control.job_store import JobStore

    store = JobStore.beside(aim.home.journal)
    saved, _ = store.load(target.name) or ("", 0.0)
    if saved and not args.preset:
        return saved, str(store.path(target.name))
    settings = settings_of(aim.home, args.swarm_url)
    own = settings.servers().get(target.name) == "embedded"
    embedded = own or await answers_as_embedded(target.name, target.url)
    sent = _last_sent(aim, target) if args.preset == "last" or not embedded else ""
    if args.preset == "last" or (sent and not args.preset):
        return sent or _none_sent(target), "the job last sent"
    engine = await running_engine(target.name, target.url, settings.engine) if embedded else None
    preset, earlier = args.preset or "default", saved or sent
    like = load_job(earlier) if earlier else None
    return dump_job(preset_job(preset, engine, remote_model(), like)), preset


def _none_sent(target: Target) -> NoReturn:
    raise UsageError("no job was sent from here", target.name, "Use `--preset default`")


def _last_sent(aim: Aim, target: Target) -> str:
    """Return the job that a proxy of this home sent last, from the journal; empty for none."""
    from core.journal.read_only import JournalFile

    with contextlib.suppress(AjetError):
        file = JournalFile(aim.home.journal)
        server = file.load_state().servers.get(target.name)
        return server.job.yaml if server is not None and server.job is not None else ""
    return ""  # there is no journal, or it cannot be read


async def job_info(args: Args, aim: Aim, target: Target) -> JobInfo:
    """Return the proxy's information about the jobs of a server."""
    async with connected(args, aim.proxy) as client:
        name = target.name or next(iter((await client.snapshot()).servers), "")
        return await client.job(name)


def _read(file: Path) -> str:
    if str(file) == "-":
        return sys.stdin.read(CAP)
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the file cannot be read: {error}", str(file)) from error


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
