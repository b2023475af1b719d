"""One swarm server, spoken to asynchronously.

Nothing here retries, waits for a state or keeps count of episodes: `swarm.watcher` watches,
`swarm.claims` claims groups, the caller decides.
"""

import math
import time
from collections.abc import Awaitable, Mapping
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec

from swarm.answers import (
    ChatAnswer,
    Claimed,
    EndKind,
    EndOutcome,
    Refused,
    RefusedKind,
    decoded,
    end_outcome,
    refusal,
    refused,
    verdict,
)
from swarm.chat import CHAT, ask, ask_stream
from swarm.errors import (
    Refusal,
    SwarmError,
    TransportError,
)
from swarm.schemas import (
    CanContinue,
    ClaimAnswer,
    EngineStatus,
    EpisodeBuffer,
    EpisodeRecord,
    ExperimentDir,
    PoolInfo,
    VerboseLog,
    VerboseLogs,
    Verdict,
    WorkflowOutput,
)
from swarm.seam import Response, Transport
from swarm.streaming import OnDelta

T = TypeVar("T")

GENERAL = 30.0
"""Seconds for a route that changes something."""
QUICK = 10.0
"""Seconds for a route that tells something."""
ENGINE = 600.0
"""Seconds for starting and stopping: the server may freeze meanwhile."""

_JSON = {"Content-Type": "application/json"}
_encode = msgspec.json.Encoder().encode


