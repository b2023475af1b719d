"""The order of the parts of the reward."""

from msgspec.structs import replace

from console.models.progress.parts import ordered_parts, part_weights
from core.events import LookEnded, PartFigures, RewardPart
from core.state import State
from tests.support.looks import RIGHT_FELL

REFERENCE = PartFigures(part="reference", mean=0.695, before=0.869, outcome="unknown")
STYLE = PartFigures(part="style", mean=0.7, before=0.4, outcome="better")
SLIGHT = PartFigures(part="slight", mean=0.504, before=0.5, outcome="worse")
GATE = PartFigures(part="gate", mean=1.0, before=1.0, outcome="unknown")
STILL = PartFigures(part="still", mean=0.505, before=0.5, outcome="unknown")
LENGTH = PartFigures(part="length", mean=31.0, before=24.5)
REPETITION = PartFigures(part="repetition", mean=0.03, before=0.03)


def order(*parts: PartFigures, **weights: float) -> list[str]:
    look = LookEnded(look_id="l1", role="look", outcome="complete", parts=parts)
    return [one.part for one in ordered_parts(look, weights)]


def test_the_part_that_changed_the_reward_most_is_first_and_constant_ones_are_last() -> None:
    parts = (REPETITION, GATE, STILL, LENGTH, SLIGHT, STYLE, REFERENCE)
    assert order(*parts, reference=0.8, style=0.2, slight=0.1) == [
        "reference",
        "style",
        "slight",
        "length",
        "gate",
        "still",
        "repetition",
    ]
    assert order(*parts)[:3] == ["style", "reference", "slight"], "without known weights"


def test_what_is_worse_and_not_in_the_reward_is_first() -> None:
    polite = PartFigures(part="polite", mean=0.9, before=0.1, outcome="better", counts=False)
    parts = (REPETITION, LENGTH, polite, STYLE, RIGHT_FELL)
    assert order(*parts, style=0.2) == ["right answers", "style", "polite", "length", "repetition"]


def test_a_part_without_a_figure_before_is_constant_and_one_named_like_a_trait_is_a_part() -> None:
    first = PartFigures(part="new", mean=0.9)
    same = PartFigures(part="length", mean=0.9, before=0.5, outcome="better")
    assert order(first, LENGTH, same) == ["length", "length", "new"]
    assert order(first, LENGTH, STYLE, same)[:2] == ["length", "style"]


def test_weights_are_those_of_the_version_that_scored_the_look() -> None:
    state = State()
    state.rewards.version = "v2"
    state.rewards.parts = (
        RewardPart(name="reference", kind="exact", weight=0.8, share=True),
        RewardPart(name="style", kind="length", weight=0.2, share=True),
        RewardPart(name="safe", kind="words", gate=True),
        RewardPart(name="old", kind="words", enabled=False),
    )
    look = LookEnded(look_id="l1", role="look", outcome="complete", reward="v2")
    assert part_weights(state, look) == {"reference": 0.8, "style": 0.2, "safe": 1.0}
    look = replace(look, reward="v1")
    assert part_weights(state, look) == {}
    state.engine_runs.rewards["v1"] = (RewardPart(name="style", kind="length", weight=3.0),)
    assert part_weights(state, look) == {"style": 3.0}
