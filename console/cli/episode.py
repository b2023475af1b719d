"""`run episode`: run one episode of a folder with its full trace, also after each change."""

import asyncio
import contextlib
import itertools
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from ajet_swarm.common.errors import UsageError
from ajet_swarm.common.urls import web_address
from console.backend.swarm_report import addresses
from console.cli.common import effective, open_home, settings_of
from console.cli.options import Args, Range, argument, flag, option, takes
from console.cli.output import output, say, say_json, would
from core.runtime.home import Home, running
from core.settings import Settings

POLL_SECONDS = 0.25
"""Seconds between two checks of the files."""
GRACE = 12.0
"""Seconds a run gets to release its episode."""
_SECONDS = Range(0, min_open=True)
LOOPBACK = ("localhost", "127.0.0.1", "::1")
_SERVER = re.compile(r'^SERVER = os\.environ\.get\("AJET_SWARM_URL"\) or "([^"]*)"', re.MULTILINE)


@takes(
    argument(
        "folder",
        "folder of the agent; the current one when left out",
        required=False,
        type=Path,
        default=Path(),
        metavar="DIR",
    ),
    option("--item N", "index in the dataset, or id of the item (0)", default="0"),
    option("--swarm-url URL", "swarm server (else AJET_SWARM_URL)"),
    flag("--train", "train on the episode"),
    flag("--watch", "run again after each file change"),
    option("--timeout S", "end it after S seconds (600)", type=_SECONDS, default=600.0),
    notes=(
        "The episode is not trained on. Without a server, the command starts the embedded engine "
        "and leaves it running.",
        "Exit code: 0 the episode has a reward, 1 it has none, 2 wrong use.",
    ),
)
def debug(args: Args) -> int:
    """Run the episode in a new process each time, so that changed modules are imported again."""
    folder: Path = args.folder.expanduser().resolve()
    if not folder.is_dir():
        raise UsageError("there is no such folder", str(folder))
    if would(f"run item {args.item} of {folder}, and start an engine if needed"):
        return 0
    if args.watch:
        output().stream = True  # one trace after the other
    url = _server(args, open_home(args), folder)
    if not args.watch:
        return _run(args, folder, url)
    watch, warned = FolderWatch(folder), False
    while True:
        watch.run_started()
        _run(args, folder, url)
        watch.run_ended()
        if watch.full and not warned:
            warned = True
            sys.stderr.write(
                f"{folder} has more than {MOST} files: those in deep folders are not watched\n"
            )
        say(f"-- waiting for a change in {folder} (Ctrl-C ends) --")
        sys.stdout.flush()
        while not watch.changed():
            time.sleep(POLL_SECONDS)


def _run(args: Args, folder: Path, url: str) -> int:
    command = [sys.executable, "-P", "-m", "ajet_swarm.debug", str(folder), "--item", args.item]
    command += ["--swarm-url", url]
    command += [flag for flag in ("--train", "--json") if getattr(args, flag[2:])]
    collects = output().envelope and not output().stream
    pipe = subprocess.PIPE if collects else None
    child = subprocess.Popen(command, env=_environment(), start_new_session=True, stdout=pipe)
    try:
        printed, _ = child.communicate(timeout=args.timeout)
        if collects:
            say_json(_trace(printed))
        return child.returncode
    except subprocess.TimeoutExpired:
        sys.stderr.write(f"ended after {args.timeout:g} s: the agent hangs, or --timeout is low\n")
        return 1
    finally:
        _end(child)


def _trace(printed: bytes) -> Any:
    """Return the trace that the run printed as JSON; empty if it printed something else."""
    try:
        return msgspec.json.decode(printed)
    except msgspec.DecodeError:
        return {}


