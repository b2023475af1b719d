"""Modules of AgentJet, new and old, that define the names of `ajet_swarm.compat`.

It imports nothing of the library, so that the process of the hooks can use the table too.
"""

from collections.abc import Mapping
from typing import Final

_CLIENT: Final = (
    "SwarmClient",
    "SwarmServerOfflineError",
    "auto_train_with_dataset",
    "run_episodes_until_all_complete",
    # names that the module imports: some scripts import them from there
    "AgentJetJob",
    "BoundedThreadPoolExecutor",
    "ClaimEpisodeRequest",
    "ClaimEpisodeResponse",
    "CurrentBatchRolloutPoolInformation",
    "EpisodeStatus",
    "OpenaiBaseUrlAndApiKey",
    "SwarmThrottlePolicy",
    "Task",
    "WorkflowOutput",
)
_WIRE: Final = ("ClaimEpisodeRequest", "ClaimEpisodeResponse", "EpisodeStatus")
_READER_CONFIG: Final = (
    "AjetTaskReader",
    "HuggingfaceDatRepo",
    "JsonlDatasetFile",
    "JsonlTrainingFp",
    "JsonlValidationFp",
)
MODULES: Final[Mapping[str, tuple[str, ...]]] = {
    "ajet.schema.task": ("Task", "WorkflowOutput", "WorkflowTask"),
    "ajet.copilot.job": ("AgentJetJob",),
    "ajet.tuner_lib.as_oai_baseurl_apikey": ("OpenaiBaseUrlAndApiKey",),
    "ajet.tuner_lib.experimental.interchange_utils": (*_WIRE, "SwarmThrottlePolicy"),
    "ajet.tuner_lib.experimental.swarm_overwatch_utils": ("CurrentBatchRolloutPoolInformation",),
    "ajet.utils.thread_executors": (
        "BoundedThreadPoolExecutor",
        "PeriodicDrainThreadPoolExecutor",
        "TaskCountLimitedThreadPoolExecutor",
    ),
    "ajet.utils.retry": ("retry_with_backoff",),
    "ajet.utils.compute_madness": ("has_repeat",),
    "ajet.default_config.ajet_config_schema": _READER_CONFIG,
    "ajet.task_reader": (
        "BaseTaskReader",
        "HuggingFaceTaskReader",
        "JsonlTaskReader",
        "RandomDummyTaskReader",
        "RouterTaskReader",
        "Task",
        "dict_to_ajet_task",
    ),
    "ajet.tuner_lib.experimental.swarm_client": _CLIENT,
    # the same names elsewhere: in the package itself, in a module of the package, in older versions
    "ajet": ("AgentJetJob", "WorkflowOutput", "WorkflowTask"),
    "ajet.task_reader.hf_dataset_reader": ("HuggingFaceTaskReader",),
    "ajet.task_reader.jsonl_reader": ("JsonlTaskReader",),
    "ajet.task_reader.task_reader_base": ("BaseTaskReader",),
    "ajet.default_config.ajet_default": _READER_CONFIG,
    "ajet.tuner_lib.experimental.as_swarm_client": _CLIENT,
    "ajet.tuner_lib.weight_tuner.as_oai_baseurl_apikey": ("OpenaiBaseUrlAndApiKey",),
    "ajet.tuner_lib.weight_tuner.experimental.as_swarm_client": _CLIENT,
    "ajet.tuner_lib.weight_tuner.experimental.interchange_utils": _WIRE,
}
"""Module -> its names. The first module with a name is the one that defines it."""


def home_of(name: str) -> str:
    """Return the module of AgentJet that defines a name of `ajet_swarm.compat`.

    Raises:
        KeyError: AgentJet has no such name.
    """
    for module, names in MODULES.items():
        if name in names:
            return module
    raise KeyError(name)
