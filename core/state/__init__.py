"""What is known now: plain records that only the reducer changes.

Collections are capped (`GROUP_CAP` and its kin); what fell out is read from the journal by page.
"""

import msgspec

from core.events import Checkpoint, Part, RewardPart
from core.state.details import Slots, Try
from core.state.jobs import SentJob, Work
from core.state.judge import JudgeSpend
from core.state.rater import Lease, RaterStats
from core.state.steps import StepStats
from core.state.trial import RewardWatch, WhatIf

GROUP_CAP = 500
TEXT_CAP = 2_000
"""Characters of a query or an answer kept in state; the whole text is in the journal."""
SPAN_CAP = 400
STEP_CAP = 500
ALERT_CAP = 100
ROW_CAP = 300
STARTS_WITHIN = 20.0
"""Seconds in which the home's own engine, which starts beside the proxy, is expected to answer."""
ANSWERS_WITHIN = 5.0
"""The same for any other server, which is there already: else its URL may be wrong."""

OPEN_PHASES = frozenset(
    {"QUEUED", "CLAIMING", "GENERATING", "SCORING", "AWAITING_RATING", "SUBMITTING"}
)
SEALED_PHASES = frozenset({"SUBMITTING", "DONE", "ABORTED", "FAILED"})
"""Phases in which a rating changes nothing any more."""


class Candidate(msgspec.Struct, kw_only=True):
    """One episode's answer in a group."""

    index: int
    episode_uuid: str = ""
    phase: str = "waiting"
    """waiting, claimed, answered, failed, ended, recorded, aborted, expired or unknown."""
    text: str = ""
    reasoning: str = ""
    tool_calls: str = ""
    """JSON text; empty when there are none."""
    cut: bool = False
    """The texts above are not whole; the journal has them."""
    truncated: bool = False
    """The prompt was truncated for this candidate."""
    finish_reason: str = ""
    seconds: float = 0.0
    tokens: int = 0
    auto_reward: float | None = None
    parts: tuple[Part, ...] = ()
    reward: float | None = None
    """The reward as sealed; None before."""
    advantage: float | None = None
    attempt: int = 1
    error: str = ""


class Rating(msgspec.Struct, kw_only=True):
    """What the operator said about a group."""

    rating: str
    order: tuple[int, ...] = ()
    scores: tuple[float, ...] = ()
    rewards: tuple[float, ...] = ()
    rater: str = ""
    note: str = ""
    at: float = 0.0
    tags: tuple[str, ...] = ()
    blind: bool = False
    shown: tuple[int, ...] = ()
    """Candidate index at each place of the screen."""
    looked: float = 0.0
    """Seconds from its display to the vote."""


