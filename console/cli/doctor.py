"""`doctor`: what is right, what is not, and what to do about it."""

import argparse
import asyncio
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from ajet_swarm.common.errors import AjetError, UsageError
from ajet_swarm.common.text import plain
from console.cli.common import say, say_json, settings_of
from console.cli.effective import of_proxy
from console.cli.options import add_note, add_proxy_access
from console.doctor import examine
from console.doctor.finding import CheckContext, Finding
from core.runtime.home import Home, default_root
from core.settings import Settings

_COLOURS = {"ok": "32", "warn": "33", "fail": "31"}


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.set_defaults(handler=doctor)
    add_note(
        parser,
        "Exit code: 0 nothing fails (warnings are none), 1 something fails, 2 wrong use. "
        "Nothing is changed.",
    )
    parser.add_argument("--json", action="store_true", help="the same as JSON")
    parser.add_argument(
        "--swarm-url",
        action="append",
        metavar="[NAME=]URL",
        help="check this swarm server; else those of the settings",
    )
    parser.add_argument("--hooks", type=Path, metavar="DIR", help="check this reward function")
    parser.add_argument("--host", metavar="ADDRESS", help="where the fake vLLM would listen")
    parser.add_argument("--port", type=int, metavar="N", help="on which port")
    add_proxy_access(parser)


def doctor(given: argparse.Namespace) -> int:
    """Look at everything.

    Returns:
        0 when nothing fails, 1 when something does.

    Raises:
        UsageError: an address is none.
    """
    if given.url and not given.url.startswith(("http://", "https://")):
        raise UsageError("not an address", f"--url {given.url}", "Give http://HOST:PORT")
    root = given.home.expanduser() if given.home else default_root()
    home = Home(root.absolute())  # not opened: that would make it
    settings, trouble = _settings(given, home)
    started = _started(given, home) if settings is not None else None
    settings = started or settings
    context = CheckContext(
        home=home,
        settings=settings,
        trouble=trouble,
        hooks=given.hooks,
        url=(given.url or "").rstrip("/").removesuffix("/v1"),
        token_file=given.token_file.expanduser() if given.token_file else None,
        servers={} if settings is None or settings.upstream.url else settings.servers(),
    )
    found = asyncio.run(examine(context))
    _tell(given, home, found)
    return 1 if any(one.level == "fail" for one in found) else 0


def _settings(given: argparse.Namespace, home: Home) -> tuple[Settings | None, str]:
    flags = {"proxy__host": given.host, "proxy__port": given.port}
    try:
        return settings_of(home, given.swarm_url, **flags), ""
    except AjetError as error:
        settings_of(Home(home.root / "none"), given.swarm_url, **flags)  # a flag is wrong use
        return None, str(error)


def _started(given: argparse.Namespace, home: Home) -> Settings | None:
    """What the running proxy was started with; None when flags name other settings or none runs.

    A proxy that does not answer is a finding of its own.
    """
    if given.host or given.port is not None or given.swarm_url:
        return None
    try:
        found = of_proxy(given, home)
    except AjetError:
        return None
    return found.settings if found is not None else None


def _tell(given: argparse.Namespace, home: Home, found: Sequence[Finding]) -> None:
    counts = {level: sum(one.level == level for one in found) for level in _COLOURS}
    if given.json:
        checks = [asdict(one) for one in found]
        say_json({"ok": not counts["fail"], "home": str(home.root), **counts, "checks": checks})
        return
    for one in found:
        say(f"{_level(one.level)}  {one.area:<9} {one.name:<16} {plain(one.text)}")
        if one.todo:
            say(f"{'':<6}{'':<9} {'':<16} → {plain(one.todo)}")
    say(f"{counts['ok']} ok, {counts['warn']} warnings, {counts['fail']} failures")


def _level(level: str) -> str:
    import os

    word = f"{level:<4}"
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        return word
    return f"\x1b[{_COLOURS[level]}m{word}\x1b[0m"
