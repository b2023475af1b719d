"""State of one swarm server: engine, pool, steps, clients, job, operation, probes."""

import math

import msgspec

from core.events.server import Checkpoint, ClientSeen, OperationStep


class Span(msgspec.Struct, kw_only=True):
    """One stay of an engine in a state."""

    state: str
    since: float
    step: int | None = None


class Pool(msgspec.Struct, kw_only=True):
    """The sample pool as last seen."""

    method: str = ""
    completed_episodes: int = 0
    episode_target: int = 0
    completed_tasks: int = 0
    task_target: int = 0
    non_dummy_tasks: int = 0
    repeats: int = 0
    running: int = 0
    running_others: int = 0
    other_clients: tuple[str, ...] = ()
    model: str = ""


class Slots(msgspec.Struct, kw_only=True):
    """Episodes of a server by who holds them."""

    free: int = 0
    claimed: int = 0
    clients: tuple[ClientSeen, ...] = ()
    more: int = 0
    """Clients that are not in the list."""
    at: float = 0.0


class StepStats(msgspec.Struct, kw_only=True):
    """What was sent under one global step, and what the update made of it."""

    step: int
    engine_run: int = 0
    """`Server.engine_run` when the step began."""
    groups: int = 0
    dead: int = 0
    rewards: int = 0
    """Number of rewards sent."""
    mean: float = 0.0
    square: float = 0.0
    """Mean and mean square of the automatic or human rewards sent."""
    auto: int = 0
    """Number of answers with an automatic reward, also where a human one was sent instead."""
    auto_mean: float = 0.0
    auto_square: float = 0.0
    by_hand: int = 0
    """Groups whose rewards a human gave."""
    hand: int = 0
    """How many of them have an automatic winner."""
    hand_mean: float = 0.0
    """Mean human reward of the automatic winner of those: the share of wins where votes name the
    best answer, the mean score where they are scores."""
    version: str = ""
    """Version of the automatic rewards of its newest group; empty while none was scored."""
    began_at: float = 0.0
    update: dict[str, float] = msgspec.field(default_factory=dict)
    """Figures of the update that was made of it; empty before it, and where none are known."""
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


class SentJob(msgspec.Struct, kw_only=True):
    """The job a server took from here last."""

    yaml: str
    at: float = 0.0
    how: str = ""


class Operation(msgspec.Struct, kw_only=True):
    """An order in several steps, while it is done and after; the newest of a server."""

    title: str
    steps: tuple[OperationStep, ...] = ()
    phase: str = "doing"
    began: float = 0.0
    ended: float = 0.0
    said: str = ""

    @property
    def over(self) -> bool:
        """Whether nothing more happens to it."""
        return self.phase != "doing"

    @property
    def now(self) -> OperationStep | None:
        """The step that is being done."""
        return next((one for one in self.steps if one.phase == "doing"), None)


class Server(msgspec.Struct, kw_only=True):
    """A swarm server as last seen."""

    name: str
    url: str
    own: bool = False
    """It is the embedded engine of the home."""
    state: str = "CANNOT_CONNECT"
    raw: str = ""
    detail: str = ""
    step: int | None = None
    engine_run: int = 0
    """Counts the starts of its engine that were seen; a run lasts from a start to the stop."""
    since: float = 0.0
    """When it entered the state."""
    lost: str = ""
    """Why it does not answer; empty while it does."""
    seen_at: float | None = None
    """While lost: when it last answered."""
    expected_until: float = 0.0
    """Until when its first answer in this run of the proxy may still come: it starts."""
    pool: Pool | None = None
    slots: Slots | None = None
    """Who holds its episodes; known while it is only watched."""
    spans: list[Span] = msgspec.field(default_factory=list)
    steps: list[StepStats] = msgspec.field(default_factory=list)
    checkpoints: tuple[Checkpoint, ...] | None = None
    """What it has saved, newest first; None when it keeps none that can be asked for."""
    checkpoints_more: int = 0
    """Older ones that are not in the list."""
    job: SentJob | None = None
    """What it took from here last; None when that was never."""
    foreign_start: float = 0.0
    """When another client last started its engine, Unix seconds; 0 after a start from here."""
    work: Operation | None = None
    """What is being done to its engine, or was last."""

    def is_finished(self, step: StepStats) -> bool:
        """Whether the update of `step` is done: it has figures, or a later step has begun."""
        newest = self.steps[-1].step if self.steps else 0
        return bool(step.update) or step.step < max(self.step or 0, newest)

    @property
    def last_update(self) -> StepStats | None:
        """The newest step whose update has figures."""
        return next((one for one in reversed(self.steps) if one.update), None)


class Probe(msgspec.Struct, kw_only=True):
    """A prompt the operator tried."""

    try_id: str
    server: str
    group_id: str
    prompt: str
    step: int | None = None
    at: float = 0.0
    over: bool = False
    text: str = ""
    reasoning: str = ""
    tool_calls: str = ""
    cut: bool = False
    """The texts above are not whole; the journal has them."""
    finish_reason: str = ""
    tokens: int = 0
    seconds: float = 0.0
    error: str = ""
