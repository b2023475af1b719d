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
    figures = [figure for figure in watch.figures if figure.r is not None and figure.n >= LEAST]
    if not figures:
        return []
    pieces: list[Line] = [(("rewards follow", "$muted"),)]
    pieces += [_piece(figure, width) for figure in figures]
    lines = flow(pieces, width)
    if watch.outliers:
        group, index, reward, z = watch.outliers[-1]
        text = (
            f"newest outlier: {reward:.3g}, {abs(z):.0f} deviations off, candidate {index + 1} "
            f"in {one_line(group, 20)}"
        )
        lines.append(((text, "$muted"),))
    return lines


def _piece(figure: WatchFigure, width: int) -> Line:
    value = f"{figure.r:+.2f}"
    name = one_line(figure.trait, 30)
    if not figure.alert:
        return ((f"{name} ", "$muted"), (value, ""))
    sure = f" ({figure.low:+.2f} to {figure.high:+.2f}, n {figure.n})" if width >= WIDE else ""
    return ((f"! {name} ", "bold $warning"), (value, "bold $warning"), (sure, "$muted"))
