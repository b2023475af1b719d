"""The kinds of alert, and the parameters of each: names, numbers and ids, never sentences.

`AlertRaised` carries the name of a kind and its parameters as a JSON object. The words, the screen
and the key that belong to a kind stand in the console (`console.text.alerts`,
`console.models.alerts`). A text from elsewhere (an exception, a server, a hook) is a parameter like
any other.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec

from core.events.progress import PartFigures


class AlertParams(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Parameters of one kind of alert.

    A released field keeps its name, type and default: stored journals contain it. A new field needs
    a default.
    """

    kind: ClassVar[str]
    """Name of the kind; in most cases also the part of the alert's key before the colon."""

    def as_json(self) -> dict[str, Any]:
        """Return the parameters as a JSON object without those that have their default."""
        fields = msgspec.to_builtins(self)
        assert isinstance(fields, dict)
        return fields


# --- servers -------------------------------------------------------------------------------------


class ServerOff(AlertParams, frozen=True):
    """An engine went off without a command from here."""

    kind: ClassVar[str] = "off"
    server: str
    trouble: str
    """A key of `ajet_swarm.api.watcher.TROUBLES`."""
    clients: tuple[str, ...] = ()
    """Other clients that held episodes there when it went off."""
    probe: str = ""
    """Text of the memory probe that ended the trainer; empty if there was none."""


class ServerLost(AlertParams, frozen=True):
    """A server does not answer."""

    kind: ClassVar[str] = "lost"
    server: str
    error: str


class UsersRefused(AlertParams, frozen=True):
    """Requests are answered 503 while a server is down."""

    kind: ClassVar[str] = "refused"
    server: str
    state: str


class BootStalled(AlertParams, frozen=True):
    """An engine is BOOTING for too long."""

    kind: ClassVar[str] = "boot"
    server: str
    minutes: float


class StartFailed(AlertParams, frozen=True):
    """A start of an engine failed."""

    kind: ClassVar[str] = "start"
    server: str
    error: str
    step: str = ""
    """Step of the operation that failed; empty where the start was its only step."""
    remedy: str = ""
    """Advice of the error itself; empty for none."""
    off: bool = False
    """The engine is OFFLINE after the failure."""
    left: str = ""
    """State that the server was left in."""


class RatingsHoldUp(AlertParams, frozen=True):
    """Open ratings hold up a weight update or users."""

    kind: ClassVar[str] = "hold"
    ratings: int
    unscored: int = 0
    """Number of these groups without automatic rewards."""
    users: int = 0
    """Number of waiting users. Without users and rows the weight update is held up."""
    rows: int = 0
    """Number of waiting requests of the mock user."""


