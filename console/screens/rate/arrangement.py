"""Where the answers of a group stand on Rate: beside each other, one under the other, or alone."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

GRID = 100
"""Columns from which answers stand beside each other."""
LISTED = 5
"""Answers from which one is open beside a list of all."""
LEAST_OPEN = 9
"""Rows of the open answer below which the others leave the screen."""
LEAST_CELL = 6
"""Rows of a cut answer in the grid below which the answers stand one under the other."""
LIST_WIDTH = 34, 48
"""Columns of the list beside the open answer, at least and at most."""
LIST_ROWS = 6
"""Most rows of an answer in that list."""


class Spot(NamedTuple):
    """The cells of one answer."""

    place: int
    x: int
    y: int
    width: int
    height: int
    folded: bool = False
    """Only its head and the first lines that differ are shown; it does not scroll."""


@dataclass(frozen=True, slots=True)
class Arrangement:
    """All answers on screen.

    Attributes:
        form: `grid` and `stack` show all answers, `list` one of them beside a list, `alone` one.
        spots: The answers on screen; in a list the open one comes last, after its own entry.
        whole: Whether no answer is cut.
    """

    form: Literal["grid", "stack", "list", "alone"]
    spots: tuple[Spot, ...]
    whole: bool


NOTHING = Arrangement("stack", (), whole=True)
"""The arrangement of a screen without answers."""


def arranged(
    count: int,
    needed: Callable[[int], Sequence[int]],
    size: tuple[int, int],
    opened: int,
    alone: bool,
) -> Arrangement:
    """Return the arrangement of the answers.

    Args:
        count: Number of answers.
        needed: Returns the rows that each answer needs at a width, its head or frame included.
        size: Cells of the screen and rows for all answers.
        opened: Place of the answer that is read.
        alone: Whether the operator wants one answer on the whole screen.
    """
    width, height = size
    if alone or not count:
        return _alone(needed(width), width, height, opened)
    if count >= LISTED and width >= GRID:
        return _list(needed, width, height, opened)
    if count > 1 and width >= GRID:
        grid = _grid(count, needed, width, height)
        if grid.whole or min(spot.height for spot in grid.spots) >= LEAST_CELL:
            return grid
    return _stack(needed(width), width, height, opened)


def _alone(rows: Sequence[int], width: int, height: int, opened: int) -> Arrangement:
    spots = tuple(Spot(place, 0, 0, width, height) for place in range(len(rows)))
    whole = len(rows) <= 1 and all(need <= height for need in rows)
    return Arrangement("alone", spots[opened : opened + 1], whole)


def _stack(rows: Sequence[int], width: int, height: int, opened: int) -> Arrangement:
    whole = sum(rows) <= height
    if not whole and height - len(rows) + 1 < LEAST_OPEN:
        return _alone(rows, width, height, opened)
    heights = share_heights(rows, height, None if whole else opened)
    spots = [
        Spot(place, 0, sum(heights[:place]), width, own, place != opened and own < rows[place])
        for place, own in enumerate(heights)
    ]
    return Arrangement("stack", tuple(spots), whole)


def _grid(
    count: int, needed: Callable[[int], Sequence[int]], width: int, height: int
) -> Arrangement:
    half = width // 2
    pairs = [range(first, min(first + 2, count)) for first in range(0, count, 2)]
    needs = [max(needed(half if len(pair) == 2 else width)[at] for at in pair) for pair in pairs]
    heights = share_heights(needs, height, None)
    spare, odd = divmod(max(0, height - sum(heights)), len(pairs))
    heights = [own + spare + (at < odd) for at, own in enumerate(heights)]
    spots = []
    for row, pair in enumerate(pairs):
        y = sum(heights[:row])
        if len(pair) == 1:
            spots.append(Spot(pair[0], 0, y, width, heights[row]))
        else:
            spots.append(Spot(pair[0], 0, y, half, heights[row]))
            spots.append(Spot(pair[1], half, y, width - half, heights[row]))
    whole = all(need <= own for need, own in zip(needs, heights, strict=True))
    return Arrangement("grid", tuple(spots), whole)


def _list(
    needed: Callable[[int], Sequence[int]], width: int, height: int, opened: int
) -> Arrangement:
    least, most = LIST_WIDTH
    left = max(least, min(most, width // 3))
    needs = needed(width - left)
    count = min(len(needs), height)
    first = max(0, min(opened - count // 2, len(needs) - count))
    each = max(1, min(LIST_ROWS, height // max(1, count)))
    spots = [Spot(first + row, 0, row * each, left, each, folded=True) for row in range(count)]
    spots.append(Spot(opened, left, 0, width - left, height))
    return Arrangement("list", tuple(spots), max(needs) <= height)


def share_heights(requested: Sequence[int], room: int, focus: int | None) -> list[int]:
    """Return the rows for each of several cards that share `room` rows.

    The focused card gets the rows it requests as long as the others keep one row. Without one all
    cards get an equal share; rows that short cards do not need go to longer ones.
    """
    heights = [min(1, rows) for rows in requested]
    left = room - sum(heights)
    order = sorted(range(len(requested)), key=lambda place: requested[place])
    if focus is not None:
        order.remove(focus)
        order = [focus, *order]
    for rank, place in enumerate(order):
        share = left if place == focus else left // (len(order) - rank)
        more = max(0, min(requested[place] - heights[place], share))
        heights[place] += more
        left -= more
    return heights
