"""Differences between a running proxy and the options of this console."""

from pathlib import Path
from urllib.parse import urlsplit

from ajet_swarm.common.errors import AjetError
from ajet_swarm.common.text import one_line
from console.backend.launch import flag_values, told_argv
from console.backend.options import ConsoleOptions
from core.runtime.home import RunInfo


def fits(found: RunInfo, options: ConsoleOptions) -> bool:
    """Whether a proxy that runs is one this console may follow."""
    return bool(found.extra.get("watch_only")) or not options.settings.proxy.watch_only


def must_fit(found: RunInfo, options: ConsoleOptions) -> None:
    """See that who only wants to look on does not get a proxy that claims.

    Raises:
        AjetError: it does; nothing was touched.
    """
    if not fits(found, options):
        raise AjetError(
            f"a proxy is running in this home (pid {found.pid}): --watch-only needs a home "
            f"of its own. Give --home DIR, or watch it with --attach {found.url} --read-only",
            str(options.home.root),
        )


def differences(found: RunInfo, options: ConsoleOptions) -> str:
    """Where the proxy that runs differs from the flags that were given, in words; may be empty.

    Only flags count: a setting of the file may have changed since, and nobody asked for it now.
    """
    told = []
    settings = options.settings
    if found.extra.get("watch_only") and not settings.proxy.watch_only:
        told.append("--watch-only: it answers no requests")
    port = found.port or urlsplit(found.url).port or 0
    wanted = settings.proxy.port
    if not options.next_port and wanted and port and wanted != port:
        told.append(f"port {port}, not {wanted}")
    if options.swarm_given:
        told += _servers(found, options)
    if options.hooks_given and "argv" in found.extra:
        told += _hooks(found, settings.rewards.hooks)
    return "; ".join(told)


def _servers(found: RunInfo, options: ConsoleOptions) -> list[str]:
    wanted = set(options.settings.servers().values())
    argv = told_argv(found)
    given = flag_values(argv, "--upstream") or flag_values(argv, "--swarm-url")
    has = {_address(one) for one in given or found.swarm.replace(",", " ").split()}
    if not has or has == {_address(one) for one in wanted}:
        return []
    what = "upstream" if options.settings.upstream.url else "swarm server"
    return [
        f"{what} {one_line(', '.join(given) or found.swarm, 80)}, "
        f"not {one_line(', '.join(sorted(wanted)), 80)}"
    ]


def _address(given: str) -> str:
    """The URL of `[name=]URL`; the embedded engine's is the word for it, wherever it listens."""
    name, sign, url = given.partition("=")
    if name == "embedded":
        return name
    return (url if sign and "/" not in name else given).rstrip("/").removesuffix("/v1")


def _hooks(found: RunInfo, wanted: str) -> list[str]:
    has = "".join(flag_values(told_argv(found), "--hooks")[-1:])
    if has and wanted and Path(has).absolute() == Path(wanted).absolute():
        return []
    if has == wanted:
        return []
    return [f"hooks {one_line(has, 80) or 'of its settings'}, not {one_line(wanted, 80)}"]