class BatchHolder(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Episodes that hold up a batch."""

    by: str
    """`client`, `group` (one of ours), `groups` (several of ours) or `nobody` (ours, in no
    group)."""
    count: int
    """Number of episodes; for `groups`, of groups."""
    name: str = ""
    """Name of the client, or id of the group."""
    episodes: tuple[str, ...] = ()
    """Their short ids, the first few."""
    quiet: float | None = None
    """Seconds since the last call, or since the group began to wait for answers."""
    left: float | None = None
    """Seconds until the server takes the episodes back."""


class BatchHeldUp(AlertParams, frozen=True):
    """Episodes keep ROLLING_POST from ending."""

    kind: ClassVar[str] = "held"
    seconds: float
    holders: tuple[BatchHolder, ...]
    users: int = 0
    """Number of requests that wait for the next batch."""


class EpisodeTaken(AlertParams, frozen=True):
    """Another client took or aborted an episode of ours."""

    kind: ClassVar[str] = "taken"
    server: str
    group: str
    idle: float
    """Seconds without a call before it was taken."""
    limit: float
    """Idle seconds after which the server takes an episode back."""
    client: str = ""
    """Client that has it now; empty: it was aborted."""


class RestartLost(AlertParams, frozen=True):
    """A restart of a server discarded episodes, groups or tokens."""

    kind: ClassVar[str] = "tokens"
    server: str
    claimed: int = 0
    open: int = 0
    """Number of open groups whose answers are lost."""
    finished: int = 0
    """Number of finished groups that no update trained on."""
    rated: int = 0
    """Number of finished groups that a person rated."""
    tokens: bool = False
    """The tokens of all earlier episodes are lost."""


class ObserveMode(AlertParams, frozen=True):
    """Nothing is trained: the proxy observes an upstream."""

    kind: ClassVar[str] = "observe"


class UpstreamTrouble(AlertParams, frozen=True):
    """The upstream of observe mode does not answer as it should."""

    kind: ClassVar[str] = "upstream"
    error: str


# --- requests and groups -------------------------------------------------------------------------


class TooFewEpisodes(AlertParams, frozen=True):
    """A group has more candidates than its server has episodes at a time."""

    kind: ClassVar[str] = "room"
    server: str
    candidates: int
    room: int


class PromptsCut(AlertParams, frozen=True):
    """An engine truncates prompts to its window."""

    kind: ClassVar[str] = "cut"
    window: int = 0
    """Tokens; 0 when unknown."""
    trained: bool = False
    """The groups are trained on all the same."""


class RequestsLimited(AlertParams, frozen=True):
    """Fields of the alerts about requests that are answered 429."""

    name: str
    """Session, or beginning of the API key."""
    limit: str
    """The limit with its unit: `3 requests a minute`."""
    query: str = ""


class SessionLimited(RequestsLimited, frozen=True):
    """A session is over its limit."""

    kind: ClassVar[str] = "session"


class KeyLimited(RequestsLimited, frozen=True):
    """An API key is over its limit."""

    kind: ClassVar[str] = "key"


class Recovered(AlertParams, frozen=True):
    """The proxy ended while groups were open: it was killed, or a server did not answer in time."""

    kind: ClassVar[str] = "recovered"
    server: str
    groups: int
    unrated: int = 0
    """Number of groups that waited for a rating."""
    situation: str = ""
    """`silent`: the server does not answer yet, the groups stay open; `removed`: the server is no
    longer configured; empty: its episodes were cleaned up."""
    outcomes: dict[str, int] = msgspec.field(default_factory=dict)
    """Number of episodes by what happened to them."""
    votes: tuple[str, ...] = ()
    """Lost votes, the first few: `rater on group (vote)`."""
    votes_lost: int = 0


class EpisodesReturned(AlertParams, frozen=True):
    """A server held episodes for us that no group has."""

    kind: ClassVar[str] = "strays"
    server: str
    episodes: int


class WaitedAtStop(AlertParams, frozen=True):
    """Groups waited for a rating when the proxy was stopped."""

    kind: ClassVar[str] = "waited"
    rated: int = 0
    """Number of groups that were rated in time."""
    automatic: int = 0
    """Number of groups that were sent with the automatic reward."""
    dropped: int = 0
    """Number of groups of which nothing was sent."""


# --- rewards -------------------------------------------------------------------------------------


class RewardsNotLoaded(AlertParams, frozen=True):
    """The rewards did not load."""

    kind: ClassVar[str] = "rewards"
    error: str
    file: str = ""
    line: int = 0
    kept: bool = False
    """The last version that loaded stays active."""


class RewardsEnded(AlertParams, frozen=True):
    """The process of the rewards ended."""

    kind: ClassVar[str] = "rewards_ended"
    error: str


class RewardsGone(AlertParams, frozen=True):
    """The rewards of the run before no longer exist: the built-in ones replace them."""

    kind: ClassVar[str] = "rewards_gone"
    path: str


class JudgeTrouble(AlertParams, frozen=True):
    """A judge of the rewards does not work."""

    kind: ClassVar[str] = "judge"
    judge: str
    error: str
    file: str = ""
    line: int = 0
    unreached: bool = False
    """It was not reached yet, and is tried again."""
    scoring: str = "operator"
    """What scores groups meanwhile: `cache`, `version` (the last good one) or `operator`."""


class Unscored(AlertParams, frozen=True):
    """Groups get no automatic rewards."""

    kind: ClassVar[str] = "unscored"
    count: int
    of: int
    """Number of newest groups that were counted."""
    error: str
    """Part and cause of the newest abstention."""
    waiting: int = 0
    """Number of open groups that wait for the operator."""
    time_limit: float = 0.0
    """Time limit of one group's rewards in seconds where they exceeded it; else 0."""


class HookFailed(AlertParams, frozen=True):
    """The hook for new requests failed or took too long."""

    kind: ClassVar[str] = "hook"
    error: str = ""
    """Empty: it took too long."""


class RewardHacking(AlertParams, frozen=True):
    """Rewards correlate with a trait of answers."""

    kind: ClassVar[str] = "hacking"
    trait: str
    r: float
    low: float
    high: float
    """Bounds of the 95 % confidence interval."""
    answers: int
    groups: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    """Parts that reward the trait by their nature and were left out."""


class NoSignal(AlertParams, frozen=True):
    """Nearly all groups of a server have equal or almost equal rewards."""

    kind: ClassVar[str] = "dead"
    dead: int
    groups: int
    steps: int


class RewardScale(AlertParams, frozen=True):
    """Rewards lie outside 0 to 1, or hardly differ."""

    kind: ClassVar[str] = "reward_scale"
    low: float
    high: float
    narrow: bool = False
    """They hardly differ."""


class RewardOutlier(AlertParams, frozen=True):
    """A reward is far from the others."""

    kind: ClassVar[str] = "reward_outlier"
    group: str
    candidate: int
    """From 1."""
    reward: float
    deviations: float


# --- progress ------------------------------------------------------------------------------------


class PolicyWorse(AlertParams, frozen=True):
    """The newest look is worse than the baseline with certainty."""

    kind: ClassVar[str] = "worse"
    server: str
    step: int | None
    below: float
    """By how much, in the unit of the verdict."""
    best: int | None = None
    """Step that a rewind restores; None if unknown."""
    paused: bool = False
    """Users are answered, and nothing is trained."""


class NoTraining(AlertParams, frozen=True):
    """Training on a server is paused: users are answered, and nothing is trained."""

    kind: ClassVar[str] = "paused"
    server: str
    reason: str = ""
    """Who or what paused it."""


class PolicyBelowBest(AlertParams, frozen=True):
    """The newest look is below the best verified one with certainty."""

    kind: ClassVar[str] = "below_best"
    server: str
    step: int | None
    below: float
    """By how much, in the unit of the reward."""
    least: float
    """Lower confidence limit of `below`."""
    most: float
    than: int | None
    """Global step of the best verified look."""
    best: int | None = None
    """Step that a rewind restores; None if unknown."""


class PartsWorse(AlertParams, frozen=True):
    """What the reward does not contain is worse than in the baseline with certainty."""

    kind: ClassVar[str] = "worse_parts"
    server: str
    step: int | None
    parts: tuple[PartFigures, ...]
    verdict: str = ""
    """The verdict on the reward: `better`, `worse` or `unknown`."""


# --- the program itself --------------------------------------------------------------------------


class PortTaken(AlertParams, frozen=True):
    """The proxy listens on another port than the configured one."""

    kind: ClassVar[str] = "port"
    port: int
    url: str


class JournalFailed(AlertParams, frozen=True):
    """The journal cannot be written."""

    kind: ClassVar[str] = "journal"
    error: str = ""
    remedy: str = ""
    effect: str = ""
    """`untrained`: nothing is trained on; `unsent`: no reward is sent. Empty: see `error`."""


class JournalFileChanged(AlertParams, frozen=True):
    """The journal's file was set aside, replaced or deleted."""

    kind: ClassVar[str] = "journal_file"
    notice: str


class JournalDamaged(AlertParams, frozen=True):
    """The journal's file is damaged."""

    kind: ClassVar[str] = "journal_damage"
    damage: str


class JournalNotPruned(AlertParams, frozen=True):
    """Pruning of the journal fails, so that the journal may exceed its limits."""

    kind: ClassVar[str] = "journal_prune"
    error: str


class TelemetryFailed(AlertParams, frozen=True):
    """A receiver of telemetry does not take the data, which is dropped."""

    kind: ClassVar[str] = "telemetry"
    name: str
    """`OpenTelemetry`, or the name of a sink."""
    error: str


class PartFailed(AlertParams, frozen=True):
    """A loop of the proxy failed and was started again."""

    kind: ClassVar[str] = "part"
    part: str
    error: str


class ProcessEnded(AlertParams, frozen=True):
    """A process of the console ended unexpectedly; raised by the console itself."""

    kind: ClassVar[str] = "process"
    role: str
    detail: str
    remedy: str = ""
    """Advice of the error itself; empty for none."""


def _kinds(base: type[AlertParams]) -> dict[str, type[AlertParams]]:
    kinds: dict[str, type[AlertParams]] = {}
    for one in base.__subclasses__():
        if "kind" in vars(one):
            kinds[one.kind] = one
        kinds |= _kinds(one)
    return kinds


KINDS: Mapping[str, type[AlertParams]] = _kinds(AlertParams)
"""All kinds by name."""


def read_params(kind: str, params: Mapping[str, Any]) -> AlertParams | None:
    """Return the parameters of an alert; None for an unknown kind or unexpected parameters.

    Args:
        kind: `alert_kind` of the event.
        params: Unknown ones are ignored.
    """
    expected = KINDS.get(kind)
    if expected is None:
        return None
    try:
        return msgspec.convert(params, expected)
    except msgspec.ValidationError:
        return None
