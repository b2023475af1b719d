"""`debug-episode`: one episode of a folder with everything it did, again at each change."""

import argparse
import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from ajet_swarm.common.errors import UsageError
from ajet_swarm.common.urls import web_address
from console.backend.swarm_report import addresses
from console.cli.common import open_home, say, settings_of
from console.cli.effective import effective
from console.cli.folders.watch import MOST, Watch
from console.cli.options import add_note
from core.runtime.home import Home, running
from core.settings import Settings

LOOK = 0.25
"""Seconds between two looks at the files."""
GRACE = 12.0
"""Seconds a run gets to give its episode back."""
LOOPBACK = ("localhost", "127.0.0.1", "::1")
_SERVER = re.compile(r'^SERVER = os\.environ\.get\("AJET_SWARM_URL"\) or "([^"]*)"', re.MULTILINE)


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.set_defaults(handler=debug)
    add_note(
        parser,
        "Nothing is trained on it. Without a server it starts the embedded engine and leaves it "
        "running.",
        "Exit code: 0 it has a reward, 1 it has none, 2 wrong use.",
    )
    parser.add_argument(
        "folder", nargs="?", type=Path, default=Path(), metavar="DIR", help="else the current one"
    )
    parser.add_argument("--item", default="0", metavar="N", help="place in the dataset, or id; 0")
    parser.add_argument("--swarm-url", metavar="URL", help="swarm server (else AJET_SWARM_URL)")
    parser.add_argument("--train", action="store_true", help="a train episode, which counts")
    parser.add_argument("--watch", action="store_true", help="again after each change of a file")
    parser.add_argument("--json", action="store_true", help="the trace as JSON")
    parser.add_argument(
        "--timeout", type=float, default=600.0, metavar="S", help="end it after so many seconds"
    )


def debug(args: argparse.Namespace) -> int:
    """Run the episode in a process of its own, where a change is a change."""
    folder: Path = args.folder.expanduser().resolve()
    if not folder.is_dir():
        raise UsageError("there is no such folder", str(folder))
    if not args.timeout > 0:
        raise UsageError("seconds above 0", f"--timeout {args.timeout:g}")
    url = _server(args, open_home(args), folder)
    if not args.watch:
        return _run(args, folder, url)
    watch, told = Watch(folder), False
    while True:
        watch.begins()
        _run(args, folder, url)
        watch.ended()
        if watch.full and not told:
            told = True
            sys.stderr.write(f"{folder} has more than {MOST} files: those deep down are not seen\n")
        say(f"-- waiting for a change in {folder} (Ctrl-C ends) --")
        sys.stdout.flush()
        while not watch.changed():
            time.sleep(LOOK)


def _run(args: argparse.Namespace, folder: Path, url: str) -> int:
    command = [sys.executable, "-P", "-m", "ajet_swarm.debug", str(folder), "--item", args.item]
    command += ["--swarm-url", url]
    command += [flag for flag in ("--train", "--json") if getattr(args, flag[2:])]
    child = subprocess.Popen(command, env=_environment(), start_new_session=True)
    try:
        return child.wait(args.timeout)
    except subprocess.TimeoutExpired:
        sys.stderr.write(f"ended after {args.timeout:g} s: the agent hangs, or --timeout is low\n")
        return 1
    finally:
        _end(child)


def _end(child: "subprocess.Popen[bytes]") -> None:
    """End it and what it started; it gives its episode back first."""
    if child.poll() is None:
        child.send_signal(signal.SIGTERM)
        try:
            child.wait(GRACE)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def _environment() -> Mapping[str, str]:
    """The child finds the packages this program was started with."""
    ours = str(Path(__file__).resolve().parents[3])
    paths = [ours, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1"}


def _server(args: argparse.Namespace, home: Home, folder: Path) -> str:
    """Address of the server; an embedded engine that does not run is started and left running."""
    settings = settings_of(home, [args.swarm_url]) if args.swarm_url else effective(args, home)
    name, url = next(iter(addresses(settings, home).items()))
    if settings.servers()[name] != "embedded":
        return url
    if not args.swarm_url and (own := _written(folder)) and _may_be_there(own):
        return own
    if running(home, "engine") is None:
        url = asyncio.run(_start(home, settings))
        sys.stderr.write(f"started the embedded engine ({url}); it keeps running\n")
    return url


def _written(folder: Path) -> str:
    """The server that stands in the folder's `agent_roll.py`; empty when there is none."""
    try:
        text = (folder / "agent_roll.py").read_text(encoding="utf-8")
    except OSError:
        return ""
    found = _SERVER.search(text)
    return found[1] if found else ""


def _may_be_there(url: str) -> bool:
    """False for an address of this machine where nobody listens."""
    parts = web_address(url)
    if parts is None or parts.hostname not in LOOPBACK:
        return True
    try:
        with socket.create_connection((parts.hostname, parts.port or 80), timeout=2):
            return True
    except OSError:
        return False


async def _start(home: Home, settings: Settings) -> str:
    from console.backend.supervisor import Supervisor

    supervisor = Supervisor(home, settings)
    try:
        await supervisor.start("engine")
        return (await supervisor.wait_ready("engine")).url
    finally:
        supervisor.release()
