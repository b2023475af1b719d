"""The AgentJet swarm protocol as a client library.

A script starts an engine with a job, claims an episode, asks the policy through the episode's
OpenAI address, and ends it with a reward; an episode that is left without an end is given back:

    from ajet_swarm import AgentJetJob, SwarmClient, Task

    with SwarmClient() as client:  # AJET_SWARM_URL, else http://localhost:10086
        client.auto_sync_train_config_and_start_engine(AgentJetJob(batch_size=4, num_repeat=4))
        with client.episode(Task(task_id="1", main_query="What is 2 + 2?")) as episode:
            ...  # the agent asks the model at episode.base_url with the key episode.api_key
            episode.end(1.0)

`run_episodes` runs many of them in threads, `AsyncSwarm` is the same client for asyncio, and
docs/library/README.md is the page for authors of scripts. Folders, each above the next one:

    debug     one episode of a black-box agent, with a trace
    runs      many episodes: threads, retries, resumption
    data      readers of datasets
    client    the clients, episodes, throttling, several servers
    episodes  claims and ends of episodes: queue, attempts, deadlines, releases
    api       the routes of one server, its responses, the status watcher
    http      requests and responses, over aiohttp
    job       the job: its tree, its keys, what a server needs
    protocol  types, errors
    common    tasks, text, YAML, addresses

`init compat` has all names that an AgentJet script imports. Names are imported on first access, so
`import ajet_swarm` costs nothing.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ajet_swarm.client.asynchronous import AsyncSwarm as AsyncSwarm
    from ajet_swarm.client.episode import AsyncEpisode as AsyncEpisode
    from ajet_swarm.client.episode import Episode as Episode
    from ajet_swarm.client.multi_server import AsyncJointSwarm as AsyncJointSwarm
    from ajet_swarm.client.multi_server import JointSwarm as JointSwarm
    from ajet_swarm.client.synchronous import SwarmClient as SwarmClient
    from ajet_swarm.data.readers import RouterTaskReader as RouterTaskReader
    from ajet_swarm.job.agentjet import AgentJetJob as AgentJetJob
    from ajet_swarm.protocol.errors import SwarmError as SwarmError
    from ajet_swarm.protocol.errors import TrainingFinished as TrainingFinished
    from ajet_swarm.protocol.models import OpenaiBaseUrlAndApiKey as OpenaiBaseUrlAndApiKey
    from ajet_swarm.protocol.models import SwarmThrottlePolicy as SwarmThrottlePolicy
    from ajet_swarm.protocol.models import Task as Task
    from ajet_swarm.protocol.models import WorkflowOutput as WorkflowOutput
    from ajet_swarm.protocol.models import WorkflowTask as WorkflowTask
    from ajet_swarm.runs.episodes import rollout as rollout
    from ajet_swarm.runs.episodes import run_episodes as run_episodes
    from ajet_swarm.runs.episodes import (
        run_episodes_until_all_complete as run_episodes_until_all_complete,
    )
    from ajet_swarm.runs.executors import BoundedThreadPoolExecutor as BoundedThreadPoolExecutor
    from ajet_swarm.runs.executors import (
        PeriodicDrainThreadPoolExecutor as PeriodicDrainThreadPoolExecutor,
    )
    from ajet_swarm.runs.executors import Result as Result
    from ajet_swarm.runs.executors import Retry as Retry
    from ajet_swarm.runs.executors import SlidingThreadPoolExecutor as SlidingThreadPoolExecutor
    from ajet_swarm.runs.executors import (
        TaskCountLimitedThreadPoolExecutor as TaskCountLimitedThreadPoolExecutor,
    )
    from ajet_swarm.runs.record import RunRecord as RunRecord

__version__ = "0.2.0.dev0"
"""Version of the distributions `ajet-swarm` and `ajet-console`."""

_NAMES = {
    "client.asynchronous": "AsyncSwarm",
    "client.episode": "AsyncEpisode Episode",
    "client.multi_server": "AsyncJointSwarm JointSwarm",
    "client.synchronous": "SwarmClient",
    "data.readers": "RouterTaskReader",
    "job.agentjet": "AgentJetJob",
    "protocol.errors": "SwarmError TrainingFinished",
    "protocol.models": "OpenaiBaseUrlAndApiKey SwarmThrottlePolicy Task WorkflowOutput "
    "WorkflowTask",
    "runs.episodes": "rollout run_episodes run_episodes_until_all_complete",
    "runs.executors": "BoundedThreadPoolExecutor PeriodicDrainThreadPoolExecutor Result Retry "
    "SlidingThreadPoolExecutor TaskCountLimitedThreadPoolExecutor",
    "runs.record": "RunRecord",
}
"""Module -> its names."""
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'ajet_swarm' has no attribute {name!r}")
    return getattr(importlib.import_module(f"ajet_swarm.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *_HOMES]
