"""Types of the protocol's JSON, and the outcomes of claims, ends and aborts.

Unknown fields are ignored, and missing ones have defaults. Source: the protocol notes, sections 2,
4 and 6.
"""

import re
from enum import StrEnum
from typing import Any, Final

import msgspec

from ajet_swarm.protocol.models import ServerRecord

PREFIX: Final = "ENGINE."
_TITLE: Final = re.compile(r"<(?:title|h1)\b[^>]*>\s*([^<\s][^<]*)<", re.IGNORECASE)
"""Title or first heading of a page, such as the one of a front that cannot reach the server."""


class EngineState(StrEnum):
    """State of an engine; the value is the protocol's word without its `ENGINE.` prefix."""

    OFFLINE = "OFFLINE"
    BOOTING = "BOOTING"
    ROLLING = "ROLLING"
    ROLLING_POST = "ROLLING_POST"
    WEIGHT_SYNCING = "WEIGHT_SYNCING"
    WEIGHT_EXPORTING = "WEIGHT_EXPORTING"
    CANNOT_CONNECT = "CANNOT_CONNECT"
    """Not in the protocol: the server has not responded, or not lately."""
    UNKNOWN = "UNKNOWN"
    """The server reported another word; keep the raw text beside it."""

    @classmethod
    def parse(cls, raw: str | None) -> "EngineState":
        """Return the state of a protocol word, with or without the prefix."""
        word = (raw or "").removeprefix(PREFIX)
        return _STATES.get(word, cls.UNKNOWN)

    @property
    def wire(self) -> str:
        """The word in the protocol."""
        return PREFIX + self.value

    @property
    def rolling(self) -> bool:
        """Whether episodes exist in this state: ROLLING and ROLLING_POST."""
        return self in (EngineState.ROLLING, EngineState.ROLLING_POST)


_STALE: Final = frozenset(
    text
    for state in (EngineState.OFFLINE, EngineState.BOOTING)
    for text in (state.value, state.wire)
)
"""Protocol words of the states in which nothing is collected."""
_STATES: Final = {state.value: state for state in EngineState if state is not EngineState.UNKNOWN}


class EngineStatus(msgspec.Struct, frozen=True):
    """Answer of `/get_engine_status`."""

    engine_status: str | None = None
    engine_status_detail: str | None = None
    global_step: int | None = None
    """None until the trainer posts one; 0 when the engine goes down."""

    @property
    def state(self) -> EngineState:
        """`engine_status`, read."""
        return EngineState.parse(self.engine_status)


class ClaimAnswer(msgspec.Struct, frozen=True):
    """Answer of `/claim_episode`; a refusal is `success: false`."""

    success: bool = False
    client_uuid: str | None = ""
    episode_uuid: str | None = ""
    openai_base_url: str | None = ""
    openai_api_key: str | None = ""
    fail_cause: str | None = ""


class Verdict(msgspec.Struct, frozen=True):
    """Common answer of the routes that change something."""

    success: bool | None = None
    failure_reason: str | None = None
    error: str | None = None
    message: str | None = None
    detail: Any = None
    """FastAPI's error text, or its list of body violations."""
    pid: int | None = None

    @classmethod
    def read(cls, body: bytes) -> "Verdict":
        """Return a body; plain text, or the title of a page, becomes its `message`."""
        try:
            return msgspec.json.decode(body, type=cls, strict=False)
        except (msgspec.MsgspecError, RecursionError):
            text = body[:2000].decode(errors="replace").strip()
            if text.startswith("<") and (title := _TITLE.search(text)):
                text = " ".join(title[1].split())
            return cls(message=text)

    @property
    def text(self) -> str:
        """The server's reason, from the field that has one."""
        for text in (self.failure_reason, self.error, self.message):
            if text:
                return text
        if isinstance(self.detail, str):
            return self.detail
        return "" if self.detail is None else msgspec.json.encode(self.detail).decode()


class Agreement(msgspec.Struct, frozen=True):
    """Answer of `/agree_sync_weight`; without success the client does not count as active."""

    success: bool | None = None


class CanContinue(msgspec.Struct, frozen=True):
    """Answer of `/can_continue_episode`."""

    can_continue: bool | None = None


