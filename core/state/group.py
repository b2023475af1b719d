"""State of one group and its candidates."""

import msgspec

from core.events.group import Part
from core.state.rating import Lease, Rating

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
