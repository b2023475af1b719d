"""Events of one group: from the user's request to the last reward sent."""

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec.structs import asdict

from core.events.base import Event, GroupEvent


class Part(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One named part of a reward."""

    name: str
    value: float
    weight: float = 1.0
    gate: bool = False
    reason: str = ""


class CandidateScore(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The automatic reward of one candidate, with what it is made of."""

    index: int
    reward: float
    parts: tuple[Part, ...] = ()


class SentReward(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A reward as it was fixed when the group was sealed."""

    index: int
    episode_uuid: str
    reward: float
    advantage: float


class GroupOpened(GroupEvent, frozen=True, kw_only=True):
    """A user request arrived and became a group: QUEUED."""

    request_id: str
    task_id: str
    n: int
    query: str
    """Text of the last user message."""
    body: dict[str, Any]
    """The request as the upstream will get it, with a short text in place of each image."""
    images: tuple[str, ...] = ()
    """Such texts of the last user message: `[image 1.2 MB png]`."""
    model: str = ""
    stream: bool = False
    episode_type: str = "train"
    row_id: str = ""
    dataset_task_id: str = ""
    reference: str | None = None
    metadata: dict[str, Any] | None = None
    """Of its dataset row; None without one, and where it is not kept."""
    unkept: tuple[str, ...] = ()
    """What of the row was too large for the journal: `reference`, `metadata`."""
    session: str = ""
    """As the client names it, or `c-` and hex digits when it was known by its content."""
    turn: int = 0
    """Which request of its session it is, from 1; 0 for helper calls and without a session."""
    helper: str = ""
    """The rule that took it for a helper call (a title, a summary); empty for none."""
    turns: int = 0
    """Which answer of its conversation it asks for, from 1: one more than the assistant messages
    in `body`. 0 in journals that do not say."""
    client_timeout: float = 0.0
    """Seconds after which its client gives up, as the request says; 0 when that is not known."""

    @property
    def shown_query(self) -> str:
        """The query as people see it: with its images named."""
        return " ".join(filter(None, (self.query, *self.images)))


class RequestJoined(GroupEvent, frozen=True, kw_only=True):
    """The same request came again while the group had no answer: it waits with the first."""


class RequestReplayed(GroupEvent, frozen=True, kw_only=True):
    """The same request came again and got the group's answer once more."""


class ClaimIntended(GroupEvent, frozen=True, kw_only=True):
    """N episodes are about to be claimed: CLAIMING. Durable before the first claim."""

    n: int
    discard_timeout: float


class EpisodeClaimed(GroupEvent, frozen=True, kw_only=True):
    """One episode is ours; the group generates once it has all N."""

    index: int
    episode_uuid: str
    step: int | None = None
    attempt: int = 1


class ClaimedEpisode(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One of `EpisodesClaimed`."""

    index: int
    episode_uuid: str
    attempt: int = 1


class EpisodesClaimed(GroupEvent, frozen=True, kw_only=True):
    """Several episodes were granted at once."""

    episodes: tuple[ClaimedEpisode, ...]
    step: int | None = None
    expires_at: float = 0.0
    """Where they are all that the group wanted: generation starts with them, and this is as of
    `GenerationStarted`, which then does not come; else 0."""
    damping: float = 0.0


class ClaimsReturned(GroupEvent, frozen=True, kw_only=True):
    """A partial set of claims was given back; the group waits for the next chance."""

    episode_uuids: tuple[str, ...]
    cause: str


class GenerationStarted(GroupEvent, frozen=True, kw_only=True):
    """All episodes are claimed and the request is out: GENERATING."""

    n: int
    expires_at: float
    """When the server takes an idle episode back."""
    damping: float = 0.0
    """What the engine adds to the deviation of a group's rewards; 0 when it does not say."""


class CandidateAnswered(GroupEvent, frozen=True, kw_only=True):
    """One episode answered."""

    index: int
    episode_uuid: str
    message: dict[str, Any]
    """The assistant message: role, content, reasoning, tool_calls."""
    finish_reason: str
    seconds: float
    prompt_tokens: int = 0
    completion_tokens: int = 0
    truncated: bool = False


class AnsweredCandidate(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One of `CandidatesAnswered`; the fields are those of `CandidateAnswered`."""

    index: int
    episode_uuid: str
    message: dict[str, Any]
    finish_reason: str
    seconds: float
    prompt_tokens: int = 0
    completion_tokens: int = 0
    truncated: bool = False


class CandidatesAnswered(GroupEvent, frozen=True, kw_only=True):
    """Several episodes answered at once."""

    candidates: tuple[AnsweredCandidate, ...]


class CandidateFailed(GroupEvent, frozen=True, kw_only=True):
    """One episode gave no answer that can be used."""

    index: int
    episode_uuid: str
    cause: str
    retried: bool = False
    """A fresh episode is claimed in its place."""
    unretried: str = ""
    """Why none is; empty in journals that do not say."""


class GroupScored(GroupEvent, frozen=True, kw_only=True):
    """The automatic rewards are known."""

    scores: tuple[CandidateScore, ...]
    best: int
    version: str
    seconds: float


class ScoringAbstained(GroupEvent, frozen=True, kw_only=True):
    """No automatic reward for this group; nothing is made up."""

    part: str
    cause: str
    traceback: str = ""
    file: str = ""
    """Where in the operator's code, else empty."""
    line: int = 0
    """1-based; 0 when there is no such place."""
    late: bool = False
    """The rewards took longer than their limit."""


class RatingAwaited(GroupEvent, frozen=True, kw_only=True):
    """The group is open to the operator until `until`: AWAITING_RATING."""

    until: float
    fallback: str
    """What happens then: accept (the automatic reward) or abort."""
    why: str
    """window, answer_first, hold or abstained."""


class AnswerReturned(GroupEvent, frozen=True, kw_only=True):
    """The user got a candidate's answer; or nothing, with the cause."""

    index: int | None
    why: str
    """winner, provisional, only, live, replayed or error."""
    waited: float
    """Seconds since the request arrived."""
    keepalives: int = 0
    others: tuple[int, ...] = ()
    """Candidates of the further choices, where more than one was asked for."""


class GroupSealed(GroupEvent, frozen=True, kw_only=True):
    """The rewards are fixed: SUBMITTING. Durable before any of them is sent."""

    rewards: tuple[SentReward, ...]
    best: int
    source: str
    """auto or human."""
    dead: str = ""
    """Cause when the group will teach nothing; empty when it will train."""
    spread: float = 0.0
    version: str = ""


class EpisodeEnded(GroupEvent, frozen=True, kw_only=True):
    """An `end_episode` was answered, or its outcome is not known."""

    index: int
    episode_uuid: str
    reward: float
    outcome: str
    """ended, recorded (nothing is trained), expired, refused or unknown."""
    text: str = ""


class EndedEpisode(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One of `EpisodesEnded`; the fields are those of `EpisodeEnded`."""

    index: int
    episode_uuid: str
    reward: float
    outcome: str
    text: str = ""


class EpisodesEnded(GroupEvent, frozen=True, kw_only=True):
    """Several ends were answered at once."""

    episodes: tuple[EndedEpisode, ...]


class EpisodeAborted(GroupEvent, frozen=True, kw_only=True):
    """A claimed episode was given back without a reward."""

    index: int
    episode_uuid: str
    reason: str


class GroupClosed(GroupEvent, frozen=True, kw_only=True):
    """The group is over: DONE, ABORTED or FAILED with its cause."""

    phase: str
    cause: str = ""
    latency: dict[str, float] = msgspec.field(default_factory=dict)
    """Seconds, one after the other: queue (for the engine and a turn), claim, generate, score,
    rate, submit. Beside them: slowest (the slowest candidate's own call), first_piece and answered
    (from the request to what the user got), and keepalives, a number."""


class GroupLost(GroupEvent, frozen=True, kw_only=True):
    """Its server discarded the finished episodes before an update: no update trains on them."""

    cause: str
    """`an engine restart` or `an engine stop`."""


class GroupMarked(GroupEvent, frozen=True, kw_only=True):
    """The operator set or cleared the mark of a group."""

    marked: bool


class GroupNoted(GroupEvent, frozen=True, kw_only=True):
    """The operator wrote a note on a group."""

    note: str


def singles(event: Event) -> Iterator[Event]:
    """The event, or one for each episode of an event of several, for readers who look at each."""
    if isinstance(event, EpisodesClaimed):
        for claimed in event.episodes:
            yield EpisodeClaimed(**_names(event), **asdict(claimed), step=event.step)
        if event.expires_at:
            n, until, damping = len(event.episodes), event.expires_at, event.damping
            yield GenerationStarted(**_names(event), n=n, expires_at=until, damping=damping)
    elif isinstance(event, CandidatesAnswered):
        for answered in event.candidates:
            yield CandidateAnswered(**_names(event), **asdict(answered))
    elif isinstance(event, EpisodesEnded):
        for ended in event.episodes:
            yield EpisodeEnded(**_names(event), **asdict(ended))
    else:
        yield event


def _names(event: GroupEvent) -> dict[str, Any]:
    return {
        "seq": event.seq,
        "at": event.at,
        "run_id": event.run_id,
        "server": event.server,
        "group_id": event.group_id,
    }
