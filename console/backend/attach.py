"""Attaching to a proxy that already runs: its token, and how its options differ from ours."""

from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from ajet_swarm.common.errors import AjetError
from ajet_swarm.common.text import one_line
from console.backend.options import ConsoleOptions
from console.backend.processes import flag_values, published_argv, role_args
from core.runtime.home import RunInfo
from core.runtime.tls import absolute_path
from core.whole_file import read_small

_SERVERS = frozenset({"--swarm-url", "--upstream"})
_NO_FILES = frozenset({"--host", "--upstream-model", "--backend", "--model"})


class TokenUnreadable(AjetError):
    """The control token of the proxy cannot be read."""


def read_token(file: Path) -> str:
    """Return the control token from a file. Blocks on the disk.

    Raises:
        TokenUnreadable: the file does not exist, cannot be read or contains no token.
    """
    todo = "Give that proxy's token with --token-file: it is the file `token` in the proxy's home"
    try:
        token = read_small(file.expanduser()).decode().strip()
    except OSError as error:
        why = error.strerror or str(error)
        raise TokenUnreadable(
            f"the control token cannot be read: {why}", str(file), todo
        ) from error
    except UnicodeDecodeError as error:
        raise TokenUnreadable("the control token is not text", str(file), todo) from error
    if not token or not token.isascii() or not token.isprintable():
        raise TokenUnreadable("the file contains no control token", str(file), todo)
    return token


def may_follow(info: RunInfo, options: ConsoleOptions) -> bool:
    """Return whether this console may follow a running proxy; with --watch-only, only a watcher."""
    return bool(info.extra.get("watch_only")) or not options.settings.proxy.watch_only


def check_may_follow(info: RunInfo, options: ConsoleOptions) -> None:
    """Refuse a proxy that claims episodes when the console was started with --watch-only.

    Raises:
        AjetError: the proxy claims episodes; nothing was changed.
    """
    if not may_follow(info, options):
        raise AjetError(
            f"a proxy is running in this home (pid {info.pid}): --watch-only needs its own home. "
            f"Give --home DIR, or watch that proxy with --attach {info.url} --read-only",
            str(options.home.root),
        )


def option_differences(info: RunInfo, options: ConsoleOptions) -> str:
    """Describe how the running proxy differs from this console's flags; empty when it does not.

    Settings from the file are not compared: the file may have changed since the proxy started.
    """
    differences = []
    settings, flags = options.settings, options.proxy_flags
    if info.extra.get("watch_only") and not settings.proxy.watch_only:
        differences.append("--watch-only: it answers no requests")
    port = info.port or urlsplit(info.url).port or 0
    requested = settings.proxy.port
    if not options.next_port and requested and port and requested != port:
        differences.append(f"port {port}, not {requested}")
    argv, own = published_argv(info), role_args("proxy", settings)
    if flags & _SERVERS:
        servers = [value for flag in sorted(_SERVERS) for value in flag_values(argv, flag)]
        servers = servers or info.swarm.replace(",", " ").split()
        wanted = sorted(set(settings.servers().values()))
        differences += _difference("server", servers, wanted) if servers else []
    if "argv" in info.extra:
        for flag in sorted(flags - _SERVERS - {"--port", "--watch-only"}):
            differences += _difference(flag, _last(argv, flag), _last(own, flag))
    return "; ".join(differences)


def engine_differences(info: RunInfo, options: ConsoleOptions) -> str:
    """Describe how the running engine differs from this console's backend and model; empty when it
    does not, or when its command line is unknown."""
    argv, own = published_argv(info), options.settings.engine
    differences = []
    for flag, requested in (("--backend", own.backend), ("--model", own.model)):
        if actual := _last(argv, flag):
            differences += _difference(flag, actual, [requested])
    return "; ".join(differences)


def _difference(name: str, actual: Sequence[str], requested: Sequence[str]) -> list[str]:
    """Return how values differ, as one text; nothing where they do not."""
    if set(map(_address, actual)) == set(map(_address, requested)):
        return []
    has = one_line(", ".join(actual), 80) or "from its settings"
    return [f"{name} {has}, not {one_line(', '.join(requested), 80)}"]


def _address(server: str) -> str:
    """Return the URL of `[name=]URL`; `embedded` for the embedded engine, whatever its port."""
    name, sign, url = server.partition("=")
    if name == "embedded":
        return name
    return (url if sign and "/" not in name else server).rstrip("/").removesuffix("/v1")


def _last(argv: Sequence[str], flag: str) -> list[str]:
    """Return the value of a flag that counts, a file as an absolute path; nothing without it."""
    values = [value for value in flag_values(argv, flag)[-1:] if value]
    return values if flag in _NO_FILES else [absolute_path(value) for value in values]
