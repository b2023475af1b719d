"""Routes of episodes: claim, chat, end and abort."""

import math
from collections.abc import Awaitable, Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from ajet_swarm.api.chat import CHAT, ask, ask_stream
from ajet_swarm.api.chat_stream import OnDelta
from ajet_swarm.api.outcomes import (
    AbortKind,
    ChatAnswer,
    Claimed,
    ClaimRefused,
    EndKind,
    EndOutcome,
    RefusedKind,
    abort_kind,
    decoded,
    end_outcome,
    refused,
)
from ajet_swarm.api.wire import GENERAL, QUICK, ServerRequests
from ajet_swarm.http.interface import Response
from ajet_swarm.protocol.errors import ServerRefusal, SwarmError, TimedOut, TransportError
from ajet_swarm.protocol.schemas import (
    CanContinue,
    ClaimAnswer,
    EpisodeBuffer,
    EpisodeRecord,
    WireOutput,
)


class EpisodeRoutes(ServerRequests):
    """The routes of one server that concern episodes."""

    async def claim(
        self,
        episode_type: str = "train",
        discard_episode_timeout: float = 240.0,
        *,
        timeout: float = GENERAL,
        throttle_policy: Mapping[str, Any] | None = None,
    ) -> Claimed | ClaimRefused:
        """Claim one episode; never raise for a fault of the server or the network.

        A claim without a response returns `ClaimRefused(UNKNOWN)`: it may have succeeded, so check
        `buffer` for a record of this client before claiming more.
        """
        at = self._wall()
        body = {
            "client_uuid": self.client_uuid,
            "episode_type": episode_type,
            "discard_episode_timeout": discard_episode_timeout,
            "throttle_policy": throttle_policy,
        }
        try:
            answer = await self._send("/claim_episode", body, timeout)
        except TransportError as error:
            kind = RefusedKind.UNKNOWN if error.sent else RefusedKind.UNREACHABLE
            return ClaimRefused(kind, str(error))
        return self._claimed(answer, episode_type, discard_episode_timeout, at)

    def _claimed(
        self, response: Response, episode_type: str, discard_timeout: float, at: float
    ) -> Claimed | ClaimRefused:
        try:
            answer = decoded(response, ClaimAnswer, self.url)
        except ServerRefusal as error:
            known = (
                400 <= error.status < 500
            )  # a 5xx may occur after the server has recorded the claim
            return ClaimRefused(RefusedKind.OTHER if known else RefusedKind.UNKNOWN, str(error))
        except SwarmError as error:
            return ClaimRefused(RefusedKind.UNKNOWN, str(error))
        if not (answer.success and answer.episode_uuid):
            return refused(answer.fail_cause or "")
        return Claimed(
            episode_uuid=answer.episode_uuid,
            base_url=self._base_url(answer.openai_base_url or ""),
            api_key=answer.openai_api_key or "",
            episode_type=episode_type,
            at=at,
            discard_timeout=discard_timeout,
        )

    async def end(
        self,
        episode_uuid: str,
        task_id: str,
        output: WireOutput,
        declare_client_active: bool = True,
        *,
        timeout: float = GENERAL,
    ) -> EndOutcome:
        """Send an episode's reward, once; `metadata.task_id` is set here.

        Raises:
            SwarmError: the reward is not one finite number, or there is no task id: the server
                would accept the end and discard the episode.
        """
        reward: object = output.reward
        if not (isinstance(reward, int | float) and math.isfinite(reward)):
            raise SwarmError(f"a reward must be one finite number, not {reward!r}", episode_uuid)
        if not task_id:
            raise SwarmError("an episode cannot be ended without a task id", episode_uuid)
        body = {
            "client_uuid": self.client_uuid,
            "episode_uuid": episode_uuid,
            "task_id": task_id,
            "workflow_output": {
                "reward": float(reward),
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
            return EndOutcome(kind, str(error), timed_out=isinstance(error, TimedOut))

    async def abort(
        self,
        episode_uuid: str,
        task_id: str = "",
        declare_client_active: bool = False,
        *,
        timeout: float = GENERAL,
    ) -> AbortKind:
        """Abort an episode, once; never raise for a fault of the server or the network.

        The server does not check the owner: if it took the episode back and gave it to another
        client, this aborts the episode of that client.
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
            return abort_kind(await self._send("/abort_episode", body, timeout))
        except TransportError as error:
            return AbortKind.UNKNOWN_OUTCOME if error.sent else AbortKind.UNREACHABLE

    async def can_continue(self, episode_uuid: str) -> bool | None:
        """Return whether an episode is claimed and the engine rolls; None if that is unknown."""
        body = {"client_uuid": self.client_uuid, "episode_uuid": episode_uuid}
        try:
            answer = await self._send("/can_continue_episode", body, QUICK, repeatable=True)
            return decoded(answer, CanContinue, self.url).can_continue
        except SwarmError:
            return None

    async def buffer(self, *, timeout: float = QUICK) -> list[EpisodeRecord]:
        """Return all live episodes of all clients.

        Raises:
            SwarmError: no usable response.
        """
        answer = await self._send("/get_episode_buffer", {}, timeout, repeatable=True)
        return decoded(answer, EpisodeBuffer, self.url).buffer

    def chat(
        self,
        claimed: Claimed,
        body: bytes | Mapping[str, Any],
        headers: Mapping[str, str] | None = None,
        timeout: float = CHAT,
        most: int = 0,
    ) -> Awaitable[ChatAnswer]:
        """See `ajet_swarm.api.chat.ask`."""
        return ask(self.transport, claimed, body, headers, timeout, most)

    def chat_stream(
        self,
        claimed: Claimed,
        body: Mapping[str, Any],
        on_delta: OnDelta,
        headers: Mapping[str, str] | None = None,
        timeout: float = CHAT,
        most: int = 0,
    ) -> Awaitable[ChatAnswer]:
        """See `ajet_swarm.api.chat.ask_stream`."""
        return ask_stream(
            self.transport, claimed, body, on_delta, headers, timeout, most, chance=self._chance
        )

    def _base_url(self, reported: str) -> str:
        """Return the base URL at this client's address: the reported host may not be reachable."""
        path = _path_of(reported)
        return self.url + (path if path != "/" else "/v1")


@lru_cache(maxsize=64)
def _path_of(url: str) -> str:
    try:
        return "/" + urlsplit(url).path.strip("/")
    except ValueError:  # not an address: use the default path
        return "/"
