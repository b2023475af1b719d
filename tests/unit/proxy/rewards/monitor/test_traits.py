"""Traits that a policy can exploit: length, repetition, a refusal and a copied reference."""

import time

import pytest

from proxy.rewards.monitor import hacking as traits
from proxy.rewards.monitor.hacking import TRAITS, lengths, reference_grams

REFERENCE = "Water boils at a lower temperature on a mountain because the air is thinner there."


def traits_of(text: str, reference: str | None = None) -> dict[str, float]:
    values = traits.traits_of(text, float(len(text)), reference_grams(reference))
    return dict(zip(TRAITS, values, strict=True))


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("the quick brown fox jumps over the lazy dog", 0, 0),
        ("so it goes so it goes so it goes so it goes", 0.5, 1),
        ("Yes, yes, yes! Take a walk.", 0.2, 1),
        ("Yes, take a walk.", 0, 0),
        ("", 0, 0),
    ],
)
def test_repetition_is_the_share_of_repeated_phrases_and_words(
    text: str, low: float, high: float
) -> None:
    assert low <= traits_of(text)["repetition"] <= high


@pytest.mark.parametrize(
    ("text", "refuses"),
    [
        ("I'm sorry, but no.", 1),
        ("I can’t do that.", 1),
        ("As an AI, I", 1),
        ("I do not know.", 1),
        ("Sorry, no idea.", 1),
        ("I can not answer that honestly.", 1),
        ("I can not wait to hear more!", 0),
        ("I had the idea to walk.", 0),
        ("The sorry state of the roads", 0),
        ("", 0),
    ],
)
def test_refusals_at_the_beginning(text: str, refuses: int) -> None:
    assert traits_of(text)["refusal"] == refuses


def test_overlap_with_a_long_reference_is_the_share_of_it_that_is_copied() -> None:
    assert traits_of(REFERENCE, REFERENCE)["reference"] == 1
    assert traits_of(f"Well: {REFERENCE.upper()}", REFERENCE)["reference"] == 1
    half = " ".join(REFERENCE.split()[:9])
    assert 0.4 < traits_of(half, REFERENCE)["reference"] < 0.7
    own = "On a mountain water boils earlier, as there is less air above it."
    assert traits_of(own, REFERENCE)["reference"] == 0
    assert traits_of(REFERENCE)["reference"] == 0


@pytest.mark.parametrize("short", ["7", "Lima", "The capital is Lima", "", None])
def test_a_short_reference_can_not_be_copied(short: str | None) -> None:
    assert traits_of("The capital is Lima.", short)["reference"] == 0


def test_lengths_are_of_one_unit() -> None:
    assert lengths([3, 4], ["aaaa", "b"]) == [3, 4]
    assert lengths([3, 0], ["aaaa", "b"]) == [4, 1]


HOSTILE = (
    "you are " * 40_000,
    "<" * 300_000,
    "\n" * 300_000,
    "a" * 1_000_000,
    "İ" * 300_000,
    "\u202e\x1b[2J\x00" * 50_000,
    "\ud800" * 1_000,
    "i " * 100_000,
    "i can not " * 40_000,
)


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_text_costs_no_more_than_another(text: str) -> None:
    best = 1.0
    for _ in range(5):
        began = time.thread_time()
        values = traits_of(text, REFERENCE)
        best = min(best, time.thread_time() - began)
    assert all(0 <= value <= len(text) for value in values.values())
    assert best < 5e-3
