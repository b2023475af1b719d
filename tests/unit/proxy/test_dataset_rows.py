"""Announced rows meet their requests: by header, by session, by text."""

import pytest

from proxy import dataset_rows
from proxy.dataset_rows import EDGE_WORDS, HEADER, SESSION, Row, Rows


def found(kept: Rows, query: str = "", **headers: str) -> str:
    names = {"row": HEADER, "session": SESSION}
    row = kept.match({names[name]: value for name, value in headers.items()}, query)
    return row.row_id if row is not None else ""


def test_rows_match_by_header_then_session_then_text() -> None:
    kept = Rows()
    for row_id, session in ("a", ""), ("b", "s1"), ("c", ""):
        kept.register(Row(row_id=row_id, query="same  words", session=session))
    assert found(kept, "same words") == "a"
    assert found(kept, "same words", session="s1") == "b"
    assert found(kept, "same words", session="s1", row="c") == "c"
    assert found(kept, "same words", row="nobody") == ""
    assert found(kept, "other words", session="s1") == "b"
    assert found(kept, "other words", session="s2") == ""


def test_a_taken_row_matches_only_within_its_session() -> None:
    kept = Rows()
    kept.register(Row(row_id="a", query="x"))
    kept.register(Row(row_id="b", query="x", session="s1"))
    kept.take("a")
    assert found(kept, "x", row="a") == ""
    assert found(kept, "x") == "b"
    kept.take("b")
    assert found(kept, "x") == ""
    assert found(kept, "x", session="s1") == found(kept, row="b") == "b"
    kept.release("b")
    assert not len(kept)
    assert found(kept, "x", session="s1") == ""


def test_the_next_turn_replaces_the_row_and_releasing_the_first_ends_the_session() -> None:
    kept = Rows()
    for row_id in ("a", "a:t2", "a:t2", "a:t3"):
        kept.register(Row(row_id=row_id, query=row_id, session="s1"))
        kept.take(row_id)
        assert found(kept, "whatever", session="s1") == row_id
        assert len(kept) == 1
    kept.release("a")
    assert not len(kept)
    assert not kept._sessions
    assert not kept._session_by_first_row
    assert not kept._by_text


def test_released_rows_leave_nothing_in_memory() -> None:
    kept = Rows()
    for number in range(dataset_rows.MAX_ROWS + 50):
        kept.register(Row(row_id=f"r{number}", query=f"{number % 7}", session=f"s{number}"))
    assert (
        len(kept) == len(kept._sessions) == len(kept._session_by_first_row) == dataset_rows.MAX_ROWS
    )
    assert found(kept, session="s49") == ""
    assert found(kept, session="s50") == "r50"


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_rows_of_a_silent_mock_user_are_dropped() -> None:
    clock = Clock()
    kept = Rows(clock)
    kept.register(Row(row_id="a", query="x", mock_id="m-1", session="s1"))
    clock.now = dataset_rows.SILENCE_LIMIT
    kept.alive("m-1")
    clock.now += dataset_rows.SILENCE_LIMIT
    assert found(kept, "x") == "a"
    clock.now += 1.0
    assert found(kept, "x") == found(kept, session="s1") == ""
    assert not kept._alive_at
    assert not kept._used_at


def test_a_row_without_a_mock_user_is_dropped_when_unused() -> None:
    clock = Clock()
    kept = Rows(clock)
    kept.register(Row(row_id="dry", query="x", session="s1", train=False))
    clock.now = dataset_rows.UNUSED_LIMIT
    assert found(kept, session="s1") == "dry"
    clock.now += dataset_rows.UNUSED_LIMIT
    assert found(kept, "x") == "dry"
    clock.now += dataset_rows.UNUSED_LIMIT + 1.0
    assert found(kept, "x") == ""


def test_a_new_start_ends_the_rows_of_the_earlier_ones() -> None:
    kept = Rows()
    for row_id, mock_id in ("a", "mock-1f-1"), ("b", "mock-2e-1"), ("c", "mock-1f-2"):
        kept.register(Row(row_id=row_id, query=row_id, mock_id=mock_id))
    kept.end_earlier("mock-1f-2")
    assert [found(kept, one) for one in "abc"] == ["", "b", "c"]
    kept.end_run("mock-1f-2")
    assert [found(kept, one) for one in "abc"] == ["", "b", ""]


def test_the_oldest_row_of_the_newest_run_matches_first() -> None:
    kept = Rows()
    for row_id, mock_id in ("dry", ""), ("a", "m-1"), ("b", "m-1"):
        kept.register(Row(row_id=row_id, query="x", mock_id=mock_id))
    assert found(kept, "x") == "a"
    kept.take("a")
    assert found(kept, "x") == "b"


def test_a_released_row_is_not_added_again() -> None:
    kept = Rows()
    row = Row(row_id="a", query="x", session="s1")
    kept.register(row)
    kept.take("a")
    kept.release("a")
    kept.again(row)
    assert not len(kept)
    kept.register(row)
    kept.again(row)
    assert found(kept, "x") == "a"


def words(*numbers: int) -> str:
    return " ".join(map(str, numbers))


@pytest.mark.parametrize("count", [EDGE_WORDS, EDGE_WORDS + 1, 3 * EDGE_WORDS])
def test_long_texts_are_distinguished_by_both_ends_whatever_their_white_space(count: int) -> None:
    kept = Rows()
    text = words(*range(count))
    kept.register(Row(row_id="a", query=text))
    for other in (words(-1, *range(1, count)), words(*range(count - 1), -1), text + " more"):
        assert found(kept, other) == ""
    assert found(kept, "\n " + text.replace(" ", "\t\n") + " ") == "a"


@pytest.mark.slow
def test_the_key_of_a_very_long_text_has_only_its_ends() -> None:
    kept = Rows()
    kept.register(Row(row_id="a", query=words(*range(50 * EDGE_WORDS))))
    assert sum(map(len, kept._by_text)) < 20 * EDGE_WORDS


def test_a_row_can_be_announced_again_in_another_session() -> None:
    kept = Rows()
    kept.register(Row(row_id="a", query="x", session="s1"))
    kept.register(Row(row_id="b", query="y", session="s1"))
    kept.register(Row(row_id="a", query="x", session="s2"))
    kept.release("b")
    assert found(kept, session="s2") == "a"
    kept.release("a")
    assert len(kept) == 0
    assert found(kept, session="s1") == found(kept, session="s2") == ""


@pytest.mark.slow
def test_long_rows_that_differ_in_the_middle_are_distinguished() -> None:
    """Documents with one question behind them all: the answer to another one would be scored."""
    kept = Rows()
    begin, end = "so it begins " * EDGE_WORDS, " what is the number?" * EDGE_WORDS
    for number in range(3):
        kept.register(Row(row_id=str(number), query=f"{begin} it is {number} {end}"))
    assert found(kept, f"{begin} it is 1 {end}") == "1"
    assert found(kept, f"  {begin}  it is\n2 {end}") == "2"
    assert found(kept, f"{begin} it is 7 {end}") == ""


def test_equal_row_texts_are_compared_only_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept, compared = Rows(), []
    looks = dataset_rows._TextMatcher._has_same_words

    def counted(alike: dataset_rows._TextMatcher, own: str) -> bool:
        compared.append(own)
        return looks(alike, own)

    monkeypatch.setattr(dataset_rows._TextMatcher, "_has_same_words", counted)
    for number in range(50):
        kept.register(Row(row_id=str(number), query="what is  it", mock_id=f"m{number // 25}"))
    assert found(kept, "what is it") == "25"
    assert len(compared) == 1