class EpisodeRecord(ServerRecord, frozen=True):
    """One live episode of `/get_episode_buffer` (section 4.2).

    The API key is left out on purpose: it belongs to the client that claimed the episode.
    """

    episode_uuid: str = ""
    episode_status: str = ""
    """`registered` or `claimed`."""
    episode_type: str | None = "train"
    client_uuid: str | None = ""
    latest_activity_timestamp: float | None = None
    """Unix seconds on the server's clock."""
    discard_episode_timeout: float | None = None
    """Seconds; -1 when unclaimed."""
    llm_call_count: int | None = 0
    optional_task_id: str | None = ""

    @property
    def claimed(self) -> bool:
        """Whether a client holds it."""
        return self.episode_status == "claimed"


class EpisodeBuffer(msgspec.Struct, frozen=True):
    """Answer of `/get_episode_buffer`."""

    buffer: list[EpisodeRecord] = []


class RunningEpisode(ServerRecord, frozen=True):
    """A claimed episode in the pool; the protocol sends its numbers as text ("1.2s", "3")."""

    episode_status: str | None = ""
    time_since_last_activity: str | float | None = ""
    discard_episode_timeout: str | float | None = ""
    llm_call_count: str | float | None = ""
    client_uuid: str | None = ""
    optional_task_id: str | None = ""

    @property
    def idle(self) -> float | None:
        """Seconds since its last call."""
        return seconds(self.time_since_last_activity)

    @property
    def limit(self) -> float | None:
        """Idle seconds after which the server takes it back, up to 10 s late."""
        return seconds(self.discard_episode_timeout)

    @property
    def calls(self) -> int:
        """LLM calls so far."""
        return int(seconds(self.llm_call_count) or 0)


class ActiveClient(msgspec.Struct, frozen=True):
    """A client that the agree-to-sync rule counts."""

    client_uuid: str = ""
    last_activity_at: float | None = None
    """Unix seconds on the server's clock."""
    allowed_sync_weight: bool | None = False


class ClientInstruction(msgspec.Struct, frozen=True):
    """The server's clients, as it reports them to the trainer."""

    active_clients: list[ActiveClient] | None = None


class PoolInfo(ServerRecord, frozen=True):
    """Progress of the batch (section 6). After a stop it keeps the counters of the last run, see
    `stale`."""

    sample_collection_method: str | None = ""
    completed_episodes: int | None = 0
    completed_episode_target: int | None = 0
    completed_tasks: int | None = 0
    completed_task_target: int | None = 0
    completed_non_dummy_tasks: int | None = 0
    completed_non_dummy_task_target: int | None = 0
    task_expected_num_repeat: int | None = 0
    completed_tasks_details: dict[str, list[str]] | None = None
    """Task id to the uuids of its finished episodes."""
    completed_tasks_rewards: dict[str, list[float | None]] | None = None
    completed_tasks_client_uuids: dict[str, list[str]] | None = None
    """Only of episodes that were claimed with a throttle policy."""
    running_episode_details: dict[str, RunningEpisode] | None = None
    """Claimed episodes of all clients by uuid; None without any."""
    engine_status: str | None = None
    global_step: int | None = None
    booting_start_time: float | None = None
    training_model_path: str | None = None
    swarm_client_instruction: ClientInstruction | None = None

    @property
    def is_default(self) -> bool:
        """Whether all fields are defaults, as after an internal error: not a reading."""
        return not (
            self.engine_status
            or self.sample_collection_method
            or self.completed_task_target
            or self.task_expected_num_repeat
            or self.completed_episodes
        )

    @property
    def state(self) -> EngineState:
        """`engine_status`, read."""
        return EngineState.parse(self.engine_status)

    @property
    def stale(self) -> bool:
        """Whether the counters belong to a run that has ended."""
        return self.engine_status in _STALE

    @property
    def repeat(self) -> int:
        """Episodes of a complete task; 0 when the trainer has not reported it."""
        return self.task_expected_num_repeat or 0

    @property
    def active_clients(self) -> list[ActiveClient]:
        """The clients whose agreement counts."""
        instruction = self.swarm_client_instruction
        return (instruction.active_clients or []) if instruction else []

    @property
    def agree_to_sync(self) -> bool:
        """Whether the batch ends by the clients' agreement."""
        return (self.sample_collection_method or "").endswith("agree_sync_weight")