class Group(msgspec.Struct, kw_only=True):
    """One user request and its N candidates."""

    group_id: str
    request_id: str
    server: str
    task_id: str
    n: int
    query: str
    opened_at: float
    phase: str = "QUEUED"
    cause: str = ""
    model: str = ""
    stream: bool = False
    episode_type: str = "train"
    row_id: str = ""
    dataset_task_id: str = ""
    reference: str | None = None
    session: str = ""
    turn: int = 0
    """Which request of its session it is, from 1; 0 when that means nothing."""
    helper: str = ""
    """The rule that took it for a helper call; empty for none."""
    turns: int = 0
    """Which answer of its conversation it asks for, from 1; 0 when that is not known."""
    client_timeout: float = 0.0
    """Seconds after which its client gives up, as the request says; 0 when that is not known."""
    joined: int = 0
    """Equal requests that waited with it."""
    replayed: int = 0
    """Equal requests that came later and got its answer once more."""
    step: int | None = None
    engine_run: int = 0
    """`Server.engine_run` when its episodes were claimed."""
    candidates: list[Candidate] = msgspec.field(default_factory=list)
    best: int | None = None
    """The winner by the rewards known now."""
    returned: int | None = None
    returned_why: str = ""
    waited: float | None = None
    rating: Rating | None = None
    repeated: bool = False
    """Its rater judged it once more; nothing was sent."""
    lease: Lease | None = None
    edited: str = ""
    """What the operator would rather have read than candidate `edited_index`."""
    edited_index: int | None = None
    source: str = ""
    """auto or human, once sealed."""
    dead: str = ""
    spread: float | None = None
    version: str = ""
    abstained: str = ""
    traceback: str = ""
    fault_file: str = ""
    fault_line: int = 0
    """Where in the operator's code the rewards failed; empty and 0 when there is no such place."""
    until: float | None = None
    """While AWAITING_RATING: when the window closes."""
    fallback: str = ""
    awaiting: str = ""
    """Why it waits: window, answer_first, hold or abstained."""
    expires_at: float | None = None
    damping: float = 0.0
    """What the engine adds to the deviation when it computes advantages."""
    lost: str = ""
    """What discarded its finished episodes before an update, see `core.events.GroupLost`; empty
    while none did."""
    marked: bool = False
    note: str = ""
    generating_at: float | None = None
    answered_at: float | None = None
    scored_at: float | None = None
    sealed_at: float | None = None
    closed_at: float | None = None
    latency: dict[str, float] = msgspec.field(default_factory=dict)

    @property
    def open(self) -> bool:
        """Whether anything can still happen to it."""
        return self.phase in OPEN_PHASES

    @property
    def discarded(self) -> bool:
        """Whether it ended in order and its server discarded its episodes before an update."""
        return self.phase == "DONE" and bool(self.lost)

    @property
    def prompt_cut(self) -> bool:
        """Whether the engine truncated the prompt: its middle was dropped."""
        return any(one.truncated for one in self.candidates)

    @property
    def user_waits(self) -> bool:
        """Whether its user has no answer until it is rated: in mode hold, or without rewards."""
        awaits = self.phase == "AWAITING_RATING" and self.awaiting != "window"
        return awaits and self.waited is None

    @property
    def gives_up_at(self) -> float | None:
        """When the client of a user who waits gives up; None when that is not known."""
        known = self.user_waits and self.client_timeout
        return self.opened_at + self.client_timeout if known else None

    @property
    def rateable(self) -> bool:
        """Whether a rating would still be sent."""
        return self.phase not in SEALED_PHASES and self.episode_type != "eval"


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
    work: Work | None = None
    """What is being done to its engine, or was last."""

    def is_finished(self, step: StepStats) -> bool:
        """Whether the update of `step` is done: it has figures, or a later step has begun."""
        newest = self.steps[-1].step if self.steps else 0
        return bool(step.update) or step.step < max(self.step or 0, newest)

    @property
    def last_update(self) -> StepStats | None:
        """The newest step whose update has figures."""
        return next((one for one in reversed(self.steps) if one.update), None)


class Alert(msgspec.Struct, kw_only=True):
    """Something the operator should know."""

    key: str
    cause: str
    todo: str
    level: str
    at: float
    """When it was raised first; later figures of it keep that time."""
    told_at: float = 0.0
    """When its newest figures came."""
    groups: tuple[str, ...] = ()
    """Ids of the groups it is about, oldest first."""


class RewardFault(msgspec.Struct, kw_only=True):
    """One time the reward source would not load, or its process fell."""

    cause: str
    traceback: str = ""
    file: str = ""
    line: int = 0
    at: float = 0.0
    mended_at: float | None = None
    """When it loaded again; None while the fault stands."""
    judge: str = ""
    """Name of the judge that cannot be asked; empty when it is not about one."""
    level: str = "error"
    fell: bool = False
    """It had loaded, and its process ended."""


class Rewards(msgspec.Struct, kw_only=True):
    """The reward source."""

    source: str = ""
    ok: bool = True
    version: str = ""
    cause: str = ""
    traceback: str = ""
    file: str = ""
    line: int = 0
    since: float = 0.0
    """When the version that serves began to; 0 while none does."""
    waits: str = ""
    """Name of the part the newest rewards wait for."""
    fault: RewardFault | None = None
    """The last fault of this run, mended or not."""
    parts: tuple[RewardPart, ...] = ()
    """What the version that serves is made of."""


class MockRow(msgspec.Struct, kw_only=True):
    """One row the mock user asked."""

    row_id: str
    query: str
    ok: bool
    seconds: float
    error: str = ""
    at: float = 0.0
    group_id: str = ""
    """The group it became; empty when the mock user did not learn of it."""
    turns: int = 1


