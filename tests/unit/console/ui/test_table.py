"""Tables: which columns are shown, and their widths."""

import pytest

from console.text.lines import Line, line_width
from console.ui.table import Column, Table

TABLE: Table[str] = Table(
    (
        Column("name", 6, lambda row: row, most=20),
        Column("size", 4, lambda row: str(len(row)), "bold", right=True),
        Column("first", 5, lambda row: (row[:1], "$muted"), rank=1),
        Column("last", 5, lambda row: row[-1:], rank=2),
        Column("text", 8, lambda row: row * 9, most=99),
    ),
    start=" ",
)


def text(line: Line) -> str:
    return "".join(piece for piece, _ in line)


@pytest.mark.parametrize("width", [21, 27, 33, 40, 60, 99])
def test_the_head_and_each_row_fill_the_width(width: int) -> None:
    assert line_width(TABLE.head(width)) == width
    assert {line_width(TABLE.row(row, width)) for row in ("", "ab", "日本" * 30)} == {width}


@pytest.mark.parametrize(
    ("width", "titles"),
    [
        (33, ["name", "size", "first", "last", "text"]),
        (32, ["name", "size", "first", "text"]),
        (26, ["name", "size", "text"]),
    ],
)
def test_columns_of_a_high_rank_are_left_out_first(width: int, titles: list[str]) -> None:
    assert text(TABLE.head(width)).split() == titles


def test_flexible_columns_share_what_is_left_up_to_their_most() -> None:
    without = ("first", "last")
    sizes = [[size for _, size in TABLE.fitted(width, without)] for width in (27, 67)]
    assert sizes == [[10, 4, 10], [20, 4, 40]]


def test_a_cell_has_the_tone_of_its_column_or_its_own() -> None:
    line = TABLE.row("abc", 60)
    assert ("   3", "bold") in line
    assert ("a    ", "$muted") in line
