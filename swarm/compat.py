"""Every name an AgentJet swarm script imports, from one place.

Change `from ajet.<anything> import X` to `from swarm.compat import X`; which upstream module each
name lives in, and where here, is in `docs/library.md`; as data in `swarm.compat_paths`.
`ajet-console compat DIR` writes a package `ajet` for scripts that are not to be changed.
"""

from swarm.agentjet_job import AgentJetJob
from swarm.claim_models import ClaimEpisodeRequest, ClaimEpisodeResponse
from swarm.errors import EngineOff as SwarmServerOfflineError
from swarm.errors import TrainingFinished
from swarm.executors import (
    BoundedThreadPoolExecutor,
    PeriodicDrainThreadPoolExecutor,
    TaskCountLimitedThreadPoolExecutor,
)
from swarm.readers import (
    AjetTaskReader,
    BaseTaskReader,
    HuggingfaceDatRepo,
    HuggingFaceTaskReader,
    JsonlDatasetFile,
    JsonlTaskReader,
    JsonlTrainingFp,
    JsonlValidationFp,
    RandomDummyTaskReader,
    RouterTaskReader,
    dict_to_ajet_task,
)
from swarm.repeats import has_repeat
from swarm.retry import retry_with_backoff
from swarm.run import auto_train_with_dataset, run_episodes_until_all_complete
from swarm.schemas import EpisodeRecord as EpisodeStatus
from swarm.schemas import PoolInfo as CurrentBatchRolloutPoolInformation
from swarm.sync import SwarmClient
from swarm.task import OpenaiBaseUrlAndApiKey, Task, WorkflowOutput, WorkflowTask
from swarm.throttle import SwarmThrottlePolicy

__all__ = [
    "AgentJetJob",
    "AjetTaskReader",
    "BaseTaskReader",
    "BoundedThreadPoolExecutor",
    "ClaimEpisodeRequest",
    "ClaimEpisodeResponse",
    "CurrentBatchRolloutPoolInformation",
    "EpisodeStatus",
    "HuggingFaceTaskReader",
    "HuggingfaceDatRepo",
    "JsonlDatasetFile",
    "JsonlTaskReader",
    "JsonlTrainingFp",
    "JsonlValidationFp",
    "OpenaiBaseUrlAndApiKey",
    "PeriodicDrainThreadPoolExecutor",
    "RandomDummyTaskReader",
    "RouterTaskReader",
    "SwarmClient",
    "SwarmServerOfflineError",
    "SwarmThrottlePolicy",
    "Task",
    "TaskCountLimitedThreadPoolExecutor",
    "TrainingFinished",
    "WorkflowOutput",
    "WorkflowTask",
    "auto_train_with_dataset",
    "dict_to_ajet_task",
    "has_repeat",
    "retry_with_backoff",
    "run_episodes_until_all_complete",
]
