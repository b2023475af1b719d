"""What the commands share: home, settings, the proxy they talk to, questions to the operator."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ajet_swarm.common.errors import AjetError, UsageError
from ajet_swarm.common.urls import web_address
from core.commands import validate
from core.jsonio import encode_full
from core.runtime.home import Home, running
from core.runtime.tls import absolute_path
from core.settings import Settings, load, parse_servers


class NotRunning(AjetError):
    """There is nothing to talk to."""


def say(text: str) -> None:
    """One line for the operator, on standard output."""
    sys.stdout.write(text + "\n")


def open_home(given: argparse.Namespace) -> Home:
    """The home that was named, or the usual one; made where there is none."""
    root: Path | None = given.home
    return Home.open(root.expanduser() if root is not None else None)


def look_home(given: argparse.Namespace) -> Home:
    """The same for those who ask or order: nothing is made or changed in it."""
    root: Path | None = given.home
    return Home.at(root.expanduser() if root is not None else None)


def settings_of(home: Home, urls: Sequence[str] | None = None, **flags: Any) -> Settings:
    """File, environment and flags.

    Args:
        home: Holds the file.
        urls: Swarm servers as `[name=]URL`.
        flags: Further settings, `proxy__port` for `proxy.port`; None is left out.
    """
    dotted: dict[str, Any] = {name.replace("__", "."): value for name, value in flags.items()}
    if urls:
        if dotted.get("upstream.url"):
            raise UsageError(
                "--upstream and --swarm-url exclude each other: nothing is trained in observe mode"
            )
        dotted |= {"swarm_url": parse_servers(urls), "upstream.url": ""}
    return load(home.config, flags=dotted)


def token_of(given: argparse.Namespace, home: Home) -> str:
    """The control token: from the file that was named, else the home's own."""
    file: Path | None = getattr(given, "token_file", None)
    if file is None:
        return home.token()
    try:
        token = file.expanduser().read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the token cannot be read: {error}", "--token-file") from error
    if not token:
        raise UsageError("the token file is empty", str(file))
    return token


def proxy_url(given: argparse.Namespace, home: Home) -> str:
    """Where the proxy's control API is, without a slash at the end; empty when none is known."""
    if url := getattr(given, "url", None):
        if web_address(url) is None:
            raise UsageError("not an address", f"--url {url}", "Give http://HOST:PORT")
        return str(url).rstrip("/").removesuffix("/v1")
    info = running(home, "proxy")
    return info.url if info is not None else ""


def need_proxy(given: argparse.Namespace, home: Home) -> str:
    """As `proxy_url`.

    Raises:
        NotRunning: none is known.
    """
    url = proxy_url(given, home)
    if not url:
        raise NotRunning(
            "no proxy runs in this home",
            str(home.root),
            "Start `ajet-console` or `ajet-console proxy`, or name one with --url",
        )
    return url


def cert_of(home: Home) -> str:
    """File with the certificate that the home's proxy shows; empty when it has none."""
    info = running(home, "proxy")
    told = info.extra.get("cert", "") if info is not None else ""
    return told or absolute_path(settings_of(home).proxy.tls_cert)


async def order(url: str, token: str, name: str, args: Mapping[str, Any], cert: str = "") -> str:
    """Check a command, send it to the proxy and return what it says.

    Raises:
        CommandError: the arguments are wrong.
        AjetError: the proxy refuses or does not answer.
    """
    checked = validate(name, args)
    from proxy.control.client import ControlClient

    async with ControlClient(url, token, cert=cert) as client:
        return (await client.command(name, checked)).message


def warn_of_other_mock() -> None:
    """Warn on standard error when PyPI's `mock` is installed beside our package of that name."""
    from console.backend.mock_package import REMEDY, mock_collision

    if collision := mock_collision():
        sys.stderr.write(f"ajet-console: warning: {collision}. {REMEDY}\n")


def confirm(act: str, loss: str, yes: bool) -> bool:
    """Ask before something is destroyed.

    Args:
        act: What is about to be done, "Stop the engine of gpu" say.
        loss: What is lost by it, a few words; may be empty.
        yes: It was said already, with `--yes`.

    Raises:
        UsageError: nobody is there to ask.
    """
    if yes:
        return True
    if not sys.stdin.isatty():
        lost = f"; it would lose {loss}" if loss else ""
        raise UsageError(f"{act}: needs confirmation{lost}", todo="Add --yes to do it")
    lost = f" It loses {loss}." if loss else ""
    sys.stderr.write(f"{act}?{lost} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def count(number: int, noun: str) -> str:
    """`1 episode`, `2 episodes`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def say_json(data: Any) -> None:
    """Data for a script, on standard output."""
    say(msgspec.json.format(encode_full(data), indent=2).decode())
