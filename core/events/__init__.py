"""What happened: small frozen records, the only thing that state is made of."""

from collections.abc import Sequence

import msgspec

from core.events.base import Event
from core.events.group import (
    AnsweredCandidate,
    AnswerReturned,
    CandidateAnswered,
    CandidateFailed,
    CandidatesAnswered,
    CandidateScore,
    ClaimedEpisode,
    ClaimIntended,
    ClaimsReturned,
    EndedEpisode,
    EpisodeAborted,
    EpisodeClaimed,
    EpisodeEnded,
    EpisodesClaimed,
    EpisodesEnded,
    GenerationStarted,
    GroupClosed,
    GroupEvent,
    GroupLost,
    GroupMarked,
    GroupNoted,
    GroupOpened,
    GroupRated,
    GroupScored,
    GroupSealed,
    Part,
    RatingAwaited,
    RatingUndone,
    RequestJoined,
    RequestReplayed,
    ScoringAbstained,
    SentReward,
    singles,
)
from core.events.jobs import JobSent, WorkChanged, WorkStep
from core.events.judge import JudgeSpent
from core.events.mock import (
    MockCounted,
    MockFinished,
    MockPaused,
    MockResumed,
    MockRowDone,
    MockRowSkipped,
    MockStarted,
    MockStopping,
)
from core.events.probes import TryAnswered, TryAsked
from core.events.proxy import (
    AlertCleared,
    AlertRaised,
    Checkpoint,
    CheckpointsListed,
    ConsoleAttached,
    ConsoleDetached,
    EngineChanged,
    EngineLost,
    PoolChanged,
    ProxyStarted,
    ProxyStopped,
    RatingModeChanged,
    RequestRefused,
    RewardPart,
    RewardsChanged,
    UpdateDone,
)
from core.events.rating import GroupEdited, GroupLeased, RatingRepeated
from core.events.roster import ClientSeen, SlotsSeen
from core.events.trial import RewardsWatched, TrialGroup, TrialSummary, WatchFigure, WhatIfChanged

AnyEvent = (
    ProxyStarted
    | ProxyStopped
    | ConsoleAttached
    | ConsoleDetached
    | RatingModeChanged
    | RewardsChanged
    | AlertRaised
    | RequestRefused
    | AlertCleared
    | EngineChanged
    | EngineLost
    | PoolChanged
    | UpdateDone
    | CheckpointsListed
    | GroupOpened
    | RequestJoined
    | RequestReplayed
    | ClaimIntended
    | EpisodeClaimed
    | EpisodesClaimed
    | ClaimsReturned
    | GenerationStarted
    | CandidateAnswered
    | CandidatesAnswered
    | CandidateFailed
    | GroupScored
    | ScoringAbstained
    | RatingAwaited
    | GroupRated
    | RatingUndone
    | AnswerReturned
    | GroupSealed
    | EpisodeEnded
    | EpisodesEnded
    | EpisodeAborted
    | GroupClosed
    | GroupLost
    | GroupMarked
    | GroupNoted
    | GroupLeased
    | GroupEdited
    | RatingRepeated
    | MockStarted
    | MockCounted
    | MockPaused
    | MockResumed
    | MockStopping
    | MockRowDone
    | MockRowSkipped
    | MockFinished
    | SlotsSeen
    | TryAsked
    | TryAnswered
    | JobSent
    | WorkChanged
    | JudgeSpent
    | WhatIfChanged
    | RewardsWatched
)

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[AnyEvent] = msgspec.json.Decoder(AnyEvent)


def encode(event: Event) -> bytes:
    """The event as one line of JSON."""
    return _encoder.encode(event)


def encode_lines(events: Sequence[Event]) -> bytes:
    """The events as lines of JSON, each with a line feed behind it."""
    return _encoder.encode_lines(events)


def decode(data: bytes | str) -> AnyEvent:
    """One line of JSON as an event.

    Raises:
        msgspec.MsgspecError: not an event this version knows; names the field.
    """
    return _decoder.decode(data)


__all__ = [
    "AlertCleared",
    "AlertRaised",
    "AnswerReturned",
    "AnsweredCandidate",
    "AnyEvent",
    "CandidateAnswered",
    "CandidateFailed",
    "CandidateScore",
    "CandidatesAnswered",
    "Checkpoint",
    "CheckpointsListed",
    "ClaimIntended",
    "ClaimedEpisode",
    "ClaimsReturned",
    "ClientSeen",
    "ConsoleAttached",
    "ConsoleDetached",
    "EndedEpisode",
    "EngineChanged",
    "EngineLost",
    "EpisodeAborted",
    "EpisodeClaimed",
    "EpisodeEnded",
    "EpisodesClaimed",
    "EpisodesEnded",
    "Event",
    "GenerationStarted",
    "GroupClosed",
    "GroupEdited",
    "GroupEvent",
    "GroupLeased",
    "GroupLost",
    "GroupMarked",
    "GroupNoted",
    "GroupOpened",
    "GroupRated",
    "GroupScored",
    "GroupSealed",
    "JobSent",
    "JudgeSpent",
    "MockCounted",
    "MockFinished",
    "MockPaused",
    "MockResumed",
    "MockRowDone",
    "MockRowSkipped",
    "MockStarted",
    "MockStopping",
    "Part",
    "PoolChanged",
    "ProxyStarted",
    "ProxyStopped",
    "RatingAwaited",
    "RatingModeChanged",
    "RatingRepeated",
    "RatingUndone",
    "RequestJoined",
    "RequestRefused",
    "RequestReplayed",
    "RewardPart",
    "RewardsChanged",
    "RewardsWatched",
    "ScoringAbstained",
    "SentReward",
    "SlotsSeen",
    "TrialGroup",
    "TrialSummary",
    "TryAnswered",
    "TryAsked",
    "UpdateDone",
    "WatchFigure",
    "WhatIfChanged",
    "WorkChanged",
    "WorkStep",
    "decode",
    "encode",
    "encode_lines",
    "singles",
]
