"""Parts of the state: what each judge was asked and what it cost."""

import msgspec


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
