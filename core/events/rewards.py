"""Events of the reward source, its judges, trials and monitoring."""

import msgspec

from core.events.base import Event


class RewardPart(msgspec.Struct, frozen=True, kw_only=True):
    """One part of the reward model."""

    name: str
    kind: str
    weight: float = 1.0
    """Its share of the whole if `share` is set."""
    share: bool = False
    gate: bool = False
    enabled: bool = True


class RewardsChanged(Event, frozen=True, kw_only=True):
    """The reward source was loaded, or could not be loaded."""

    source: str
    ok: bool
    version: str = ""
    cause: str = ""
    traceback: str = ""
    file: str = ""
    line: int = 0
    part: str = ""
    """Name of the faulty part; empty if the source as a whole is faulty."""
    judge: bool = False
    """The faulty part is a judge."""
    level: str = "error"
    """Severity if not `ok`: a warning if it may pass by itself."""
    fell: bool = False
    """It was loaded before, and its process has ended since."""
    waits: str = ""
    """Name of the part that the newest rewards wait for; not a fault unless there is a cause."""
    parts: tuple[RewardPart, ...] = ()

    @property
    def judge_in_trouble(self) -> str:
        """Name of the judge that cannot be reached; empty if the fault is not a judge's."""
        is_judge = self.judge or (
            (self.part, "judge") in [(part.name, part.kind) for part in self.parts]
        )
        return self.part if is_judge else ""


class JudgeSpent(Event, frozen=True, kw_only=True):
    """Counts of one judge since the proxy started; at most one event per second and judge."""

    judge: str
    """Name of the reward part."""
    model: str = ""
    mode: str = ""
    """pointwise, listwise or pairwise."""
    calls: int = 0
    """Requests sent, including retries and repairs."""
    groups: int = 0
    """Groups that were judged, successfully or not."""
    failures: int = 0
    """Groups without a verdict."""
    hits: int = 0
    """Questions answered from the cache: no call, no cost."""
    retries: int = 0
    repairs: int = 0
    """Calls repeated because the reply was unusable."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    untold: int = 0
    """Answered calls without token counts from the endpoint; not included in the cost."""
    cost: float = 0.0
    """Cost by the prices in the settings; meaningless unless `priced`."""
    priced: bool = False
    limit: float = 0.0
    """Cost at which the judge is no longer called; 0 for no limit."""
    pairs: int = 0
    """Pairs of answers that were compared in both orders."""
    split: int = 0
    """Pairs of them decided by the order alone; they count as ties."""
    seconds: float = 0.0
    """Total time of all answered calls."""
    trouble: str = ""
    """Why it is not called at the moment; empty while it is."""

    @property
    def tokens(self) -> int:
        """Prompt and completion tokens."""
        return self.prompt_tokens + self.completion_tokens

    @property
    def latency(self) -> float | None:
        """Mean seconds per call; None before the first call."""
        return self.seconds / self.calls if self.calls else None


class TrialGroup(msgspec.Struct, frozen=True, kw_only=True):
    """One re-scored group, with its earlier rewards."""

    group_id: str
    query: str = ""
    before: tuple[float, ...] = ()
    """Earlier rewards by candidate, the automatic ones if a person rated it; empty for none."""
    after: tuple[float, ...] = ()
    """New rewards of the same candidates; empty for an abstention."""
    winner_before: int | None = None
    winner_after: int | None = None
    """Index of the single best candidate; None without one."""
    change: float = 0.0
    """Mean absolute difference of the candidates' advantages, which is what trains the weights."""


class TrialSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of many re-scored groups, before and after."""

    groups: int = 0
    compared: int = 0
    """Groups of them with rewards before and after."""
    flips: int = 0
    """Groups with another winner than before; a vote is no winner, see `by_hand_kept`."""
    died: int = 0
    """Groups that trained before and are dead now."""
    revived: int = 0
    """Groups that were dead before and train now."""
    dead_before: int = 0
    dead_after: int = 0
    by_hand: int = 0
    """Groups with new rewards that a person rated."""
    by_hand_kept: int = 0
    """Groups of them whose new winner is the person's choice."""
    mean_before: float = 0.0
    mean_after: float = 0.0
    spread_before: float = 0.0
    spread_after: float = 0.0
    """Means over the compared groups: of all rewards, and of the range of rewards."""
    gained: int = 0
    """Groups that had no rewards, nor any of a person, and have them now."""
    outside: int = 0
    """Groups with a new reward below 0 or above 1."""
    abstained: int = 0
    abstentions: tuple[tuple[str, int], ...] = ()
    """Cause and count, most frequent first; at most five."""
    seconds: float = 0.0
    """Total time of scoring."""
    slowest: float = 0.0
    """Longest time of one group."""
    notes: tuple[tuple[str, int], ...] = ()
    """Condition that differs from the original scoring, and number of groups; at most five."""
    version: str = ""
    """Version of the rewards that re-scored."""
    most: tuple[TrialGroup, ...] = ()
    """The three groups with the largest change, largest first."""


class WhatIfChanged(Event, frozen=True, kw_only=True):
    """A trial of other rewards began, advanced or ended; it never changes what is sent."""

    what: str
    """What was tried, as text: `length 0.3 to 0.5`, or the file."""
    phase: str = "doing"
    """doing, done, failed, cancelled or applied."""
    weights: tuple[tuple[str, float], ...] = ()
    """Weight of each part, if only weights were tried: these can be applied."""
    done: int = 0
    total: int = 0
    began: float = 0.0
    cause: str = ""
    """Why it failed, with file and line if known."""
    summary: TrialSummary | None = None

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return self.phase != "doing"


class WatchFigure(msgspec.Struct, frozen=True, kw_only=True):
    """Correlation of the rewards with one trait of the answers."""

    trait: str
    """length, repetition, refusal or reference."""
    r: float | None = None
    """Pearson's r of reward and trait, each minus its group's mean; None if one does not vary."""
    low: float = -1.0
    high: float = 1.0
    """95 % interval of r."""
    n: int = 0
    """Number of answers."""
    groups: tuple[str, ...] = ()
    """Up to three groups with the strongest correlation, while it is high."""
    alert: bool = False


class RewardsWatched(Event, frozen=True, kw_only=True):
    """Figures of the reward monitoring; published now and then while groups arrive."""

    figures: tuple[WatchFigure, ...] = ()
    groups: int = 0
    """Groups with unequal rewards that the figures are computed from."""
    low: float = 0.0
    high: float = 0.0
    mean: float = 0.0
    std: float = 0.0
    """Distribution of the rewards of the newest groups."""
    outliers: tuple[tuple[str, int, float, float], ...] = ()
    """Newest outliers: group, candidate, reward, standard deviations; newest last."""
