"""Parts of the state: the last what-if, and what the watch over the rewards knows."""

import msgspec

from core.events.trial import TrialSummary, WatchFigure


class WhatIf(msgspec.Struct, kw_only=True):
    """The last what-if; the fields are those of `core.events.WhatIfChanged`."""

    what: str
    phase: str = "doing"
    weights: tuple[tuple[str, float], ...] = ()
    done: int = 0
    total: int = 0
    began: float = 0.0
    ended: float = 0.0
    cause: str = ""
    summary: TrialSummary | None = None

    @property
    def over(self) -> bool:
        """Whether nothing more happens to it."""
        return self.phase != "doing"


class RewardWatch(msgspec.Struct, kw_only=True):
    """The newest figures; the fields are those of `core.events.RewardsWatched`."""

    figures: tuple[WatchFigure, ...] = ()
    groups: int = 0
    low: float = 0.0
    high: float = 0.0
    mean: float = 0.0
    std: float = 0.0
    outliers: tuple[tuple[str, int, float, float], ...] = ()
    at: float = 0.0
