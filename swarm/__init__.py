"""The AgentJet swarm protocol as a client library.

    from swarm import SwarmClient, Task, WorkflowOutput

`SwarmClient` is for threads, `AsyncSwarm` the same for asyncio; `run_episodes` runs a list of
them; readers give the tasks; `compat` has every name an AgentJet script imports. Below them:
`client` speaks to one server over a `transport`, `watcher` watches it, `claims` claims whole
groups, `answers` says what a server means, `schemas` is the wire, `errors` the tree of what can
go wrong. Names are loaded when they are asked for: `import swarm` costs nothing.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from swarm.agentjet_job import AgentJetJob as AgentJetJob
    from swarm.asynchronous import AsyncSwarm as AsyncSwarm
    from swarm.episode import AsyncEpisode as AsyncEpisode
    from swarm.episode import Episode as Episode
    from swarm.errors import SwarmError as SwarmError
    from swarm.errors import TrainingFinished as TrainingFinished
    from swarm.executors import BoundedThreadPoolExecutor as BoundedThreadPoolExecutor
    from swarm.executors import PeriodicDrainThreadPoolExecutor as PeriodicDrainThreadPoolExecutor
    from swarm.executors import SlidingThreadPoolExecutor as SlidingThreadPoolExecutor
    from swarm.executors import (
        TaskCountLimitedThreadPoolExecutor as TaskCountLimitedThreadPoolExecutor,
    )
    from swarm.joint import AsyncJointSwarm as AsyncJointSwarm
    from swarm.joint import JointSwarm as JointSwarm
    from swarm.readers import RouterTaskReader as RouterTaskReader
    from swarm.run import Result as Result
    from swarm.run import Retry as Retry
    from swarm.run import rollout as rollout
    from swarm.run import run_episodes as run_episodes
    from swarm.run import run_episodes_until_all_complete as run_episodes_until_all_complete
    from swarm.run_record import RunRecord as RunRecord
    from swarm.sync import SwarmClient as SwarmClient
    from swarm.task import OpenaiBaseUrlAndApiKey as OpenaiBaseUrlAndApiKey
    from swarm.task import Task as Task
    from swarm.task import WorkflowOutput as WorkflowOutput
    from swarm.task import WorkflowTask as WorkflowTask
    from swarm.throttle import SwarmThrottlePolicy as SwarmThrottlePolicy

_HOMES = {
    "AgentJetJob": "agentjet_job",
    "AsyncEpisode": "episode",
    "AsyncJointSwarm": "joint",
    "AsyncSwarm": "asynchronous",
    "BoundedThreadPoolExecutor": "executors",
    "Episode": "episode",
    "JointSwarm": "joint",
    "OpenaiBaseUrlAndApiKey": "task",
    "PeriodicDrainThreadPoolExecutor": "executors",
    "Result": "run",
    "Retry": "run",
    "RouterTaskReader": "readers",
    "RunRecord": "run_record",
    "SlidingThreadPoolExecutor": "executors",
    "SwarmClient": "sync",
    "SwarmError": "errors",
    "SwarmThrottlePolicy": "throttle",
    "Task": "task",
    "TaskCountLimitedThreadPoolExecutor": "executors",
    "TrainingFinished": "errors",
    "WorkflowOutput": "task",
    "WorkflowTask": "task",
    "rollout": "run",
    "run_episodes": "run",
    "run_episodes_until_all_complete": "run",
}
"""Name -> the module it is loaded from."""

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'swarm' has no attribute {name!r}")
    return getattr(importlib.import_module(f"swarm.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *_HOMES]