class AsyncSwarmClient:
    """Client of one server.

    Args:
        url: `http://host:port`, a path below it and a trailing slash are tolerated.
        transport: How requests travel; shared with other clients and closed by its owner.
        client_uuid: Who we are to the server. Keep it over restarts: only the client that claimed
            an episode may end it.
        name: What to call the server, for people; its url when empty.

    Raises:
        SwarmError: `url` is not one.
    """

    def __init__(self, url: str, transport: Transport, client_uuid: str, *, name: str = "") -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise SwarmError("not the address of a server", url, "Give it as http://host:port")
        self.url = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
        self.transport = transport
        self.client_uuid = client_uuid
        self.name = name or self.url
        self.stopped_at = 0.0
        """Unix seconds at which this client last stopped the engine; 0 when it never did."""
        self._features: frozenset[str] | None = None

    async def status(self, *, timeout: float = QUICK) -> EngineStatus:
        """What the engine is doing.

        Raises:
            TransportError: no answer.
            SwarmError: not the answer of a swarm server.
        """
        return await self._get("/get_engine_status", EngineStatus, timeout)

    async def claim(
        self,
        episode_type: str = "train",
        discard_episode_timeout: float = 240.0,
        *,
        timeout: float = GENERAL,
    ) -> Claimed | Refused:
        """Claim one episode; never raises for what a server or a network does.

        A claim whose answer is lost is `Refused(UNKNOWN)`: it may have happened, so look for a
        record of ours in `buffer` before claiming more.
        """
        at = time.time()
        body = {
            "client_uuid": self.client_uuid,
            "episode_type": episode_type,
            "discard_episode_timeout": discard_episode_timeout,
            "throttle_policy": None,
        }
        try:
            answer = decoded(
                await self._send("/claim_episode", body, timeout), ClaimAnswer, self.url
            )
        except TransportError as error:
            kind = RefusedKind.UNKNOWN if error.sent else RefusedKind.UNREACHABLE
            return Refused(kind, str(error))
        except Refusal as error:
            known = 400 <= error.status < 500  # a 5xx may come after the claim was noted
            return Refused(RefusedKind.OTHER if known else RefusedKind.UNKNOWN, str(error))
        except SwarmError as error:
            return Refused(RefusedKind.UNKNOWN, str(error))
        if not (answer.success and answer.episode_uuid):
            return refused(answer.fail_cause or "")
        return Claimed(
            episode_uuid=answer.episode_uuid,
            base_url=self._base_url(answer.openai_base_url or ""),
            api_key=answer.openai_api_key or "",
            episode_type=episode_type,
            at=at,
            discard_timeout=discard_episode_timeout,
        )

    async def end(
        self,
        episode_uuid: str,
        task_id: str,
        output: WorkflowOutput,
        declare_client_active: bool = True,
        *,
        timeout: float = GENERAL,
    ) -> EndOutcome:
        """Send an episode's reward, once; `metadata.task_id` is set here.

        Raises:
            SwarmError: the reward is not one finite number, or there is no task id: the server
                would say yes and drop the episode.
        """
        if not _finite(output.reward):
            raise SwarmError(
                f"a reward must be one finite number, not {output.reward!r}", episode_uuid
            )
        if not task_id:
            raise SwarmError("an episode cannot be ended without a task id", episode_uuid)
        body = {
            "client_uuid": self.client_uuid,
            "episode_uuid": episode_uuid,
            "task_id": task_id,
            "workflow_output": {
                "reward": float(output.reward),
                "is_success": output.is_success,
                "metadata": {**output.metadata, "task_id": task_id},
                "log_metrics": output.log_metrics,
            },
            "declare_client_active": declare_client_active,
        }
        try:
            return end_outcome(await self._send("/end_episode", body, timeout))
        except TransportError as error:
            kind = EndKind.UNKNOWN_OUTCOME if error.sent else EndKind.UNREACHABLE
            return EndOutcome(kind, str(error))

    async def abort(
        self,
        episode_uuid: str,
        task_id: str = "",
        declare_client_active: bool = False,
        *,
        timeout: float = GENERAL,
    ) -> bool:
        """Give an episode back; True when the server said yes. Never raises, never resends.

        The server checks no owner: aborting an episode that was taken back aborts its new owner's.
        """
        body = {
            "client_uuid": self.client_uuid,
            "episode_uuid": episode_uuid,
            "task_id": task_id,
            "workflow_output": {
                "reward": None,
                "is_success": None,
                "metadata": {"task_id": task_id} if task_id else {},
                "log_metrics": {},
            },
            "declare_client_active": declare_client_active,
        }
        try:
            response = await self._send("/abort_episode", body, timeout)
        except TransportError:
            return False
        return response.status == 200 and verdict(response).success is not False

    async def can_continue(self, episode_uuid: str) -> bool | None:
        """Whether the episode is still claimed and the engine rolling; None when not known."""
        body = {"client_uuid": self.client_uuid, "episode_uuid": episode_uuid}
        try:
            answer = await self._send("/can_continue_episode", body, QUICK, repeatable=True)
            return decoded(answer, CanContinue, self.url).can_continue
        except SwarmError:
            return None

    async def buffer(self, *, timeout: float = QUICK) -> list[EpisodeRecord]:
        """All live episodes of all clients.

        Raises:
            SwarmError: no usable answer.
        """
        answer = await self._send("/get_episode_buffer", {}, timeout, repeatable=True)
        return decoded(answer, EpisodeBuffer, self.url).buffer

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

    def chat(
        self,
        claimed: Claimed,
        body: bytes | Mapping[str, Any],
        headers: Mapping[str, str] | None = None,
        timeout: float = CHAT,
    ) -> Awaitable[ChatAnswer]:
        """See `swarm.chat.ask`."""
        return ask(self.transport, claimed, body, headers, timeout)

    def chat_stream(
        self,
        claimed: Claimed,
        body: Mapping[str, Any],
        on_delta: OnDelta,
        headers: Mapping[str, str] | None = None,
        timeout: float = CHAT,
    ) -> Awaitable[ChatAnswer]:
        """See `swarm.chat.ask_stream`."""
        return ask_stream(self.transport, claimed, body, on_delta, headers, timeout)

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

    def _base_url(self, told: str) -> str:
        """The server's base url seen from here: its own host and port mean nothing to us."""
        path = "/" + urlsplit(told).path.strip("/")
        return self.url + (path if path != "/" else "/v1")

    async def _get(self, path: str, kind: type[T], timeout: float) -> T:
        url = self.url + path
        return decoded(
            await self.transport.request("GET", url, timeout=timeout, repeatable=True), kind, url
        )

    async def _send(
        self, path: str, body: Mapping[str, Any], timeout: float, *, repeatable: bool = False
    ) -> Response:
        return await self.transport.request(
            "POST",
            self.url + path,
            body=_encode(body),
            headers=_JSON,
            timeout=timeout,
            repeatable=repeatable,
        )

    async def _do(self, path: str, body: Mapping[str, Any], timeout: float) -> Verdict:
        response = await self._send(path, body, timeout)
        told = decoded(response, Verdict, self.url + path)
        if told.success is False:
            raise refusal(response, self.url + path)
        return told


def _finite(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
