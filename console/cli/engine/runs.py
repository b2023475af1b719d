"""`runs`: list, show and compare the engine runs; name, note and pin one."""

import argparse
import time
from collections.abc import Sequence
from typing import Any

from ajet_swarm.common.errors import UsageError
from console.cli.commands import send
from console.cli.common import existing_home, say, say_json, state_now
from console.cli.options import add_json, add_proxy_access, add_verbs
from console.models.history.runs import (
    RunComparison,
    compare,
    run_data,
)
from console.text.lines import Line, line_text
from console.views.history.runs import comparison, detail, row_of, table_head, table_row
from core.state import EngineRun, EngineRuns

_WIDTH = 118
"""Width of a text line, in cells."""
_HEIGHT = 26
"""Lines of the details of a run."""
_VERBS = (
    ("list", "list all runs, newest first; the default verb"),
    ("show", "show one run: job, steps, rewards, verdict, curve"),
    ("compare", "compare two runs: curves over each other, what differs in job and rewards"),
    ("name", "give a run a name; an empty one removes it"),
    ("note", "write a note on a run; an empty one removes it"),
    ("pin", "keep the requests of a run when the journal is pruned, or no longer"),
)


def add(parser: argparse.ArgumentParser) -> None:
    """Add the verbs and their arguments."""
    parser.set_defaults(handler=runs, verb="list")
    _add_common(parser)
    for verb, subparser in add_verbs(parser, _VERBS):
        _add_common(subparser, default=argparse.SUPPRESS)
        if verb != "list":
            subparser.add_argument("number", type=int, metavar="N", help="number of the run")
        if verb == "compare":
            subparser.add_argument("other", type=int, metavar="M", help="number of the other run")
        elif verb in ("name", "note"):
            subparser.add_argument("text", metavar="TEXT", help=f"the {verb}")
        elif verb == "pin":
            subparser.add_argument(
                "pinned",
                nargs="?",
                choices=("on", "off"),
                default="on",
                help="pin (the default) or unpin",
            )


def _add_common(parser: argparse.ArgumentParser, **default: Any) -> None:
    add_json(parser, **default)
    add_proxy_access(parser, **default)


def runs(args: argparse.Namespace) -> int:
    """Run the verb of `args.verb`. Without a running proxy, reading verbs read the journal.

    Raises:
        AjetError: no proxy answers and there is no journal, or there is no such run.
    """
    home = existing_home(args)
    if args.verb in ("name", "note", "pin"):
        value = args.pinned if args.verb == "pin" else args.text
        values = {"number": args.number, "pinned" if args.verb == "pin" else args.verb: value}
        return send(args, home, f"run.{args.verb}", values)
    state, live = state_now(args, home)
    known = state.engine_runs
    now = time.time() if live else max((run.active for run in known.runs), default=0.0)
    if args.verb == "compare":
        if args.number == args.other:
            raise UsageError(f"run {args.number} cannot be compared with itself", "runs compare")
        compared = compare(known, _run(known, args.number), _run(known, args.other))
        lines = comparison(compared, now, _WIDTH, _HEIGHT)
        _print(args, comparison_data(known, compared, now), lines)
    elif args.verb == "show":
        run = _run(known, args.number)
        lines = detail(known, run, now, _WIDTH, _HEIGHT, live=live)
        _print(args, run_data(known, run, now), lines)
    else:
        data = {"runs": [run_data(known, run, now) for run in reversed(known.runs)]}
        _print(args, data, _list(known, now))
    if not live and not args.json:
        say("No proxy runs: this is the state at the end of the journal")
    return 0


def _run(known: EngineRuns, number: int) -> EngineRun:
    """Return a run by its number.

    Raises:
        UsageError: there is no such run.
    """
    run = known.numbered(number)
    if run is None:
        last = f"The newest is {known.runs[-1].number}" if known.runs else "There is none yet"
        raise UsageError(f"there is no run {number}", "runs", f"{last}: `runs` lists them")
    return run


def _print(args: argparse.Namespace, data: dict[str, Any], lines: Sequence[Line]) -> None:
    if args.json:
        say_json(data)
        return
    for line in lines:
        say(line_text(line).rstrip())


def _list(known: EngineRuns, now: float) -> list[Line]:
    if not known.runs:
        return [(("No engine has run yet: `ajet-console engine-start` starts one", ""),)]
    several = len({run.server for run in known.runs}) > 1
    rows = [row_of(known, run, now) for run in reversed(known.runs)]
    head = table_head(_WIDTH, several=several)
    return [head, *(table_row(row, _WIDTH, several=several) for row in rows)]


def comparison_data(known: EngineRuns, compared: RunComparison, now: float) -> dict[str, Any]:
    """Return a comparison for `--json`."""
    return {
        "left": run_data(known, compared.left, now),
        "right": run_data(known, compared.right, now),
        "job": compared.job,
        "job_note": compared.job_note,
        "rewards": compared.rewards,
        "rewards_note": compared.rewards_note,
    }
