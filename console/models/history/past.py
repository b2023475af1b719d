"""The screens as of the time of an engine run: a replay of its part of the journal."""

import sys
from pathlib import Path

from ajet_swarm.common.errors import AjetError
from core.journal.read_only import JournalFile
from core.state import EngineRun


class PastError(AjetError):
    """The screens as of the time of a run cannot be shown."""


def past_command(journal: Path | None, run: EngineRun, screen: str, theme: str) -> list[str]:
    """Return the command that shows a run on all screens; blocking, for a thread.

    Args:
        journal: Journal of the proxy; None if it is on another machine.
        run: The run.
        screen: Name of the first screen.
        theme: The theme.

    Raises:
        PastError: The journal is not here, or the events of the run were pruned.
    """
    if journal is None or not journal.exists():
        todo = "Open it there: `ajet-console journal replay --history N`"
        raise PastError("the journal is in the home of the proxy, not in this one", todo=todo)
    with JournalFile(journal) as file:
        base, newest = file.base(), file.last_seq()
    if base is not None and run.last_seq and base.seq >= run.last_seq:
        todo = "Its summary stays, and its requests if it is pinned: see Requests"
        raise PastError(f"the events of run {run.number} were pruned", todo=todo)
    command = [
        sys.executable,
        "-m",
        "console",
        "journal",
        "replay",
        str(journal),
        "--home",
        str(journal.parent),
    ]
    command += ["--history", str(run.number), "--screen", screen]
    last = run.last_seq - 1 if run.last_seq else newest
    command += ["--span", f"{run.first_seq}-{max(last, run.first_seq)}"]
    return [*command, "--theme", theme] if theme in ("dark", "light", "ansi") else command
