"""Announced rows match their requests: by header, by session, by text."""

import pytest

from proxy import dataset_rows
from proxy.dataset_rows import HEADER, MAX_WORDS_CHARS, SESSION, Row, Rows


def matched_id(rows: Rows, query: str = "", **headers: str) -> str:
    names = {"row": HEADER, "session": SESSION}
    row = rows.match({names[name]: value for name, value in headers.items()}, query)
    return row.row_id if row is not None else ""


@pytest.fixture
def rows() -> Rows:
    return Rows()


def test_rows_match_by_header_then_session_then_text(rows: Rows) -> None:
    for row_id, session in ("a", ""), ("b", "s1"), ("c", ""):
        rows.register(Row(row_id=row_id, query="same  words", session=session))
    assert matched_id(rows, "same words") == "a"
    assert matched_id(rows, "same words", session="s1") == "b"
    assert matched_id(rows, "same words", session="s1", row="c") == "c"
    assert matched_id(rows, "same words", row="nobody") == ""
    assert matched_id(rows, "other words", session="s1") == "b"
    assert matched_id(rows, "other words", session="s2") == ""


def test_a_taken_row_matches_only_within_its_session(rows: Rows) -> None:
    rows.register(Row(row_id="a", query="x"))
    rows.register(Row(row_id="b", query="x", session="s1"))
    rows.take("a")
    assert matched_id(rows, "x", row="a") == ""
    assert matched_id(rows, "x") == "b"
    rows.take("b")
    assert matched_id(rows, "x") == ""
    assert matched_id(rows, "x", session="s1") == matched_id(rows, row="b") == "b"
    rows.release("b")
    assert not len(rows)
    assert matched_id(rows, "x", session="s1") == ""


def test_the_next_turn_replaces_the_row_and_releasing_the_first_ends_the_session(
    rows: Rows,
) -> None:
    for row_id in ("a", "a:t2", "a:t2", "a:t3"):
        rows.register(Row(row_id=row_id, query=row_id, session="s1"))
        rows.take(row_id)
        assert matched_id(rows, "whatever", session="s1") == row_id
        assert len(rows) == 1
    rows.release("a")
    assert not len(rows)
    assert not rows._sessions


def test_released_rows_leave_nothing_in_memory(rows: Rows) -> None:
    for number in range(dataset_rows.MAX_ROWS + 50):
        rows.register(Row(row_id=f"r{number}", query=f"{number % 7}", session=f"s{number}"))
    assert len(rows) == len(rows._sessions) == dataset_rows.MAX_ROWS
    assert matched_id(rows, session="s49") == ""
    assert matched_id(rows, session="s50") == "r50"


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_rows_of_a_silent_mock_user_are_dropped() -> None:
    clock = Clock()
    rows = Rows(clock)
    rows.register(Row(row_id="a", query="x", mock_id="m-1", session="s1"))
    clock.now = dataset_rows.SILENCE_LIMIT
    rows.alive("m-1")
    clock.now += dataset_rows.SILENCE_LIMIT
    assert matched_id(rows, "x") == "a"
    clock.now += 1.0
    assert matched_id(rows, "x") == matched_id(rows, session="s1") == ""
    assert not rows._alive_at


def test_a_row_without_a_mock_user_is_dropped_when_unused() -> None:
    clock = Clock()
    rows = Rows(clock)
    rows.register(Row(row_id="dry", query="x", session="s1", train=False))
    clock.now = dataset_rows.UNUSED_LIMIT
    assert matched_id(rows, session="s1") == "dry"
    clock.now += dataset_rows.UNUSED_LIMIT
    assert matched_id(rows, "x") == "dry"
    clock.now += dataset_rows.UNUSED_LIMIT + 1.0
    assert matched_id(rows, "x") == ""


def test_a_new_start_ends_the_rows_of_the_earlier_ones(rows: Rows) -> None:
    for row_id, mock_id in ("a", "mock-1f-1"), ("b", "mock-2e-1"), ("c", "mock-1f-2"):
        rows.register(Row(row_id=row_id, query=row_id, mock_id=mock_id))
    rows.end_earlier("mock-1f-2")
    assert [matched_id(rows, one) for one in "abc"] == ["", "b", "c"]
    rows.end_run("mock-1f-2")
    assert [matched_id(rows, one) for one in "abc"] == ["", "b", ""]


def test_the_oldest_row_of_the_newest_run_matches_first(rows: Rows) -> None:
    for row_id, mock_id in ("dry", ""), ("a", "m-1"), ("b", "m-1"):
        rows.register(Row(row_id=row_id, query="x", mock_id=mock_id))
    assert matched_id(rows, "x") == "a"
    rows.take("a")
    assert matched_id(rows, "x") == "b"


def test_a_released_row_is_not_added_again(rows: Rows) -> None:
    row = Row(row_id="a", query="x", session="s1")
    rows.register(row)
    rows.take("a")
    rows.release("a")
    rows.again(row)
    assert not len(rows)
    rows.register(row)
    rows.again(row)
    assert matched_id(rows, "x") == "a"


def words(*numbers: int) -> str:
    return " ".join(map(str, numbers))


@pytest.mark.parametrize("count", [1, 8_192, 30_000])
def test_texts_are_distinguished_by_all_words_whatever_their_white_space(
    rows: Rows, count: int
) -> None:
    text = words(*range(count))
    rows.register(Row(row_id="a", query=text))
    for other in (words(-1, *range(1, count)), words(*range(count - 1), -1), text + " more"):
        assert matched_id(rows, other) == ""
    assert matched_id(rows, "\n " + text.replace(" ", "\t\n") + " ") == "a"


def test_very_long_texts_must_be_equal(rows: Rows) -> None:
    text = "a " * MAX_WORDS_CHARS
    rows.register(Row(row_id="a", query=text))
    assert matched_id(rows, text.replace("a a", "a  a", 1)) == ""
    assert matched_id(rows, f" {text}") == "a"


def test_a_row_can_be_announced_again_in_another_session(rows: Rows) -> None:
    rows.register(Row(row_id="a", query="x", session="s1"))
    rows.register(Row(row_id="b", query="y", session="s1"))
    rows.register(Row(row_id="a", query="x", session="s2"))
    rows.release("b")
    assert matched_id(rows, session="s2") == "a"
    rows.release("a")
    assert len(rows) == 0
    assert matched_id(rows, session="s1") == matched_id(rows, session="s2") == ""


@pytest.mark.slow
def test_long_rows_that_differ_in_the_middle_are_distinguished(rows: Rows) -> None:
    """Documents with one question behind them all: the answer to another one would be scored."""
    begin, end = "so it begins " * 8_192, " what is the number?" * 8_192
    for number in range(3):
        rows.register(Row(row_id=str(number), query=f"{begin} it is {number} {end}"))
    assert matched_id(rows, f"{begin} it is 1 {end}") == "1"
    assert matched_id(rows, f"  {begin}  it is\n2 {end}") == "2"
    assert matched_id(rows, f"{begin} it is 7 {end}") == ""
