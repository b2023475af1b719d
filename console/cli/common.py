"""What the verbs share: home, settings, the proxy to talk to, the files they read and write."""

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ajet_swarm.common.errors import AjetError, UsageError
from ajet_swarm.common.text import one_line
from ajet_swarm.common.urls import web_address
from console.cli.options import Args
from console.cli.output import output
from core.commands import validate
from core.runtime.home import Home, running
from core.runtime.secrets import proxy_key
from core.runtime.tls import absolute_path
from core.settings import Settings, load, parse_servers
from core.settings.effective import HIDDEN, EffectiveSettings
from core.state import State
from core.whole_file import read_small

if TYPE_CHECKING:
    from console.session.filters import Filter
    from proxy.control.client import CommandReply, ControlClient


AT_END = "No proxy runs: this is the state at the end of the journal"
"""Last line of what is read from the journal."""
LIMIT = 5.0
"""Seconds a proxy gets to report its settings."""
INPUT_CAP = 1_000_000
"""Maximum characters of standard input."""


class NotRunning(AjetError):
    """The process that the command needs does not run."""


# --- home and settings ---------------------------------------------------------------------------


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


def of_proxy(args: Args, home: Home) -> EffectiveSettings | None:
    """Return the settings of the named proxy, or of the one that runs in the home.

    Returns:
        None when no proxy runs, or when its version does not report its settings.

    Raises:
        AjetError: the proxy does not answer, or refuses the token.
    """
    url = proxy_url(args, home)
    return asyncio.run(_reported_settings(args, url)) if url else None


async def _reported_settings(args: Args, url: str) -> EffectiveSettings | None:
    from proxy.control.client import ControlError, ControlLost

    try:
        async with asyncio.timeout(LIMIT), connected(args, url) as client:
            return await client.settings()
    except ControlError as error:
        if error.status == 404:
            return None
        raise
    except TimeoutError as error:
        todo = "Start it again, or name another with --url"
        raise ControlLost(f"the proxy does not answer within {LIMIT:g} s", url, todo) from error


def effective(args: Args, home: Home) -> Settings:
    """Return the settings of the running proxy; without one, those of the home.

    When the proxy does not answer, a note on standard error names it.
    """
    try:
        reported = of_proxy(args, home)
    except AjetError as error:
        reported = None
        note = f"using the settings of this home, because the proxy's are unknown: {error}"
        sys.stderr.write(f"ajet-console: {one_line(note, 300)}\n")
    return settings_of(home) if reported is None else reported.settings


def client_key(settings: Settings, home: Home) -> str:
    """Return the key that `/v1` of the proxy requires; empty when it requires none.

    Args:
        settings: The effective settings.
        home: Its settings contain the key when the proxy does not report it.

    Raises:
        UsageError: the key file cannot be read, or only the proxy has the key.
    """
    key = proxy_key(settings.proxy)
    if key != HIDDEN:
        return key
    own = proxy_key(settings_of(home).proxy)
    if not own:
        raise UsageError(
            "the proxy requires a key that is neither in a file nor in the settings of this home",
            todo="Start the proxy with --api-key-file FILE instead of --api-key",
        )
    return own


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


# --- the proxy -----------------------------------------------------------------------------------


def base_url(url: str, option: str) -> str:
    """Return the address of a proxy without a final slash or `/v1`.

    Raises:
        UsageError: it is no address; names the option that gave it.
    """
    if web_address(url) is None:
        raise UsageError("not an address", f"{option} {url}", "Give http://HOST:PORT")
    return url.rstrip("/").removesuffix("/v1")


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
        return base_url(url, "--url")
    info = running(home, "proxy")
    return info.url if info is not None else ""


def need_proxy(args: Args, home: Home, what: str = "no proxy runs in this home") -> str:
    """Return `proxy_url`.

    Raises:
        NotRunning: no proxy runs in the home and none is named.
    """
    if url := proxy_url(args, home):
        return url
    todo = "Start `ajet-console` or `ajet-console run proxy`, or name one with --url"
    raise NotRunning(what, str(home.root), todo)


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


async def order(client: "ControlClient", name: str, values: Mapping[str, Any]) -> "CommandReply":
    """Send a command to the proxy; a dry run asks it what it would do.

    Raises:
        CommandError: the arguments are invalid.
        AjetError: the command is refused, or would be.
    """
    checked = validate(name, values)
    if not output().dry_run:
        return await client.command(name, checked)
    from core.commands.plan import shown_args
    from proxy.control.client import CommandReply

    plan = await client.plan(name, checked)
    shown = {"command": name, "args": shown_args(plan.args), "loses": plan.loses}
    return CommandReply(True, output().plan(plan.message, **shown))


async def send_command(
    args: Args, name: str, values: Mapping[str, Any], url: str = ""
) -> "CommandReply":
    """Validate a command, send it to the proxy and return the reply.

    Raises:
        CommandError: the arguments are invalid.
        AjetError: the proxy refuses the command or does not answer.
    """
    validate(name, values)  # before a connection is made
    async with connected(args, url) as client:
        return await order(client, name, values)


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


def state_now(args: Args, home: Home) -> tuple[State, bool]:
    """Return the state of the proxy and True; without a proxy that of the journal and False.

    Raises:
        AjetError: no proxy answers, or there is no journal either.
    """
    if not (proxy_url(args, home) or home.journal.exists()):
        need_proxy(args, home, "no proxy runs in this home, and there is no journal")
    if url := proxy_url(args, home):
        return asyncio.run(snapshot(args, url)), True
    from core.journal.read_only import JournalFile

    return JournalFile(home.journal).load_state(), False


def filter_of(text: str, where: str = "--where") -> "Filter":
    """Parse a filter line; `where` is the option that gave it.

    Raises:
        UsageError: it cannot be parsed.
    """
    from console.session.filters import FilterError, parse

    try:
        return parse(text)
    except FilterError as error:
        raise UsageError(error.what, f"{where}, {error.where}", error.todo) from error


# --- files ---------------------------------------------------------------------------------------


def read_text(file: str | Path) -> str:
    """Return the text of a file of the command line; `-` is standard input.

    Raises:
        UsageError: it cannot be read.
    """
    if str(file) == "-":
        return sys.stdin.read(INPUT_CAP)
    try:
        return Path(file).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the file cannot be read: {error}", str(file)) from error


def write_file(path: Path, content: str | bytes) -> None:
    """Write a file, and the folders above it.

    Raises:
        AjetError: it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    except OSError as error:
        raise AjetError(f"cannot be written: {error.strerror or error}", str(path)) from error
