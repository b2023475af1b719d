"""The rows of the parts' table: what the model is made of, joined with what groups say of it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from console.reward_figures import PartFigures
from core.events import RewardPart

GONE, OFF = "gone", "off"


@dataclass(frozen=True, slots=True)
class PartRow:
    """One part: of the model that serves, of groups, or of both."""

    name: str
    part: RewardPart | None
    """As the model has it; None when it has none of that name."""
    figures: PartFigures | None
    """None while no group was scored with it; its kind says when it is off or gone."""


def part_rows(model: Sequence[RewardPart], found: Sequence[PartFigures]) -> tuple[PartRow, ...]:
    """Those that are scored with, those that wait for their first group, those that are gone."""
    known = {one.name: one for one in model}
    scored = [one for one in found if one.name in known]
    having = {one.name for one in scored}
    return (
        *(PartRow(one.name, known[one.name], _marked(known[one.name], one)) for one in scored),
        *(PartRow(one.name, one, None) for one in model if one.name not in having),
        *(PartRow(one.name, None, _left(one, model)) for one in found if one.name not in known),
    )


def _marked(part: RewardPart, figures: PartFigures) -> PartFigures:
    return figures if part.enabled else replace(figures, kind=OFF)


def _left(figures: PartFigures, model: Sequence[RewardPart]) -> PartFigures:
    """A part the model does not have is gone; a number that a hook notes is in no model."""
    return replace(figures, kind=GONE) if len(model) > 1 and figures.kind != "noted" else figures
