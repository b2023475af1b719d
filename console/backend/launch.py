"""How a process that runs was started, so that it can be started again in the same way."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from core.runtime.home import RunInfo
from core.runtime.secrets import has_redacted
from core.settings import Settings

PROGRAM = (sys.executable, "-P", "-m", "console")
"""-P: a folder `proxy` or `mock` where the operator stands must not be taken for ours."""


@dataclass(frozen=True, slots=True)
class Launch:
    """A command line, where it was given and with which environment."""

    command: tuple[str, ...]
    folder: str | None = None
    """Relative paths of the command line begin here; None for where the console is."""
    environment: Mapping[str, str] | None = None
    """None for that of the console's children."""


def launch_of(info: RunInfo) -> Launch | None:
    """How the process that wrote `info` was started, on the port it really has.

    What it says of itself leads; else the operating system is asked. None when neither tells.
    """
    import psutil

    try:
        process = psutil.Process(info.pid)
        cmdline = process.cmdline()
        folder: str | None = process.cwd()
        environment: dict[str, str] | None = process.environ()
    except (psutil.Error, OSError):
        cmdline, folder, environment = [], None, None
    argv = told_argv(info)
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
    """The settings a child cannot find itself, as flags: they may come from our command line.

    Keys are left out, because others can read a command line; a child reads them where we did.
    """
    if role == "engine":
        return ["--host", settings.engine.host, "--port", str(settings.engine.port)]
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
        told = settings.upstream
        given = {"": told.url, "-model": told.model, "-key-file": told.key_file}
        named = ((f"--upstream{name}", value) for name, value in given.items() if value)
        return [*args, *(word for pair in named for word in pair)]
    if isinstance(settings.swarm_url, str):
        return [*args, "--swarm-url", settings.swarm_url]
    for name, url in settings.swarm_url.items():
        args += ["--swarm-url", f"{name}={url}"]
    return args


def told_argv(info: RunInfo) -> list[str]:
    """The arguments the process published; empty when it did not, or they are not its own."""
    try:
        argv = json.loads(info.extra.get("argv", "[]"))
    except ValueError:
        return []
    if not isinstance(argv, list) or info.role not in argv:
        return []
    return [str(word) for word in argv]


def with_port(argv: Sequence[str], port: int) -> list[str]:
    """`argv` with `port` in place of the port it names; added when it names none."""
    found, words, named = [], iter(argv), False
    for word in words:
        if word == "--port":
            next(words, None)
            found += [word, str(port)]
            named = True
        elif word.startswith("--port="):
            found.append(f"--port={port}")
            named = True
        else:
            found.append(word)
    return found if named else [*found, "--port", str(port)]


def flag_values(argv: Sequence[str], flag: str) -> list[str]:
    """What `argv` gives for a flag, in order; both `--flag X` and `--flag=X`."""
    found = [word.partition("=")[2] for word in argv if word.startswith(f"{flag}=")]
    return found + [
        argv[at + 1] for at, word in enumerate(argv) if word == flag and at + 1 < len(argv)
    ]
