"""Helpers of the commands: home, settings, the proxy to talk to, questions to the operator."""

import asyncio
import sys
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ajet_swarm.common.errors import AjetError, UsageError
from ajet_swarm.common.urls import web_address
from console.cli.options import Args
from console.cli.output import output
from console.cli.output.dry_run import order
from core.commands import validate
from core.runtime.home import Home, running
from core.runtime.tls import absolute_path
from core.settings import Settings, load, parse_servers
from core.state import State
from core.whole_file import read_small

if TYPE_CHECKING:
    from proxy.control.client import ControlClient


AT_END = "No proxy runs: this is the state at the end of the journal"
"""Last line of what is read from the journal."""


class NotRunning(AjetError):
    """The process that the command needs does not run."""


def say(text: str) -> None:
    """Write one line to standard output; with `--json` it becomes a part of the envelope."""
    output().say(text)


def open_home(args: Args) -> Home:
    """Open the home that `--home` names, or the default one; create it when it is missing.

    A dry run creates nothing.
    """
    if output().dry_run:
        return existing_home(args)
    root: Path | None = args.home
    return Home.open(root.expanduser() if root is not None else None)


def existing_home(args: Args) -> Home:
    """Return the home that `--home` names, or the default one, without creating or changing it."""
    root: Path | None = args.home
    return Home.at(root.expanduser() if root is not None else None)


def settings_of(home: Home, urls: Sequence[str] | None = None, **flags: Any) -> Settings:
    """Load the settings from file, environment and flags.

    Args:
        home: Contains the settings file.
        urls: Swarm servers as `[name=]URL`.
        flags: Further settings, `proxy__port` for `proxy.port`; None is ignored.
    """
    dotted: dict[str, Any] = {name.replace("__", "."): value for name, value in flags.items()}
    if urls:
        if dotted.get("upstream.url"):
            raise UsageError(
                "--upstream and --swarm-url exclude each other: nothing is trained in observe mode"
            )
        dotted |= {"swarm_url": parse_servers(urls), "upstream.url": ""}
    return load(home.config, flags=dotted)


def changed_keys(home: Home) -> Mapping[str, str]:
    """Return the keys of the console that the operator has changed: id of an action -> its keys.

    Keys that cannot be used are left out, and all of them where the settings cannot be read.
    """
    try:
        changed = settings_of(home).console.keys
    except AjetError:
        return {}
    if not changed:
        return {}
    from console.cli.keys import usable_keys  # it imports all screens

    return usable_keys(changed)


def token_of(args: Args, home: Home) -> str:
    """Return the control token: from `--token-file`, else the home's own."""
    file: Path | None = getattr(args, "token_file", None)
    if file is None:
        return home.token()
    try:
        token = read_small(file.expanduser()).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", "") or "it is not text"
        raise UsageError(f"the token cannot be read: {why}", f"--token-file {file}") from error
    if not token:
        raise UsageError("the token file is empty", str(file))
    return token


def proxy_url(args: Args, home: Home) -> str:
    """Return the URL of the proxy's control API without a final slash; empty when unknown."""
    if url := getattr(args, "url", None):
        if web_address(url) is None:
            raise UsageError("not an address", f"--url {url}", "Give http://HOST:PORT")
        return str(url).rstrip("/").removesuffix("/v1")
    info = running(home, "proxy")
    return info.url if info is not None else ""


def need_proxy(args: Args, home: Home) -> str:
    """Return `proxy_url`.

    Raises:
        NotRunning: no proxy runs in the home and none is named.
    """
    url = proxy_url(args, home)
    if not url:
        raise NotRunning(
            "no proxy runs in this home",
            str(home.root),
            "Start `ajet-console` or `ajet-console run proxy`, or name one with --url",
        )
    return url


def cert_of(home: Home) -> str:
    """Return the certificate file of the home's proxy; empty when it has none."""
    info = running(home, "proxy")
    published = info.extra.get("cert", "") if info is not None else ""
    return published or absolute_path(settings_of(home).proxy.tls_cert)


