"""Answers of the control API that are computed on request and never stored in the journal."""

from typing import Any

import msgspec

from core.events import ClientSeen

DETAILS_CAP = 60
"""Maximum number of claimed episodes, finished tasks and log lines in an answer."""


class EpisodeDetails(msgspec.Struct, frozen=True, kw_only=True):
    """One claimed episode."""

    uuid: str
    client: str
    kind: str = "train"
    idle: float | None = None
    """Seconds since its last call."""
    limit: float | None = None
    """Idle seconds after which the server reclaims it."""
    calls: int | None = None
    task: str = ""


class TaskDetails(msgspec.Struct, frozen=True, kw_only=True):
    """One task of the batch that is being collected."""

    task: str
    episodes: int = 0
    rewards: tuple[float | None, ...] = ()
    clients: tuple[str, ...] = ()


class LogLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the server's log."""

    at: float | None
    tag: str
    text: str


class HardwareFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the policy of an embedded engine runs on, and how fast, as its server reports it."""

    device: str
    dtype: str
    """Number format of the weights."""
    memory_used: int
    """Bytes that the policy occupies on the device."""
    memory_total: int
    """Bytes of the device."""
    memory_estimate: int | None = None
    """Bytes estimated before the policy was loaded."""
    slots: int
    """Number of answers that are sampled at the same time, at most."""
    tokens_per_second: float | None = None
    """Sampling speed of all answers of the last batch together, without those of looks."""
    look_tokens_per_second: float | None = None
    """Speed at which a look samples a snapshot now; None without one."""
    sampling_seconds: float = 0.0
    """Time spent sampling since the last update, or since the policy was loaded."""
    update_seconds: float | None = None
    """Duration of the last update, without `sync_seconds`."""
    sync_seconds: float | None = None
    """Time the last update took to publish its weights to the sampler and to save them."""


class EngineInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What an embedded engine reports of itself; the defaults are those of any other server."""

    damping: float = 0.0
    """Its addition to a group's standard deviation."""
    context: int | None = None
    """Context window in tokens."""
    strict_context: bool = False
    """It refuses prompts that are too long."""
    bare_prompts: bool = False
    """It completes a prompt without a chat template."""
    snapshots: bool = False
    """Its model can sample from a snapshot of the weights."""
    backend: str | None = None
    model: str = ""
    run: str | None = None
    """Id of the training run of its weights."""
    run_start: str | None = None
    """What the run began with."""
    job: dict[str, Any] | None = None
    """The job with which it can be started."""
    hardware: HardwareFacts | None = None
    """What the policy runs on; None where that is not measured."""


class ServerDetails(msgspec.Struct, frozen=True, kw_only=True):
    """One reading of one server."""

    server: str
    at: float
    """Unix seconds of the reading."""
    free: int | None = None
    claimed: int | None = None
    clients: tuple[ClientSeen, ...] = ()
    episodes: tuple[EpisodeDetails, ...] = ()
    """In descending order of idle time."""
    tasks: tuple[TaskDetails, ...] = ()
    """In descending order of the number of episodes."""
    folder: str = ""
    """Folder in which the server writes its run."""
    booting_since: float | None = None
    log: tuple[LogLine, ...] = ()
    asked: str = ""
    """Last user message of the newest call in the server's memory."""
    answered: str = ""
    hardware: HardwareFacts | None = None
    """None where the server does not measure it."""
    missing: tuple[str, ...] = ()
    """Information that the server did not report, each with the reason."""


class JobInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Saved job of a server, its running job, and the presets. Jobs are YAML text."""

    server: str
    saved: str = ""
    """Job saved for the next start; empty for none."""
    saved_at: float = 0.0
    running: str = ""
    """Job of the server, as far as known; empty if unknown."""
    source: str = ""
    """Source of `running`, as text."""
    reported: tuple[str, ...] = ()
    """Keys of `running` that the server reported itself."""
    differs: tuple[str, ...] = ()
    """Keys of `reported` that differ from the job last sent by this proxy."""
    whole: bool = False
    """Whether `running` is a whole job, as sent; if not, only what the server reported."""
    default: str = ""
    """The preset `default`."""
    hand: str = ""
    """The preset `hand`."""
    embedded: bool = True
    """Whether the server is the embedded engine, which starts with any job without confirmation."""
    last: bool = False
    """Whether the next start runs the server's present job, since another client started it."""
    model: str = ""
    """Model for a job without one, on an AgentJet server; empty if unknown."""
    path: str = ""
    """File of the saved job, in the home of the proxy."""
    sent: str = ""
    """Job that this proxy sent last, to an AgentJet server."""

    @property
    def next(self) -> str:
        """The job of the next start; see also `last`."""
        return self.saved or self.sent or self.default


class RewindPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a rewind of a server would do now, or why it is not possible."""

    server: str
    look_id: str = ""
    """The verified look whose weights it restores."""
    step: int | None = None
    """Global step of that look."""
    effect: float | None = None
    """By how much it is better than the baseline; None for the baseline itself."""
    weights: str = ""
    """Name of the checkpoint, or folder or name of the model."""
    before: str = ""
    """Job of the server as far as known, as YAML; empty where no job is sent."""
    job: str = ""
    """Job that is sent, as YAML with masked secrets; empty where none is sent."""
    plan_id: str = ""
    """Identifies job and weights: a changed plan has another one."""
    loss: tuple[str, ...] = ()
    """What is lost besides the claimed episodes, and what is not checked, as sentences."""
    problem: str = ""
    """Why it is not possible, as a sentence without a full stop; empty if it is."""
    todo: str = ""
    """What to do about the problem."""
    command: str = ""
    """Command that merges the shards of the checkpoint, to be run on the server's machine."""


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """One token of a prompt or an answer."""

    id: int
    text: str | None = None
    """None if the server has no policy loaded."""
    mask: int = 0
    """Loss mask: 1 for a trained token, 0 for a token of the prompt."""
    logprob: float | None = None
    """Log-probability at sampling; None for a token that was not sampled."""
    logprob_now: float | None = None
    """Log-probability by the present policy; None if none is loaded."""


class TokenCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call of an episode, or one trained timeline."""

    prompt_tokens: int
    tokens: tuple[Token, ...]
    """Tokens of the prompt, then of the answer."""
    step: int | None = None
    """Number of updates of the policy that sampled it; None for several policies."""


class EpisodeTokens(msgspec.Struct, frozen=True, kw_only=True):
    """The token log of one episode."""

    episode_uuid: str
    state: str
    """`live` or `finished`."""
    calls: tuple[TokenCall, ...]
    task_id: str = ""
    reward: float | None = None
    step: int | None = None
    """Number of updates of the policy that gave `logprob_now`."""
