"""State of one swarm server: engine, pool, steps, clients, job, operation, probes."""

import math

import msgspec

from core.events.server import (
    Checkpoint,
    JobSent,
    OperationStep,
    PoolChanged,
    SlotsSeen,
)
from core.state.weights import TrainingRun


class Span(msgspec.Struct, kw_only=True):
    """One period of an engine in one state."""

    state: str
    since: float
    step: int | None = None


class StepStats(msgspec.Struct, kw_only=True):
    """Figures of the rewards sent under one global step, and of its update."""

    step: int
    engine_run: int = 0
    """`Server.engine_run` when the step began."""
    run: int = 0
    """Number of the training run; 0 if unknown."""
    groups: int = 0
    dead: int = 0
    rewards: int = 0
    """Number of rewards sent."""
    mean: float = 0.0
    square: float = 0.0
    """Mean and mean square of the rewards sent, automatic or human."""
    auto: int = 0
    """Number of answers with an automatic reward, including those with a human reward sent."""
    auto_mean: float = 0.0
    auto_square: float = 0.0
    by_hand: int = 0
    """Groups rated by a person."""
    hand: int = 0
    """Number of these groups with an automatic winner."""
    hand_mean: float = 0.0
    """Mean human reward of their automatic winners: the share of wins for votes that name the best
    answer, the mean score for votes that are scores."""
    version: str = ""
    """Version of the automatic rewards of its newest group; empty before the first one."""
    dataset: str = ""
    """Dataset of its newest group of the mock user; empty if all are of users."""
    mode: str = ""
    """Rating mode when its newest group was sealed."""
    update: dict[str, float] = msgspec.field(default_factory=dict)
    """Figures of its update; empty before it, or if unknown."""
    update_source: str = ""
    """`engine` or `pool`, see `core.events.UpdateDone`."""

    @property
    def std(self) -> float:
        """Population standard deviation of the rewards sent."""
        return math.sqrt(max(self.square - self.mean * self.mean, 0.0))

    @property
    def auto_std(self) -> float:
        """Population standard deviation of the automatic rewards."""
        return math.sqrt(max(self.auto_square - self.auto_mean * self.auto_mean, 0.0))


class Operation(msgspec.Struct, kw_only=True):
    """The newest operation on a server's engine, in several steps."""

    title: str
    steps: tuple[OperationStep, ...] = ()
    phase: str = "doing"
    began: float = 0.0
    ended: float = 0.0
    said: str = ""

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return self.phase != "doing"

    @property
    def now(self) -> OperationStep | None:
        """The step in progress; None without one."""
        return next((one for one in self.steps if one.phase == "doing"), None)


class Server(msgspec.Struct, kw_only=True):
    """A swarm server at its last reading."""

    name: str
    url: str
    own: bool = False
    """It is the home's embedded engine."""
    state: str = "CANNOT_CONNECT"
    raw: str = ""
    detail: str = ""
    step: int | None = None
    engine_run: int = 0
    """Number of starts of its engine so far; a run lasts from a start to the stop."""
    runs: list[TrainingRun] = msgspec.field(default_factory=list)
    """Training runs of its weights, newest last."""
    since: float = 0.0
    """Unix seconds when it entered the state."""
    lost: str = ""
    """Why it does not answer; empty if it does."""
    seen_at: float | None = None
    """Unix seconds of its last answer; None while it answers."""
    expected_until: float = 0.0
    """Unix seconds until which it may still be starting, in this run of the proxy."""
    pool: PoolChanged | None = None
    slots: SlotsSeen | None = None
    """Holders of its episodes; known only in watch-only mode."""
    spans: list[Span] = msgspec.field(default_factory=list)
    steps: list[StepStats] = msgspec.field(default_factory=list)
    checkpoints: tuple[Checkpoint, ...] | None = None
    """Its checkpoints, newest first; None if it offers none."""
    checkpoints_more: int = 0
    """Number of older checkpoints that are not in the list."""
    job: JobSent | None = None
    """The last job it accepted from this proxy; None before the first."""
    foreign_start: float = 0.0
    """Unix seconds of the last start by another client; 0 after a start from this proxy."""
    work: Operation | None = None
    """The operation in progress on its engine, or the last one."""

    @property
    def training_run(self) -> TrainingRun | None:
        """The training run of its weights; None if unknown, as right after a start."""
        newest = self.runs[-1] if self.runs else None
        return newest if newest is not None and newest.engine_run == self.engine_run else None

    @property
    def run_number(self) -> int:
        """Number of the training run of its weights; 0 if unknown."""
        run = self.training_run
        return 0 if run is None else run.number

    def is_finished(self, step: StepStats) -> bool:
        """Return whether the update of `step` is done: it has figures, or a later step began."""
        newest = self.steps[-1].step if self.steps else 0
        return bool(step.update) or step.step < max(self.step or 0, newest)

    @property
    def last_update(self) -> StepStats | None:
        """The newest step whose update has figures."""
        return next((one for one in reversed(self.steps) if one.update), None)


class Probe(msgspec.Struct, kw_only=True):
    """One prompt sent by the operator as an eval episode."""

    try_id: str
    server: str
    group_id: str
    prompt: str
    step: int | None = None
    run: int = 0
    """Number of the training run of the policy; 0 if unknown."""
    at: float = 0.0
    over: bool = False
    text: str = ""
    reasoning: str = ""
    tool_calls: str = ""
    cut: bool = False
    """The texts above are shortened; the journal has the whole ones."""
    finish_reason: str = ""
    tokens: int = 0
    seconds: float = 0.0
    error: str = ""