class Mock(msgspec.Struct, kw_only=True):
    """The newest run of the mock user."""

    mock_id: str
    dataset: str
    target: str
    total: int
    phase: str = "running"
    """running, paused, stopping, finished, stopped or failed."""
    cause: str = ""
    concurrency: int = 1
    pace: float = 0.0
    done: int = 0
    already: int = 0
    """Rows that an earlier start had done."""
    rate: float = 0.0
    """Questions a second when they arrive by the clock; 0 in a closed loop."""
    passes: int = 1
    seed: int | None = None
    split: str = ""
    held_out: float = 0.0
    columns: str = ""
    lost: int = 0
    """Rows that were in flight when an earlier start was killed; part of `already`."""
    failed: int = 0
    skipped: int = 0
    started_at: float = 0.0
    ended_at: float | None = None
    rows: list[MockRow] = msgspec.field(default_factory=list)
    problems: list[str] = msgspec.field(default_factory=list)


class Totals(msgspec.Struct, kw_only=True):
    """Counts over the whole journal."""

    groups: int = 0
    done: int = 0
    """Groups that ended in order and are not `lost`."""
    lost: int = 0
    """Groups that ended in order and whose episodes their server discarded before an update."""
    aborted: int = 0
    failed: int = 0
    dead: int = 0
    rated: int = 0
    answered: int = 0
    """Users that got an answer."""
    refused: int = 0
    """Users that got an error."""
    joined: int = 0
    """Requests sent again that waited with the first."""
    replayed: int = 0
    """Requests sent again that got the first one's answer."""
    helpers: int = 0
    """Groups of helper calls."""
    episodes_ended: int = 0
    judge_calls: int = 0
    judge_tokens: int = 0
    judge_hits: int = 0
    judge_cost: float = 0.0
    """Of judges whose prices are known."""


class State(msgspec.Struct, kw_only=True):
    """Everything a screen may show."""

    seq: int = 0
    run_id: str = ""
    proxy_url: str = ""
    proxy_pid: int = 0
    client_uuid: str = ""
    proxy_up: bool = False
    """By the journal: started and not ended in order."""
    started_at: float = 0.0
    proxy_version: str = ""
    watch_only: bool = False
    """The proxy only looks on: it claims nothing and serves no requests."""
    rating_mode: str = "off"
    consoles: int = 0
    rewards: Rewards = msgspec.field(default_factory=Rewards)
    what_if: WhatIf | None = None
    """The last trial of other rewards."""
    reward_watch: RewardWatch = msgspec.field(default_factory=RewardWatch)
    judges: dict[str, JudgeSpend] = msgspec.field(default_factory=dict)
    """By the name of their reward part; counts of this run."""
    servers: dict[str, Server] = msgspec.field(default_factory=dict)
    groups: dict[str, Group] = msgspec.field(default_factory=dict)
    """Newest last."""
    alerts: dict[str, Alert] = msgspec.field(default_factory=dict)
    dismissed: dict[str, str] = msgspec.field(default_factory=dict)
    """Levels of alerts the operator has dismissed and whose cause lasts, by key."""
    mock: Mock | None = None
    totals: Totals = msgspec.field(default_factory=Totals)
    tries: list[Try] = msgspec.field(default_factory=list)
    """Prompts the operator tried, newest last."""
    raters: dict[str, RaterStats] = msgspec.field(default_factory=dict)
    """By name; the empty one is who gave none."""

    def open_groups(self) -> list[Group]:
        """Groups that are not over, oldest first."""
        return [group for group in self.groups.values() if group.open]

    def waiting(self) -> list[Group]:
        """Groups open to a rating now: those whose user waits first, then the shortest clock.

        The timeout of a client that waits, where it is known, counts as a clock.
        """
        found = [group for group in self.groups.values() if group.phase == "AWAITING_RATING"]
        return sorted(
            found, key=lambda group: (not group.user_waits, _clock(group), group.opened_at)
        )


def _clock(group: Group) -> float:
    """When it is too late to rate it: its clock ends, or its user's client gives up."""
    return min(group.until or 0.0, group.gives_up_at or float("inf"))
