"""What clients do with episodes: claim, call, end, abort (protocol sections 4 and 5)."""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn

from core.errors import AjetError
from engine.chat import ChatRequest, Key, answer_limit, make_key, response, sampling
from engine.lifecycle import ROLLING, Engine, Refused, Status
from engine.policy import Completion, PolicyBackend, Prompt, SamplingParams
from engine.pool import Episode, EpisodeType

log = logging.getLogger(__name__)

CLIENT_LEFT = 499
"""Status of an answer nobody waits for; never seen by a client."""

_ADVICE = {
    Status.OFFLINE: "Sync a training config and start the engine first.",
    Status.BOOTING: "Engine is booting. Try again in a moment.",
    Status.ROLLING_POST: "Engine is in post-rolling phase. Try again in a moment.",
    Status.WEIGHT_SYNCING: "Engine is syncing weights. Try again in a moment.",
}


class Episodes:
    """The clients' side of an engine."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def claim(self, client: str, kind: EpisodeType, timeout: float, task_id: str) -> Episode | str:
        """Hand out an episode, or say why not in words clients match.

        Args:
            client: The client's uuid.
            kind: Train or eval.
            timeout: Seconds without a call after which the episode is taken back.
            task_id: Of the throttle policy; empty without one.
        """
        engine = self.engine
        if engine.status is not Status.ROLLING:
            return f"Engine not ready. Current status: [{engine.status}]. {_ADVICE[engine.status]}"
        episode = engine.pool.claim(client, kind, timeout, task_id)
        if episode is None:
            return "No available episodes to claim. Try again in a moment."
        engine.clients.refresh(client)
        return episode

    def end(
        self, client: str, name: str, task_id: str, reward: object, named: object, *, declare: bool
    ) -> None:
        """Take an episode's outcome.

        Raises:
            Refused: the engine is not rolling, the record is not this client's, or the outcome
                cannot be trained on; the episode stays as it was.
        """
        engine = self.engine
        if engine.status not in ROLLING:
            raise Refused(
                400,
                f"Engine is not in rolling state. Current status: [{engine.status}]. "
                f"Episode {name} is dropped.",
            )
        if not task_id or named != task_id:
            raise Refused(
                400,
                "workflow_output.metadata.task_id: must be there and equal to task_id "
                f"({task_id!r}), found {named!r:.200}",
            )
        episode = self._owned(client, name)
        if episode.type == "eval":
            if reward is not None:
                _checked(reward)
            engine.give_back(name)
        else:
            self._end_train(episode, task_id, _checked(reward))
            if declare:
                engine.clients.declare(client)
        engine.advance()

    def abort(self, client: str, name: str, *, declare: bool) -> None:
        """Give an episode back unused. One that is gone, or held by nobody, is no error.

        Raises:
            Refused: 404, another client holds it.
        """
        engine = self.engine
        episode = engine.pool.find(name)
        if episode is None or episode.status != "claimed" or engine.status not in ROLLING:
            return
        self._owned(client, name)
        engine.give_back(name)
        if declare:
            engine.clients.declare(client)
        engine.advance()

    def can_continue(self, client: str, name: str) -> bool:
        """Whether an end would still be taken."""
        episode = self.engine.pool.find(name)
        return (
            self.engine.status in ROLLING
            and episode is not None
            and episode.status == "claimed"
            and episode.client == client
        )

    def agree(self, client: str) -> str:
        """Record that a client wants the sync; empty, or why that had no effect.

        Raises:
            Refused: 400, the running job does not ask for agreement.
        """
        engine = self.engine
        method = engine.counters().get("sample_collection_method", "")
        if not method.endswith("agree_sync_weight"):
            raise Refused(400, f"The sample collection method {method!r} asks for no agreement")
        if not engine.clients.agree(client):
            return f"Client {client} is not active: it has ended no episode since the last sync"
        engine.advance()
        return ""

    def episode_status(self, episode: Episode) -> dict[str, Any]:
        """A record as the wire has it."""
        idle = self.engine.clock() - episode.active_at
        return {
            "episode_uuid": episode.uuid,
            "episode_status": episode.status,
            "episode_type": episode.type,
            "openai_base_url": self.engine.base_url,
            "openai_api_key": make_key(episode.uuid, episode.address),
            "client_uuid": episode.client,
            "zmq_listen_result_addr": "",
            "latest_activity_timestamp": time.time() - idle,
            "discard_episode_timeout": episode.timeout,
            "llm_call_count": episode.call_count,
            "debug_log": [],
            "optional_task_id": episode.task_id,
        }

    def pool_information(self) -> dict[str, Any]:
        """Section 6 of the protocol."""
        engine = self.engine
        running = {
            episode.uuid: {
                "episode_status": episode.status,
                "time_since_last_activity": f"{self._idle(episode):.1f}s",
                "discard_episode_timeout": f"{episode.timeout:.1f}s",
                "llm_call_count": str(episode.call_count),
                "client_uuid": episode.client,
                "optional_task_id": episode.task_id,
            }
            for episode in engine.pool.claimed
        }
        clients = {
            name: [episode.client for episode in group if episode.throttled]
            for name, group in engine.pool.finished.items()
            if any(episode.throttled for episode in group)
        }
        return {
            **engine.counters(),
            "completed_tasks_client_uuids": clients,
            "running_episode_details": running or None,
            "engine_status": engine.status,
            "global_step": engine.global_step,
            "booting_start_time": engine.booting_since,
            "training_model_path": engine.backend.facts["policy"],
            "swarm_client_instruction": {"active_clients": engine.clients.as_json()},
        }

    async def chat(
        self,
        key: Key,
        request: ChatRequest,
        raw: dict[str, Any],
        gone: Callable[[], Coroutine[Any, Any, None]],
    ) -> dict[str, Any]:
        """Answer one call of an episode.

        Args:
            key: The episode's key.
            request: The call.
            raw: The call as it came, for `replay_latest_llm_call`.
            gone: Waits until the client has left; the answer is then not drawn to its end.

        Raises:
            Refused: 401 not this episode's key, 404 the episode or the engine moved on, 400 the
                conversation cannot be rendered, 500 the policy failed.
        """
        episode, policy = self._callable(key)
        prompt, params = self._prepare(episode, policy, request)
        engine, turn = self.engine, episode.turn
        episode.call_count += 1
        engine.clients.refresh(episode.client)
        call = engine.tasks.spawn(_draw(policy, prompt, params), f"call {episode.uuid}")
        leaving = engine.tasks.spawn(gone(), f"caller {episode.uuid}")
        episode.calls.add(call)
        try:
            await asyncio.wait({call, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            finished = call.done()
            leaving.cancel()
            call.cancel()
            episode.calls.discard(call)
            if episode.turn == turn:
                episode.active_at = engine.clock()
        if episode.turn != turn or (finished and call.cancelled()):
            self._lost(key.episode_uuid)
        if not finished:
            raise Refused(CLIENT_LEFT, "The client left.")
        drawn = call.result()
        if isinstance(drawn, Exception):
            engine.verbose.add("chat", f"sampling failed: {drawn!r}", logging.ERROR)
            raise Refused(500, f"The policy failed to answer: {drawn!r}")
        episode.completions.append(drawn)
        answer = response(drawn, policy.name)
        engine.latest_call = {"input": raw, "output": answer}
        return answer

    def _end_train(self, episode: Episode, task_id: str, reward: float) -> None:
        pool = self.engine.pool
        if episode.completions:
            pool.finish(episode, task_id, reward)
            return
        pool.drop(episode)
        self.engine.verbose.add(
            "pool",
            f"episode {episode.uuid} of task {task_id!r} was ended without an LLM call: "
            "it is not counted",
            logging.WARNING,
        )

    def _owned(self, client: str, name: str) -> Episode:
        episode = self.engine.pool.find(name)
        if episode is None:
            raise Refused(400, f"Episode {name} not found.")
        if episode.status != "claimed":
            raise Refused(400, f"Episode {name} is not in claimed status, it is {episode.status}.")
        if episode.client != client:
            raise Refused(404, f"Episode {name} is claimed by different client {episode.client}.")
        return episode

    def _callable(self, key: Key) -> tuple[Episode, PolicyBackend]:
        policy = self.engine.backend.policy
        episode = self.engine.pool.find(key.episode_uuid)
        if self.engine.status not in ROLLING or policy is None or episode is None:
            self._lost(key.episode_uuid)
        if not key.opens(episode.address):
            raise Refused(401, "Invalid authorization data")
        if episode.status != "claimed":
            self._lost(key.episode_uuid)
        return episode, policy

    def _lost(self, name: str) -> NoReturn:
        engine = self.engine
        if engine.status not in ROLLING:
            raise Refused(
                404,
                f"The server is not in {Status.ROLLING} status. Current status: [{engine.status}].",
            )
        if engine.pool.find(name) is None:
            raise Refused(404, f"Episode {name} not found.")
        raise Refused(404, f"Episode {name} is not claimed any more.")

    def _prepare(
        self, episode: Episode, policy: PolicyBackend, request: ChatRequest
    ) -> tuple[Prompt, SamplingParams]:
        job = self.engine.require_job()
        limit = answer_limit(job, policy.context, request)
        try:
            prompt = policy.render(request.conversation(), request.offered_tools(), limit)
        except (ValueError, TypeError, AjetError) as error:
            raise Refused(400, f"messages: cannot be rendered: {error}") from error
        return prompt, sampling(request, job, episode.type, limit)

    def _idle(self, episode: Episode) -> float:
        return 0.0 if episode.calls else self.engine.clock() - episode.active_at


async def _draw(
    policy: PolicyBackend, prompt: Prompt, params: SamplingParams
) -> Completion | Exception:
    try:
        return await policy.sample(prompt, params)
    except Exception as error:  # a backend's fault is one failed call, told to its caller
        log.error("sampling", exc_info=error)
        return error


def _checked(reward: object) -> float:
    """A reward that can be trained on: one finite number."""
    if isinstance(reward, bool) or not isinstance(reward, (int, float)):
        kind = "null" if reward is None else type(reward).__name__
        raise Refused(400, f"workflow_output.reward: must be one number, found {kind}")
    try:
        number = float(reward)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise Refused(400, f"workflow_output.reward: must be finite, found {number}")
    return number
