"""The list's rows, its filter line and its order."""

import itertools
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.screens.requests.model import RowModel, complete
from console.screens.requests.text import GroupRow, row_line
from console.session.filters import FilterError, parse
from console.text.lines import line_width
from core.state import Rating
from tests.support.console import NOW
from tests.support.groups import HOSTILE_TEXTS, group, text_of


@pytest.mark.parametrize("query", HOSTILE_TEXTS, ids=range(len(HOSTILE_TEXTS)))
def test_rows_have_the_lists_width_and_no_control_characters(query: str) -> None:
    one = group(query=query)
    for width, several in itertools.product((60, 80, 84, 120, 200), (False, True)):
        line = row_line(GroupRow(one, NOW), width, several)
        assert line_width(line) == width, width
        text = text_of([line])
        assert not any(ord(char) < 32 or 0x7F <= ord(char) < 0xA0 for char in text), width
        assert "\u202e" not in text, width
        assert "\u200d" not in text, width


def test_a_row_shows_state_winner_and_returned_answer_without_colour() -> None:
    text = text_of([row_line(GroupRow(group(), NOW), 120, False)])
    for sign in ("◈ rate 0:20", "4/4", "0.90", "0.80", "#2"):
        assert sign in text
    assert "✂" not in text
    one = group(until="DONE", rewards=(0.5, 0.5, 0.5, 0.5))
    assert not parse("truncated:yes").matches(one)
    one.candidates[0].truncated = True
    assert "✂ Why is" in text_of([row_line(GroupRow(one, NOW), 80, False)])
    assert parse("truncated:yes").matches(one)
    one.marked = True
    text = text_of([row_line(GroupRow(one, NOW), 120, False)])
    assert "○ dead" in text
    assert "★" in text


def test_a_skipped_group_is_not_found_as_rated() -> None:
    one = group()
    one.rating = Rating(rating="best", order=(0,))
    assert parse("rated:yes").matches(one)
    one.rating = Rating(rating="skip")
    assert parse("rated:no").matches(one)
    one.until = NOW + 3
    assert "◈ skip 0:03" in text_of([row_line(GroupRow(one, NOW), 80, False)])


@pytest.mark.parametrize(
    ("line", "numbers"),
    [
        ("", {1, 2, 3}),
        ("paris", {2}),
        ("PARIS capital", {2}),
        ('"of france"', {2}),
        ("state:awaiting", {1, 2}),
        ("state:open", {1, 2}),
        ("-state:open", {3}),
        ("reward<0.3", {3}),
        ("reward>=0.9", {1, 2}),
        ("spread=0.8 paris", {2}),
        ("dead:yes", {3}),
        ("dead:no", {1, 2}),
        ("marked:yes", {1}),
        ("marked:yes dead:yes", set()),
        ("text~oceanic", {1}),
        ("n=4 answered:4", {1, 2, 3}),
        ("step>99", set()),
        ('"state:awaiting"', set()),
    ],
)
def test_a_filter_matches_the_expected_groups(line: str, numbers: set[int]) -> None:
    groups = {
        1: group(1, texts=["the oceanic one", "b", "c", "d"]),
        2: group(2, query="Capital of France, Paris?"),
        3: group(3, until="DONE", rewards=(0.1, 0.1, 0.1, 0.1)),
    }
    groups[1].marked = True
    wanted = parse(line)
    assert {number for number, one in groups.items() if wanted.matches(one)} == numbers


def test_discarded_groups_have_a_state_of_their_own() -> None:
    finished, lost = group(1, until="DONE"), group(2, until="DONE")
    lost.lost = "an engine restart"
    assert [parse("state:finished").matches(one) for one in (finished, lost)] == [True, False]
    assert [parse("state:lost").matches(one) for one in (finished, lost)] == [False, True]
    assert "lost" in complete("state:", 6, {}).options


@pytest.mark.parametrize(
    ("line", "position", "word"),
    [
        ("paris stat:x", 6, "stat"),
        ("state:nonsense", 6, "nonsense"),
        ("reward<much", 7, "not a number"),
        ("reward~2", 6, "takes"),
        ("dead:perhaps", 5, "yes or no"),
        ('paris "open', 6, "not closed"),
        ("state:", 6, "value"),
        ("text<3", 4, "takes"),
        ("-", 1, "word"),
    ],
)
def test_filter_errors_name_the_character(line: str, position: int, word: str) -> None:
    with pytest.raises(FilterError, match=word) as caught:
        parse(line)
    assert caught.value.position == position


@pytest.mark.slow
@given(st.text(max_size=60))
def test_any_line_is_a_filter_or_an_error_with_a_valid_position(line: str) -> None:
    position = 0
    try:
        parse(line).matches(group())
    except FilterError as error:
        position = error.position
    assert 0 <= position <= len(line)


def test_the_row_model_filters_only_changed_groups_again() -> None:
    groups = {one.group_id: one for one in (group(number) for number in range(1, 6))}
    model = RowModel()
    assert model.update(groups, frozenset({"*"}))
    assert model.ids == ["g0005", "g0004", "g0003", "g0002", "g0001"]
    assert not model.update(groups, frozenset({"groups"}))
    model.set_filter(parse("marked:yes"))
    assert model.update(groups, frozenset({"*"}))
    assert model.ids == []
    groups["g0002"].marked = groups["g0004"].marked = True
    model.update(groups, frozenset({"groups", "group:g0004"}))
    assert model.ids == ["g0004"]
    assert model.place("g0004") == 0
    assert model.place("g0002") is None


def test_twenty_thousand_groups_are_listed_and_filtered_quickly() -> None:
    one = group()
    groups = {f"g{number}": one for number in range(20_000)}
    model = RowModel()
    began = time.process_time()
    model.update(groups, frozenset({"*"}))
    for key in model.ids[:50]:
        row_line(GroupRow(groups[key], NOW), 120, False)
    unfiltered = time.process_time() - began
    model.set_filter(parse("paris"))
    model.update(groups, frozenset({"*"}))
    began = time.process_time()
    model.update(groups, frozenset({"groups", "group:g7"}))
    print(f"20,000 groups: list and a page {unfiltered:.4f} s, filtered update", end=" ")
    print(f"{time.process_time() - began:.4f} s")
    assert unfiltered < 0.2
