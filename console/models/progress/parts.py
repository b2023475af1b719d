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
    enabled = [one for one in parts if one.enabled]
    total = sum(one.weight for one in enabled if not one.gate) or 1.0
    return {one.name: total if one.gate else one.weight for one in enabled}


def ordered_parts(look: LookEnded, weights: Mapping[str, float]) -> list[PartFigures]:
    """Return the figures of a look in the order of their importance.

    First what is worse and not in the reward; then the parts that moved or have a verdict, by their
    weight times their change; then length and repetition of the answers if they moved; then
    what is constant.

    Args:
        look: The look.
        weights: Weight by part; 1 for one that is missing.
    """

    def rank(one: PartFigures) -> tuple[int, float]:
        if one.worse_unseen:
            return -1, 0.0
        trait = not one.outcome and one.part in TRAITS
        change = 0.0 if one.before is None else round(abs(one.mean - one.before), 6)
        if change <= MOVED and one.outcome not in ("better", "worse"):
            return (3 if trait else 2), 0.0
        return (1, 0.0) if trait else (0, -change * weights.get(one.part, float(one.counts)))

    return sorted(look.parts, key=rank)
