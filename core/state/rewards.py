"""State of the reward source, its judges, the last trial and the monitoring."""

import msgspec

from core.events.rewards import RewardPart


class RewardFault(msgspec.Struct, kw_only=True):
    """One failure of the reward source: it could not be loaded, or its process ended."""

    cause: str
    traceback: str = ""
    file: str = ""
    line: int = 0
    at: float = 0.0
    mended_at: float | None = None
    """Unix seconds when it was loaded again; None while the fault persists."""
    judge: str = ""
    """Name of the judge that cannot be reached; empty if the fault is not a judge's."""
    level: str = "error"
    fell: bool = False
    """It was loaded before, and its process ended."""


class Rewards(msgspec.Struct, kw_only=True):
    """The reward source."""

    source: str = ""
    ok: bool = True
    version: str = ""
    since: float = 0.0
    """Unix seconds since which this version is in use; 0 without one."""
    waits: str = ""
    """Name of the part that the newest rewards wait for."""
    fault: RewardFault | None = None
    """The last fault of this run, whether it persists or not."""
    parts: tuple[RewardPart, ...] = ()
    """Parts of the version in use."""


class JudgeSpend(msgspec.Struct, kw_only=True):
    """Counts of one judge in this run; fields as in `core.events.JudgeSpent`."""

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
    """Unix seconds of these counts."""

    @property
    def tokens(self) -> int:
        """Prompt and completion tokens."""
        return self.prompt_tokens + self.completion_tokens

    @property
    def latency(self) -> float | None:
        """Mean seconds per call; None before the first call."""
        return self.seconds / self.calls if self.calls else None
