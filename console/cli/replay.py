"""`replay`: the console on a journal, with no engine and no proxy."""

import argparse
import datetime as dt
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ajet_swarm.common.errors import UsageError
from ajet_swarm.common.text import known_names, one_line
from console.cli.common import say, say_json
from console.cli.options import THEMES, add_note
from core.runtime.home import Home, default_root
from core.settings import load

if TYPE_CHECKING:
    from core.journal.read_only import JournalFile

_JOURNAL = "journal.db"


def add(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.set_defaults(handler=replay)
    add_note(
        parser,
        "Keys: , pause  . step  < > slower, faster  Ctrl+B from the beginning  Ctrl+E to the end.",
    )
    parser.add_argument(
        "journal",
        nargs="?",
        metavar="JOURNAL",
        help="a journal file, a home, or a run of this home's journal; this home's when left out",
    )
    parser.add_argument("--run", metavar="RUN", help="only up to this run's end; `last` is one")
    parser.add_argument(
        "--speed",
        type=float,
        metavar="X",
        help="play it X times as fast as recorded; without it the end is shown at once",
    )
    parser.add_argument("--screen", metavar="NAME", help="the screen to begin with")
    parser.add_argument("--theme", choices=THEMES, help="colours")
    parser.add_argument("--list", action="store_true", help="list the runs in it")
    parser.add_argument("--json", action="store_true", help="the list as JSON")


def replay(args: argparse.Namespace) -> int:
    """Show a journal, or list the runs in it.

    Raises:
        UsageError: there is no such journal or run, or no terminal.
        JournalError: it is broken, or of a newer version.
    """
    if args.speed is not None and not 0 < args.speed <= 10_000:
        raise UsageError("no speed", f"--speed {args.speed:g}", "Give a number above 0, 10 say")
    screen = _screen(args.screen)
    root = args.home.expanduser() if args.home else default_root()
    home = Home(root.absolute())  # not opened: nothing is made or written in it
    path, run = which(args.journal, args.run, home)
    from core.journal.read_only import JournalFile

    with JournalFile(path) as file:
        if args.list:
            return _list(args, file)
        base = file.base()
        first, last = base.seq if base is not None else 0, file.last_seq()
        if last == 0:
            raise UsageError("the journal is empty: nothing has happened yet", str(path))
        if run:
            found = file.run(run)
            first, last = found.first - 1, found.last
        if not (sys.stdin.isatty() and sys.stdout.isatty()):
            raise UsageError(
                "the replay needs a terminal", todo="Without one: `replay --list`, `watch --json`"
            )
        from console.replay.app import run_replay

        settings = load(home.config, flags={"console.theme": args.theme})
        return run_replay(file, first, last, args.speed, settings, screen)


def _screen(named: str | None) -> str:
    """A screen by the beginning of its name; empty for the first.

    Raises:
        UsageError: there is none of that name.
    """
    if named is None:
        return ""
    from console.models.screen_registry import SCREENS

    for place in SCREENS:
        if place.name.startswith(named.lower()):
            return place.name
    todo = known_names(named, [place.name for place in SCREENS])
    raise UsageError("there is no such screen", f"--screen {one_line(named, 40)}", todo)


def which(named: str | None, run: str | None, home: Home) -> tuple[Path, str]:
    """The journal that is meant and the run in it, empty for all.

    Args:
        named: A journal, a home, or a run of `home`'s own journal; None for that journal.

    Raises:
        UsageError: it is none of these.
    """
    if named is None:
        return home.journal, run or ""
    path = Path(named).expanduser()
    if path.is_dir():
        if not (path / _JOURNAL).exists():
            raise UsageError(f"there is no {_JOURNAL} in this folder", str(path), "Give a home")
        return path / _JOURNAL, run or ""
    is_name = "/" not in named and "." not in named
    if not path.exists() and is_name and not run and home.journal.exists():
        return home.journal, named
    return path, run or ""


def _list(args: argparse.Namespace, file: "JournalFile") -> int:
    runs = file.runs()
    if args.json:
        say_json(
            {
                "journal": str(file.path),
                "runs": [
                    {"run_id": one.run_id, "began": one.began, "events": one.last - one.first + 1}
                    for one in runs
                ],
            }
        )
        return 0
    for one in runs:
        began = dt.datetime.fromtimestamp(one.began).astimezone()
        events = one.last - one.first + 1
        say(f"{one_line(one.run_id, 40)}  {began:%Y-%m-%d %H:%M:%S}  {events:>7} events  {one.url}")
    if not runs:
        say("no run")
    return 0