@asynccontextmanager
async def connected(
    args: Args, url: str = "", *, read_only: bool = False
) -> "AsyncIterator[ControlClient]":
    """Connect to the proxy that the command line names, or that runs in the home.

    Args:
        args: The parsed command line.
        url: URL of the proxy when it is known already.
        read_only: Refuse to send commands.

    Raises:
        NotRunning: no proxy runs in the home and none is named.
    """
    from proxy.control.client import ControlClient

    home = existing_home(args)
    place = url or need_proxy(args, home), token_of(args, home)
    async with ControlClient(*place, cert=cert_of(home), read_only=read_only) as client:
        yield client


async def send_command(args: Args, name: str, values: Mapping[str, Any], url: str = "") -> str:
    """Validate a command, send it to the proxy and return the proxy's message.

    Raises:
        CommandError: the arguments are invalid.
        AjetError: the proxy refuses the command or does not answer.
    """
    checked = validate(name, values)
    async with connected(args, url) as client:
        return (await order(client, name, checked)).message


def state_now(args: Args, home: Home) -> tuple[State, bool]:
    """Return the state of the proxy and True; without a proxy that of the journal and False.

    Raises:
        AjetError: no proxy answers, or there is no journal either.
    """
    if url := proxy_url(args, home):
        return asyncio.run(snapshot(args, url)), True
    if not home.journal.exists():
        raise NotRunning(
            "no proxy runs in this home, and there is no journal",
            str(home.root),
            "Start `ajet-console` or `ajet-console run proxy`, or name one with --url",
        )
    from core.journal.read_only import JournalFile

    file = JournalFile(home.journal)
    return file.load_state(), False


async def snapshot(args: Args, url: str = "") -> State:
    """Return the state of a proxy.

    Args:
        args: The parsed command line.
        url: URL of the proxy when it is known already.

    Raises:
        NotRunning: no proxy runs in the home and none is named.
        AjetError: the proxy does not answer, or refuses the token.
    """
    async with connected(args, url) as client:
        return await client.snapshot()


def warn_of_other_mock() -> None:
    """Warn on standard error when PyPI's `mock` is installed beside our package of that name."""
    from console.backend.mock_process import REMEDY, mock_collision

    if collision := mock_collision():
        sys.stderr.write(f"ajet-console: warning: {collision}. {REMEDY}\n")


def confirm(
    act: str, loss: str, yes: bool, instead: str = "", consequences: Sequence[str] = ()
) -> bool:
    """Ask before something is destroyed; a dry run does not ask.

    Args:
        act: The action, such as "Stop the engine of gpu".
        loss: What the action loses, in a few words; may be empty.
        yes: The operator already agreed with `--yes`.
        instead: What else the operator can do, for the refusal: "resume it first".
        consequences: What the action loses, in sentences, as of a plan.

    Raises:
        UsageError: standard input is not a terminal.
    """
    if output().dry_run:
        if loss:
            output().loses(loss)
        if consequences:
            output().say(output().plan(" ".join(consequences)))
        return True
    if yes:
        return True
    if not sys.stdin.isatty():
        lost = f"; it would lose {loss}" if loss else ""
        lost = f": {' '.join(consequences).removesuffix('.')}" if consequences else lost
        other = f", or {instead}" if instead else ""
        raise UsageError(f"{act}: needs confirmation{lost}", todo=f"Add --yes to do it{other}")
    lost = f" It loses {loss}." if loss else ""
    lost = " ".join(["", *consequences]) or lost
    sys.stderr.write(f"{act}?{lost} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def count(number: int, noun: str) -> str:
    """Return the number with its noun: `1 episode`, `2 episodes`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def say_result(args: Args, data: Any, lines: Iterable[str]) -> int:
    """Print data with `--json`, lines without; return the exit code of success."""
    if args.json:
        say_json(data)
    else:
        for line in lines:
            say(line.rstrip())
    return 0


def say_json(data: Any) -> None:
    """Write the fields of a verb into the envelope of `--json`."""
    output().add(data)
