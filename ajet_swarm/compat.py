"""All names that an AgentJet swarm script imports, in one module.

Change `from ajet.<anything> import X` to `from ajet_swarm.compat import X`. The upstream module of
each name and its module here are in `docs/library/agentjet.md`, and as data in
`ajet_swarm.compat_paths`.
`ajet-console compat DIR` writes a package `ajet` for scripts that are not to be changed.
"""

import importlib
import sys
from importlib.abc import MetaPathFinder
from typing import Any, Final, NoReturn

from ajet_swarm.client import synchronous
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


class AgentJetClient(synchronous.SwarmClient):
    """`SwarmClient` for which a reward that comes too late is a warning, as in AgentJet."""

    def __init__(self, *args: Any, strict: bool = False, **options: Any) -> None:
        super().__init__(*args, strict=strict, **options)


SwarmClient = AgentJetClient


_WORKFLOW: Final = (
    "A workflow runs inside AgentJet's trainer. A swarm script runs its agent itself, with the "
    "base_url and api_key of an episode: see docs/library/agentjet.md"
)
_REMEDIES: Final = {
    "AjetTuner": _WORKFLOW,
    "Workflow": _WORKFLOW,
    "env_service_client": "Call the environment service over HTTP, or install AgentJet itself",
}
_REMEDY: Final = "Install AgentJet itself for this script, or do without the name"


def submodule(module: str, name: str) -> Any:
    """Return `module.name`, a module of the package `ajet` that `compat` writes.

    Raises:
        ImportError: AgentJet's `name` is not in this library; says what to do instead.
    """
    if name.startswith("_"):
        raise AttributeError(name)
    try:
        return importlib.import_module(f"{module}.{name}")
    except ModuleNotFoundError:
        _raise_missing(f"{module}.{name}")


def report_missing() -> None:
    """Let imports of AgentJet's modules that the written package lacks say what to do instead."""
    if not any(isinstance(finder, _LastFinder) for finder in sys.meta_path):
        sys.meta_path.append(_LastFinder())


class _LastFinder(MetaPathFinder):
    """Finder that comes last: no other one has the module."""

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        if fullname.startswith("ajet."):
            _raise_missing(fullname)


def _raise_missing(path: str) -> NoReturn:
    remedy = next((_REMEDIES[part] for part in path.split(".") if part in _REMEDIES), _REMEDY)
    raise ModuleNotFoundError(
        f"`{path}` of AgentJet is not in ajet-console's client library. {remedy}", name=path
    ) from None
