"""Events of one group: from the user's request to the last reward sent."""

from typing import Any

import msgspec

from core.events.base import GroupEvent


class Part(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Value of one named part of a reward."""

    name: str
    value: float
    weight: float = 1.0
    gate: bool = False
    reason: str = ""


class CandidateScore(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Automatic reward of one candidate, with its parts."""

    index: int
    reward: float
    parts: tuple[Part, ...] = ()


class SentReward(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Reward of one candidate, for its newest claim, as fixed when the group was sealed."""

    index: int
    reward: float
    advantage: float


class GroupOpened(GroupEvent, frozen=True, kw_only=True):
    """A user request arrived and became a group: phase QUEUED."""

    request_id: str
    task_id: str
    n: int
    query: str
    """Text of the last user message."""
    body: dict[str, Any]
    """Request as sent upstream, with a short text in place of each image."""
    images: tuple[str, ...] = ()
    """The short texts for images in the last user message: `[image 1.2 MB png]`."""
    model: str = ""
    stream: bool = False
    episode_type: str = "train"
    row_id: str = ""
    dataset_task_id: str = ""
    reference: str | None = None
    metadata: dict[str, Any] | None = None
    """Metadata of its dataset row; None without a row, or if it is too large to keep."""
    unkept: tuple[str, ...] = ()
    """Fields of the row that were too large for the journal: `reference`, `metadata`."""
    session: str = ""
    """The client's name for it; `c-` and hex digits if it was recognised by its content."""
    turn: int = 0
    """Number of the request in its session, from 1; 0 for helper calls and without a session."""
    helper: str = ""
    """Rule that recognised it as a helper call (a title, a summary); empty for none."""
    turns: int = 0
    """Number of the requested answer in its conversation, from 1: the assistant messages in `body`
    plus one. 0 in journals without this field."""
    client_timeout: float = 0.0
    """Seconds after which the client gives up, as stated in the request; 0 if unknown."""
    traceparent: str = ""
    """The W3C trace context of the request: its `traceparent`; empty without a valid one."""
    tracestate: str = ""
    """Its `tracestate`, see `traceparent`."""

    @property
    def shown_query(self) -> str:
        """The query with the short texts of its images, for display."""
        return " ".join(filter(None, (self.query, *self.images)))


class RequestJoined(GroupEvent, frozen=True, kw_only=True):
    """The same request arrived again before the group had an answer; it waits with the first."""


class RequestReplayed(GroupEvent, frozen=True, kw_only=True):
    """The same request arrived again and received the group's answer."""


class ClaimIntended(GroupEvent, frozen=True, kw_only=True):
    """N episodes are about to be claimed: phase CLAIMING. Durable before the first claim."""

    n: int
    discard_timeout: float


class ClaimedEpisode(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One of `EpisodesClaimed`."""

    index: int
    episode_uuid: str
    attempt: int = 1


class EpisodesClaimed(GroupEvent, frozen=True, kw_only=True):
    """One or several episodes were granted; with the last of all N generation starts."""

    episodes: tuple[ClaimedEpisode, ...]
    step: int | None = None
    run: int = 0
    """Number of the training run, see `core.events.weights`; 0 if unknown."""
    expires_at: float = 0.0
    """Unix seconds after which the server takes an idle episode back, if the group has all its
    episodes: phase GENERATING. Else 0."""
    damping: float = 0.0
    """With `expires_at`: term that the engine adds to the standard deviation of a group's rewards;
    0 if unknown."""


class ClaimsReturned(GroupEvent, frozen=True, kw_only=True):
    """An incomplete set of claims was given back; the group waits to claim again."""

    episode_uuids: tuple[str, ...]
    cause: str


class AnsweredCandidate(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One of `CandidatesAnswered`; its episode is that of its newest claim."""

    index: int
    message: dict[str, Any]
    """The assistant message: role, content, reasoning, tool_calls."""
    finish_reason: str
    seconds: float
    prompt_tokens: int = 0
    completion_tokens: int = 0
    truncated: bool = False
    step: int | None = None
    """Global step of its weights, if the server reports one that differs from that of the claim."""
    later_step: int | None = None
    """Global step when it arrived, if that differs from that of the claim and the server does not
    report which weights it used."""


class CandidatesAnswered(GroupEvent, frozen=True, kw_only=True):
    """One or several episodes answered."""

    candidates: tuple[AnsweredCandidate, ...]


class CandidateFailed(GroupEvent, frozen=True, kw_only=True):
    """One episode gave no usable answer."""

    index: int
    episode_uuid: str
    cause: str
    failure: str = ""
    """Kind of the failure, a value of `ajet_swarm.protocol.errors.ChatErrorKind`; empty for others
    and in journals without this field."""
    failure_text: str = ""
    """Text of the failure of that kind."""
    retried: bool = False
    """A new episode is claimed in its place."""
    unretried: str = ""
    """Why no new episode is claimed; empty in journals without this field."""


class GroupScored(GroupEvent, frozen=True, kw_only=True):
    """The automatic rewards are known."""

    scores: tuple[CandidateScore, ...]
    best: int
    version: str
    seconds: float


class ScoringAbstained(GroupEvent, frozen=True, kw_only=True):
    """The reward source gave no reward for this group."""

    part: str
    cause: str
    traceback: str = ""
    file: str = ""
    """File of the operator's code that failed, else empty."""
    line: int = 0
    """Line in that file, from 1; 0 without one."""
    late: bool = False
    """The reward source exceeded its time limit."""


class RatingAwaited(GroupEvent, frozen=True, kw_only=True):
    """The operator may rate the group until `until`: phase AWAITING_RATING."""

    until: float
    fallback: str
    """Action then: accept (the automatic reward), abort, or votes (those of the raters so far)."""
    why: str
    """Reason of the wait: window, answer_first, hold or abstained."""
    overlap: int = 1
    """Number of different raters whose votes the group needs."""
    spared: float = 0.0
    """Unix seconds until which it is spared for the rater who has it on screen, although another
    user's request waits; 0 if it is not."""


class AnswerReturned(GroupEvent, frozen=True, kw_only=True):
    """The user received a candidate's answer, or an error."""

    index: int | None
    why: str
    """winner, provisional, only, live, replayed or error."""
    waited: float
    """Seconds since the request arrived."""
    keepalives: int = 0
    others: tuple[int, ...] = ()
    """Candidates of the other choices, if more than one choice was requested."""


class GroupSealed(GroupEvent, frozen=True, kw_only=True):
    """The rewards are fixed: phase SUBMITTING. Durable before any of them is sent."""

    rewards: tuple[SentReward, ...]
    best: int
    source: str
    """auto or human."""
    dead: str = ""
    """Why the group teaches nothing or almost nothing; empty if it teaches."""
    spread: float = 0.0
    version: str = ""
    unrated: bool = False
    """The automatic reward is the fallback of a rating mode: nobody rated or accepted the group."""


class EndedEpisode(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One of `EpisodesEnded`: the newest claim of a candidate, whose reward was sealed."""

    index: int
    outcome: str = "ended"
    """ended, recorded (nothing is trained), expired, refused or unknown."""
    text: str = ""


class EpisodesEnded(GroupEvent, frozen=True, kw_only=True):
    """One or several `end_episode` calls were answered, or their outcome is unknown."""

    episodes: tuple[EndedEpisode, ...]


class EpisodeAborted(GroupEvent, frozen=True, kw_only=True):
    """A claimed episode was given back without a reward."""

    index: int
    episode_uuid: str
    reason: str


class GroupClosed(GroupEvent, frozen=True, kw_only=True):
    """The group ended: phase DONE, ABORTED or FAILED, with the cause."""

    phase: str
    cause: str = ""
    cause_kind: str = ""
    """Kind of the cause, see `core.events.causes`; empty for others."""
    cause_params: dict[str, Any] = msgspec.field(default_factory=dict)
    """Parameters of its kind."""
    latency: dict[str, float] = msgspec.field(default_factory=dict)
    """Seconds of consecutive phases: queue (for the engine and a turn), claim, generate, score,
    rate, submit. Also: slowest (the longest call of a candidate), first_piece and answered (from
    the request to the first piece and to the whole answer), keepalives (a count)."""


class GroupLost(GroupEvent, frozen=True, kw_only=True):
    """The server discarded the finished episodes before an update: none trains on them."""

    cause: str
    """`an engine restart` or `an engine stop`."""


class GroupMarked(GroupEvent, frozen=True, kw_only=True):
    """The operator set or cleared the mark of a group."""

    marked: bool


class GroupNoted(GroupEvent, frozen=True, kw_only=True):
    """The operator wrote a note on a group."""

    note: str
