"""Asynchronous client of one swarm server: a method for each route.

It does not retry, wait for a state or track episodes. `ajet_swarm.api.watcher` polls the status,
and `ajet_swarm.episodes.claim` claims groups.
"""

import os
from typing import Any

from ajet_swarm.api.episodes import EpisodeRoutes
from ajet_swarm.api.interface import SwarmApi
from ajet_swarm.api.outcomes import already_trained, decoded
from ajet_swarm.api.wire import ENGINE, GENERAL, QUICK
from ajet_swarm.http.interface import Request, Transport
from ajet_swarm.protocol.errors import ServerRefusal, SwarmError, TrainingFinished, TransportError
from ajet_swarm.protocol.job import JobError
from ajet_swarm.protocol.schemas import (
    EngineStatus,
    ExperimentDir,
    PoolInfo,
    VerboseLog,
    VerboseLogs,
    Verdict,
)
from ajet_swarm.protocol.server_job import MODEL_VARIABLE, for_server

_CHECK_JOB = "/ajetc/check_job"
"""Route of the embedded engine that checks a job and stores nothing."""

MORE_STEPS = "Ask for more steps, or reset the policy"
"""Remedy for a job whose steps are all trained."""

__all__ = ["ENGINE", "GENERAL", "QUICK", "AsyncSwarmClient"]


class AsyncSwarmClient(EpisodeRoutes):
    """All routes of one server; arguments as of `ServerRequests`."""

    context_length: int | None = None
    trouble = ""
    _features: frozenset[str] | None = None

    async def status(self, *, timeout: float = QUICK) -> EngineStatus:
        """Return the state of the engine.

        Raises:
            TransportError: no response.
            SwarmError: not the response of a swarm server.
        """
        return await self._get("/get_engine_status", EngineStatus, timeout)

    async def pool(self, *, timeout: float = QUICK) -> PoolInfo | None:
        """Return the progress of the batch; None when the server could not report it.

        Raises:
            TransportError: no response.
        """
        try:
            pool = await self._get("/get_current_batch_rollout_pool_information", PoolInfo, timeout)
        except TransportError:
            raise
        except SwarmError:
            return None
        return None if pool.is_default else pool

    async def sync_train_config(self, yaml: str) -> str:
        """Store the job that the next start runs.

        An AgentJet server reads the job only at that start. Keys without which it never starts are
        added for it.

        Returns:
            The job as it was sent.

        Raises:
            JobError: no AgentJet server can start with it. Nothing was sent.
            TrainingFinished: as of `prepared`. Nothing was sent.
            SwarmError: refused (only an OFFLINE engine accepts a job), or no response.
        """
        text = await self.prepared(yaml)
        await self._do("/sync_train_config", {"yaml_as_string": text}, ENGINE)
        return text

    async def prepared(self, yaml: str) -> str:
        """Check a job for this server and return it as `sync_train_config` sends it.

        Raises:
            JobError: this server cannot start with it.
            TrainingFinished: all steps of the job are trained already.
            SwarmError: the server does not respond.
        """
        if await self.is_embedded():
            if _CHECK_JOB in await self.features():
                try:
                    await self._do(_CHECK_JOB, {"yaml_as_string": yaml}, QUICK)
                except ServerRefusal as error:
                    if complete := already_trained(error.text):
                        raise TrainingFinished(complete, self.name, MORE_STEPS) from error
                    raise JobError(error.what, "job", "Correct the job") from error
            return yaml
        return for_server(yaml, os.environ.get(MODEL_VARIABLE, "")).text

    async def is_embedded(self) -> bool:
        """Return whether the server is the embedded engine, as its list of routes shows.

        Raises:
            TransportError: no response.
        """
        return await serves_engine(self)

    async def start_engine(self) -> int | None:
        """Start training and return the trainer's process id.

        After a failed start, only `stop_engine` helps.

        Raises:
            SwarmError: refused, with the server's text, or no response.
        """
        return (await self._do("/start_engine", {}, ENGINE)).pid

    async def stop_engine(self) -> None:
        """Stop training for all clients; the server freezes for up to 19 s.

        Raises:
            SwarmError: refused, or no response.
        """
        self.stopped_at = self._wall()
        await self._do("/stop_engine", {}, ENGINE)

    async def agree_sync_weight(self) -> bool:
        """Agree to end the batch; return False if this client does not count as active.

        Raises:
            SwarmError: the stop rule of the engine has no agreement (a 500), or no response.
        """
        response = await self._send("/agree_sync_weight", {"client_uuid": self.client_uuid}, QUICK)
        return bool(decoded(response, Verdict, self.url).success)

    async def verbose_logs(self) -> list[VerboseLog]:
        """Return the log lines of the last 30 s, at most 50; none if the server lacks the route.

        Raises:
            SwarmError: no usable response.
        """
        try:
            return (await self._get("/get_verbose_logs", VerboseLogs, QUICK)).entries
        except ServerRefusal as error:
            if error.status == 404:
                return []
            raise

    async def experiment_dir(self) -> str | None:
        """Return the folder of the server's run; None when it has none or does not report it.

        Raises:
            SwarmError: no usable response.
        """
        try:
            answer = await self._get("/get_server_experiment_dir", ExperimentDir, QUICK)
        except ServerRefusal as error:
            if error.status == 404:
                return None
            raise
        return answer.server_experiment_dir

    async def features(self, *, again: bool = False) -> frozenset[str]:
        """Return the paths of the server, from its `/openapi.json`; cached.

        Args:
            again: Read them again, as after a restart with another version.

        Raises:
            SwarmError: no usable response.
        """
        if self._features is None or again:
            self._features = await served_paths(self.transport, self.url)
        return self._features


async def served_paths(transport: Transport, url: str) -> frozenset[str]:
    """Return the paths a server serves, from its `/openapi.json`.

    Raises:
        SwarmError: no usable response.
    """
    where = f"{url}/openapi.json"
    response = await transport.request(Request("GET", where, timeout=QUICK, repeatable=True))
    paths = decoded(response, dict[str, Any], where).get("paths")
    return frozenset(paths if isinstance(paths, dict) else ())


async def serves_engine(server: SwarmApi) -> bool:
    """Return whether a server lists routes of the embedded engine.

    Raises:
        TransportError: no response.
    """
    try:
        paths = await server.features(again=True)
    except TransportError:
        raise
    except SwarmError:  # the server publishes no schema
        return False
    return any(path.startswith("/ajetc/") for path in paths)
