"""The result of the reward monitor on one line: the traits that the rewards follow."""

from ajet_swarm.common.text import one_line
from console.text.lines import Line, flow
from console.views.rewards.table import WIDE
from core.events import WatchFigure
from core.state import State

LEAST = 30
"""Fewest answers for a figure."""


def watch_lines(state: State, width: int) -> list[Line]:
    """Return `rewards follow  length +0.12  ! punctuation +0.71`; empty before there is enough."""
    watch = state.reward_watch
    figures = [one for one in watch.figures if one.r is not None and one.n >= LEAST]
    if not figures:
        return []
    pieces: list[Line] = [(("rewards follow", "$muted"),)]
    pieces += [_piece(one, width) for one in figures]
    lines = flow(pieces, width)
    if watch.outliers:
        group, index, reward, z = watch.outliers[-1]
        text = (
            f"newest outlier: {reward:.3g}, {abs(z):.0f} deviations off, candidate {index + 1} "
            f"in {one_line(group, 20)}"
        )
        lines.append(((text, "$muted"),))
    return lines


def _piece(one: WatchFigure, width: int) -> Line:
    value = f"{one.r:+.2f}"
    name = one_line(one.trait, 30)
    if not one.alert:
        return ((f"{name} ", "$muted"), (value, ""))
    sure = f" ({one.low:+.2f} to {one.high:+.2f}, n {one.n})" if width >= WIDE else ""
    return ((f"! {name} ", "bold $warning"), (value, "bold $warning"), (sure, "$muted"))
