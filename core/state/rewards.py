"""State of what makes the rewards: the source, its judges, the last trial, the monitoring."""

import msgspec

from core.events.rewards import RewardPart, TrialSummary, WatchFigure


class RewardFault(msgspec.Struct, kw_only=True):
    """One time the reward source would not load, or its process fell."""

    cause: str
    traceback: str = ""
    file: str = ""
    line: int = 0
    at: float = 0.0
    mended_at: float | None = None
    """When it loaded again; None while the fault stands."""
    judge: str = ""
    """Name of the judge that cannot be asked; empty when it is not about one."""
    level: str = "error"
    fell: bool = False
    """It had loaded, and its process ended."""


class Rewards(msgspec.Struct, kw_only=True):
    """The reward source."""

    source: str = ""
    ok: bool = True
    version: str = ""
    cause: str = ""
    traceback: str = ""
    file: str = ""
    line: int = 0
    since: float = 0.0
    """When the version that serves began to; 0 while none does."""
    waits: str = ""
    """Name of the part the newest rewards wait for."""
    fault: RewardFault | None = None
    """The last fault of this run, mended or not."""
    parts: tuple[RewardPart, ...] = ()
    """What the version that serves is made of."""


class JudgeSpend(msgspec.Struct, kw_only=True):
    """Counts of one judge in this run; the fields are those of `core.events.JudgeSpent`."""

    judge: str
    model: str = ""
    mode: str = ""
    calls: int = 0
    groups: int = 0
    failures: int = 0
    hits: int = 0
    retries: int = 0
    repairs: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    untold: int = 0
    cost: float = 0.0
    priced: bool = False
    limit: float = 0.0
    pairs: int = 0
    split: int = 0
    seconds: float = 0.0
    trouble: str = ""
    at: float = 0.0
    """When the counts were taken."""

    @property
    def tokens(self) -> int:
        """All tokens, in and out."""
        return self.prompt_tokens + self.completion_tokens

    @property
    def latency(self) -> float | None:
        """Mean seconds of a call; None before the first."""
        return self.seconds / self.calls if self.calls else None


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
