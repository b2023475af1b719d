"""`replay`: show a journal in the console, without engine and proxy."""

import datetime as dt
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ajet_swarm.common.errors import UsageError
from ajet_swarm.common.text import one_line
from console.cli.common import existing_home
from console.cli.options import THEME, Args, Range, argument, flag, option, takes
from console.cli.output import say_result
from console.models.screen_registry import SCREENS
from core.runtime.home import Home
from core.settings import load

if TYPE_CHECKING:
    from core.journal.read_only import JournalFile

_JOURNAL = "journal.db"
_TIME = "%Y-%m-%d %H:%M:%S"


@takes(
    argument(
        "journal",
        "a journal file, a home, or a run of this home's journal; else this home's journal",
        required=False,
    ),
    option("--run RUN", "show only this run; `last` is the newest"),
    option(
        "--history N",
        "show only engine run N, as `ajet-console runs` lists it, as of its end",
        type=int,
    ),
    option(
        "--span FIRST-LAST",
        "show only the events with these numbers (`first_seq`, `last_seq` of `runs --json`)",
    ),
    option(
        "--speed X",
        "play it X times as fast as recorded; without --speed, show the end",
        type=Range(0, 10_000, min_open=True),
    ),
    option("--screen", "first screen", choices=[screen.name for screen in SCREENS]),
    THEME,
    flag("--list", "list the runs in the journal"),
    notes=("Keys: , pause  . step  < > slower, faster  Ctrl+B beginning  Ctrl+E end.",),
)
def replay(args: Args) -> int:
    """Show a journal, or list its runs.

    Raises:
        UsageError: there is no such journal or run, or no terminal.
        JournalError: the journal is damaged, or was written by a newer version.
    """
    home = existing_home(args)
    path, run = journal_and_run(args.journal, args.run, home)
    from core.journal.read_only import JournalFile

    file = JournalFile(path)
    if args.list:
        return _list(args, file)
    base = file.base()
    first, last = base.seq if base is not None else 0, file.last_seq()
    if last == 0:
        raise UsageError("the journal is empty: nothing has happened yet", str(path))
    if run:
        chosen = file.run(run)
        first, last = chosen.first - 1, chosen.last
    if args.span is not None:
        first, last = _span(args.span, first, last)
    elif args.history is not None:
        first, last = _span_of(file, args.history, first)
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError(
            "the replay needs a terminal",
            todo="Without a terminal, use `journal replay --list` or `watch --json`",
        )
    from console.replay.app import run_replay

    settings = load(home.config, flags={"console.theme": args.theme})
    label = "" if args.history is None else f"RUN {args.history}"
    return run_replay(file, first, last, args.speed, settings, args.screen or "", label)


def _span(text: str, begin: int, end: int) -> tuple[int, int]:
    """Return the numbers of the last event before a span, and of the last one in it.

    Args:
        text: First and last number, with a dash between them.
        begin: Number of the last pruned event.
        end: Number of the newest event.

    Raises:
        UsageError: it is not a span, or the journal does not have it.
    """
    first, _, last = text.partition("-")
    if not (first.isdecimal() and last.isdecimal() and int(first) <= int(last)):
        raise UsageError(
            "not a span", f"--span {one_line(text, 40)}", "Give FIRST-LAST, as 120-560"
        )
    if int(last) <= begin or int(first) > end:
        has = f"It has the events {begin + 1} to {end}"
        raise UsageError("the journal does not have these events", f"--span {text}", has)
    return max(begin, int(first) - 1), min(end, int(last))


def _span_of(file: "JournalFile", number: int, begin: int) -> tuple[int, int]:
    """Return the numbers of the last event before an engine run, and of the last one in it.

    Raises:
        UsageError: there is no such run, or its events were pruned.
    """
    run = file.load_state().engine_runs.numbered(number)
    if run is None:
        todo = "`ajet-console runs` lists them"
        raise UsageError(f"there is no engine run {number}", str(file.path), todo)
    last = run.last_seq - 1 if run.last_seq else file.last_seq()
    if last <= begin:
        todo = f"`ajet-console runs show {number}` has its summary"
        raise UsageError(f"the events of engine run {number} were pruned", str(file.path), todo)
    return max(begin, run.first_seq - 1), last


def journal_and_run(named: str | None, run: str | None, home: Home) -> tuple[Path, str]:
    """Return the path of the journal to show and the run in it; empty for all runs.

    Args:
        named: A journal, a home, or a run of `home`'s own journal; None for that journal.
        run: The run that `--run` names.
        home: The current home.

    Raises:
        UsageError: the folder contains no journal.
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


def _list(args: Args, file: "JournalFile") -> int:
    runs = file.runs()
    data = [
        {"run_id": run.run_id, "began": run.began, "events": run.last - run.first + 1}
        for run in runs
    ]
    lines = (
        f"{one_line(run.run_id, 40)}  {dt.datetime.fromtimestamp(run.began).astimezone():{_TIME}}  "
        f"{run.last - run.first + 1:>7} events  {run.url}"
        for run in runs
    )
    return say_result(
        args, {"journal": str(file.path), "runs": data}, lines if runs else ("no runs",)
    )
