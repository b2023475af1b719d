"""Events of the proxy, the consoles attached to it and the swarm servers it watches."""

import msgspec

from core.events.base import Event


class ProxyStarted(Event, frozen=True, kw_only=True):
    """The fake vLLM came up: a new run begins."""

    client_uuid: str
    pid: int
    url: str
    version: str
    servers: dict[str, str]
    """Name of each swarm server -> its URL."""
    embedded: tuple[str, ...] = ("embedded",)
    """Those of them that are the home's own engine, whose address changes with its port."""
    rewards: str
    """What computes the rewards: `builtin` or the hook folder."""
    rating_mode: str = "off"
    watch_only: bool = False
    """It only looks on: it claims nothing and serves no requests."""


class ProxyStopped(Event, frozen=True, kw_only=True):
    """The fake vLLM ended in order; a kill leaves no such event."""

    reason: str = ""


class ConsoleAttached(Event, frozen=True, kw_only=True):
    """An operator's console follows the feed."""

    consoles: int
    """How many follow it now."""


class ConsoleDetached(Event, frozen=True, kw_only=True):
    """A console left."""

    consoles: int


class RatingModeChanged(Event, frozen=True, kw_only=True):
    """The operator switched how people rate: off, answer_first or hold."""

    mode: str


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


class RequestRefused(Event, frozen=True, kw_only=True):
    """A user's request was answered with an error before it became a group."""

    status: int
    cause: str
    query: str = ""


class AlertRaised(Event, frozen=True, kw_only=True):
    """Something the operator should know; `key` names it until it is cleared."""

    key: str
    cause: str
    todo: str = ""
    level: str = "warning"
    """info, warning or error."""
    groups: tuple[str, ...] = ()
    """Ids of the groups it is about, oldest first."""


class AlertCleared(Event, frozen=True, kw_only=True):
    """The cause of an alert is gone, or the operator has dismissed it."""

    key: str
    note: str = ""
    """What there is to know of it now that it is over."""
    dismissed: bool = False
    """The operator has dismissed it: its cause lasts."""


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