class WireOutput(msgspec.Struct, frozen=True):
    """Output of an episode, as `end_episode` sends it; the client adds `metadata.task_id`."""

    reward: float | None
    """None in an abort."""
    is_success: bool | None = None
    metadata: dict[str, Any] = {}
    log_metrics: dict[str, Any] = {}
    """Name -> a number, a list of numbers or a dict."""


class VerboseLog(ServerRecord, frozen=True):
    """One line of `/get_verbose_logs`: the last 30 s, at most 50."""

    timestamp: float | str | None = None
    tag: str | None = ""
    message: str | None = ""


class VerboseLogs(msgspec.Struct, frozen=True):
    """Answer of `/get_verbose_logs`."""

    entries: list[VerboseLog] = []


class ExperimentDir(msgspec.Struct, frozen=True):
    """Answer of `/get_server_experiment_dir`."""

    server_experiment_dir: str | None = None


def seconds(value: str | float | None) -> float | None:
    """Return the number in "1.2s", "3" or 3; None when there is none."""
    try:
        return float(value.strip().removesuffix("s") if isinstance(value, str) else value or 0)
    except ValueError:
        return None


class RefusedKind(StrEnum):
    """Why a claim gave no episode."""

    SYNCING = "syncing"
    POST_ROLLING = "post_rolling"
    NONE_AVAILABLE = "none_available"
    NOT_ROLLING = "not_rolling"
    OTHER = "other"
    UNKNOWN = "unknown"
    """No response: an episode may have been claimed for this client; check the buffer."""
    UNREACHABLE = "unreachable"
    """The claim was never sent."""


class EndKind(StrEnum):
    """Outcome of an `end_episode`."""

    ENDED = "ended"
    """The server accepted it; that is not yet "counted" (section 4.3)."""
    RECORDED = "recorded"
    """No server is used for training: nothing was sent, and the reward is in the journal."""
    UNKNOWN_OUTCOME = "unknown_outcome"
    """No response; the end may have arrived. Do not send it again."""
    UNREACHABLE = "unreachable"
    """It was never sent."""
    NOT_FOUND = "not_found"
    """The record is gone: ended before, or wiped at a batch boundary."""
    NOT_CLAIMED = "not_claimed"
    """The server took the episode back."""
    OTHER_CLIENT = "other_client"
    """The server took the episode back, and another client has claimed it since."""
    NOT_ROLLING = "not_rolling"
    SYNCING = "syncing"
    EXPIRED = "expired"
    """Its lifetime in this client had passed, so it was given back instead."""
    ERROR = "error"


class AbortKind(StrEnum):
    """Outcome of an `abort_episode`."""

    CONFIRMED = "confirmed"
    REFUSED = "refused"
    """The server answered, and did not abort it."""
    UNREACHABLE = "unreachable"
    """It was never sent."""
    UNKNOWN_OUTCOME = "unknown_outcome"
    """No response from the server, which may still process it."""


class Claimed(msgspec.Struct, frozen=True, gc=False):
    """An episode that this client holds until it is ended or aborted, or expires."""

    episode_uuid: str
    base_url: str
    """OpenAI base URL, at this client's address of the server; ends in `/v1`."""
    api_key: str
    episode_type: str
    at: float
    """Unix seconds at which the claim was sent."""
    discard_timeout: float
    """Seconds without a call after which the server takes it back, up to 10 s late."""

    def __repr__(self) -> str:  # without the key, which must not appear in logs
        return f"Claimed({self.episode_uuid}, {self.episode_type})"


class ClaimRefused(msgspec.Struct, frozen=True, gc=False):
    """The reason why a claim gave no episode."""

    kind: RefusedKind
    text: str = ""


class EndOutcome(msgspec.Struct, frozen=True, gc=False):
    """Outcome of an `end_episode`, with the server's text."""

    kind: EndKind
    text: str = ""
    timed_out: bool = False
    """With `UNKNOWN_OUTCOME`: the connection did not break, the server just did not answer in time.
    It may still process the end."""

    @property
    def ended(self) -> bool:
        """The server accepted it: the only outcome that counts."""
        return self.kind is EndKind.ENDED
