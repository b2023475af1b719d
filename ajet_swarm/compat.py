"""All names that an AgentJet swarm script imports, in one module.

Change `from ajet.<anything> import X` to `from ajet_swarm.compat import X`. The upstream module of
each name and its module here are in `docs/library/README.md`, and as data in
`ajet_swarm.compat_paths`.
`ajet-console compat DIR` writes a package `ajet` for scripts that are not to be changed.
"""

from ajet_swarm.client.synchronous import SwarmClient
from ajet_swarm.common.repeats import has_repeat
from ajet_swarm.data.readers import (
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
from ajet_swarm.protocol.agentjet_job import AgentJetJob
from ajet_swarm.protocol.claim_models import (
    ClaimEpisodeRequest,
    ClaimEpisodeResponse,
    SwarmThrottlePolicy,
)
from ajet_swarm.protocol.errors import EngineOff as SwarmServerOfflineError
from ajet_swarm.protocol.errors import TrainingFinished
from ajet_swarm.protocol.schemas import EpisodeRecord as EpisodeStatus
from ajet_swarm.protocol.schemas import PoolInfo as CurrentBatchRolloutPoolInformation
from ajet_swarm.protocol.task import OpenaiBaseUrlAndApiKey, Task, WorkflowOutput, WorkflowTask
from ajet_swarm.runs.episodes import auto_train_with_dataset, run_episodes_until_all_complete
from ajet_swarm.runs.executors import (
    BoundedThreadPoolExecutor,
    PeriodicDrainThreadPoolExecutor,
    TaskCountLimitedThreadPoolExecutor,
)
from ajet_swarm.runs.retry import retry_with_backoff

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
