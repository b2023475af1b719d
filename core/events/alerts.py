"""The table of alerts: each kind, its level and its parameters, which are names, numbers and ids.

`AlertRaised` carries the name of a kind and its parameters as a JSON object, never a sentence. The
words and the screen of each kind are a table of the console (`console.text.alerts`). A text from
elsewhere (an exception, a server, a hook) is a parameter like any other.

    params = params_of("lost", server="gpu", error="refused")
    params.kind, params.level, params.as_json()
    # "lost", "error", {"server": "gpu", "error": "refused"}

A released parameter keeps its name, type and default: stored journals contain it. A new one needs a
default.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, cast

import msgspec

from core.events.base import Params, read
from core.events.progress import PartFigures

AlertLevel = Literal["info", "warning", "error"]


class AlertParams(Params, frozen=True):
    """Parameters of an alert of one kind; `KINDS` has the classes.

    The name of the kind is in most cases also the part of the alert's key before the colon.
    """

    level: ClassVar[AlertLevel]
    """Usual level."""
    lasts: ClassVar[float | None]
    """Seconds after its last change until it expires, if it is about a past event."""


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


_DEFAULTS: Mapping[type, Any] = {
    **{kind: kind for kind in (str, int, float, bool)},
    tuple: tuple[str, ...],
    dict: dict[str, int],
    type(None): int | None,
}
"""Type of a default -> type of the parameter."""


def _kind(
    name: str, level: AlertLevel = "warning", lasts: float | None = None, /, **params: Any
) -> type[AlertParams]:
    """Return the class of a kind; a parameter is given by its type, or by its default."""
    fields = [
        (field, _DEFAULTS[type(value)], value) if type(value) in _DEFAULTS else (field, value)
        for field, value in params.items()
    ]
    made = msgspec.defstruct(
        name,
        fields,
        bases=(AlertParams,),
        namespace={"kind": name, "level": level, "lasts": lasts},
        frozen=True,
        kw_only=True,
        omit_defaults=True,
    )
    return cast(type[AlertParams], made)


_HOUR, _DAY = 3_600.0, 86_400.0
_TABLE = (
    # --- servers ---
    # An engine went off without a command from here. trouble: a key of `TROUBLES` in
    # `ajet_swarm.api.watcher`; clients: others that held episodes then; probe: text of the memory
    # probe that ended the trainer.
    _kind("off", "error", server=str, trouble=str, clients=(), probe=""),
    _kind("lost", "error", server=str, error=str),  # a server does not answer
    _kind("refused", "error", server=str, state=str),  # users get 503 while a server is down
    _kind("boot", "error", server=str, minutes=float),  # an engine is BOOTING for too long
    # A start failed. step: empty where the start was the only one; remedy: advice of the error;
    # off: the engine is OFFLINE after it; left: the state that the server was left in.
    _kind("start", "error", server=str, error=str, step="", remedy="", off=False, left=""),
    # Open ratings hold up users, rows of the mock user, or, without both, the weight update.
    # unscored: how many of these groups have no automatic reward.
    _kind("hold", "error", ratings=int, unscored=0, users=0, rows=0),
    # Episodes keep ROLLING_POST from ending. users: requests that wait for the next batch.
    _kind("held", "error", seconds=float, holders=tuple[BatchHolder, ...], users=0),
    # Another client has taken an episode of ours, or, without a name, aborted it, after `idle` of
    # the `limit` seconds without a call after which the server takes it back.
    _kind("taken", "warning", 600.0, server=str, group=str, idle=float, limit=float, client=""),
    # A restart of a server has discarded claimed episodes, the answers of open groups, finished
    # groups that no update trained on (`rated`: those by a person), the tokens of all episodes.
    _kind(
        "tokens", "warning", _HOUR,
        server=str, claimed=0, open=0, finished=0, rated=0, tokens=False,
    ),
    _kind("observe", "info"),  # the proxy observes an upstream: nothing is trained
    _kind("upstream", "error", error=str),  # that upstream does not answer as it should
    # --- requests and groups ---
    _kind("room", server=str, candidates=int, room=int),  # more candidates than episodes at a time
    # An engine cuts prompts to its window (0: unknown). trained: the groups train all the same.
    _kind("cut", "warning", 900.0, window=0),
    # A session, or an API key by its beginning, is over a limit such as `3 requests a minute`.
    _kind("session", name=str, limit=str, query=""),
    # The proxy ended with open groups. situation: `silent` (the server does not answer yet),
    # `removed` (it is not configured any more), or empty: its episodes were cleaned up, `outcomes`
    # counts how. votes: lost ones, the first few of `votes_lost`, as `rater on group (vote)`.
    _kind(
        "recovered", "warning", _DAY,
        server=str, groups=int, unrated=0, situation="", outcomes={}, votes=(), votes_lost=0,
    ),
    _kind("strays", server=str, episodes=int),  # a server held episodes for us that no group has
    # Groups waited for a rating when the proxy was stopped: rated in time, sent with the automatic
    # reward, or dropped.
    _kind("waited", "info", rated=0, automatic=0, dropped=0),
    # --- rewards ---
    # The rewards did not load. kept: the last version that loaded stays active.
    _kind("rewards", "error", error=str, file="", line=0, kept=False),
    _kind("rewards_ended", "error", error=str),  # the process of the rewards ended
    _kind("rewards_gone", path=str),  # those of the last run are gone, the built-in ones are used
    # A judge does not work. unreached: not reached yet, it is tried again; scoring: what scores
    # groups meanwhile: `cache`, `version` (the last good one) or `operator`.
    _kind(
        "judge", "error",
        judge=str, error=str, file="", line=0, unreached=False, scoring="operator",
    ),
    # `count` of the newest `of` groups have no automatic reward, by the part and cause `error`;
    # waiting: open ones; time_limit: seconds for one group, where they exceeded it.
    _kind("unscored", count=int, of=int, error=str, waiting=0, time_limit=0.0),
    _kind("hook", "error", error=""),  # the hook for new requests failed, or (empty) took too long
    # Rewards correlate with a trait of answers, with its 95 % interval. parts: those that reward
    # the trait by their nature and were left out.
    _kind(
        "hacking",
        trait=str, r=float, low=float, high=float, answers=int, groups=(), parts=(),
    ),
    _kind("dead", dead=int, groups=int, steps=int),  # nearly all groups have equal rewards
    # Rewards lie outside 0 to 1, or (narrow) hardly differ.
    _kind("reward_scale", low=float, high=float, narrow=False),
    # A reward is far from the others. candidate: from 1.
    _kind("reward_outlier", group=str, candidate=int, reward=float, deviations=float),
    # --- progress ---
    # The newest look is worse than the baseline with certainty. best: step that a rewind restores;
    # paused: users are answered and nothing is trained.
    _kind("worse", server=str, step=int | None, below=float, best=None, paused=False),
    _kind("paused", server=str, reason=""),  # training is paused: by whom or what
    # It is below the best verified one, which is of step `than`. least, most: limits of `below`.
    _kind(
        "below_best",
        server=str, step=int | None, below=float, least=float, most=float, than=int | None,
        best=None,
    ),
    # What the reward does not contain is worse. verdict: on the reward: better, worse or unknown.
    _kind("worse_parts", server=str, step=int | None, parts=tuple[PartFigures, ...], verdict=""),
    # --- the program itself ---
    _kind("port", port=int, url=str),  # the configured port is taken, the proxy listens on `url`
    # The journal cannot be written. effect: `untrained` (nothing is trained on), `unsent` (no
    # reward is sent), or empty: see `error`.
    _kind("journal", "error", error="", remedy="", effect=""),
    _kind("journal_file", "warning", _DAY, notice=str),  # its file was set aside or replaced
    _kind("journal_damage", "error", damage=str),
    _kind("journal_prune", error=str),  # pruning fails
    # A receiver of telemetry takes no data. name: `OpenTelemetry`, or that of a sink.
    _kind("telemetry", name=str, error=str),
    _kind("part", "error", 600.0, part=str, error=str),  # a loop of the proxy was started again
    # A process of the console ended unexpectedly; raised by the console itself.
    _kind("process", "error", role=str, detail=str, remedy=""),
)  # fmt: skip
KINDS: Mapping[str, type[AlertParams]] = {kind.kind: kind for kind in _TABLE}
"""All kinds by name."""


def params_of(kind: str, **params: Any) -> AlertParams:
    """Return the parameters of an alert of a kind.

    Raises:
        TypeError: One is missing, or unknown.
    """
    return KINDS[kind](**params)


def read_params(kind: str, params: Mapping[str, Any]) -> AlertParams | None:
    """Return the parameters of a stored alert; None if they are of no known kind."""
    return read(KINDS, kind, params)
