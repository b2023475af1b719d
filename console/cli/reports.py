"""What the screens show of runs, raters and rewards, as text or JSON."""

import asyncio
import time
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

import msgspec

from ajet_swarm.common.errors import UsageError
from console.cli.commands import EXIT, about, send_plain
from console.cli.common import AT_END, existing_home, snapshot, state_now
from console.cli.options import PROXY, Args, argument, option, takes
from console.cli.output import say_result
from console.screens.history.model import RunComparison, compare, run_data
from console.screens.history.text import comparison, detail, table_head, table_row
from console.screens.rate.raters.model import agreement, disagreements, rater_rows
from console.screens.rate.raters.text import disagreement_row, part_lines, rater_lines
from console.screens.rewards.judges import judge_head, judge_lines, judges_data
from console.screens.rewards.model import Digests, figures, last_fault, part_rows
from console.screens.rewards.text import PARTS, fault_lines, head_lines, row_line
from console.session.group_facts import vote_choice
from console.text.lines import Line, line_text
from console.text.values import fields_of
from core.state import EngineRun, EngineRuns, PartAgreement, State

_WIDTH = 118
"""Width of a text line, in cells."""
_HEIGHT = 26
"""Lines of the details of a run."""


def _print(args: Args, data: Any, lines: Iterable[Line], *more: str) -> int:
    return say_result(args, data, [*map(line_text, lines), *more])


# --- runs ----------------------------------------------------------------------------------------

NUMBER = argument("number", about("run.name", "number"), type=int, metavar="N")


@takes(PROXY)
def runs(args: Args) -> int:
    """List the runs."""
    known, now, _, end = _known(args)
    data = {"runs": [run_data(known, run, now) for run in reversed(known.runs)]}
    if not known.runs:
        none = "No engine has run yet: `ajet-console engine start` starts one"
        return _print(args, data, [], none, *end)
    several = len({run.server for run in known.runs}) > 1
    rows = [table_row(known, run, now, _WIDTH, several=several) for run in reversed(known.runs)]
    return _print(args, data, [table_head(_WIDTH, several=several), *rows], *end)


@takes(NUMBER, PROXY)
def run(args: Args) -> int:
    """Show one run."""
    known, now, live, end = _known(args)
    shown = _run(known, args.number)
    lines = detail(known, shown, now, _WIDTH, _HEIGHT, live=live)
    return _print(args, run_data(known, shown, now), lines, *end)


@takes(NUMBER, argument("other", "number of the other run", type=int, metavar="M"), PROXY)
def compared(args: Args) -> int:
    """Compare two runs."""
    if args.number == args.other:
        raise UsageError(f"run {args.number} cannot be compared with itself", "runs compare")
    known, now, _, end = _known(args)
    both = compare(known, _run(known, args.number), _run(known, args.other))
    lines = comparison(both, now, _WIDTH, _HEIGHT)
    return _print(args, comparison_data(known, both, now), lines, *end)


@takes(
    NUMBER,
    argument("pinned", "pin (the default) or unpin", choices=("on", "off"), default="on"),
    PROXY,
    notes=(EXIT,),
)
def pin(args: Args) -> int:
    """Keep the groups of a run when the journal is pruned, or no longer."""
    return send_plain(args)


def _known(args: Args) -> tuple[EngineRuns, float, bool, list[str]]:
    """Return the runs, the time for which they are shown, whether a proxy reported them, and the
    last line.

    Raises:
        AjetError: no proxy answers and there is no journal.
    """
    state, live = state_now(args, existing_home(args))
    known = state.engine_runs
    now = time.time() if live else max((run.active for run in known.runs), default=0.0)
    return known, now, live, [] if live else [AT_END]


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


def comparison_data(known: EngineRuns, compared: RunComparison, now: float) -> dict[str, Any]:
    """Return a comparison for `--json`."""
    return {
        "left": run_data(known, compared.left, now),
        "right": run_data(known, compared.right, now),
        **fields_of(compared, "conclusion job job_note rewards rewards_note"),
    }


# --- raters --------------------------------------------------------------------------------------


@takes(PROXY)
def raters(args: Args) -> int:
    """Print the raters, their agreement and their disagreements.

    Raises:
        NotRunning: no proxy runs in the home and none is named.
        AjetError: the proxy does not answer, or refuses the token.
    """
    state = asyncio.run(snapshot(args))
    rows, agreed = rater_rows(state, time.time()), agreement(state)
    disputed = disagreements(state)
    data = {
        "raters": [asdict(row) for row in rows],
        "agreement": msgspec.to_builtins(fields_of(agreed, "best order")),
        "disagreements": [
            {
                "group_id": group.group_id,
                "sent": group.sealed_at is not None,
                "query": group.query,
                "votes": [
                    {"rater": vote.rater, "best": vote_choice(group, vote), "rewards": vote.rewards}
                    for vote in group.votes
                ],
            }
            for group in disputed
        ],
    }
    more = [disagreement_row(group, _WIDTH) for group in disputed]
    if disputed:
        more.append(
            "\najet-console group settle GROUP N [N ...]: the best answer, or all, best first"
        )
    return _print(args, data, rater_lines(rows, agreed, len(disputed)), *more)


# --- rewards -------------------------------------------------------------------------------------


@takes(option("--last N", "number of the last groups to use (100)", type=int, default=100), PROXY)
def rewards(args: Args) -> int:
    """Print the reward source and its figures.

    Raises:
        NotRunning: no proxy runs in the home and none is named.
        AjetError: the proxy does not answer, or refuses the token.
    """
    state, now = asyncio.run(snapshot(args)), time.time()
    known, last, agreed = state.rewards, last_fault(state), _agreement(state)
    reward_figures = figures(Digests().last(state, max(1, args.last)), known.version)
    lines = head_lines(state, reward_figures, now, _WIDTH, True)
    if rows := part_rows(known.parts, reward_figures.parts):
        lines += [(), PARTS.head(_WIDTH), *(row_line(row, _WIDTH) for row in rows)]
    if state.judges:
        lines += [(), judge_head(_WIDTH), *judge_lines(state, _WIDTH)]
    if parts := part_lines(agreed):
        lines += [(), (("SAME BEST ANSWER AS HUMAN RATINGS", "bold"),), *parts]
    if fault := fault_lines(last, now, _WIDTH, True):
        lines += [(), *fault]
    data = {
        "source": known.source,
        "version": known.version,
        "since": known.since or None,
        "ok": known.ok,
        "model": known.parts,
        "figures": reward_figures,
        "judges": judges_data(state),
        "agreement": agreed,
        "fault": last,
    }
    texts = (line_text(line).rstrip().replace("  z folds", "") for line in lines)
    return say_result(args, data, texts)


def _agreement(state: State) -> dict[str, PartAgreement]:
    """Return the agreement of each part with human ratings, summed over all raters."""
    totals: dict[str, PartAgreement] = {}
    for rater in state.raters.values():
        for name, part in rater.parts.items():
            total = totals.setdefault(name, PartAgreement())
            total.judged += part.judged
            total.agreed += part.agreed
            total.chance += part.chance
    return totals
