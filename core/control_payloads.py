"""Answers of the control API that are computed when requested and never kept in the journal."""

import msgspec

from core.events import ClientSeen

DETAILS_CAP = 60
"""Claimed episodes, finished tasks and log lines that are handed on."""


class EpisodeDetails(msgspec.Struct, frozen=True, kw_only=True):
    """A claimed episode."""

    uuid: str
    client: str
    kind: str = "train"
    idle: float | None = None
    """Seconds since its last call."""
    limit: float | None = None
    """Idle seconds after which the server takes it back."""
    calls: int | None = None
    task: str = ""


class TaskDetails(msgspec.Struct, frozen=True, kw_only=True):
    """A task of the batch that is collected now."""

    task: str
    episodes: int = 0
    rewards: tuple[float | None, ...] = ()
    clients: tuple[str, ...] = ()


class LogLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the server's own log."""

    at: float | None
    tag: str
    text: str


class ServerDetails(msgspec.Struct, frozen=True, kw_only=True):
    """One reading of one server."""

    server: str
    at: float
    """Unix seconds of the reading."""
    free: int | None = None
    claimed: int | None = None
    clients: tuple[ClientSeen, ...] = ()
    episodes: tuple[EpisodeDetails, ...] = ()
    """The longest idle first."""
    tasks: tuple[TaskDetails, ...] = ()
    """Those with most episodes first."""
    folder: str = ""
    """Where the server writes its run."""
    booting_since: float | None = None
    log: tuple[LogLine, ...] = ()
    asked: str = ""
    """Last user text of the newest call that the server keeps."""
    answered: str = ""
    missing: tuple[str, ...] = ()
    """What the server did not tell, and why."""


class JobInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What is saved for a server, what it runs, and what the presets are. Jobs are YAML text."""

    server: str
    saved: str = ""
    """Saved here for the next start; empty when nothing is."""
    saved_at: float = 0.0
    running: str = ""
    """What the server has, as far as it is known; empty when nothing is."""
    source: str = ""
    """Where that is known from, in words."""
    told: tuple[str, ...] = ()
    """Keys of it that the server told itself."""
    differs: tuple[str, ...] = ()
    """Of these, those in which it is not the job that was sent from here last."""
    whole: bool = False
    """It is a whole job, as sent; else only what the server told."""
    default: str = ""
    hand: str = ""
    """The presets."""
    embedded: bool = True
    """The server is the embedded engine: it starts with any job, and needs no question before."""
    last: bool = False
    """The next start runs the job the server has: another client started it last."""
    model: str = ""
    """Model of a job that names none, on an AgentJet server; empty when none is known."""
    path: str = ""
    """File in the home of the proxy that holds the saved job."""


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """One token of a prompt or an answer."""

    id: int
    text: str | None = None
    """None while the server has no policy loaded."""
    mask: int = 0
    """The loss mask: 1 for a token that is trained on, 0 for one that was only read."""
    logprob: float | None = None
    """When it was sampled; None for a token that was not."""
    logprob_now: float | None = None
    """By the policy as it is now; None while none is loaded."""


class TokenCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call of an episode, or one timeline that is trained."""

    prompt_tokens: int
    tokens: tuple[Token, ...]
    """The prompt first."""
    step: int | None = None
    """Policy updates in the policy that sampled it; None when several did."""


class EpisodeTokens(msgspec.Struct, frozen=True, kw_only=True):
    """The token log of one episode."""

    episode_uuid: str
    state: str
    """`live` or `finished`."""
    calls: tuple[TokenCall, ...]
    task_id: str = ""
    reward: float | None = None
    step: int | None = None
    """Policy updates in the policy that the log-probs of now are by."""
