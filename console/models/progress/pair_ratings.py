"""What the ratings of blind pairs say: in one sentence, and as data."""

from typing import Any

import msgspec

from ajet_swarm.common.text import one_line
from core.state import PairRatings, Progress
from core.verdict.pairs import pair_sentence

HEAD = "Win rate of now in blind pairs"


def ratings_sentence(progress: Progress | None) -> str:
    """Return the estimates in one line; empty before the first rating."""
    ratings = progress.pair_ratings if progress is not None else None
    figures = ratings.figures if ratings is not None else None
    if ratings is None or figures is None:
        return ""
    return f"{HEAD}, {compared_steps(ratings)}: {pair_sentence(figures)}{_skipped(ratings)}"


def bias_sentence(progress: Progress | None) -> str:
    """Return the parts whose win rate differs from the raters' beyond their interval.

    Empty if there is none.
    """
    ratings = progress.pair_ratings if progress is not None else None
    figures = ratings.figures if ratings is not None else None
    words = [
        f"{one_line(name, 40)} {'over' if interval.estimate > 0 else 'under'}rates now by "
        f"{abs(interval.estimate):.2f} ({interval.low:.2f} to {interval.high:.2f})"
        for name, interval in (figures.parts if figures is not None else ())
        if interval.low > 0.0 or interval.high < 0.0
    ]
    return f"Against the ratings: {', '.join(words)}" if words else ""


def ratings_data(progress: Progress | None) -> dict[str, Any] | None:
    """Return the estimates as JSON; None before the first rating."""
    ratings = progress.pair_ratings if progress is not None else None
    figures = ratings.figures if ratings is not None else None
    if ratings is None or figures is None:
        return None
    return {
        "step": ratings.step,
        "baseline_step": ratings.baseline_step,
        "ratings": figures.ratings,
        "skipped": ratings.skipped,
        "pairs": ratings.counts.different,
        "same_text": ratings.counts.same,
        "automatic": figures.automatic,
        "human": msgspec.to_builtins(figures.human),
        "agreement": msgspec.to_builtins(figures.agreement),
        "parts": {name: msgspec.to_builtins(interval) for name, interval in figures.parts},
    }


def ratings_key(progress: Progress) -> tuple[str, int]:
    """Return what changes with each vote: the look, and the number of its votes."""
    ratings = progress.pair_ratings
    return (ratings.look_id, len(ratings.pairs)) if ratings is not None else ("", 0)


def compared_steps(ratings: PairRatings) -> str:
    """Return `step 12 against step 1`."""
    now, before = (
        "an unknown step" if step is None else f"step {step}"
        for step in (ratings.step, ratings.baseline_step)
    )
    return f"{now} against {before}"


def _skipped(ratings: PairRatings) -> str:
    return f"; {ratings.skipped} skipped" if ratings.skipped else ""
