"""Where answers stand on Rate, by size and number."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.screens.rate.arrangement import Arrangement, Spot, arranged, share_heights

LONG = 100
"""Rows that are cut on every screen."""


def placed(
    rows: Sequence[int], width: int, height: int, opened: int = 0, alone: bool = False
) -> Arrangement:
    return arranged(len(rows), lambda _: rows, (width, height), opened, alone)


def where(arrangement: Arrangement) -> list[tuple[int, int, int, int, int]]:
    return [spot[:5] for spot in arrangement.spots]


@pytest.mark.parametrize(
    ("count", "size", "form", "spots"),
    [
        (1, (120, 30), "stack", [(0, 0, 0, 120, 30)]),
        (2, (120, 30), "grid", [(0, 0, 0, 60, 30), (1, 60, 0, 60, 30)]),
        (3, (120, 30), "grid", [(0, 0, 0, 60, 15), (1, 60, 0, 60, 15), (2, 0, 15, 120, 15)]),
        (
            4,
            (101, 31),
            "grid",
            [(0, 0, 0, 50, 15), (1, 50, 0, 51, 15), (2, 0, 15, 50, 16), (3, 50, 15, 51, 16)],
        ),
        (2, (99, 18), "stack", [(0, 0, 0, 99, 17), (1, 0, 17, 99, 1)]),
        (4, (80, 18), "stack", [(0, 0, 0, 80, 15), *((at, 0, 14 + at, 80, 1) for at in (1, 2, 3))]),
        (4, (60, 8), "alone", [(0, 0, 0, 60, 8)]),
        (2, (60, 8), "alone", [(0, 0, 0, 60, 8)]),
        (4, (100, 11), "alone", [(0, 0, 0, 100, 11)]),
        (5, (120, 30), "list", [*((at, 0, 6 * at, 40, 6) for at in range(5)), (0, 40, 0, 80, 30)]),
        (8, (100, 18), "list", [*((at, 0, 2 * at, 34, 2) for at in range(8)), (0, 34, 0, 66, 18)]),
        (5, (80, 9), "alone", [(0, 0, 0, 80, 9)]),
        (16, (80, 18), "alone", [(0, 0, 0, 80, 18)]),
    ],
)  # fmt: skip
def test_long_answers_by_number_and_size(
    count: int, size: tuple[int, int], form: str, spots: list[tuple[int, int, int, int, int]]
) -> None:
    arrangement = placed([LONG] * count, *size)
    assert (arrangement.form, arrangement.whole) == (form, False)
    assert where(arrangement) == spots


@pytest.mark.parametrize(
    ("rows", "size", "form", "heights"),
    [
        ([4, 3, 5, 2], (80, 18), "stack", [4, 3, 5, 2]),
        ([2, 2], (60, 8), "stack", [2, 2]),
        ([4, 3, 5, 2], (120, 30), "grid", [15, 15, 15, 15]),
        ([4, 3, 25, 2], (120, 30), "grid", [5, 5, 25, 25]),
        ([3, 3, 3, 3], (100, 8), "grid", [4, 4, 4, 4]),
        ([5], (80, 18), "stack", [5]),
    ],
)
def test_short_answers_are_shown_whole(
    rows: list[int], size: tuple[int, int], form: str, heights: list[int]
) -> None:
    arrangement = placed(rows, *size)
    assert (arrangement.form, arrangement.whole) == (form, True)
    assert [spot.height for spot in arrangement.spots] == heights


def test_the_open_answer_gets_the_room() -> None:
    stack = placed([LONG] * 4, 80, 18, opened=2)
    assert [spot.height for spot in stack.spots] == [1, 1, 15, 1]
    assert [spot.folded for spot in stack.spots] == [True, True, False, True]
    short = placed([6, 5, LONG, 20], 80, 18)
    assert [spot.height for spot in short.spots] == [6, 4, 4, 4]
    assert [spot.folded for spot in short.spots] == [False, True, True, True]
    assert where(placed([LONG] * 4, 80, 18, opened=2, alone=True)) == [(2, 0, 0, 80, 18)]
    listed = placed([LONG] * 12, 120, 9, opened=11)
    assert [spot.place for spot in listed.spots] == [*range(3, 12), 11]
    assert not listed.spots[-1].folded
    assert placed([], 80, 18).spots == ()


@given(
    st.lists(st.integers(1, 60), min_size=1, max_size=20),
    st.integers(1, 250),
    st.integers(1, 80),
    st.integers(0, 19),
    st.booleans(),
)
def test_answers_stay_on_the_screen_and_apart(
    rows: list[int], width: int, height: int, opened: int, alone: bool
) -> None:
    opened = min(opened, len(rows) - 1)
    arrangement = placed(rows, width, height, opened, alone)
    cells: set[tuple[int, int]] = set()
    for spot in arrangement.spots:
        own = cells_of(spot)
        assert own
        assert not cells & own
        cells |= own
    assert max(x for x, _ in cells) < width
    assert max(y for _, y in cells) < height
    assert opened in [spot.place for spot in arrangement.spots if not spot.folded]
    if arrangement.form in ("grid", "stack"):
        assert [spot.place for spot in arrangement.spots] == list(range(len(rows)))


def cells_of(spot: Spot) -> set[tuple[int, int]]:
    columns = range(spot.x, spot.x + spot.width)
    return {(x, y) for x in (columns[0], columns[-1]) for y in range(spot.y, spot.y + spot.height)}


@pytest.mark.parametrize(
    ("wanted", "focus", "heights"),
    [
        ([30, 30, 30, 30], None, [3, 3, 3, 3]),
        ([30, 30, 30, 30], 1, [1, 9, 1, 1]),
        ([4, 30, 2, 30], 0, [4, 3, 2, 3]),
        ([1, 1, 1], None, [1, 1, 1]),
    ],
)
def test_twelve_rows_are_shared(wanted: list[int], focus: int | None, heights: list[int]) -> None:
    assert share_heights(wanted, 12, focus) == heights


@given(
    st.lists(st.integers(1, 60), min_size=1, max_size=8),
    st.integers(1, 60),
    st.one_of(st.none(), st.integers(0, 7)),
)
def test_shared_rows_never_exceed_the_room(wanted: list[int], room: int, focus: int | None) -> None:
    heights = share_heights(wanted, room, None if focus is None else min(focus, len(wanted) - 1))
    assert all(1 <= rows <= most for rows, most in zip(heights, wanted, strict=True))
    assert sum(heights) <= max(room, len(wanted))
    if sum(wanted) <= room:
        assert heights == wanted