def _end(child: "subprocess.Popen[bytes]") -> None:
    """End the run; SIGTERM lets it release its episode first."""
    if child.poll() is None:
        child.send_signal(signal.SIGTERM)
        try:
            child.wait(GRACE)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def _environment() -> Mapping[str, str]:
    """Return an environment in which the child imports the same packages as this program."""
    ours = str(Path(__file__).resolve().parents[2])
    paths = [ours, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1"}


def _server(args: Args, home: Home, folder: Path) -> str:
    """Return the server's URL; start the embedded engine when it is needed and does not run."""
    settings = settings_of(home, [args.swarm_url]) if args.swarm_url else effective(args, home)
    name, url = next(iter(addresses(settings, home).items()))
    if settings.servers()[name] != "embedded":
        return url
    if not args.swarm_url and (own := _folder_server(folder)) and _may_answer(own):
        return own
    if running(home, "engine") is None:
        url = asyncio.run(_start(home, settings))
        sys.stderr.write(f"started the embedded engine ({url}); it keeps running\n")
    return url


def _folder_server(folder: Path) -> str:
    """Return the server in the folder's `agent_roll.py`; empty when there is none."""
    with contextlib.suppress(OSError):
        match = _SERVER.search((folder / "agent_roll.py").read_text(encoding="utf-8"))
        return match[1] if match else ""
    return ""


def _may_answer(url: str) -> bool:
    """Return False for an address of this machine on which no process listens."""
    parts = web_address(url)
    if parts is None or parts.hostname not in LOOPBACK:
        return True
    with contextlib.suppress(OSError):
        socket.create_connection((parts.hostname, parts.port or 80), timeout=2).close()
        return True
    return False


async def _start(home: Home, settings: Settings) -> str:
    from console.backend.supervisor import Supervisor

    supervisor = Supervisor(home, settings)
    try:
        await supervisor.start("engine")
        return (await supervisor.wait_ready("engine")).url
    finally:
        supervisor.release()


MOST: Final = 5_000
"""Maximum number of files that are watched."""
SKIPPED: Final = frozenset({"__pycache__", "node_modules", "venv", "site-packages"})
"""Folders without files to edit; hidden folders are skipped as well."""
_TEMPORARY: Final = ("~", ".pyc", ".pyo", ".swp", ".swx", ".tmp")

Stamps = Mapping[str, tuple[int, int]]
"""Path below the folder -> modification time in ns, size in bytes."""


def stamps(folder: Path, most: int = MOST) -> Stamps:
    """Return the stamps of all files that may be edited; at most `most`, top folders first."""
    result: dict[str, tuple[int, int]] = {}
    for path in itertools.islice(_files(folder), most):
        with contextlib.suppress(OSError):  # it is being replaced at this moment
            stat = path.stat()
            result[str(path.relative_to(folder))] = (stat.st_mtime_ns, stat.st_size)
    return result


def _files(folder: Path) -> Iterator[Path]:
    waiting = [folder]
    while waiting:
        inside: list[os.DirEntry[str]] = []
        with contextlib.suppress(OSError):
            inside = sorted(os.scandir(waiting.pop(0)), key=lambda entry: entry.name)
        for entry in inside:
            if entry.name.startswith(".") or entry.name.endswith(_TEMPORARY):
                continue
            if entry.is_dir(follow_symlinks=False) and entry.name not in SKIPPED:
                waiting.append(Path(entry.path))
            elif entry.is_file():
                yield Path(entry.path)


class FolderWatch:
    """Decides when an edit in a folder requires another run.

    A file that appears during a run was written by that run. A file that changes during a run
    causes another run; if it changes again during that one, the run writes it, and it is ignored
    from then on.
    """

    def __init__(self, folder: Path, most: int = MOST) -> None:
        self._folder, self._most = folder, most
        self._before: Stamps = {}
        self._known: Stamps = {}
        self._touched: set[str] = set()
        self._own: set[str] = set()

    @property
    def full(self) -> bool:
        """Whether the folder has more files than are watched."""
        return len(self._before) >= self._most

    def run_started(self) -> None:
        """Record the files at the start of a run."""
        self._before = stamps(self._folder, self._most)

    def run_ended(self) -> None:
        """Record the files at the end of a run."""
        after = stamps(self._folder, self._most)
        touched = {name for name, stamp in self._before.items() if after.get(name) != stamp}
        self._own |= touched & self._touched
        self._touched = touched
        self._known = {**after, **self._before}

    def changed(self) -> bool:
        """Return whether a file was edited since the run started."""
        current = stamps(self._folder, self._most)
        return self._without_own(current) != self._without_own(self._known)

    def _without_own(self, files: Stamps) -> dict[str, tuple[int, int]]:
        return {name: file for name, file in files.items() if name not in self._own}
