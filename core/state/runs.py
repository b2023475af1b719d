"""State of the engine runs of all servers: a summary of each, from its start to its stop."""

import msgspec

from core.events.rewards import RewardPart
from core.verdict.conclusion import Verdict

RUNNING_UNTIL = (1 << 63) - 1
"""Greater than the number of any event: the end of a run that has not ended."""


class RunPoint(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Mean reward of one step of a run, or of several consecutive steps."""

    step: int
    """Global step; the last one of several."""
    mean: float
    """Mean automatic reward."""
    steps: int = 1
    """Number of steps in the mean."""


class EngineRun(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Summary of one engine run: a server's engine from a start to the stop."""

    number: int
    """From 1, over all servers of the journal."""
    server: str
    engine_run: int = 0
    """`Server.engine_run` during the run."""
    first_seq: int
    """Number of the event with which it began; identifies it in events."""
    last_seq: int = 0
    """Number of the event with which it ended; 0 while it runs."""
    began: float
    """Unix seconds; the first reading if it began before the proxy watched the server."""
    ended: float | None = None
    """Unix seconds; the last sign of it if its end was not seen. None while it runs."""
    active: float = 0.0
    """Unix seconds of the newest event that changed this summary."""
    ending: str = ""
    """How it ended: stopped, restarted, job (another job was applied), unseen (the server did not
    answer then, or nothing watched it) or removed (the proxy does not have the server any more);
    empty while it runs."""
    job: str = ""
    """Key of its job in `EngineRuns.jobs`; empty if unknown."""
    model: str = ""
    """Model as the server reports it; empty if unknown."""
    weights: list[str] = msgspec.field(default_factory=list)
    """Names of the training runs of its weights, newest last; at most `WEIGHTS_CAP`."""
    first_step: int | None = None
    """Global step at its first samples; None before them."""
    last_step: int | None = None
    """Newest global step."""
    groups: int = 0
    """Number of sealed groups."""
    rated: int = 0
    """Number of them that a person rated."""
    dead: int = 0
    first_reward: RunPoint | None = None
    """Its first step with automatic rewards."""
    curve: list[RunPoint] = msgspec.field(default_factory=list)
    """Mean automatic reward by step; at most `CURVE_CAP` points."""
    stride: int = 1
    """Number of steps of a point, except for the newest ones."""
    rewards: list[str] = msgspec.field(default_factory=list)
    """Versions of the automatic rewards, newest last; at most `VERSIONS_CAP`."""
    verdict: Verdict | None = None
    """The newest verdict of a look during the run; None before it."""
    verdict_step: int | None = None
    """Global step of that look."""
    name: str = ""
    note: str = ""
    """Name and note of the operator."""
    pinned: bool = False
    """Its groups are never pruned."""

    @property
    def brief(self) -> bool:
        """Whether its curve is not read yet, see `core.state.brief`."""
        return self.first_reward is not None and not self.curve

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self.ended is None

    @property
    def updates(self) -> int:
        """Number of policy updates, from the global steps."""
        return (self.last_step or 0) - (self.first_step or 0)

    @property
    def finished_curve(self) -> list[RunPoint]:
        """The curve without a newest step whose batch is not complete, unless it is the only one.

        Such a step has a few groups, and their mean says little.
        """
        unfinished = len(self.curve) > 1 and self.curve[-1].step == self.last_step
        return self.curve[:-1] if unfinished else self.curve

    @property
    def last_reward(self) -> RunPoint | None:
        """Its newest finished step with automatic rewards."""
        curve = self.finished_curve
        return curve[-1] if curve else None

    @property
    def span(self) -> tuple[int, int]:
        """Numbers of its first and last event."""
        return self.first_seq, self.last_seq or RUNNING_UNTIL


class EngineRuns(msgspec.Struct, kw_only=True):
    """The engine runs of all servers."""

    count: int = 0
    """Number of runs so far, dropped ones included."""
    runs: list[EngineRun] = msgspec.field(default_factory=list)
    """Newest last; at most `ENGINE_RUN_CAP`."""
    jobs: dict[str, str] = msgspec.field(default_factory=dict)
    """YAML of each job of these runs, by key."""
    rewards: dict[str, tuple[RewardPart, ...]] = msgspec.field(default_factory=dict)
    """Parts of the reward by version, oldest first; at most `REWARDS_CAP`."""
    current: dict[str, int] = msgspec.field(default_factory=dict)
    """Number of the run in progress, by server."""

    def numbered(self, number: int) -> EngineRun | None:
        """Return a run by its number; None if there is none."""
        if self.runs and self.runs[-1].number == number:  # the usual case
            return self.runs[-1]
        low, high = 0, len(self.runs)
        while low < high:
            middle = (low + high) // 2
            if self.runs[middle].number < number:
                low = middle + 1
            else:
                high = middle
        run = self.runs[low] if low < len(self.runs) else None
        return run if run is not None and run.number == number else None

    def began_with(self, first_seq: int) -> EngineRun | None:
        """Return a run by the number of its first event; None if there is none."""
        return next((run for run in reversed(self.runs) if run.first_seq == first_seq), None)

    def running_on(self, server: str) -> EngineRun | None:
        """Return the run in progress on a server; None if there is none."""
        number = self.current.get(server)
        return None if number is None else self.numbered(number)

    def job_of(self, run: EngineRun) -> str:
        """Return the YAML of a run's job; empty if unknown."""
        return self.jobs.get(run.job, "")

    def pinned_spans(self) -> list[tuple[int, int]]:
        """Return the numbers of the first and last events of the pinned runs, joined and in order.

        May be called from any thread.
        """
        spans: list[tuple[int, int]] = []
        for first, last in sorted(run.span for run in list(self.runs) if run.pinned):
            if spans and first <= spans[-1][1]:
                spans[-1] = (spans[-1][0], max(last, spans[-1][1]))
            else:
                spans.append((first, last))
        return spans
