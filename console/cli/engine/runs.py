"""`runs`: list, show and compare the engine runs; name, note and pin one."""

import time
from collections.abc import Sequence
from typing import Any

from ajet_swarm.common.errors import UsageError
from console.cli.commands import EXIT, about, send_plain
from console.cli.common import AT_END, existing_home, say_result, state_now
from console.cli.options import PROXY, Args, argument, takes
from console.screens.history.model import RunComparison, compare, run_data
from console.screens.history.text import comparison, detail, table_head, table_row
from console.text.lines import Line, line_text
from console.text.values import fields_of
from core.state import EngineRun, EngineRuns

_WIDTH = 118
"""Width of a text line, in cells."""
_HEIGHT = 26
"""Lines of the details of a run."""
NUMBER = argument("number", about("run.name", "number"), type=int, metavar="N")


@takes(PROXY)
def listed(args: Args) -> int:
    """List the runs."""
    known, now, live = _known(args)
    data = {"runs": [run_data(known, run, now) for run in reversed(known.runs)]}
    return _print(args, data, _list(known, now), live)


@takes(NUMBER, PROXY)
def show(args: Args) -> int:
    """Show one run."""
    known, now, live = _known(args)
    run = _run(known, args.number)
    lines = detail(known, run, now, _WIDTH, _HEIGHT, live=live)
    return _print(args, run_data(known, run, now), lines, live)


@takes(NUMBER, argument("other", "number of the other run", type=int, metavar="M"), PROXY)
def compared(args: Args) -> int:
    """Compare two runs."""
    if args.number == args.other:
        raise UsageError(f"run {args.number} cannot be compared with itself", "runs compare")
    known, now, live = _known(args)
    both = compare(known, _run(known, args.number), _run(known, args.other))
    lines = comparison(both, now, _WIDTH, _HEIGHT)
    return _print(args, comparison_data(known, both, now), lines, live)


@takes(
    NUMBER,
    argument("pinned", "pin (the default) or unpin", choices=("on", "off"), default="on"),
    PROXY,
    notes=(EXIT,),
)
def pin(args: Args) -> int:
    """Keep the groups of a run when the journal is pruned, or no longer."""
    return send_plain(args)


def _known(args: Args) -> tuple[EngineRuns, float, bool]:
    """Return the runs, the time for which they are shown, and whether a proxy reported them.

    Raises:
        AjetError: no proxy answers and there is no journal.
    """
    state, live = state_now(args, existing_home(args))
    known = state.engine_runs
    now = time.time() if live else max((run.active for run in known.runs), default=0.0)
    return known, now, live


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


def _print(args: Args, data: dict[str, Any], lines: Sequence[Line], live: bool) -> int:
    return say_result(args, data, [*map(line_text, lines), *([] if live else [AT_END])])


def _list(known: EngineRuns, now: float) -> list[Line]:
    if not known.runs:
        return [(("No engine has run yet: `ajet-console engine start` starts one", ""),)]
    several = len({run.server for run in known.runs}) > 1
    rows = [table_row(known, run, now, _WIDTH, several=several) for run in reversed(known.runs)]
    return [table_head(_WIDTH, several=several), *rows]


def comparison_data(known: EngineRuns, compared: RunComparison, now: float) -> dict[str, Any]:
    """Return a comparison for `--json`."""
    return {
        "left": run_data(known, compared.left, now),
        "right": run_data(known, compared.right, now),
        **fields_of(compared, "conclusion job job_note rewards rewards_note"),
    }
