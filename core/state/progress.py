"""State of the progress measurement of one server: probe set, looks, newest verdict."""

import msgspec

from core.events.progress import PartFigures, ProbePrompt, PromptFigures, VerdictFigures


class ProbeSet(msgspec.Struct, kw_only=True):
    """The probe set in use; fields as in `core.events.ProbeSetLoaded`."""

    source: str = ""
    version: str = ""
    prompts: tuple[ProbePrompt, ...] = ()
    error: str = ""


class RunningLook(msgspec.Struct, kw_only=True):
    """A look in progress."""

    look_id: str
    role: str
    step: int | None = None
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
    engine_run: int = 0
    """`Server.engine_run` at its end."""
    at: float = 0.0
    """Unix seconds of its end."""
    seconds: float = 0.0
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
    verdict: VerdictFigures | None = None
    file: str = ""
    checkpoint: str = ""
    """Name of the checkpoint with the sampled weights; empty if there is none any more."""

    @property
    def complete(self) -> bool:
        """Whether all its samples were taken and scored."""
        return self.outcome == "complete"


class Progress(msgspec.Struct, kw_only=True):
    """The progress measurement of one server."""

    probe_set: ProbeSet | None = None
    """None until the proxy has looked for one."""
    paused: str = ""
    """Why requests are not trained on; empty if they are."""
    running: RunningLook | None = None
    looks: list[Look] = msgspec.field(default_factory=list)
    """Ended looks, newest last; `LOOK_CAP` of them, and the baseline in use."""
    before: tuple[PromptFigures, ...] = ()
    """Results by prompt of the baseline in use."""
    now: tuple[PromptFigures, ...] = ()
    """Results by prompt of the newest complete look after it."""

    @property
    def newest(self) -> Look | None:
        """The newest complete look that is not a baseline."""
        return next((one for one in reversed(self.looks) if one.complete and one.baseline_id), None)

    @property
    def baseline(self) -> Look | None:
        """The baseline in use; None before the first complete one."""
        found = (one for one in reversed(self.looks) if one.complete and one.role == "baseline")
        return next(found, None)

    @property
    def best(self) -> Look | None:
        """The best verified look whose checkpoint still exists, or the baseline with one.

        Of the looks against the baseline in use that are better with certainty, the one whose lower
        limit is highest.
        """
        baseline = self.baseline
        if baseline is None:
            return None
        better = [
            (one.verdict.low, one.at, one)
            for one in self.looks
            if one.complete
            and one.checkpoint
            and one.baseline_id == baseline.look_id
            and one.verdict is not None
            and one.verdict.outcome == "better"
        ]
        if better:
            return max(better, key=lambda one: one[:2])[2]
        return baseline if baseline.checkpoint else None

    @property
    def current(self) -> Look | None:
        """The newest complete look against the baseline in use; None before it."""
        newest, baseline = self.newest, self.baseline
        same = newest and baseline and newest.baseline_id == baseline.look_id
        return newest if same else None
