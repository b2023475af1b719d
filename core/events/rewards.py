"""Events of what makes the rewards: the reward source, its judges, trials and monitoring."""

import msgspec

from core.events.base import Event


class RewardPart(msgspec.Struct, frozen=True, kw_only=True):
    """One part of what makes the rewards."""

    name: str
    kind: str
    weight: float = 1.0
    """Its share of the whole where `share` is set."""
    share: bool = False
    gate: bool = False
    enabled: bool = True


class RewardsChanged(Event, frozen=True, kw_only=True):
    """The reward source loaded, or would not load."""

    source: str
    ok: bool
    version: str = ""
    cause: str = ""
    traceback: str = ""
    file: str = ""
    line: int = 0
    part: str = ""
    """Name of the part that is in trouble; empty when it is the whole."""
    judge: bool = False
    """That part is a judge."""
    level: str = "error"
    """How bad it is when not `ok`: a warning where it may pass by itself."""
    fell: bool = False
    """It had loaded, and its process ended since."""
    waits: str = ""
    """Name of the part the newest rewards wait for; without a cause nothing is wrong with it."""
    parts: tuple[RewardPart, ...] = ()

    @property
    def judge_in_trouble(self) -> str:
        """Name of the judge that cannot be asked; empty when it is not about one."""
        known = self.judge or ((self.part, "judge") in [(one.name, one.kind) for one in self.parts])
        return self.part if known else ""


class JudgeSpent(Event, frozen=True, kw_only=True):
    """The counts of one judge since the proxy started; at most one event a second and judge."""

    judge: str
    """Name of the reward part."""
    model: str = ""
    mode: str = ""
    """pointwise, listwise or pairwise."""
    calls: int = 0
    """Requests that were sent, retries and repairs among them."""
    groups: int = 0
    """Groups that were judged, with success or without."""
    failures: int = 0
    """Groups it abstained from."""
    hits: int = 0
    """Questions answered from the cache: no call, no cost."""
    retries: int = 0
    repairs: int = 0
    """Calls that asked once more because the reply could not be used."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    untold: int = 0
    """Answered calls whose tokens the endpoint did not tell; they are not in the cost."""
    cost: float = 0.0
    """By the prices of the settings; without `priced` it means nothing."""
    priced: bool = False
    limit: float = 0.0
    """Cost after which nothing more is asked; 0 for none."""
    pairs: int = 0
    """Pairs of answers that were compared in both orders."""
    split: int = 0
    """Of these, those where the order decided: they count as ties."""
    seconds: float = 0.0
    """Time of all answered calls together."""
    trouble: str = ""
    """Why it is not asked just now; empty while it is."""


class TrialGroup(msgspec.Struct, frozen=True, kw_only=True):
    """One group that was re-scored, beside what was sent for it."""

    group_id: str
    query: str = ""
    before: tuple[float, ...] = ()
    """Rewards as they were sent (else scored), by candidate; empty when there were none."""
    after: tuple[float, ...] = ()
    """The same candidates now; empty for an abstention."""
    winner_before: int | None = None
    winner_after: int | None = None
    """Index of the candidate that stands out; None when none does."""
    change: float = 0.0
    """Mean absolute difference of the candidates' advantages: what would reach the weights."""


class TrialSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Many groups, before and after."""

    groups: int = 0
    compared: int = 0
    """Of these, those that have rewards on both sides."""
    flips: int = 0
    """Another candidate wins than the one that did."""
    died: int = 0
    """Taught before, all equal now."""
    revived: int = 0
    """All equal before, teaches now."""
    dead_before: int = 0
    dead_after: int = 0
    by_hand: int = 0
    """Groups whose rewards a person gave."""
    by_hand_kept: int = 0
    """Of these, those whose winner is the person's."""
    mean_before: float = 0.0
    mean_after: float = 0.0
    spread_before: float = 0.0
    spread_after: float = 0.0
    """Means over the groups compared: of all rewards, and of highest less lowest."""
    gained: int = 0
    """Groups that had no rewards and now have some."""
    outside: int = 0
    """Groups with a new reward below 0 or above 1."""
    abstained: int = 0
    abstentions: tuple[tuple[str, int], ...] = ()
    """Cause and how often, most frequent first; at most five."""
    seconds: float = 0.0
    """All the scoring."""
    slowest: float = 0.0
    """Of one group."""
    notes: tuple[tuple[str, int], ...] = ()
    """What is not as it was then, and in how many groups; at most five."""
    version: str = ""
    """What re-scored."""
    most: tuple[TrialGroup, ...] = ()
    """The three groups that change most, the one that changes most first."""


class WhatIfChanged(Event, frozen=True, kw_only=True):
    """A what-if began, got further or is over; nothing that counts was changed by it."""

    what: str
    """What was tried, in words: `length 0.3 to 0.5`, or the file."""
    phase: str = "doing"
    """doing, done, failed, cancelled or applied."""
    weights: tuple[tuple[str, float], ...] = ()
    """Weights by part, when that is all that was tried: it can be applied."""
    done: int = 0
    total: int = 0
    began: float = 0.0
    cause: str = ""
    """Why it failed; with file and line where there is one."""
    summary: TrialSummary | None = None


class WatchFigure(msgspec.Struct, frozen=True, kw_only=True):
    """How far the rewards follow one trait of the answers."""

    trait: str
    """length, punctuation, repetition, likeness or refusal."""
    r: float | None = None
    """Pearson's r of reward and trait, each less its group's mean; None while one does not vary."""
    low: float = -1.0
    high: float = 1.0
    """95 % interval of r."""
    n: int = 0
    """Answers it is made of."""
    groups: tuple[str, ...] = ()
    """Up to three groups that say it most, while it is high."""
    alert: bool = False


class RewardsWatched(Event, frozen=True, kw_only=True):
    """What the watch over the rewards knows; told now and then while groups come in."""

    figures: tuple[WatchFigure, ...]
    groups: int = 0
    """Groups with unlike rewards they are made of."""
    low: float = 0.0
    high: float = 0.0
    mean: float = 0.0
    std: float = 0.0
    """How the rewards of the newest groups lie."""
    outliers: tuple[tuple[str, int, float, float], ...] = ()
    """Newest rewards far from all others: group, candidate, reward, deviations; newest last."""
