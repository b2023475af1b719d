"""The keys of a job in one table: arguments, defaults, bounds, what an AgentJet server needs."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final


class _Absent:
    """Marker of a key without a default; null is a value."""


_ABSENT: Final = _Absent()


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a job, below `ajet`."""

    name: str
    """Path without `ajet.`."""
    argument: str = ""
    """Argument of `AgentJetJob`; empty for a key without one."""
    default: Any = _ABSENT
    """Value of AgentJet's swarm jobs."""
    required: bool = False
    """Whether an AgentJet server never starts without it."""
    sent: bool = False
    """Whether the default is sent: a swarm job differs in it from the server's own defaults."""
    least: float | None = None
    """Minimum of a number; None for another kind of value."""
    most: float = math.inf
    """Largest plausible number; a larger one is a mistake."""
    whole: bool = True
    """Whether the number is a whole one."""
    choices: tuple[str, ...] = ()
    """The accepted words; empty for another kind of value."""

    @property
    def path(self) -> str:
        """Dotted path in a job."""
        return f"ajet.{self.name}"


MODEL: Final = "ajet.model.path"
BATCH: Final = "ajet.data.train_batch_size"
REPEAT: Final = "ajet.rollout.num_repeat"
TEMPERATURE: Final = "ajet.rollout.temperature"
LEARNING_RATE: Final = "ajet.trainer_common.optim.lr"
EPOCHS: Final = "ajet.trainer_common.ppo_epochs"
KL: Final = "ajet.trainer_common.kl_loss_coef"
GPUS: Final = "ajet.trainer_common.n_gpus_per_node"
NODES: Final = "ajet.trainer_common.nnodes"
STOP_RULE: Final = "ajet.swarm_mode_sample_collection_method"
EXPERIMENT: Final = "ajet.experiment_name"
PROJECT: Final = "ajet.project_name"
RANK: Final = "ajet.lora.lora_rank"
LORA: Final = {"ajet.lora.load_format": "safetensors", "ajet.lora.layered_summon": True}
"""Path -> value that a job with a LoRA rank needs."""
METHOD: Final = "ajet.interchange_server.interchange_method"
PORT: Final = "ajet.interchange_server.interchange_server_port"
PROMPT: Final = "ajet.data.max_prompt_length"
RESPONSE: Final = "ajet.data.max_response_length"
TURN: Final = "ajet.rollout.max_response_length_in_one_turn"
WINDOW: Final = "ajet.rollout.max_model_len"
LENGTHS: Final = (PROMPT, RESPONSE, TURN, WINDOW)

STOP_RULES: Final = (
    "rollout_until_finish_enough_episodes",
    "rollout_until_finish_enough_tasks",
    "rollout_until_finish_enough_non_dummy_tasks",
    "rollout_until_any_client_agree_sync_weight",
    "rollout_until_all_clients_agree_sync_weight",
)
"""Rules for the end of a batch; a server treats an unknown name as the second one."""


_RULE = "swarm_mode_sample_collection_method"
_TURN = "max_response_length_in_one_turn"
_MEMORY = "gpu_memory_utilization"
_INTERCHANGE = "interchange_server"

