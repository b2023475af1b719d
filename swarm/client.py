"""One swarm server, spoken to asynchronously.

Nothing here retries, waits for a state or keeps count of episodes: `swarm.watcher` watches,
`swarm.claims` claims groups, the caller decides.
"""

import time
from typing import Any

from swarm.answers import decoded
from swarm.episodes import EpisodeCalls
from swarm.errors import Refusal, SwarmError, TransportError
from swarm.schemas import EngineStatus, ExperimentDir, PoolInfo, VerboseLog, VerboseLogs, Verdict
from swarm.wire import ENGINE, GENERAL, QUICK

__all__ = ["ENGINE", "GENERAL", "QUICK", "AsyncSwarmClient"]


class AsyncSwarmClient(EpisodeCalls):
    """See `Wire`."""

    _features: frozenset[str] | None = None

    async def status(self, *, timeout: float = QUICK) -> EngineStatus:
        """What the engine is doing.

        Raises:
            TransportError: no answer.
            SwarmError: not the answer of a swarm server.
        """
        return await self._get("/get_engine_status", EngineStatus, timeout)

    async def pool(self, *, timeout: float = QUICK) -> PoolInfo | None:
        """How far the batch is; None when the server could not tell.

        Raises:
            TransportError: no answer.
        """
        try:
            pool = await self._get("/get_current_batch_rollout_pool_information", PoolInfo, timeout)
        except TransportError:
            raise
        except SwarmError:
            return None
        return None if pool.is_default else pool

    async def sync_train_config(self, yaml: str) -> None:
        """Store the job the next start runs. Its text is not looked at before that.

        Raises:
            SwarmError: refused (only an OFFLINE engine takes one) or no answer.
        """
        await self._do("/sync_train_config", {"yaml_as_string": yaml}, ENGINE)

    async def start_engine(self) -> int | None:
        """Start training; the trainer's process id. After a failure only a stop helps.

        Raises:
            SwarmError: refused, with the server's text, or no answer.
        """
        return (await self._do("/start_engine", {}, ENGINE)).pid

    async def stop_engine(self) -> None:
        """Stop training, whoever uses it; freezes the server for up to 19 s.

        Raises:
            SwarmError: refused or no answer.
        """
        self.stopped_at = time.time()
        await self._do("/stop_engine", {}, ENGINE)

    async def agree_sync_weight(self) -> bool:
        """Agree to end the batch; False when the server does not count us as active.

        Raises:
            SwarmError: the running stop rule takes no agreement (a 500), or no answer.
        """
        response = await self._send("/agree_sync_weight", {"client_uuid": self.client_uuid}, QUICK)
        return bool(decoded(response, Verdict, self.url).success)

    async def verbose_logs(self) -> list[VerboseLog]:
        """The server's latest log lines (30 s, at most 50); empty on servers without the route.

        Raises:
            SwarmError: no usable answer.
        """
        try:
            return (await self._get("/get_verbose_logs", VerboseLogs, QUICK)).entries
        except Refusal as error:
            if error.status == 404:
                return []
            raise

    async def experiment_dir(self) -> str | None:
        """Where the server writes its run; None when it has none or does not tell.

        Raises:
            SwarmError: no usable answer.
        """
        try:
            answer = await self._get("/get_server_experiment_dir", ExperimentDir, QUICK)
        except Refusal as error:
            if error.status == 404:
                return None
            raise
        return answer.server_experiment_dir

    async def features(self, *, again: bool = False) -> frozenset[str]:
        """The paths the server serves, from its `/openapi.json`; read once.

        Args:
            again: Read anew, as after a restart with another version.

        Raises:
            SwarmError: no usable answer.
        """
        if self._features is None or again:
            schema = await self._get("/openapi.json", dict[str, Any], QUICK)
            paths = schema.get("paths")
            self._features = frozenset(paths if isinstance(paths, dict) else ())
        return self._features
