"""Events of swarm servers: engine, pool, updates, checkpoints, clients, jobs, probes."""

import msgspec

from core.events.base import Event


class EngineChanged(Event, frozen=True, kw_only=True):
    """A reading of a swarm server differs from the last one in state, step or detail."""

    state: str
    """OFFLINE, BOOTING, ROLLING, ROLLING_POST, WEIGHT_SYNCING or UNKNOWN."""
    url: str = ""
    """Its address; that of an embedded engine may change."""
    raw: str = ""
    """The state as the server reports it."""
    detail: str = ""
    step: int | None = None


class EngineLost(Event, frozen=True, kw_only=True):
    """A swarm server stopped answering; its last known state is kept, with its age."""

    error: str
    seen_at: float
    """Unix seconds of its last answer."""


class PoolChanged(Event, frozen=True, kw_only=True):
    """The sample pool of a swarm server changed."""

    method: str = ""
    completed_episodes: int = 0
    episode_target: int = 0
    completed_tasks: int = 0
    task_target: int = 0
    non_dummy_tasks: int = 0
    repeats: int = 0
    """R: episodes per task."""
    running: int = 0
    """Episodes claimed now, by all clients."""
    running_others: int = 0
    """Those of them that other clients hold."""
    other_clients: tuple[str, ...] = ()
    model: str = ""


class UpdateDone(Event, frozen=True, kw_only=True):
    """Statistics of one policy update.

    For the embedded engine `stats` is the answer of `/ajetc/updates`, times in seconds:
    `step_seconds` (since the previous update), `sync_seconds` (without claims), `seconds` (training
    alone).
    """

    step: int
    """Global step under which its samples were collected."""
    stats: dict[str, float]
    source: str = "engine"
    """`engine`: reported by the server; `pool`: computed from the last reading of its pool."""
    run: int = 0
    """Number of the training run, see `core.events.weights`; 0 if unknown."""


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A saved state of a server's policy."""

    name: str
    step: int
    """Policy updates in it; -1 if it is damaged."""
    at: float
    """Unix seconds when it was saved."""
    bytes: int = 0
    kept: bool = False
    """The server saved it for its own use; pruning does not delete it."""
    damaged: bool = False


class CheckpointsListed(Event, frozen=True, kw_only=True):
    """The list of a server's checkpoints changed."""

    checkpoints: tuple[Checkpoint, ...] = ()
    """Newest first."""
    more: int = 0
    """Number of older checkpoints that are not in the list."""
    offered: bool = True
    """The server has routes for checkpoints."""


class ClientSeen(msgspec.Struct, frozen=True, kw_only=True):
    """One client of a swarm server."""

    name: str
    """Its `client_uuid`."""
    running: int = 0
    """Episodes it has claimed."""
    active: bool = False
    """The server waits for its agreement to a weight sync."""
    agreed: bool = False
    """It has agreed to the weight sync."""


class SlotsSeen(Event, frozen=True, kw_only=True):
    """The holders of a server's episodes changed."""

    free: int
    """Episodes that are registered and not claimed."""
    claimed: int
    clients: tuple[ClientSeen, ...] = ()
    """Clients with the most episodes first."""
    more: int = 0
    """Number of clients that are not in the list."""


class JobSent(Event, frozen=True, kw_only=True):
    """A server accepted a job from this proxy; the next start runs it."""

    yaml: str
    how: str = ""
    """Origin of the job: given, saved, default or hand."""


class OperationStep(msgspec.Struct, frozen=True, kw_only=True):
    """One step of an operation on an engine."""

    title: str
    phase: str = "waiting"
    """waiting, doing, done, skipped, failed or cancelled."""
    began: float = 0.0
    """Unix seconds; 0 before it began."""
    ended: float = 0.0
    detail: str = ""


class WorkChanged(Event, frozen=True, kw_only=True):
    """An operation on an engine began, advanced or ended."""

    work: str
    """`Start` or `Apply a job`."""
    steps: tuple[OperationStep, ...] = ()
    phase: str = "doing"
    """doing, done, failed or cancelled."""
    began: float = 0.0
    said: str = ""
    """How it ended, and in which state it left the server."""

    @property
    def over(self) -> bool:
        """Whether it has ended, at the time of the event."""
        return self.phase != "doing"


class TryAsked(Event, frozen=True, kw_only=True):
    """The operator sent one prompt as an eval episode: a probe."""

    try_id: str
    group_id: str
    prompt: str
    step: int | None = None
    """Global step of the policy; None if the server does not report it."""
    run: int = 0
    """Number of its training run; 0 if unknown."""


class TryAnswered(Event, frozen=True, kw_only=True):
    """A probe ended: answered, cancelled or failed."""

    try_id: str
    text: str = ""
    reasoning: str = ""
    tool_calls: str = ""
    """JSON text; empty without tool calls."""
    finish_reason: str = ""
    tokens: int = 0
    seconds: float = 0.0
    """Time from the command to the answer."""
    step: int | None = None
    """Global step when the answer arrived."""
    run: int = 0
    """Number of the training run then; 0 if unknown."""
    error: str = ""
    """Why there is no answer; empty if there is one."""