_KEYS: Final = (
    Key("experiment_dir", "experiment_dir", "auto", required=True),
    Key("project_name", "project_name", "ajet_default_project", sent=True),
    Key("experiment_name", "experiment_name", "read_yaml_name", sent=True),
    Key("backbone", "backbone", "verl", required=True),
    Key("enable_swarm_mode", "swarm_mode", True, required=True),
    Key("enable_interchange_server", default=True, required=True),
    Key(f"{_INTERCHANGE}.interchange_method", default="ipc", required=True),
    Key(f"{_INTERCHANGE}.interchange_server_port", default=10086, required=True),
    Key(f"{_INTERCHANGE}.num_fastapi_process", default=1, required=True),
    Key(f"{_INTERCHANGE}.max_fastapi_threads", default=512, required=True),
    Key(f"{_INTERCHANGE}.max_inference_tracker_threads", default=256, required=True),
    Key(f"{_INTERCHANGE}.already_started", default=False, required=True),
    Key("task_reader.type", default="random_dummy", required=True),
    Key("task_judge.judge_type", default="customized_protocol", required=True),
    Key("task_judge.judge_protocol", default=None, required=True),
    Key(_RULE, _RULE, STOP_RULES[1], sent=True, choices=STOP_RULES),
    Key("swarm_mode_sample_collection_max_cached_episodes", default=9999, least=1),
    Key("model.path", "model", "Qwen/Qwen2.5-7B-Instruct", sent=True),
    Key("data.train_batch_size", "batch_size", 32, sent=True, least=1),
    Key("data.max_prompt_length", "max_prompt_length", 3000, least=1),
    Key("data.max_response_length", "max_response_length", 15000, least=1),
    Key("rollout.num_repeat", "num_repeat", 4, sent=True, least=1),
    Key("rollout.temperature", default=0.9, least=0, most=5, whole=False),
    Key("rollout.top_p", default=1.0, least=0, most=1, whole=False),
    Key("rollout.top_k", default=-1),
    Key("rollout.user_workflow", default=None, required=True),
    Key("rollout.max_env_worker", "max_env_worker", 128, required=True, least=1),
    Key("rollout.agent_madness_termination", default=True, required=True),
    Key("rollout.agent_madness_reward", default=0.0, required=True),
    Key(f"rollout.{_TURN}", _TURN, 4096, least=1),
    Key("rollout.max_model_len", "max_model_len", 18000, least=1),
    Key("rollout.tensor_model_parallel_size", "tensor_model_parallel_size", 1, least=1),
    Key("rollout.max_num_seqs", "max_num_seqs", 64, least=1),
    Key(f"rollout.{_MEMORY}", _MEMORY, 0.85, least=0.01, most=1, whole=False),
    Key("rollout.compute_madness_checklist", "compute_madness_checklist", ["nonsense"]),
    Key("rollout.ppo_max_token_len_per_gpu", "ppo_max_token_len_per_gpu", least=1),
    Key("trainer_common.logger", "logging", "tensorboard", required=True),
    Key("trainer_common.n_gpus_per_node", "n_gpu", 8, sent=True, least=1),
    Key("trainer_common.nnodes", "nnodes", 1, least=1),
    Key("trainer_common.algorithm.adv_estimator", "algorithm", "grpo", sent=True),
    Key("trainer_common.optim.lr", "lr", 1e-6, least=0, most=1, whole=False),
    Key("trainer_common.optim.weight_decay", default=0.01, least=0, whole=False),
    Key("trainer_common.optim.grad_clip", default=20.0, least=0, whole=False),
    Key("trainer_common.optim.betas", default=[0.9, 0.999]),
    Key("trainer_common.ppo_epochs", "ppo_epochs", 1, least=1),
    Key("trainer_common.mini_batch_num", "mini_batch_num", 1, least=1),
    Key("trainer_common.use_kl_loss", "use_kl_loss", True),
    Key("trainer_common.use_kl_in_reward", "use_kl_in_reward", False),
    Key("trainer_common.kl_penalty_type", "kl_penalty_type", "kl"),
    Key("trainer_common.kl_loss_coef", default=0.002, least=0, most=100, whole=False),
    Key("trainer_common.kl_loss_type", default="low_var_kl"),
    Key("trainer_common.total_training_steps", "total_training_steps", None, least=1),
    Key("trainer_common.ulysses_sequence_parallel_size", "ulysses_sequence_parallel_size", least=1),
    Key("trainer_common.save_freq", default=20),
    Key("trainer_common.test_freq", default=20),
    *(
        Key(f"trainer_common.{name}", name, None)
        for name in ("val_print_to_markdown_file_path", "train_print_to_markdown_file_path")
    ),
    Key("lora.lora_rank", "lora_rank", 0, least=0),
    Key("lora.lora_alpha", "lora_alpha", 16, least=1),
    Key("lora.target_modules", "lora_target_modules", "all-linear"),
    Key("lora.load_format", "lora_load_format", "auto"),
    Key("lora.layered_summon", "layered_summon", False),
    Key(
        "context_tracker.timeline_merging_policy.timeline_compare_level",
        "timeline_compare_level",
        "text",
        choices=("text", "text_and_image", "token"),
    ),
    Key("context_tracker.fix_retokenization_drift", default=True),
)
_OTHERS: Final = """
execute_test execute_testing_lambda
rollout.force_disable_toolcalls rollout.gamma rollout.n_vllm_engine rollout.name
rollout.vllm_tool_parser rollout.chat_template_generate_prompt_type
trainer_common.algorithm.use_kl_in_reward trainer_common.total_epochs
trainer_common.checkpoint_base_dir trainer_common.save_trajectory_as_json_file
trainer_common.loss_extra_scale_ratio trainer_common.loss_weight_normalization_episode_level
trainer_common.advantage_estimation_episode_level
trainer_common.val_before_train trainer_common.val_pass_n trainer_common.val_only
trainer_common.val_max_num_task_each_validation trainer_common.val_max_num_task_clip_method
trainer_common.optim.optimizer trainer_common.optim.optimizer_impl
trainer_common.optim.lr_warmup_steps trainer_common.optim.lr_warmup_steps_ratio
trainer_common.optim.lr_scheduler_type trainer_common.optim.min_lr_ratio
trainer_common.optim.num_cycles trainer_common.optim.zero_indexed_step
trainer_common.optim.total_training_steps
context_tracker.timeline_merging_policy.ignore_tools
context_tracker.log_tool_format_check context_tracker.log_tool_format_error_detail
context_tracker.detect_timeline_snap context_tracker.alien_llm_model
context_tracker.alien_llm_response_length
embedded.advantage embedded.damping
"""
"""Further keys that this program understands."""

