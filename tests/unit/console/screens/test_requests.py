"""The list of requests without a screen: rows, filter, completion, journal, bulk questions."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.screens.requests.marked import BULK, abort_cost
from console.screens.requests.model import RowModel, complete
from console.screens.requests.text import GroupRow, row_line
from console.session.filters import FilterError, parse
from console.session.history import MAX_PAGES, PAGE, History
from console.text.lines import line_width
from core.events import GroupRated
from core.state import Group, Rating
from tests.support.checks import missing, present
from tests.support.groups import HOSTILE_TEXTS, group, text_of
from tests.support.sample import NOW, group_events, state_of

ACCEPT = next(verb for verb in BULK if verb.action == "accept")


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
    assert not missing(text, "◈ rate 0:20", "4/4", "0.90", "0.80", "#2")
    assert "✂" not in text
    one = group(until="DONE", rewards=(0.5, 0.5, 0.5, 0.5))
    assert not parse("truncated:yes").matches(one)
    one.candidates[0].truncated = True
    assert "✂ Why is" in text_of([row_line(GroupRow(one, NOW), 80, False)])
    assert parse("truncated:yes").matches(one)
    one.marked = True
    text = text_of([row_line(GroupRow(one, NOW), 120, False)])
    assert not missing(text, "○ dead", "★")


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
    assert (model.ids, model.place("g0004")) == (["g0004"], 0)
    assert model.place("g0002") is None


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("st", ("state:", "step<")),
        ("paris -de", ("dead:",)),
        ("state:aw", ("awaiting_rating",)),
        ("dead:", ("yes", "no")),
        ("server:l", ("large",)),
        ('model:"', ('"two words"',)),
        ('"st', ()),
        ("reward<", ()),
    ],
)
def test_completions_fit_the_cursor_position(text: str, options: tuple[str, ...]) -> None:
    known = {"server": ["embedded", "large"], "model": ["two words"]}
    assert complete(text, len(text), known).options == options


def test_every_completion_parses() -> None:
    for begun in complete("", 0, {}).options:
        result = complete(begun, len(begun), {"server": ["a"]})
        value = (result.options or ("0.5",))[0]
        assert parse(begun + value)


def bare(number: int, query: str = "q") -> Group:
    """A bare group."""
    return Group(
        group_id=f"o{number}",
        request_id="r",
        server="s",
        task_id="t",
        n=0,
        query=query,
        opened_at=float(number),
        phase="DONE",
    )


def test_pages_are_cached_up_to_a_cap_and_short_ones_are_read_again() -> None:
    history = History()
    for number in range(MAX_PAGES + 5):
        first = number * PAGE
        history.put(first, [bare(first + place) for place in range(PAGE)])
    assert history.at(0) is None
    assert history.group("o0") is None
    last = (MAX_PAGES + 4) * PAGE
    assert history.at(last + 3) == bare(last + 3)
    assert history.missing(last, last + PAGE - 1) is None
    assert history.missing(0, last) == 4 * PAGE
    history.put(0, [bare(0)])
    assert history.missing(0, 0) is None
    assert history.missing(0, 1) == 0
    assert history.forget("o0")
    assert not history.forget("o0")


def test_old_open_groups_are_listed_at_their_place_in_the_journal() -> None:
    events = [*group_events(1, until="CLAIMING"), *group_events(8), *group_events(9)]
    model = RowModel()
    model.update(state_of(*events).groups, frozenset({"*"}), 9)
    assert (model.ids, model.older, model.count) == (["g0009", "g0008"], 7, 9)
    model.history.put(0, [bare(0), *state_of(*group_events(1)).groups.values()])
    result = present(model.at(7))
    assert result.phase == "CLAIMING"


def test_a_skipped_group_is_not_counted_as_rated() -> None:
    events = [e for n in (1, 2, 3) for e in group_events(n, at=NOW - 5, until="AWAITING_RATING")]
    rated = GroupRated(group_id="g0001", rating="tie", rewards=(0.5,) * 4, rater="anna")
    skip = GroupRated(group_id="g0002", rating="skip", rater="anna")
    state = state_of(*events, rated, skip)
    groups = list(state.groups.values())
    assert ACCEPT.question is not None
    question = ACCEPT.question(state, groups)
    assert "1 with the rating, 1 with the automatic reward, 1 skipped." in question
    assert "skipped" not in ACCEPT.question(state, groups[:1])
    assert "1 rating of yours dropped." in abort_cost(state, groups)
    assert "of yours" not in abort_cost(state, groups[1:])
