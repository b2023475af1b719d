"""The parts of the reward in a look, those that changed the reward most first."""

from collections.abc import Mapping

from core.events import LookEnded, PartFigures
from core.state import State

MOVED = 0.005
"""Difference of two means above which a part has moved."""
TRAITS: Mapping[str, str] = {"length": "answer length", "repetition": "answer repetition"}
"""Names of the figures that are no part of the reward; a part may have the same name."""


def part_weights(state: State, look: LookEnded) -> dict[str, float]:
    """Return the weight of each part in the reward of a look; empty if its parts are unknown.

    A gate multiplies the other parts: it has the weight of all of them together.
    """
    current = state.rewards
    known = current.parts if current.version == look.reward else ()
    parts = state.engine_runs.rewards.get(look.reward) or known
    enabled = [part for part in parts if part.enabled]
    total = sum(part.weight for part in enabled if not part.gate) or 1.0
    return {part.name: total if part.gate else part.weight for part in enabled}


def ordered_parts(look: LookEnded, weights: Mapping[str, float]) -> list[PartFigures]:
    """Return the figures of a look in the order of their importance.

    First what is worse and not in the reward; then the parts that moved or have a verdict, by their
    weight times their change; then length and repetition of the answers if they moved; then
    what is constant.

    Args:
        look: The look.
        weights: Weight by part; 1 for one that is missing.
    """

    def rank(figures: PartFigures) -> tuple[int, float]:
        if figures.worse_unseen:
            return -1, 0.0
        trait = not figures.outcome and figures.part in TRAITS
        change = 0.0 if figures.before is None else round(abs(figures.mean - figures.before), 6)
        if change <= MOVED and figures.outcome not in ("better", "worse"):
            return (3 if trait else 2), 0.0
        return (
            (1, 0.0) if trait else (0, -change * weights.get(figures.part, float(figures.counts)))
        )

    return sorted(look.parts, key=rank)
