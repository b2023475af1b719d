"""Rewards of probe prompts as the intervals need them: checked, on 0 to 1, in rounds."""

import math
from collections.abc import Sequence

from ajet_swarm.common.errors import AjetError

Bounds = tuple[float, float]
"""Lowest and highest possible reward."""

UNIT: Bounds = (0.0, 1.0)


class SampleError(AjetError):
    """Samples allow no interval; `where` names the prompt or the sample."""


def check_alpha(alpha: float) -> None:
    """Require an error probability strictly between 0 and 1.

    Raises:
        SampleError: It is not.
    """
    if not 0.0 < alpha < 1.0:
        raise SampleError(f"an error probability of {alpha:g}", "alpha", "Use one between 0 and 1")


def scaled(values: Sequence[float], bounds: Bounds, where: str) -> list[float]:
    """Return `values` mapped from `bounds` to 0 to 1.

    Args:
        values: Rewards.
        bounds: Lowest and highest possible reward, the lower one first.
        where: What the values are, for the error.

    Raises:
        SampleError: The bounds are not increasing, or a value is outside them or no number.
    """
    low, high = bounds
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise SampleError(
            f"the rewards are bounded by {low:g} and {high:g}", "bounds", "Put the lower one first"
        )
    for index, value in enumerate(values):
        if not low <= value <= high:  # true for NaN as well
            raise SampleError(
                f"{value} is outside {low:g} to {high:g}",
                f"{where}, sample {index + 1}",
                "Give the bounds of the reward",
            )
    if bounds == UNIT:
        return [float(value) for value in values]
    width = high - low
    return [(value - low) / width for value in values]


def rounds(
    samples: Sequence[Sequence[float]], bounds: Bounds = UNIT, where: str = "samples"
) -> list[list[float]]:
    """Return the samples by round: round j holds sample j of each prompt, on 0 to 1.

    There are as many rounds as the prompt with the fewest samples has samples, so that every
    prompt counts the same; later samples of the others are left out by position, never by value.

    Args:
        samples: For each prompt its rewards, in the order of sampling.
        bounds: Lowest and highest possible reward.
        where: What the samples are, for the error.

    Returns:
        Rounds of one value for each prompt.

    Raises:
        SampleError: No prompt, a prompt without samples, or a value outside the bounds.
    """
    if not samples:
        raise SampleError("no prompts", where, "Add prompts to the probe set")
    columns = [
        scaled(values, bounds, f"{where}, prompt {index + 1}")
        for index, values in enumerate(samples)
    ]
    for index, column in enumerate(columns):
        if not column:
            raise SampleError(
                "the prompt has no samples",
                f"{where}, prompt {index + 1}",
                "A look that was cut short gives no verdict",
            )
    return [list(row) for row in zip(*columns, strict=False)]
