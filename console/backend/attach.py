"""Attaching to a proxy that already runs: its token, and how its options differ from ours."""

from pathlib import Path
from urllib.parse import urlsplit

from ajet_swarm.common.errors import AjetError
from ajet_swarm.common.text import one_line
from console.backend.options import ConsoleOptions
from console.backend.processes import flag_values, published_argv, role_args
from core.runtime.home import RunInfo
from core.runtime.tls import absolute_path
from core.whole_file import read_small

_COMPARED = {
    "--host": "host",
    "--hooks": "hooks",
    "--rewards": "rewards",
    "--api-key-file": "key file",
    "--tls-cert": "certificate",
    "--tls-key": "private key",
    "--upstream-model": "upstream model",
    "--upstream-key-file": "upstream key file",
}
"""Option of the proxy with one value, compared with that of a running proxy -> its name."""
_NO_FILES = ("--host", "--upstream-model")


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
    settings = options.settings
    if info.extra.get("watch_only") and not settings.proxy.watch_only:
        differences.append("--watch-only: it answers no requests")
    port = info.port or urlsplit(info.url).port or 0
    requested = settings.proxy.port
    if not options.next_port and requested and port and requested != port:
        differences.append(f"port {port}, not {requested}")
    if options.proxy_flags & {"--swarm-url", "--upstream"}:
        differences += _server_differences(info, options)
    if "argv" in info.extra:
        differences += _value_differences(info, options)
    return "; ".join(differences)


def engine_differences(info: RunInfo, options: ConsoleOptions) -> str:
    """Describe how the running engine differs from this console's backend and model; empty when it
    does not, or when its command line is unknown."""
    argv, own = published_argv(info), options.settings.engine
    differences = []
    for name, flag, requested in (
        ("backend", "--backend", own.backend),
        ("model", "--model", own.model),
    ):
        actual = flag_values(argv, flag)
        if actual and actual[-1] != requested:
            differences.append(f"{name} {one_line(actual[-1], 60)}, not {one_line(requested, 60)}")
    return "; ".join(differences)


def _server_differences(info: RunInfo, options: ConsoleOptions) -> list[str]:
    requested = set(options.settings.servers().values())
    argv = published_argv(info)
    flags = flag_values(argv, "--upstream") or flag_values(argv, "--swarm-url")
    actual = {_address(flag) for flag in flags or info.swarm.replace(",", " ").split()}
    if not actual or actual == {_address(flag) for flag in requested}:
        return []
    kind = "upstream" if options.settings.upstream.url else "swarm server"
    return [
        f"{kind} {one_line(', '.join(flags) or info.swarm, 80)}, "
        f"not {one_line(', '.join(sorted(requested)), 80)}"
    ]


def _address(server: str) -> str:
    """Return the URL of `[name=]URL`; `embedded` for the embedded engine, whatever its port."""
    name, sign, url = server.partition("=")
    if name == "embedded":
        return name
    return (url if sign and "/" not in name else server).rstrip("/").removesuffix("/v1")


def _value_differences(info: RunInfo, options: ConsoleOptions) -> list[str]:
    argv, own = published_argv(info), role_args("proxy", options.settings)
    differences = []
    for flag, name in _COMPARED.items():
        if flag not in options.proxy_flags:
            continue
        actual, requested = (_value(words, flag) for words in (argv, own))
        if actual != requested:
            has = one_line(actual, 80) or "from its settings"
            differences.append(f"{name} {has}, not {one_line(requested, 80)}")
    return differences


def _value(argv: list[str], flag: str) -> str:
    """Return the value of a flag in `argv`, a file as an absolute path; empty without the flag."""
    value = "".join(flag_values(argv, flag)[-1:])
    return value if flag in _NO_FILES else absolute_path(value)
