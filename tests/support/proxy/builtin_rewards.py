"""The scores of the built-in rewards, without a source."""

import functools
from pathlib import Path

from proxy.rewards.model.assembly import Assembly
from proxy.rewards.model.file import default_model
from proxy.rewards.part import PartEnvironment
from proxy.rewards.source import Abstention, GroupContext, Score


@functools.cache
def _assembly() -> Assembly:
    return Assembly(default_model(), Path(), PartEnvironment())


def score_group(ctx: GroupContext) -> tuple[Score, ...]:
    """The scores that the built-in model gives a group."""
    scores = _assembly().score_now(_assembly().part_input(ctx))
    assert not isinstance(scores, Abstention), scores
    return scores
