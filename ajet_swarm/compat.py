"""All names that an AgentJet swarm script imports, in one module.

Change `from ajet.<anything> import X` to `from ajet_swarm.compat import X`. The upstream module of
each name and its module here are in `docs/library/agentjet.md`, and as data in
`ajet_swarm.compat_paths`.
`ajet-console init compat DIR` writes a package `ajet` for scripts that are not to be changed.
"""

import importlib
import sys
from importlib.abc import MetaPathFinder
from typing import Any, Final, NoReturn

from ajet_swarm.client import synchronous
from ajet_swarm.common.repeats import has_repeat as has_repeat
from ajet_swarm.compat_paths import MODULES
from ajet_swarm.data.readers import AjetTaskReader as AjetTaskReader
from ajet_swarm.data.readers import BaseTaskReader as BaseTaskReader
from ajet_swarm.data.readers import HuggingfaceDatRepo as HuggingfaceDatRepo
from ajet_swarm.data.readers import HuggingFaceTaskReader as HuggingFaceTaskReader
from ajet_swarm.data.readers import JsonlDatasetFile as JsonlDatasetFile
from ajet_swarm.data.readers import JsonlTaskReader as JsonlTaskReader
from ajet_swarm.data.readers import JsonlTrainingFp as JsonlTrainingFp
from ajet_swarm.data.readers import JsonlValidationFp as JsonlValidationFp
from ajet_swarm.data.readers import RandomDummyTaskReader as RandomDummyTaskReader
from ajet_swarm.data.readers import RouterTaskReader as RouterTaskReader
from ajet_swarm.data.readers import dict_to_ajet_task as dict_to_ajet_task
from ajet_swarm.job.agentjet import AgentJetJob as AgentJetJob
from ajet_swarm.protocol.errors import EngineOff
from ajet_swarm.protocol.errors import TrainingFinished as TrainingFinished
from ajet_swarm.protocol.models import ClaimEpisodeRequest as ClaimEpisodeRequest
from ajet_swarm.protocol.models import ClaimEpisodeResponse as ClaimEpisodeResponse
from ajet_swarm.protocol.models import OpenaiBaseUrlAndApiKey as OpenaiBaseUrlAndApiKey
from ajet_swarm.protocol.models import SwarmThrottlePolicy as SwarmThrottlePolicy
from ajet_swarm.protocol.models import Task as Task
from ajet_swarm.protocol.models import WorkflowOutput as WorkflowOutput
from ajet_swarm.protocol.models import WorkflowTask as WorkflowTask
from ajet_swarm.protocol.schemas import EpisodeRecord, PoolInfo
from ajet_swarm.runs.episodes import auto_train_with_dataset as auto_train_with_dataset
from ajet_swarm.runs.episodes import (
    run_episodes_until_all_complete as run_episodes_until_all_complete,
)
from ajet_swarm.runs.executors import BoundedThreadPoolExecutor as BoundedThreadPoolExecutor
from ajet_swarm.runs.executors import (
    PeriodicDrainThreadPoolExecutor as PeriodicDrainThreadPoolExecutor,
)
from ajet_swarm.runs.executors import (
    TaskCountLimitedThreadPoolExecutor as TaskCountLimitedThreadPoolExecutor,
)
from ajet_swarm.runs.executors import retry_with_backoff as retry_with_backoff


class AgentJetClient(synchronous.SwarmClient):
    """`SwarmClient` for which a reward that comes too late is a warning, as in AgentJet."""

    def __init__(self, *args: Any, strict: bool = False, **options: Any) -> None:
        super().__init__(*args, strict=strict, **options)


SwarmClient = AgentJetClient
SwarmServerOfflineError = EngineOff
EpisodeStatus = EpisodeRecord
CurrentBatchRolloutPoolInformation = PoolInfo

__all__ = sorted({"TrainingFinished"}.union(*MODULES.values()))


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
    """Return `module.name`, a module of the package `ajet` that `init compat` writes.

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
