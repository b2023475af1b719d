"""Running processes: how each was started, whether it still exists, and signals to it."""

import contextlib
import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from core.runtime.home import RunInfo
from core.runtime.secrets import has_redacted
from core.settings import Settings

PROGRAM = (sys.executable, "-P", "-m", "console")
"""-P: a folder `proxy` or `mock` in the working directory must not shadow our packages."""


@dataclass(frozen=True, slots=True)
class Launch:
    """A command line with its working directory and environment."""

    command: tuple[str, ...]
    folder: str | None = None
    """Working directory; None for the console's own."""
    environment: Mapping[str, str] | None = None
    """None for the environment of the console's children."""


def launch_of(info: RunInfo) -> Launch | None:
    """Return how the process that wrote `info` was started, with the port it actually uses.

    The arguments that the process published are preferred to the command line of the operating
    system. None when neither is available.
    """
    import psutil

    try:
        process = psutil.Process(info.pid)
        cmdline = process.cmdline()
        folder: str | None = process.cwd()
        environment: dict[str, str] | None = process.environ()
    except (psutil.Error, OSError):
        cmdline, folder, environment = [], None, None
    argv = published_argv(info)
    if argv and not has_redacted(argv):
        command = [*PROGRAM, *argv]
    elif cmdline:
        command = cmdline
    else:
        return None
    if info.port and info.role != "mock":
        command = with_port(command, info.port)
    if folder is not None and not Path(folder).is_dir():
        folder = None
    return Launch(tuple(command), folder, environment or None)


def role_args(role: str, settings: Settings) -> list[str]:
    """Return the settings that may come from our command line as flags for a child.

    Keys are left out, because other users can read a command line; the child reads them from the
    same place as the console.
    """
    if role == "engine":
        own = settings.engine
        args = ["--host", own.host, "--port", str(own.port), "--backend", own.backend]
        job_names_it = own.backend == "torch" and not own.torch_model
        return args if job_names_it else [*args, "--model", own.model]
    if role != "proxy":
        return []
    proxy = settings.proxy
    args = ["--host", proxy.host, "--port", str(proxy.port)]
    files = {
        "hooks": settings.rewards.hooks,
        "rewards": settings.rewards.file,
        "api-key-file": proxy.api_key_file,
        "tls-cert": proxy.tls_cert,
        "tls-key": proxy.tls_key,
    }
    args += [word for name, file in files.items() if file for word in (f"--{name}", file)]
    if proxy.watch_only:
        args.append("--watch-only")
    if settings.upstream.url:
        upstream = settings.upstream
        values = {"": upstream.url, "-model": upstream.model, "-key-file": upstream.key_file}
        flags = ((f"--upstream{suffix}", value) for suffix, value in values.items() if value)
        return [*args, *(word for flag in flags for word in flag)]
    if isinstance(settings.swarm_url, str):
        return [*args, "--swarm-url", settings.swarm_url]
    for name, url in settings.swarm_url.items():
        args += ["--swarm-url", f"{name}={url}"]
    return args


def published_argv(info: RunInfo) -> list[str]:
    """Return the arguments the process published; empty when absent or of another process."""
    try:
        argv = json.loads(info.extra.get("argv", "[]"))
    except ValueError:
        return []
    if not isinstance(argv, list) or info.role not in argv:
        return []
    return [str(word) for word in argv]


def with_port(argv: Sequence[str], port: int) -> list[str]:
    """Return `argv` with its --port replaced by `port`, or with --port added."""
    result, words, replaced = [], iter(argv), False
    for word in words:
        if word == "--port":
            next(words, None)
            result += [word, str(port)]
            replaced = True
        elif word.startswith("--port="):
            result.append(f"--port={port}")
            replaced = True
        else:
            result.append(word)
    return result if replaced else [*result, "--port", str(port)]


def flag_values(argv: Sequence[str], flag: str) -> list[str]:
    """Return the values of a flag in `argv`: all of `--flag=X`, then all of `--flag X`."""
    values = [word.partition("=")[2] for word in argv if word.startswith(f"{flag}=")]
    return values + [
        argv[at + 1] for at, word in enumerate(argv) if word == flag and at + 1 < len(argv)
    ]


def exists(pid: int) -> bool:
    """Return whether a process with this id exists; a zombie counts."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def is_zombie(pid: int) -> bool:
    """Return whether the process has ended and its parent has not yet collected it."""
    import psutil

    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.Error:
        return True


def group_of(pid: int) -> int | None:
    """Return the process group that `pid` leads; None when it leads none, as in a script."""
    try:
        return pid if os.getpgid(pid) == pid and pid != os.getpgrp() else None
    except ProcessLookupError:
        return None


def send(pid: int, number: signal.Signals) -> None:
    """Signal one process; ignore one that is gone or belongs to another user."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def send_group(group: int | None, pid: int | None, number: signal.Signals) -> None:
    """Signal a whole process group; without a group, only the process."""
    if group is not None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, number)
    elif pid is not None:
        send(pid, number)
