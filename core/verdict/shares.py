"""Shares of the error probability: what each look may spend so that all looks stay within 5 %."""

from core.verdict.samples import SampleError

ALPHA = 0.05
"""Probability of any false verdict in a comparison, at any look and in either direction."""

EARLY = 10
"""Number of looks over which the shares stay nearly even."""


def share(look: int, alpha: float = ALPHA) -> float:
    """Return the error probability of look `look`.

    The share of look k is alpha * e / ((k + e - 1) * (k + e)) with e = `EARLY`. The sum telescopes:
    k looks spend alpha * k / (k + e), so any number of looks stays below `alpha`, and all of it is
    used in the limit. alpha * 6 / (pi^2 k^2) also sums to alpha, but spends 61 % of it on the first
    look, when a policy has hardly changed, and leaves a tenth look 0.6 % instead of 2.6 %.

    Args:
        look: Number of the look against its baseline, from 1.
        alpha: Error probability of the whole comparison.

    Raises:
        SampleError: `look` is below 1.
    """
    if look < 1:
        raise SampleError(f"look {look}", "look", "Count the looks of a comparison from 1")
    return alpha * EARLY / ((look + EARLY - 1) * (look + EARLY))


def spent(looks: int, alpha: float = ALPHA) -> float:
    """Return the error probability that the first `looks` looks spend together."""
    return alpha * looks / (looks + EARLY) if looks > 0 else 0.0
