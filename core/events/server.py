"""Events of swarm servers: engine, pool, updates, checkpoints, clients, jobs, probes."""

import msgspec

from core.events.base import Event


class EngineChanged(Event, frozen=True, kw_only=True):
    """A swarm server was seen in another state, step or detail than before."""

    state: str
    """One of the design's states, or UNKNOWN."""
    url: str = ""
    """Where it was seen; an embedded engine may move."""
    raw: str = ""
    """The server's own word."""
    detail: str = ""
    step: int | None = None


class EngineLost(Event, frozen=True, kw_only=True):
    """A swarm server stopped answering; what was known stays known, with its age."""

    error: str
    seen_at: float
    """When it last answered."""


class PoolChanged(Event, frozen=True, kw_only=True):
    """The sample pool of a swarm server, when it differs from what was known."""

    method: str = ""
    completed_episodes: int = 0
    episode_target: int = 0
    completed_tasks: int = 0
    task_target: int = 0
    non_dummy_tasks: int = 0
    repeats: int = 0
    """R: episodes a task needs."""
    running: int = 0
    """Episodes claimed now, by anyone."""
    running_others: int = 0
    """Of these, those of other clients."""
    other_clients: tuple[str, ...] = ()
    model: str = ""


class UpdateDone(Event, frozen=True, kw_only=True):
    """Statistics of one policy update.

    Of the embedded engine `stats` has what `/ajetc/updates` tells, times in seconds: `step_seconds`
    (since the update before), `sync_seconds` (no claims for it), `seconds` (training alone).
    """

    step: int
    """Global step under which its samples were collected."""
    stats: dict[str, float]
    source: str = "engine"
    """`engine`: told by the server; `pool`: computed from its pool as it was last read."""


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A state of a policy that a server has saved."""

    name: str
    step: int
    """Policy updates in it; -1 when it is damaged."""
    at: float
    """When it was saved, Unix seconds."""
    bytes: int = 0
    kept: bool = False
    """The server made it for itself: prune leaves it alone."""
    damaged: bool = False


class CheckpointsListed(Event, frozen=True, kw_only=True):
    """What a server has saved of its policy, when it differs from what was known."""

    checkpoints: tuple[Checkpoint, ...] = ()
    """The newest ones, newest first."""
    more: int = 0
    """Older ones that are not in the list."""
    offered: bool = True
    """The server has routes for checkpoints at all."""


class ClientSeen(msgspec.Struct, frozen=True, kw_only=True):
    """A client of a swarm server."""

    name: str
    """What it calls itself: its `client_uuid`."""
    running: int = 0
    """Episodes it has claimed."""
    active: bool = False
    """The server counts it where clients agree to a weight sync."""
    agreed: bool = False
    """It has agreed."""


class SlotsSeen(Event, frozen=True, kw_only=True):
    """Episodes of a server by who holds them, when that differs from what was known."""

    free: int
    """Registered and not claimed."""
    claimed: int
    clients: tuple[ClientSeen, ...] = ()
    """Those with most episodes first."""
    more: int = 0
    """Clients that are not in the list."""


class JobSent(Event, frozen=True, kw_only=True):
    """A server took a job from here; the next start runs it."""

    yaml: str
    how: str = ""
    """Where it came from: given, saved, default or hand."""


class OperationStep(msgspec.Struct, frozen=True, kw_only=True):
    """One step of a work."""

    title: str
    phase: str = "waiting"
    """waiting, doing, done, skipped, failed or cancelled."""
    began: float = 0.0
    """Unix seconds; 0 before it began."""
    ended: float = 0.0
    detail: str = ""


class WorkChanged(Event, frozen=True, kw_only=True):
    """A work on an engine began, got further or is over."""

    work: str
    """`Start` or `Apply a job`."""
    steps: tuple[OperationStep, ...]
    phase: str = "doing"
    """doing, done, failed or cancelled."""
    began: float = 0.0
    said: str = ""
    """How it ended, and what the server was left in."""


class TryAsked(Event, frozen=True, kw_only=True):
    """The operator had one prompt sent as an eval episode."""

    try_id: str
    group_id: str
    prompt: str
    step: int | None = None
    """Global step of the policy that is asked; None when the server does not say."""


class TryAnswered(Event, frozen=True, kw_only=True):
    """A try is over: answered, cancelled or failed."""

    try_id: str
    text: str = ""
    reasoning: str = ""
    tool_calls: str = ""
    """JSON text; empty when there are none."""
    finish_reason: str = ""
    tokens: int = 0
    seconds: float = 0.0
    """From the order to the answer."""
    step: int | None = None
    """Global step when the answer came."""
    error: str = ""
    """Why there is no answer; empty when there is one."""
