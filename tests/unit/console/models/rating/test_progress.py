"""Figures of a rating session: votes, pace."""

import pytest

from console.models.rating.progress import RatingFigures, RatingProgress, progress_words


def test_votes_are_counted_with_their_pace() -> None:
    progress = RatingProgress()
    assert progress.figures() == RatingFigures(0)
    for number in range(4):
        progress.voted(f"g{number}", 100.0 + 15 * number)
    assert progress.figures() == RatingFigures(4, pytest.approx(4.0))


def test_a_long_break_changes_the_pace_by_a_bounded_amount() -> None:
    progress = RatingProgress()
    for at in (0.0, 10.0, 20.0, 3600.0):
        progress.voted(f"g{at}", at)
    assert progress.figures().per_minute == pytest.approx(60 * 3 / (10 + 10 + 60))


def test_the_pace_is_computed_from_the_newest_votes() -> None:
    progress = RatingProgress()
    for number in range(30):
        progress.voted(f"slow{number}", 30.0 * number)
    for number in range(20):
        progress.voted(f"fast{number}", 1000.0 + 6.0 * number)
    assert progress.figures() == RatingFigures(50, pytest.approx(10.0))


def test_an_undone_vote_does_not_count_and_a_replaced_one_counts_once() -> None:
    progress = RatingProgress()
    progress.voted("a", 1.0)
    progress.voted("b", 2.0)
    progress.voted("a", 3.0)
    progress.undone("b")
    progress.undone("never")
    assert progress.figures() == RatingFigures(1)


def test_a_skip_is_counted_apart_and_has_no_part_in_the_pace() -> None:
    progress = RatingProgress()
    progress.voted("a", 0.0)
    progress.skipped("b")
    progress.voted("c", 10.0)
    assert progress.figures() == RatingFigures(2, pytest.approx(6.0), skipped=1)
    assert sum(progress.by_minute(10.0, 5)) == 2
    progress.skipped("c")
    assert progress.figures() == RatingFigures(1, skipped=2)
    progress.voted("b", 20.0)
    progress.undone("c")
    assert progress.figures() == RatingFigures(2, pytest.approx(3.0))


@pytest.mark.parametrize(
    ("now", "words"),
    [
        (RatingFigures(0), ""),
        (RatingFigures(1), "1 rated"),
        (RatingFigures(7, 4.2), "7 rated, 4.2/min"),
        (RatingFigures(0, skipped=1), "0 rated, 1 skipped"),
        (RatingFigures(7, 4.2, 2), "7 rated, 2 skipped, 4.2/min"),
        (RatingFigures(7, 4.25), "7 rated, 4.2/min"),
    ],
)
def test_the_figures_in_words(now: RatingFigures, words: str) -> None:
    assert progress_words(now) == words
