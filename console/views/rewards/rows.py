"""The rows of the parts' table: parts of the model joined with their figures."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from console.models.reward_figures import PartFigures
from core.events import RewardPart

GONE, OFF = "gone", "off"


@dataclass(frozen=True, slots=True)
class PartRow:
    """One part: of the active model, of groups, or of both."""

    name: str
    part: RewardPart | None
    """The part in the model; None when the model has no such part."""
    figures: PartFigures | None
    """None while no group was scored with it; its kind marks a part that is off or gone."""


def part_rows(
    model: Sequence[RewardPart], parts_by_name: Sequence[PartFigures]
) -> tuple[PartRow, ...]:
    """Return the parts of the model in its order, then those that are gone.

    The order does not follow the groups: some parts apply to some groups only, so rows would move
    with each group.
    """
    known = {part.name for part in model}
    scored = {part.name: part for part in parts_by_name}
    return (
        *(PartRow(part.name, part, _marked(part, scored.get(part.name))) for part in model),
        *(
            PartRow(part.name, None, _removed(part, model))
            for part in parts_by_name
            if part.name not in known
        ),
    )


def first_varied(rows: Sequence[PartRow]) -> str:
    """Return the name of the first part whose values differ; empty where there is none."""
    varied = (row.name for row in rows if row.figures is not None and row.figures.spread.std > 0)
    return next(varied, "")


def _marked(part: RewardPart, figures: PartFigures | None) -> PartFigures | None:
    return figures if figures is None or part.enabled else replace(figures, kind=OFF)


def _removed(figures: PartFigures, model: Sequence[RewardPart]) -> PartFigures:
    """Return the kind of a part that is not in the model."""
    return replace(figures, kind=GONE) if len(model) > 1 and figures.kind != "noted" else figures
