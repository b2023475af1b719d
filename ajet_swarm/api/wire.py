"""The routes of a swarm server, and requests to one server.

`SwarmWire` has a method for each route. It does not retry, wait for a state or track episodes:
`ajet_swarm.api.watcher` polls the status, and `ajet_swarm.episodes.claim` claims groups. A route is
a line of the table below, and a method that says what its answers and faults mean:

    LOGS = Route("/get_verbose_logs", VerboseLogs, reads=True, get=True, optional=True)

    async def verbose_logs(self) -> list[VerboseLog]:
        return (await self._ask(LOGS)).entries
"""

import math
import os
import re
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Generic, TypeVar, Unpack, cast
from urllib.parse import urlsplit

import msgspec

from ajet_swarm.api.chat import ChatAnswer, ChatOptions, ask
from ajet_swarm.common.urls import web_address
from ajet_swarm.http.interface import Request, Response, Transport
from ajet_swarm.job.server import MODEL_VARIABLE, for_server
from ajet_swarm.job.tree import JobError
from ajet_swarm.protocol.errors import (
    ServerRefusal,
    SwarmError,
    TimedOut,
    TrainingFinished,
    TransportError,
    WrongUse,
)
from ajet_swarm.protocol.schemas import (
    AbortKind,
    Agreement,
    CanContinue,
    ClaimAnswer,
    Claimed,
    ClaimRefused,
    EndKind,
    EndOutcome,
    EngineStatus,
    EpisodeBuffer,
    EpisodeRecord,
    ExperimentDir,
    PoolInfo,
    RefusedKind,
    VerboseLog,
    VerboseLogs,
    Verdict,
    WireOutput,
)
from ajet_swarm.runtime import SYSTEM, Runtime

T = TypeVar("T")

MORE_STEPS = "Ask for more steps, or reset the policy"
"""Remedy for a job whose steps are all trained."""

GENERAL = 30.0
"""Timeout in seconds of a route that changes state."""
RUNNER = 310.0
"""Timeout in seconds of an end or an abort. A server waits up to 300 s until the runner
acknowledges it, and shows the episode as claimed meanwhile."""
QUICK = 10.0
"""Timeout in seconds of a route that only reads."""
ENGINE = 600.0
"""Timeout in seconds of a start or a stop, during which the server may freeze."""

encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Route(Generic[T]):
    """One route of a server."""

    path: str
    answer: type[T]
    """Its answer; a `Verdict` without success is a refusal, and `Response` the answer as it is."""
    timeout: float = QUICK
    """Seconds."""
    get: bool = False
    reads: bool = False
    """It changes nothing: the request is sent again if its connection breaks."""
    optional: bool = False
    """Older servers lack it: a 404 is an empty answer."""


STATUS = Route("/get_engine_status", EngineStatus, get=True, reads=True)
POOL = Route("/get_current_batch_rollout_pool_information", PoolInfo, get=True, reads=True)
LOGS = Route("/get_verbose_logs", VerboseLogs, get=True, reads=True, optional=True)
EXPERIMENT = Route("/get_server_experiment_dir", ExperimentDir, get=True, reads=True, optional=True)
SCHEMA = Route("/openapi.json", dict[str, Any], get=True, reads=True)
BUFFER = Route("/get_episode_buffer", EpisodeBuffer, reads=True)
CAN_CONTINUE = Route("/can_continue_episode", CanContinue, reads=True)
CLAIM = Route("/claim_episode", ClaimAnswer, GENERAL)
END = Route("/end_episode", Response, GENERAL)
ABORT = Route("/abort_episode", Response, GENERAL)
JOB = Route("/sync_train_config", Verdict, ENGINE)
CHECK_JOB = Route("/ajetc/check_job", Verdict)
"""A route of the embedded engine that checks a job and stores nothing."""
START = Route("/start_engine", Verdict, ENGINE)
STOP = Route("/stop_engine", Verdict, ENGINE)
AGREE = Route("/agree_sync_weight", Agreement)


@dataclass(slots=True)
class ServerFacts:
    """What a server says of itself beside its status; an AgentJet server says none of it."""

    models: tuple[str, ...] = ()
    """Its models, the default first."""
    context_length: int | None = None
    """Context window in tokens."""
    trouble: str = ""
    """What is wrong with it although it answers; empty if nothing is."""


