"""`rewards`: show the reward source, its parts over the last groups, and its last fault."""

import asyncio
import time
from typing import Any

from console.cli.common import say_result, snapshot
from console.cli.options import PROXY, Args, option, takes
from console.screens.rate.raters.text import part_lines
from console.screens.rewards.judges import judge_head, judge_lines, judges_data
from console.screens.rewards.model import Digests, RewardFigures, figures, last_fault, part_rows
from console.screens.rewards.text import fault_lines, head_lines, part_head, row_line
from console.text.lines import Line, line_text
from core.state import PartAgreement, State

_WIDTH = 118
"""Width of a text line, in cells."""


@takes(
    option("--last", "N", "number of the last groups to use (100)", type=int, default=100), PROXY
)
def rewards(args: Args) -> int:
    """Print the reward source and its figures.

    Raises:
        NotRunning: no proxy runs in the home and none is named.
        AjetError: the proxy does not answer, or refuses the token.
    """
    state = asyncio.run(snapshot(args))
    reward_figures = figures(Digests().last(state, max(1, args.last)), state.rewards.version)
    now = time.time()
    shown = head_lines(state, reward_figures, now, _WIDTH, True)
    if rows := part_rows(state.rewards.parts, reward_figures.parts):
        shown += [(), part_head(_WIDTH), *(row_line(row, _WIDTH) for row in rows)]
    if state.judges:
        shown += [(), judge_head(_WIDTH), *judge_lines(state, _WIDTH)]
    if agreed := part_lines(_agreement(state)):
        shown += [(), (("SAME BEST ANSWER AS HUMAN RATINGS", "bold"),), *agreed]
    fault = fault_lines(last_fault(state), now, _WIDTH, True)
    lines = [*shown, (), *fault] if fault else shown
    return say_result(args, _data(state, reward_figures), map(_text, lines))


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


def _text(line: Line) -> str:
    text = line_text(line).rstrip()
    return text.replace("  z folds", "")


def _data(state: State, reward_figures: RewardFigures) -> dict[str, Any]:
    known, fault = state.rewards, last_fault(state)
    return {
        "source": known.source,
        "version": known.version,
        "since": known.since or None,
        "ok": known.ok,
        "model": known.parts,
        "figures": reward_figures,
        "judges": judges_data(state),
        "agreement": _agreement(state),
        "fault": fault,
    }
