"""Events of the progress measurement: the probe set, the looks at it and their verdicts."""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from core.events.base import Event
from core.verdict.conclusion import Verdict

LookRole = Literal["baseline", "look"]
LookOutcome = Literal["complete", "cut", "failed"]
PairSide = Literal["before", "now"]
PairChoice = Literal["left", "right", "tie", "skip"]

RIGHT_ANSWERS = "right answers"
"""Name of the share of answers that agree with a reference, among the figures of the parts."""


class ProbePrompt(msgspec.Struct, frozen=True, kw_only=True):
    """One held-out prompt; the proxy never trains on it."""

    id: str
    prompt: str
    """Text of the last user message."""
    before: tuple[dict[str, Any], ...] = ()
    """The messages before it: system prompt, earlier turns."""
    reference: str = ""
    """The correct answer; empty if there is none."""


class ProbeSetLoaded(Event, frozen=True, kw_only=True):
    """The probe set of a server was loaded, is missing, or failed to load."""

    source: str = ""
    """`shipped`, or the path of the file; empty without a probe set."""
    version: str = ""
    """Hash of the prompts and references."""
    prompts: tuple[ProbePrompt, ...] = ()
    error: str = ""
    """Why there is no probe set, and what to do; empty if there is one."""
    enabled: bool = True
    """Whether looks are taken: `probe.share` is above 0."""


class LookStarted(Event, frozen=True, kw_only=True):
    """Sampling of the probe set began."""

    look_id: str
    role: LookRole
    step: int | None = None
    """Global step of the weights that are sampled."""
    run: int = 0
    """Number of their training run; 0 if unknown."""
    samples: int = 0
    """Number of answers that a complete look has."""


class LookAdvanced(Event, frozen=True, kw_only=True):
    """More answers of a look have arrived."""

    look_id: str
    done: int


class TrainingPaused(Event, frozen=True, kw_only=True):
    """Users of a server are answered by eval episodes from now on: nothing is trained."""

    cause: str


class TrainingResumed(Event, frozen=True, kw_only=True):
    """Requests to a server are trained on again."""


class Rewound(Event, frozen=True, kw_only=True):
    """A server was put back to the weights of a verified look by the operator or the settings."""

    look_id: str
    """The look whose weights were restored."""
    step: int | None = None
    """Global step of that look."""
    baseline_id: str = ""
    """The baseline that verified it; the comparison with it continues."""
    restored: str = ""
    """Name of the checkpoint, or folder or name of the model."""
    model: str = ""
    """Model of the job that was sent for it; empty where the engine restored a checkpoint."""


class PromptFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Results of one prompt in a look."""

    id: str
    rewards: tuple[float, ...] = ()
    """Reward of each sample; in mode `wins` 1, 0 or 0.5 for each comparison with the baseline."""
    answer: str = ""
    """Answer of greatest probability; empty where the server does not honour temperature."""
    example: str = ""
    """The first sample."""


class PartFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Mean of one part of the reward over the samples of a look, and in the baseline."""

    part: str
    mean: float
    before: float | None = None
    """Mean in the baseline; None in a baseline look."""
    outcome: str = ""
    """`better`, `worse` or `unknown`; empty for a figure without a verdict."""
    counts: bool = True
    """False if the reward does not depend on it: a part of weight 0, `RIGHT_ANSWERS`."""

    @property
    def worse_unseen(self) -> bool:
        """Whether it is worse with certainty, and the verdict on the reward does not contain it."""
        return self.outcome == "worse" and not self.counts


class BestComparison(msgspec.Struct, frozen=True, kw_only=True):
    """A look against the best verified look before it, of the same baseline."""

    look_id: str
    """The best verified look."""
    step: int | None = None
    """Global step of that look."""
    run: int = 0
    """Number of its training run; 0 if unknown."""
    effect: float
    """Mean reward now minus that of the best look, over the prompts that both have."""
    low: float
    """Lower confidence limit of `effect`, at the error probability `alpha`."""
    high: float
    alpha: float
    """Error probability of the interval (`core.verdict.conclusion.against_best`)."""

    @property
    def below(self) -> bool:
        """Whether the policy is below its best look with certainty."""
        return self.high < 0.0


