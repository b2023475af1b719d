"""State of the progress measurement of one server: probe set, looks, newest verdict."""

from collections.abc import Mapping

import msgspec

from core.events.progress import (
    BestComparison,
    PairCounts,
    PairSide,
    PartFigures,
    ProbeSetLoaded,
    PromptFigures,
    Rewound,
)
from core.verdict.conclusion import Verdict
from core.verdict.pairs import PairFigures, pair_figures


class RunningLook(msgspec.Struct, kw_only=True):
    """A look in progress."""

    look_id: str
    role: str
    step: int | None = None
    run: int = 0
    samples: int = 0
    done: int = 0
    since: float = 0.0
    """Unix seconds when it began."""


class Look(msgspec.Struct, kw_only=True):
    """A look that has ended; fields as in `core.events.LookEnded`."""

    look_id: str
    role: str
    outcome: str
    cause: str = ""
    step: int | None = None
    run: int = 0
    """Number of the training run of the weights; 0 if unknown."""
    engine_run: int = 0
    """`Server.engine_run` at its end."""
    at: float = 0.0
    """Unix seconds of its end."""
    probe_set: str = ""
    model: str = ""
    reward: str = ""
    mode: str = "absolute"
    left_out: tuple[str, ...] = ()
    baseline_id: str = ""
    restarted: str = ""
    mean: float = 0.0
    low: float = 0.0
    high: float = 0.0
    parts: tuple[PartFigures, ...] = ()
    verdict: Verdict | None = None
    against_best: BestComparison | None = None
    file: str = ""
    checkpoint: str = ""
    """Name of the checkpoint with the sampled weights; empty if there is none any more."""

    saved_as: str = ""
    """Where a server given by URL has the sampled weights; empty if it saves none, or if unknown.

    A path may be relative to the server's working directory."""

    @property
    def complete(self) -> bool:
        """Whether all its samples were taken and scored."""
        return self.outcome == "complete"


class BestLook(msgspec.Struct, kw_only=True):
    """The best verified look of the present comparison, with its rewards for later looks."""

    look_id: str
    step: int | None = None
    run: int = 0
    """Number of the training run of the weights; 0 if unknown."""
    prompts: tuple[PromptFigures, ...] = ()
    """Its rewards by prompt, without texts."""


class RatedPair(msgspec.Struct, kw_only=True):
    """A pair of answers that a rater compared or skipped; fields as in `core.events.PairRated`."""

    pair_id: str
    prompt_id: str
    before: int
    now: int
    left: PairSide
    result: float | None = None
    automatic: float | None = None
    parts: Mapping[str, float] = {}

    @property
    def place(self) -> tuple[str, int, int]:
        """The two samples: prompt, place in the baseline, place in the look."""
        return self.prompt_id, self.before, self.now


class PairRatings(msgspec.Struct, kw_only=True):
    """The ratings of blind pairs of one look and its baseline."""

    baseline_id: str
    look_id: str
    baseline_step: int | None = None
    step: int | None = None
    counts: PairCounts = PairCounts()
    pairs: list[RatedPair] = msgspec.field(default_factory=list)
    """In order of arrival, skipped ones included; at most `PAIR_CAP`."""

    @property
    def skipped(self) -> int:
        """Number of pairs that raters did not judge."""
        return sum(one.result is None for one in self.pairs)

    @property
    def figures(self) -> PairFigures | None:
        """Estimates of the share of pairs in which now is better; None before the first rating."""
        rated = [one for one in self.pairs if one.result is not None]
        return pair_figures(
            [one.result for one in rated if one.result is not None],
            [one.automatic for one in rated],
            [one.parts for one in rated],
            (self.counts.before, self.counts.tie, self.counts.now),
        )


class Progress(msgspec.Struct, kw_only=True):
    """The progress measurement of one server."""

    probe_set: ProbeSetLoaded | None = None
    """None until the proxy has looked for one."""
    paused: str = ""
    """Why requests are not trained on; empty if they are."""
    rewound: Rewound | None = None
    """The last rewind; None before the first."""
    rewinds: int = 0
    """Number of rewinds so far."""
    running: RunningLook | None = None
    looks: list[Look] = msgspec.field(default_factory=list)
    """Ended looks, newest last; `LOOK_CAP` of them, and the baseline in use and the best looks."""
    before: tuple[PromptFigures, ...] = ()
    """Results by prompt of the baseline in use."""
    now: tuple[PromptFigures, ...] = ()
    """Results by prompt of the newest complete look after it."""
    best_rewards: BestLook | None = None
    """The best verified look against the baseline in use; None before a look is better with
    certainty."""
    pairs: PairRatings | None = None
    """The newest ratings of blind pairs; None before the first one."""

    @property
    def newest(self) -> Look | None:
        """The newest complete look that is not a baseline."""
        return next((one for one in reversed(self.looks) if one.complete and one.baseline_id), None)

    @property
    def baseline(self) -> Look | None:
        """The baseline in use; None before the first complete one."""
        baselines = (one for one in reversed(self.looks) if one.complete and one.role == "baseline")
        return next(baselines, None)

    @property
    def verified(self) -> list[Look]:
        """The looks that are better than the baseline in use with certainty, best first; then the
        baseline.

        The best one has the highest lower limit.
        """
        baseline = self.baseline
        if baseline is None:
            return []
        better = [
            (one.verdict.low, one.at, one)
            for one in self.looks
            if one.complete
            and one.baseline_id == baseline.look_id
            and one.verdict is not None
            and one.verdict.outcome == "better"
        ]
        better.sort(key=lambda one: one[:2], reverse=True)
        return [*(one[2] for one in better), baseline]

    @property
    def best(self) -> Look | None:
        """The best verified look whose weights were saved: as a checkpoint of the embedded engine,
        or by the job of another server."""
        return next((one for one in self.verified if one.checkpoint or one.saved_as), None)

    @property
    def best_step(self) -> int | None:
        """Global step of the best verified look, saved or not; None without a baseline."""
        return next((one.step for one in self.verified), None)

    @property
    def current(self) -> Look | None:
        """The newest complete look against the baseline in use; None before it."""
        newest, baseline = self.newest, self.baseline
        same = newest and baseline and newest.baseline_id == baseline.look_id
        return newest if same else None

    @property
    def pair_ratings(self) -> PairRatings | None:
        """The ratings of pairs with the baseline in use; None before the first one."""
        baseline = self.baseline
        same = self.pairs and baseline and self.pairs.baseline_id == baseline.look_id
        return self.pairs if same else None
