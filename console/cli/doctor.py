"""`doctor`: check the installation, and print what is wrong and how to fix it."""

import asyncio
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from ajet_swarm.common.errors import AjetError
from ajet_swarm.common.text import plain, plural
from console.cli.common import base_url, existing_home, of_proxy, settings_of
from console.cli.options import PROXY, Args, option, takes
from console.cli.output import say_result
from console.doctor import examine
from console.doctor.finding import CheckContext, Finding
from core.runtime.home import Home
from core.settings import Settings

_COLOURS = {"ok": "32", "warn": "33", "fail": "31"}


@takes(
    option(
        "--swarm-url [NAME=]URL",
        "check this swarm server instead of those in the settings",
        multiple=True,
    ),
    option("--hooks DIR", "check this reward function", type=Path),
    option("--host ADDRESS", "address for the fake vLLM to listen on"),
    option("--port N", "port for the fake vLLM", type=int),
    PROXY,
    notes=(
        "Exit code: 0 no check fails (warnings do not count), 1 a check fails, 2 wrong use. "
        "Nothing is changed.",
    ),
)
def doctor(args: Args) -> int:
    """Run all checks and print the findings.

    Returns:
        0 when no check fails, else 1.

    Raises:
        UsageError: `--url` is not a URL.
    """
    url = base_url(args.url, "--url") if args.url else ""
    home = existing_home(args)
    settings, trouble = _settings(args, home)
    started = _started(args, home) if settings is not None else None
    settings = started or settings
    context = CheckContext(
        home=home,
        settings=settings,
        trouble=trouble,
        hooks=args.hooks,
        url=url,
        token_file=args.token_file.expanduser() if args.token_file else None,
        servers={} if settings is None or settings.upstream.url else settings.servers(),
    )
    findings = asyncio.run(examine(context))
    _print(args, home, findings)
    return 1 if any(finding.level == "fail" for finding in findings) else 0


def _settings(args: Args, home: Home) -> tuple[Settings | None, str]:
    flags = {"proxy__host": args.host, "proxy__port": args.port}
    try:
        return settings_of(home, args.swarm_url, **flags), ""
    except AjetError as error:
        settings_of(Home(home.root / "none"), args.swarm_url, **flags)  # raises for a wrong flag
        return None, str(error)


def _started(args: Args, home: Home) -> Settings | None:
    """Return the settings of the running proxy; None when flags override them or none runs.

    None also when the proxy does not answer: another check reports that.
    """
    if args.host or args.port is not None or args.swarm_url:
        return None
    try:
        running = of_proxy(args, home)
    except AjetError:
        return None
    return running.settings if running is not None else None


def _print(args: Args, home: Home, findings: Sequence[Finding]) -> None:
    counts = {level: sum(finding.level == level for finding in findings) for level in _COLOURS}
    checks = [asdict(finding) for finding in findings]
    lines: list[str] = []
    for finding in findings:
        head = f"{_level(finding.level)}  {finding.area:<9} {finding.name:<16}"
        lines.append(f"{head} {plain(finding.text)}")
        if finding.todo:
            lines.append(f"{'':<6}{'':<9} {'':<16} → {plain(finding.todo)}")
    warnings, failures = plural(counts["warn"], "warning"), plural(counts["fail"], "failure")
    lines.append(f"{counts['ok']} ok, {warnings}, {failures}")
    say_result(args, {"home": str(home.root), "counts": counts, "checks": checks}, lines)


def _level(level: str) -> str:
    word = f"{level:<4}"
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        return word
    return f"\x1b[{_COLOURS[level]}m{word}\x1b[0m"