class LookEnded(Event, frozen=True, kw_only=True):
    """A look is complete, was cut short, or failed; only a complete one has a verdict."""

    look_id: str
    role: LookRole
    outcome: LookOutcome
    cause: str = ""
    """Why it is not complete."""
    step: int | None = None
    run: int = 0
    """Number of the training run of the weights; 0 if unknown."""
    seconds: float = 0.0
    probe_set: str = ""
    """Version of the probe set."""
    model: str = ""
    """Model as the server names it; empty if unknown."""
    reward: str = ""
    """Version of the reward that scored it."""
    mode: Literal["absolute", "wins"] = "absolute"
    """`wins`: the reward only compares, so current answers are compared with baseline answers."""
    left_out: tuple[str, ...] = ()
    """Parts of the reward that are not part of the look's reward."""
    baseline_id: str = ""
    """The look that it is compared with; empty for a baseline."""
    restarted: str = ""
    """Why a new comparison began with this look; empty if it continues the last one."""
    mean: float = 0.0
    """Mean over prompts of the mean reward; in mode `wins` the win rate."""
    low: float = 0.0
    """Limits of the confidence interval of `mean`, at the look's share of 5 %."""
    high: float = 0.0
    prompts: tuple[PromptFigures, ...] = ()
    parts: tuple[PartFigures, ...] = ()
    verdict: Verdict | None = None
    against_best: BestComparison | None = None
    """The look against the best verified look before it; None where these were not compared: in
    mode `wins`, and before a look is better than the baseline."""
    file: str = ""
    """File in the home with all samples; empty if it could not be written."""
    checkpoint: str = ""
    """Name of the checkpoint with the sampled weights; it replaced an older one of that name. Empty
    if none was saved."""
    saved_as: str = ""
    """Where a server given by URL has the sampled weights, as its job says: the model before the
    first update, else the checkpoint folder of this step. Empty if it saves none, or if its job is
    unknown. A path may be relative to the server's working directory."""
    engine_run: int = 0
    """`Server.engine_run` at its end, which the reducer fills in."""

    @property
    def complete(self) -> bool:
        """Whether all its samples were taken and scored."""
        return self.outcome == "complete"


class PairCounts(msgspec.Struct, frozen=True, kw_only=True):
    """All pairs of a sample of the baseline and a sample of a look that answer the same prompt."""

    now: int = 0
    """Pairs of two different texts in which the current answer has the higher reward."""
    tie: int = 0
    """The same with equal rewards."""
    before: int = 0
    """The same with the higher reward for the answer of the baseline."""
    unscored: int = 0
    """Pairs of two different texts without rewards: the reward only compares."""
    same: int = 0
    """Pairs of two identical texts; they are never shown."""

    @property
    def different(self) -> int:
        """Pairs of two different texts: those that a rater may be shown."""
        return self.now + self.tie + self.before + self.unscored


class PairRated(Event, frozen=True, kw_only=True):
    """A rater compared a randomly drawn answer of the baseline with one of a look, blind.

    Nothing is trained on it.
    """

    pair_id: str
    baseline_id: str
    look_id: str
    baseline_step: int | None = None
    step: int | None = None
    """Global step of the look."""
    rater: str = ""
    prompt_id: str
    before: int
    """Place of the answer among the samples of the prompt in the baseline, from 0."""
    now: int
    """The same in the look."""
    left: PairSide
    """Which of both was on the left."""
    choice: PairChoice
    result: float | None = None
    """1 if the current answer is better, 0 if that of the baseline is, 0.5 for a tie; None for a
    skip."""
    automatic: float | None = None
    """The same by the rewards of both answers; None where the reward only compares."""
    parts: Mapping[str, float] = {}
    """The same by each part of the reward that applies to both answers."""
    counts: PairCounts = PairCounts()
    """All pairs of both looks."""

    @property
    def place(self) -> tuple[str, int, int]:
        """The two samples: prompt, place in the baseline, place in the look."""
        return self.prompt_id, self.before, self.now
