"""Events of the progress measurement: a probe set, a baseline and the looks after it."""

from collections.abc import Sequence
from typing import Any

from core.events import (
    BestComparison,
    Event,
    LookAdvanced,
    LookEnded,
    LookStarted,
    PairCounts,
    PairRated,
    PartFigures,
    ProbePrompt,
    ProbeSetLoaded,
    PromptFigures,
)
from core.state import Progress
from core.verdict.conclusion import Verdict
from tests.support.sample import NOW, state_of

SERVER = "embedded"
QUESTIONS = (
    ("capital", "What is the capital of France?", "Paris"),
    ("sum", "How much is 17 + 25?", "42"),
    ("sky", "Why is the sky blue?", ""),
    ("haiku", "Write a haiku about rain.", ""),
)
"""Id, prompt and reference of the probe prompts."""
ANSWERS = {
    "capital": (
        "It might be Paris, or perhaps Lyon, but I am not sure at all.",
        "The capital of France is Paris.",
    ),
    "sum": ("17 + 25 is 32.", "17 + 25 = 42."),
    "sky": ("The sky is blue.", "The sky is blue because air scatters blue light most."),
    "haiku": ("Rain rain rain rain", "Rain rain rain rain"),
}
"""Answer before and answer now, by prompt."""
REWARDS = {
    "capital": ((0.2, 0.3), (0.9, 1.0)),
    "sum": ((0.1, 0.1), (0.6, 0.8)),
    "sky": ((0.5, 0.6), (0.7, 0.6)),
    "haiku": ((0.4, 0.4), (0.2, 0.2)),
}
"""Rewards before and now, by prompt."""
RIGHT_FELL = PartFigures(part="right answers", mean=0.14, before=0.6, outcome="worse", counts=False)
"""Right answers that are worse with certainty."""
BELOW_BEST = BestComparison(
    look_id="l1", step=86, effect=-0.073, low=-0.097, high=-0.048, alpha=0.0001
)
"""A look that is below the best verified one, `l1`, with certainty."""


def probe_set(error: str = "", server: str = SERVER, enabled: bool = True) -> ProbeSetLoaded:
    """A loaded probe set, or the reason why there is none."""
    if error:
        return ProbeSetLoaded(server=server, error=error, enabled=enabled)
    prompts = tuple(ProbePrompt(id=i, prompt=p, reference=r) for i, p, r in QUESTIONS)
    return ProbeSetLoaded(
        server=server, source="shipped", version="ps1", prompts=prompts, enabled=enabled
    )


def verdict(outcome: str = "better", **fields: Any) -> Verdict:
    """A verdict; by default better by 0.21."""
    figures: dict[str, dict[str, Any]] = {
        "better": {"effect": 0.21, "low": 0.12, "high": 0.30, "more": 0},
        "worse": {"effect": -0.21, "low": -0.30, "high": -0.12, "more": 0},
        "unknown": {"effect": 0.04, "low": -0.09, "high": 0.17, "more": 481},
    }
    values: dict[str, Any] = {
        "outcome": outcome,
        "reference": 0.0,
        "prompts": 64,
        "samples": 1024,
        "look": 3,
        "alpha": 0.01,
        "spent": 0.03,
        **figures[outcome],
        **fields,
    }
    return Verdict(**values)


def figures_of(now: bool) -> tuple[PromptFigures, ...]:
    """Results by prompt in the baseline, or now."""
    return tuple(
        PromptFigures(id=i, rewards=REWARDS[i][now], answer=ANSWERS[i][now], example="a sample")
        for i, _, _ in QUESTIONS
    )


PARTS = (
    PartFigures(part="relevance", mean=0.71, before=0.42, outcome="better"),
    PartFigures(part="format", mean=0.91, before=0.97, outcome="worse"),
    PartFigures(part="politeness", mean=0.52, before=0.5, outcome="unknown"),
    PartFigures(part="length", mean=31.0, before=24.5),
    PartFigures(part="repetition", mean=0.08, before=0.03),
)


def baseline(look_id: str = "b1", step: int | None = 1, **fields: Any) -> LookEnded:
    """A complete baseline."""
    values: dict[str, Any] = {
        "mean": 0.41,
        "low": 0.35,
        "high": 0.47,
        "prompts": figures_of(False),
        "parts": tuple(PartFigures(part=part.part, mean=part.before or 0.0) for part in PARTS),
        "at": NOW - 600,
        "outcome": "complete",
        "reward": "v1",
        "probe_set": "ps1",
        "seconds": 12.5,
        "file": f"looks/{look_id}.json.gz",
        "server": SERVER,
        **fields,
    }
    return LookEnded(look_id=look_id, role="baseline", step=step, **values)


