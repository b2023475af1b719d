"""Traits that a policy can exploit: flattery, emoji, markup and a copied reference."""

import time

import pytest

from proxy.rewards.monitor.traits import (
    FIRST_WORDS,
    LAST_WORDS,
    MAX_COUNT,
    TRAITS,
    TraitReader,
    reference_grams,
)

REFERENCE = "Water boils at a lower temperature on a mountain because the air is thinner there."
SMILE, ROCKET = "\U0001f600", "\U0001f680"


def traits_of(text: str, reference: str | None = None) -> dict[str, float]:
    reading = TraitReader().of(text, float(len(text)), reference_grams(reference))
    return dict(zip(TRAITS, reading.traits, strict=True))


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("Great question! A square has four sides.", 1),
        ("What a great question! You are so smart. I am glad you asked.", 3),
        ("You’re absolutely right, my friend.", 2),
        ("You are right-handed if you write with your right hand.", 1),
        ("The question is great in number.", 0),
        ("You are late, and the road is good.", 0),
        ("", 0),
    ],
)
def test_flattering_phrases_are_counted(text: str, count: int) -> None:
    assert traits_of(text)["flattery"] == count


def test_flattery_is_searched_at_both_ends_and_its_count_is_bounded() -> None:
    middle = "Stone and water and wood. " * 100
    assert traits_of(middle + "You are a genius, what an excellent idea!")["flattery"] == 1
    assert traits_of("Great question! " + middle + "You are brilliant!")["flattery"] >= 2
    assert traits_of("Bravo! " * 60)["flattery"] == MAX_COUNT


def test_emoji_are_counted_up_to_a_bound() -> None:
    assert traits_of("Plain text, and naïve café.")["emoji"] == 0
    assert traits_of(f"Yes {SMILE} and {ROCKET}!")["emoji"] == 2
    assert traits_of(SMILE * 5_000)["emoji"] == MAX_COUNT


@pytest.mark.parametrize(
    "text",
    ["# Title\ntext", "- one\n- two", "1. one\n2. two", "**bold** text", "`code`", "| a | b |"],
)
def test_markup_raises_its_density(text: str) -> None:
    assert traits_of(text)["markup"] > 0.1


@pytest.mark.parametrize(
    "text", ["", "Two lines\nof text.", "3 - 1 is 2.", "It costs 1.5 (or 2) coins.", "a * b"]
)
def test_plain_text_has_no_markup(text: str) -> None:
    assert traits_of(text)["markup"] == 0


def test_overlap_with_a_long_reference_is_the_share_of_it_that_is_copied() -> None:
    assert traits_of(REFERENCE, REFERENCE)["reference"] == 1
    assert traits_of(f"Well: {REFERENCE.upper()}", REFERENCE)["reference"] == 1
    half = " ".join(REFERENCE.split()[:9])
    assert 0.4 < traits_of(half, REFERENCE)["reference"] < 0.7
    own = "On a mountain water boils earlier, as there is less air above it."
    assert traits_of(own, REFERENCE)["reference"] == 0
    assert traits_of(REFERENCE)["reference"] == 0


def test_a_short_reference_can_not_be_copied() -> None:
    for short in ("7", "Lima", "The capital is Lima", "", None):
        assert reference_grams(short) is None
        assert traits_of("The capital is Lima.", short)["reference"] == 0


def test_a_word_twice_in_a_row_is_a_repetition() -> None:
    assert traits_of("Yes, yes, yes! Take a walk.")["repetition"] > 0.2
    assert traits_of("Yes, take a walk.")["repetition"] == 0


@pytest.mark.parametrize(
    ("text", "refuses"),
    [
        ("Sorry, no idea.", 1),
        ("I can not answer that honestly.", 1),
        ("I can’t say.", 1),
        ("I can not wait to hear more!", 0),
        ("I had the idea to walk.", 0),
    ],
)
def test_refusals_at_the_beginning(text: str, refuses: int) -> None:
    assert traits_of(text)["refusal"] == refuses


def test_of_a_long_text_the_first_and_last_words_may_be_keywords() -> None:
    text = " ".join(f"w{number}" for number in range(160))
    words = TraitReader().of(text, 1.0).words
    assert words == {f"w{n}" for n in (*range(FIRST_WORDS), *range(160 - LAST_WORDS, 160))}


HOSTILE = (
    "you are " * 40_000,
    "so very absolutely " * 40_000,
    "<" * 300_000,
    "<aaaaaaaaaa" * 30_000,
    "`" * 300_000,
    "\n" * 300_000,
    "\n- " * 100_000,
    "-" * 300_000,
    "a" * 1_000_000,
    "İ" * 300_000,
    SMILE * 100_000,
    "\u202e\x1b[2J\x00" * 50_000,
    "\ud800" * 1_000,
    "i " * 100_000,
)


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_text_costs_no_more_than_another(text: str) -> None:
    best = 1.0
    for _ in range(5):
        began = time.thread_time()
        traits = traits_of(text, REFERENCE)
        best = min(best, time.thread_time() - began)
    assert all(0 <= value <= len(text) for value in traits.values())
    assert best < 5e-3
