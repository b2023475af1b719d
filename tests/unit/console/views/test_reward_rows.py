"""The rows of the parts' table."""

from console.models.reward_figures import digest, figures
from console.views.rewards.rows import first_varied, part_rows
from core.events import Part, RewardPart
from tests.support.groups import group


def test_rows_keep_the_order_of_the_model() -> None:
    model = [RewardPart(name=name, kind="x") for name in ("reference", "length", "code")]
    first, second = group(1), group(2)
    for one in first.candidates:
        one.parts = (Part("length", one.index / 4, 0.4), Part("code", 1.0, 0.4))
    for one in second.candidates:
        one.parts = (Part("length", 0.5, 0.4), Part("reference", 1.0, 0.8), Part("old", 0.0, 0.8))
    only_first = part_rows(model, figures([digest(first)]).parts)
    assert [row.name for row in only_first] == ["reference", "length", "code"]
    assert [row.figures is None for row in only_first] == [True, False, False]
    both = part_rows(model, figures([digest(first), digest(second)]).parts)
    assert [row.name for row in both] == ["reference", "length", "code", "old"]
    assert first_varied(both) == "length"
    assert first_varied(both[:1]) == ""