def look(
    look_id: str,
    step: int | None,
    mean: float = 0.62,
    outcome: str = "better",
    baseline_id: str = "b1",
    **fields: Any,
) -> LookEnded:
    """A complete look with a verdict."""
    values: dict[str, Any] = {
        "mean": mean,
        "low": mean - 0.07,
        "high": mean + 0.07,
        "prompts": figures_of(True),
        "parts": PARTS,
        "verdict": verdict(outcome),
        "at": NOW - 60,
        "outcome": "complete",
        "reward": "v1",
        "probe_set": "ps1",
        "seconds": 11.0,
        "file": f"looks/{look_id}.json.gz",
        "server": SERVER,
        **fields,
    }
    return LookEnded(look_id=look_id, role="look", step=step, baseline_id=baseline_id, **values)


def measured() -> Progress:
    """A probe set, a baseline, and a better look whose weights are a checkpoint."""
    events = (probe_set(), baseline(), look("l1", 12, checkpoint="progress-12"))
    return state_of(*events).progress[SERVER]


def broken_look(look_id: str, step: int | None, outcome: str, cause: str, **fields: Any) -> Event:
    """A look that was cut short or failed."""
    values: dict[str, Any] = {"role": "look", "baseline_id": "b1", "server": SERVER, **fields}
    return LookEnded(look_id=look_id, step=step, outcome=outcome, cause=cause, **values)  # type: ignore[arg-type]


def running_look(done: int, role: str = "look", step: int = 13, samples: int = 512) -> list[Event]:
    """A look in progress."""
    names: dict[str, Any] = {"server": SERVER, "look_id": "running"}
    return [
        LookStarted(**names, role=role, step=step, samples=samples, at=NOW - 8),  # type: ignore[arg-type]
        LookAdvanced(**names, done=done),
    ]


def looks(means: Sequence[float] = (0.44, 0.47, 0.51, 0.57, 0.62), step: int = 4) -> list[Event]:
    """A probe set, its baseline at step 1, and looks at every second step; the last is better."""
    outcomes = ["unknown"] * (len(means) - 1) + ["better"]
    return [
        probe_set(),
        baseline(),
        *(
            look(f"l{at}", step + 2 * at, mean, outcome)
            for at, (mean, outcome) in enumerate(zip(means, outcomes, strict=True))
        ),
    ]


def fallen_looks(outcome: str = "unknown") -> list[Event]:
    """A probe set, its baseline, a saved look at step 86, and a last look that is below it."""
    last = look("l2", 146, outcome=outcome, against_best=BELOW_BEST)
    return [probe_set(), baseline(), look("l1", 86, checkpoint="progress-1"), last]


def pair_rated(number: int, result: float | None = 1.0, **fields: Any) -> PairRated:
    """A vote on a pair of the newest look of the sample."""
    values: dict[str, Any] = {
        "server": SERVER,
        "pair_id": f"pair{number}",
        "baseline_id": "b1",
        "look_id": "l4",
        "baseline_step": 1,
        "step": 12,
        "prompt_id": "capital",
        "before": number,
        "now": 0,
        "left": "now",
        "choice": "skip" if result is None else "left",
        "result": result,
        "automatic": 1.0,
        "parts": {"relevance": 1.0},
        "counts": PairCounts(now=70, tie=10, before=20, same=28),
        **fields,
    }
    return PairRated(**values)


def pair_data(pair_id: str, left: str, right: str) -> dict[str, Any]:
    """Data of the command `progress.pair`."""
    return {
        "pair_id": pair_id,
        "prompt": "What is the capital of France?",
        "left": left,
        "right": right,
        "server": SERVER,
        "baseline_step": 1,
        "step": 12,
        "newest_step": 12,
        "ratings": 0,
        "different": 100,
        "same": 28,
    }


def vote_data(result: float | None, ratings: int = 1) -> dict[str, Any]:
    """Data of the command `progress.vote`, for a pair with the current answer on the left."""
    return {
        "left": "now",
        "right": "before",
        "result": {1.0: "now", 0.0: "before", 0.5: "tie", None: "skip"}[result],
        "automatic": 1.0,
        "baseline_step": 1,
        "step": 12,
        "ratings": ratings,
        "skipped": 0,
        "sentence": "automatic 0.75, 1 rating 1.00 (0.09 to 1.00), "
        "same result 100 % (9 to 100 %), by chance 100 %",
        "figures": None,
    }
