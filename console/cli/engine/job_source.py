"""The job a command sends to a server: from a file, a preset, single fields, or as it is saved."""

import argparse
import os
import sys
from pathlib import Path

from ajet_swarm.common.errors import UsageError
from console.cli.common import cert_of, settings_of, token_of
from console.cli.engine.target import Aim, Target
from core.commands.engine import PRESETS
from core.control_payloads import JobInfo

CAP = 1_000_000


def add_job_source(parser: argparse.ArgumentParser) -> None:
    """Add the options that name a job."""
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--file", type=Path, metavar="FILE", help="the job as YAML; - reads it")
    source.add_argument("--preset", choices=PRESETS, help="a job that comes with the program")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="FIELD=VALUE",
        help="change one field: model, batch, repeats, lr, epochs, kl, temperature, rule, "
        "prompt, response, turn, window",
    )


async def job_args(args: argparse.Namespace, aim: Aim, target: Target) -> dict[str, str | None]:
    """Arguments of the order that starts a server of the proxy: which job, and its model.

    Raises:
        JobError: the job that the command names is none; names file and line.
    """
    order: dict[str, str | None] = {"server": target.name or None, "model": remote_model() or None}
    if args.file is not None or args.set:
        return {**order, "job": await given_job(args, aim, target)}
    return {**order, "preset": args.preset}


def remote_model() -> str:
    return os.environ.get("REMOTE_MODEL_PATH", "")


async def given_job(
    args: argparse.Namespace, aim: Aim, target: Target, *, needed: bool = False
) -> str:
    """The job that the flags mean for one server.

    Args:
        needed: Without a flag it is the one the server would be started with.

    Raises:
        JobError: it is none; names file and line.
    """
    from console.models.job_form import check_job, parse_set, values, with_values

    if args.file is not None:
        text, where = _read(args.file), str(args.file)
    else:
        text, where = await base_job(args, aim, target, needed)
    if not aim.proxy:  # which does it itself
        text = _unmasked(aim, target, text)
    check_job(text, where)
    fields = parse_set(args.set)
    if (model := remote_model()) and not values(text)["model"]:
        fields = {"model": model, **fields}
    return with_values(text, fields) if fields else text


def _unmasked(aim: Aim, target: Target, text: str) -> str:
    from proxy.control.job_store import JobStore

    return JobStore.beside(aim.home.journal).restored(target.name, text)


async def base_job(
    args: argparse.Namespace, aim: Aim, target: Target, needed: bool
) -> tuple[str, str]:
    if aim.proxy:
        sheet = await sheet_of(args, aim, target)
        if args.preset:
            return (sheet.hand if args.preset == "hand" else sheet.default), args.preset
        if sheet.last:
            note = "default; a start keeps the job the server has, which another client sent"
            return (sheet.saved, sheet.path) if sheet.saved else (sheet.default, note)
        return (sheet.saved, sheet.path) if sheet.saved else (sheet.default, "default")
    from console.cli.engine.direct import answers_as_embedded, preset_job
    from proxy.control.job_store import JobStore

    store = JobStore.beside(aim.home.journal)
    saved = None if args.preset else store.load(target.name)
    if saved is not None:
        return saved[0], str(store.path(target.name))
    settings = settings_of(aim.home, args.swarm_url)
    preset = args.preset or "default"
    own = settings.servers().get(target.name) == "embedded"
    embedded = own or await answers_as_embedded(target.name, target.url)
    return preset_job(preset, embedded, settings.engine.model), preset


async def sheet_of(args: argparse.Namespace, aim: Aim, target: Target) -> JobInfo:
    """What the proxy knows about the jobs of a server."""
    from proxy.control.client import ControlClient

    token = token_of(args, aim.home)
    async with ControlClient(aim.proxy, token, cert=cert_of(aim.home)) as client:
        name = target.name or next(iter((await client.snapshot()).servers), "")
        return await client.job(name)


def _read(file: Path) -> str:
    if str(file) == "-":
        return sys.stdin.read(CAP)
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the file cannot be read: {error}", str(file)) from error