KNOWN: Final = frozenset(
    {*(key.path for key in _KEYS), *(f"ajet.{name}" for name in _OTHERS.split())}
)
"""Paths that this program understands."""
PATHS: Final = {key.argument: key.path for key in _KEYS if key.argument}
"""Argument of `AgentJetJob` -> path."""
DEFAULTS: Final = {key.path: key.default for key in _KEYS if key.default is not _ABSENT}
"""Path -> value of AgentJet's swarm jobs."""
REQUIRED: Final[Mapping[str, Any]] = {
    **{key.path: key.default for key in _KEYS if key.required},
    "hydra.searchpath": [
        "file://ajet/default_config",
        "file://ajet/default_config/verl",
    ],
    "defaults": ["verl_default", "ajet_default", "_self_"],
}
"""Path -> value that an AgentJet server needs, and that is added when a job lacks it."""
SENT: Final = frozenset({*REQUIRED, *(key.path for key in _KEYS if key.sent)})
"""Paths whose defaults are sent: those in which a swarm job differs from a server's own defaults,
and the batch size. For all others the server uses the defaults of its version."""
KEYS: Final = {key.path: key for key in _KEYS}
"""Path -> key."""
CHECKED: Final = tuple(key for key in _KEYS if key.least is not None or key.choices)
"""The keys whose values are checked: numbers and words."""
_OPEN: Final = """
task_reader interchange_server task_judge task_runner debug rollout.multi_turn rollout.val_kwargs
trainer_common.fsdp_config teacher_model opd
"""
OPEN: Final = tuple(f"ajet.{name}" for name in _OPEN.split())
"""Subtrees of AgentJet whose keys are not checked."""
_TOP: Final = """
ajet actor_rollout_ref data critic custom_reward_function reward_model sandbox_fusion reward
algorithm trainer global_profiler transfer_queue ray_kwargs defaults hydra
"""
SECTIONS: Final = frozenset(_TOP.split())
"""Top-level keys of a whole tree."""
