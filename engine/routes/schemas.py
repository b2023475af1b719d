"""Request and response bodies of the control routes (protocol sections 2, 4 and 6).

Unknown fields are ignored everywhere, as on the real server.
"""

from typing import Annotated, Any

from pydantic import BaseModel, Field

Name = Annotated[str, Field(max_length=1024)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class SyncConfig(BaseModel):
    yaml_as_string: str


class Claim(BaseModel):
    client_uuid: Name
    episode_type: str
    discard_episode_timeout: Seconds
    throttle_policy: dict[str, Any] | None = None


class WorkflowOutput(BaseModel):
    reward: Any = Field(default=None, description="One finite number.")
    is_success: bool | None = None
    metadata: dict[str, Any] = {}
    log_metrics: dict[str, Any] = {}


class EndEpisode(BaseModel):
    client_uuid: Name
    episode_uuid: Name
    task_id: Name
    workflow_output: WorkflowOutput
    declare_client_active: bool = True


class AbortEpisode(BaseModel):
    client_uuid: Name
    episode_uuid: Name
    task_id: Name = ""
    workflow_output: WorkflowOutput = WorkflowOutput()
    declare_client_active: bool = True


class CanContinue(BaseModel):
    client_uuid: Name
    episode_uuid: Name


class Agree(BaseModel):
    client_uuid: Name


class PostedStatus(BaseModel):
    engine_status: str = ""
    engine_status_detail: str | None = None
    global_step: int | None = None


class Registered(BaseModel):
    episode_uuid: Annotated[str, Field(min_length=1, max_length=1024)]
    openai_base_url: str = ""
    openai_api_key: str = ""
    zmq_listen_result_addr: str = ""


class IsClaimed(BaseModel):
    episode_uuid: Name
    unregister_if_not_claimed: bool = False


class Pushed(BaseModel):
    tag: str = ""
    message: Annotated[str, Field(max_length=100_000)]


class Status(BaseModel):
    engine_status: str
    engine_status_detail: str | None = None
    global_step: int | None = None


class Outcome(BaseModel):
    success: bool
    failure_reason: str = ""


class ConfigOutcome(BaseModel):
    success: bool
    error: str | None = None


class Started(BaseModel):
    success: bool
    pid: int | None = None
    error: str | None = None


class Claimed(BaseModel):
    success: bool
    client_uuid: str = ""
    episode_uuid: str = ""
    openai_base_url: str = ""
    openai_api_key: str = ""
    fail_cause: str = ""


class Continue(BaseModel):
    can_continue: bool


class EpisodeStatus(BaseModel):
    episode_uuid: str
    episode_status: str
    episode_type: str
    openai_base_url: str
    openai_api_key: str
    client_uuid: str
    zmq_listen_result_addr: str
    latest_activity_timestamp: float
    discard_episode_timeout: float
    llm_call_count: int
    debug_log: list[str]
    optional_task_id: str


class Buffer(BaseModel):
    buffer: list[EpisodeStatus]


class RunningEpisode(BaseModel):
    episode_status: str
    time_since_last_activity: str
    discard_episode_timeout: str
    llm_call_count: str
    client_uuid: str
    optional_task_id: str


class ActiveClient(BaseModel):
    client_uuid: str
    last_activity_at: float
    allowed_sync_weight: bool


class Instruction(BaseModel):
    active_clients: list[ActiveClient] = []


class PoolInformation(BaseModel):
    sample_collection_method: str = ""
    completed_episodes: int = 0
    completed_episode_target: int = 0
    completed_tasks: int = 0
    completed_task_target: int = 0
    completed_non_dummy_tasks: int = 0
    completed_non_dummy_task_target: int = 0
    task_expected_num_repeat: int = 0
    completed_tasks_details: dict[str, list[str]] = {}
    completed_tasks_rewards: dict[str, list[float]] = {}
    completed_tasks_client_uuids: dict[str, list[str]] = {}
    running_episode_details: dict[str, RunningEpisode] | None = None
    engine_status: str | None = None
    global_step: int | None = None
    booting_start_time: float | None = None
    training_model_path: str | None = None
    swarm_client_instruction: Instruction | None = None


class ExperimentDir(BaseModel):
    server_experiment_dir: str | None


class LogEntry(BaseModel):
    timestamp: float
    tag: str = ""
    message: str


class VerboseLogs(BaseModel):
    entries: list[LogEntry]


class HardwareInfo(BaseModel):
    """What the policy runs on, and how fast."""

    device: str = Field(description="For people, as `cuda:0 NVIDIA H100 80GB HBM3`.")
    dtype: str = Field(description="Number format of the weights.")
    memory_used: int = Field(description="Bytes that the policy occupies on the device.")
    memory_total: int = Field(description="Bytes of the device.")
    memory_estimate: int | None = Field(description="Bytes estimated before it was loaded.")
    slots: int = Field(description="Answers that are sampled at the same time, at most.")
    tokens_per_second: float | None = Field(description="Of all answers of the last batch.")
    look_tokens_per_second: float | None = Field(
        description="Of the answers that a look samples from a snapshot; null without one."
    )
    sampling_seconds: float = Field(description="Time spent sampling since the last update.")
    update_seconds: float | None = Field(description="Of the last update, without its sync.")
    sync_seconds: float | None = Field(description="Time to publish and save its weights.")


class Info(BaseModel):
    """Description of this server (embedded engine only)."""

    policy: str | None = Field(description="Name; null before the first start.")
    context: int | None = Field(description="Window in tokens.")
    step: int | None = Field(description="Policy updates in the weights.")
    run: str | None = Field(
        description="Id of the training run: a reset or a restored checkpoint begins another."
    )
    run_start: str | None = Field(
        description="Checkpoint whose weights the run began with; empty for the shipped ones."
    )
    home: str
    version: str
    engine_status: str
    damping: float = Field(
        description="Added to a group's deviation in an advantage; 0 in the standard form."
    )
    max_tokens: int | None = Field(description="Longest answer; null before the first start.")
    job: dict[str, Any] | None = Field(description="The job as it was read; null before a sync.")
    strict_context: bool = Field(description="A prompt over the window is refused, not cut.")
    bare_prompts: bool = Field(description="A call may hold a bare prompt, `ajetc_prompt`.")
    snapshots: bool = Field(
        description="Copies of the weights can be taken and sampled; false before the first start."
    )
    backend: str = Field(description="What computes: `numpy` or `torch`.")
    model: str = Field(description="Model it was started with; empty: the job names it.")
    hardware: HardwareInfo | None = Field(
        description="What the policy runs on; null where it is not measured, or none is loaded."
    )