class SwarmWire:
    """All routes of one server.

    Args:
        url: `http://host:port`, optionally with a path and a trailing slash.
        transport: Sends the requests. It may be shared; its owner closes it.
        client_uuid: Identity of this client. Keep it across restarts: only the client that claimed
            an episode may end it.
        name: Name of the server in messages; default its URL.
        runtime: Source of times and ids.

    Raises:
        WrongUse: `url` is not an address, or contains a user or a password.
    """

    _features: frozenset[str] | None = None

    def __init__(
        self,
        url: str,
        transport: Transport,
        client_uuid: str,
        *,
        name: str = "",
        runtime: Runtime = SYSTEM,
    ) -> None:
        parts = web_address(url)
        if parts is None:
            raise WrongUse("not the address of a server", url, "Give it as http://host:port")
        if "@" in parts.netloc:
            where = parts.netloc.rpartition("@")[2]
            todo = "Leave them out: the swarm protocol has no login"
            raise WrongUse("the address of a server contains a user or a password", where, todo)
        self.url = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
        self.transport = transport
        self.client_uuid = client_uuid
        self.name = name or self.url
        self.stopped_at = 0.0
        """Unix seconds at which this client last stopped the engine; 0 if it never did."""
        self.facts = ServerFacts()
        self._runtime = runtime

    # --- the engine -----------------------------------------------------------------------------

    async def status(self, *, timeout: float = QUICK) -> EngineStatus:
        """Return the state of the engine.

        Raises:
            TransportError: no response.
            SwarmError: not the response of a swarm server.
        """
        return await self._ask(STATUS, timeout=timeout)

    async def pool(self, *, timeout: float = QUICK) -> PoolInfo | None:
        """Return the progress of the batch; None when the server could not report it.

        Raises:
            TransportError: no response.
        """
        try:
            pool = await self._ask(POOL, timeout=timeout)
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
        await self._ask(JOB, {"yaml_as_string": text})
        return text

    async def prepared(self, yaml: str) -> str:
        """Check a job for this server and return it as `sync_train_config` sends it.

        Raises:
            JobError: this server cannot start with it.
            TrainingFinished: all steps of the job are trained already.
            SwarmError: the server does not respond.
        """
        if not await self.is_embedded():
            return for_server(yaml, os.environ.get(MODEL_VARIABLE, "")).text
        if CHECK_JOB.path in await self.features():
            try:
                await self._ask(CHECK_JOB, {"yaml_as_string": yaml})
            except ServerRefusal as error:
                if complete := already_trained(error.text):
                    raise TrainingFinished(complete, self.name, MORE_STEPS) from error
                raise JobError(error.what, "job", "Correct the job") from error
        return yaml

    async def is_embedded(self) -> bool:
        """Return whether the server is the embedded engine, as its list of routes shows.

        Raises:
            TransportError: no response.
        """
        try:
            paths = await self.features(again=True)
        except TransportError:
            raise
        except SwarmError:  # the server publishes no schema
            return False
        return any(path.startswith("/ajetc/") for path in paths)

    async def start_engine(self) -> int | None:
        """Start training and return the trainer's process id.

        After a failed start, only `stop_engine` helps.

        Raises:
            SwarmError: refused, with the server's text, or no response.
        """
        return (await self._ask(START, {})).pid

    async def stop_engine(self) -> None:
        """Stop training for all clients; the server freezes for up to 19 s.

        Raises:
            SwarmError: refused, or no response.
        """
        self.stopped_at = self._runtime.clock.wall()
        await self._ask(STOP, {})

    async def agree_sync_weight(self) -> bool:
        """Agree to end the batch; return False if this client does not count as active.

        Raises:
            SwarmError: the stop rule of the engine has no agreement (a 500), or no response.
        """
        return bool((await self._ask(AGREE, {"client_uuid": self.client_uuid})).success)

    async def verbose_logs(self) -> list[VerboseLog]:
        """Return the log lines of the last 30 s, at most 50; none if the server lacks the route.

        Raises:
            SwarmError: no usable response.
        """
        return (await self._ask(LOGS)).entries

    async def experiment_dir(self) -> str | None:
        """Return the folder of the server's run; None when it has none or does not report it.

        Raises:
            SwarmError: no usable response.
        """
        return (await self._ask(EXPERIMENT)).server_experiment_dir

    async def features(self, *, again: bool = False) -> frozenset[str]:
        """Return the paths of the server, from its `/openapi.json`; cached.

        Args:
            again: Read them again, as after a restart with another version.

        Raises:
            SwarmError: no usable response.
        """
        if self._features is None or again:
            paths = (await self._ask(SCHEMA)).get("paths")
            self._features = frozenset(paths if isinstance(paths, dict) else ())
        return self._features

    # --- episodes -------------------------------------------------------------------------------

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
        at = self._runtime.clock.wall()
        body = {
            "client_uuid": self.client_uuid,
            "episode_type": episode_type,
            "discard_episode_timeout": discard_episode_timeout,
            "throttle_policy": throttle_policy,
        }
        try:
            answer = await self._ask(CLAIM, body, timeout)
        except SwarmError as error:
            kind = RefusedKind.UNKNOWN
            if isinstance(error, TransportError) and not error.sent:
                kind = RefusedKind.UNREACHABLE
            elif isinstance(error, ServerRefusal) and 400 <= error.status < 500:
                kind = RefusedKind.OTHER  # a 5xx may occur after the claim was recorded
            return ClaimRefused(kind, str(error))
        if not (answer.success and answer.episode_uuid):
            return refused(answer.fail_cause or "")
        return Claimed(
            episode_uuid=answer.episode_uuid,
            base_url=_base_url(self.url, answer.openai_base_url or ""),
            api_key=answer.openai_api_key or "",
            episode_type=episode_type,
            at=at,
            discard_timeout=discard_episode_timeout,
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
        body = _end_body(self.client_uuid, episode_uuid, task_id, output, declare_client_active)
        try:
            return end_outcome(await self._ask(END, body, timeout))
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
        body = _end_body(
            self.client_uuid, episode_uuid, task_id, WireOutput(None), declare_client_active
        )
        try:
            return abort_kind(await self._ask(ABORT, body, timeout))
        except TransportError as error:
            return AbortKind.UNKNOWN_OUTCOME if error.sent else AbortKind.UNREACHABLE

    async def can_continue(self, episode_uuid: str) -> bool | None:
        """Return whether an episode is claimed and the engine rolls; None if that is unknown."""
        body = {"client_uuid": self.client_uuid, "episode_uuid": episode_uuid}
        try:
            return (await self._ask(CAN_CONTINUE, body)).can_continue
        except SwarmError:
            return None

    async def buffer(self, *, timeout: float = QUICK) -> list[EpisodeRecord]:
        """Return all live episodes of all clients.

        Raises:
            SwarmError: no usable response.
        """
        return (await self._ask(BUFFER, {}, timeout)).buffer

    def chat(
        self,
        claimed: Claimed,
        body: bytes | Mapping[str, Any],
        **options: Unpack[ChatOptions],
    ) -> Awaitable[ChatAnswer]:
        """See `ajet_swarm.api.chat.ask`."""
        return ask(self.transport, claimed, body, chance=self._runtime.chance, **options)

    # --- requests -------------------------------------------------------------------------------

    async def _ask(
        self, route: Route[T], body: Mapping[str, Any] | None = None, timeout: float = 0.0
    ) -> T:
        """Return the answer of a route.

        Raises:
            SwarmError: no usable response.
        """
        response = await self.transport.request(
            Request(
                "GET" if route.get else "POST",
                self.url + route.path,
                body=None if body is None else encode(body),
                headers=None if body is None else {"Content-Type": "application/json"},
                timeout=timeout or route.timeout,
                repeatable=route.reads,
            )
        )
        if route.answer is Response:
            return cast("T", response)
        if route.optional and response.status == 404:
            return route.answer()
        return decoded(response, route.answer, self.url + route.path)


@lru_cache(maxsize=64)
def _base_url(server: str, reported: str) -> str:
    """Return the base URL at the client's address: the reported host may not be reachable."""
    try:
        path = urlsplit(reported).path.strip("/")
    except ValueError:  # not an address: use the default path
        path = ""
    return f"{server}/{path or 'v1'}"


def _end_body(
    client_uuid: str, episode_uuid: str, task_id: str, output: WireOutput, active: bool
) -> dict[str, Any]:
    """Return the body of an end or an abort."""
    named = {**output.metadata, "task_id": task_id} if task_id else output.metadata
    return {
        "client_uuid": client_uuid,
        "episode_uuid": episode_uuid,
        "task_id": task_id,
        "workflow_output": msgspec.structs.replace(output, metadata=named),
        "declare_client_active": active,
    }


_ALREADY: Final = re.compile(r"\d+ steps are asked for and the policy has \d+ already")
"""Text of the embedded engine's refusal of a job whose steps are all trained."""


# --- the meaning of an answer --------------------------------------------------------------------


def decoded(response: Response, kind: type[T], where: str) -> T:
    """Return the body of a 200 as `kind`.

    Raises:
        ServerRefusal: any other status, or a `Verdict` without success.
        SwarmError: the body is not that of the route.
    """
    if response.status != 200:
        raise _refusal(response, where)
    try:
        answer = msgspec.json.decode(response.body, type=kind, strict=False)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise SwarmError(
            f"the answer was not understood: {error}", where, "Is this an AgentJet swarm server?"
        ) from error
    if isinstance(answer, Verdict) and answer.success is False:
        raise _refusal(response, where)
    return answer


def already_trained(text: str) -> str:
    """Return a message for a refused job whose steps are all trained; empty for other refusals."""
    match = _ALREADY.search(text)
    return f"training complete: {match[0]}" if match else ""


def _refusal(response: Response, where: str) -> ServerRefusal:
    """Return the error of an error response, with the server's text."""
    return ServerRefusal(response.status, Verdict.read(response.body).text, where)


_CAUSES: Final = (
    ("WEIGHT_SYNCING", RefusedKind.SYNCING),
    ("syncing weights", RefusedKind.SYNCING),
    ("ROLLING_POST", RefusedKind.POST_ROLLING),
    ("post-rolling phase", RefusedKind.POST_ROLLING),
    ("No available episodes", RefusedKind.NONE_AVAILABLE),
    ("Engine not ready", RefusedKind.NOT_ROLLING),
    ("ENGINE.", RefusedKind.NOT_ROLLING),
)
"""Part of a claim's `fail_cause` -> kind, in the wordings of several versions; the first counts."""


def refused(cause: str) -> ClaimRefused:
    """Classify a claim's `fail_cause`."""
    kinds = (kind for text, kind in _CAUSES if text in cause)
    return ClaimRefused(next(kinds, RefusedKind.OTHER), cause)


_UNKNOWN_OUTCOME: Final = frozenset({502, 504, 520, 524})
"""Statuses of a gateway for a request whose outcome is unknown; the last two are Cloudflare's."""


def abort_kind(response: Response) -> AbortKind:
    """Return the outcome of an `abort_episode` with a response."""
    if response.status == 200 and Verdict.read(response.body).success:
        return AbortKind.CONFIRMED
    if response.status in _UNKNOWN_OUTCOME:
        return AbortKind.UNKNOWN_OUTCOME
    return AbortKind.REFUSED


def end_outcome(response: Response) -> EndOutcome:
    """Return the outcome of an `end_episode` with a response (section 4.3)."""
    reply = Verdict.read(response.body)
    text, bad = reply.text, response.status == 400
    if response.status == 200:
        return EndOutcome(EndKind.ENDED if reply.success else EndKind.ERROR, text)
    kind = EndKind.ERROR
    if response.status in _UNKNOWN_OUTCOME:
        kind = EndKind.UNKNOWN_OUTCOME
    elif "different client" in text:
        kind = EndKind.OTHER_CLIENT
    elif bad and "not in rolling state" in text:
        kind = EndKind.SYNCING if "WEIGHT_SYNCING" in text else EndKind.NOT_ROLLING
    elif bad and "not in claimed status" in text:
        kind = EndKind.NOT_CLAIMED
    elif bad and "not found" in text:
        kind = EndKind.NOT_FOUND
    return EndOutcome(kind, text or f"HTTP {response.status}")
